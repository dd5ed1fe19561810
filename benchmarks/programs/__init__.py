"""The measured programs. Each runs in an interpreter of its own and prints its samples as JSON."""

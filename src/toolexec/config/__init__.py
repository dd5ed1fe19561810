"""One file, the environment and flags, and what comes of them."""

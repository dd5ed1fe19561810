"""A sandbox that is none: code runs as a child process of the host, with limits and without isolation."""

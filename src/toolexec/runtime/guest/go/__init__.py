"""The guest for Go: files that are compiled together with a program."""

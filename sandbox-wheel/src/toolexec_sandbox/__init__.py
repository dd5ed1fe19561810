"""The machine's code of toolexec's embedded sandbox, in a file that toolexec reads; there is nothing to import."""

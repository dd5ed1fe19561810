"""The command line: `toolexec search`, `describe`, `run`, `chain`, `list`, `backends`, `demo`.

It only translates: words into calls of an `Exec`, and answers into tables or JSON. Nothing here is imported by the
rest of the package.
"""

"""The tools that the clients of the tests find behind a server."""

import os

from toolexec import tool


@tool(namespace="math")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("a tool may print whatever it likes")
    os.system("echo so may its children")
    return a + b


@tool(namespace="math")
def double(previous: int) -> int:
    """Double the value before."""
    return 2 * previous


@tool(namespace="files", destructive=True, read_only=False)
def erase(path: str) -> str:
    """Erase a file (it only says so)."""
    return f"erased {path}"

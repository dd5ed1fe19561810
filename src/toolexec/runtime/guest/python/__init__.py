"""The guest for Python: runs programs inside of a sandbox and gives them `tools`.

Standard library only, and nothing newer than Python 3.9: it runs in the Python of whatever sandbox it is put into.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "start":  # not before: the host imports `protocol` from here, and no guest with it
        from .main import start

        return start
    raise AttributeError(name)

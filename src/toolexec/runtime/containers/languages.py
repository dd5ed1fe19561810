"""What guests in containers need besides the program, by language."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from toolexec.runtime.base import ExecuteRequest
from toolexec.runtime.guest import go
from toolexec.runtime.guest.go.program import program_file

__all__ = ["extra_for"]


def extra_for(language: str, request: ExecuteRequest) -> Mapping[str, Any]:
    """Return what the guest for *language* receives of a request besides what every guest receives.

    A Go program is made compilable here, where its author's line numbers are kept, and compiled in the sandbox.
    """
    if language != "go":
        return {}
    return {"program": program_file(request.code), "tools": _go_tools()}


@cache
def _go_tools() -> str:
    return (Path(go.__file__).parent / "tools.go").read_text("utf-8")

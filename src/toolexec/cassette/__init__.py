"""Cassettes: the calls of a session in one file, to make the session again without any backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.cassette.cassette import Cassette
    from toolexec.cassette.modes import CassetteMode
    from toolexec.cassette.records import CassetteCall, CassetteTool
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.cassette.cassette": ("Cassette",),
            "toolexec.cassette.modes": ("CassetteMode",),
            "toolexec.cassette.records": ("CassetteCall", "CassetteTool"),
        },
    )

__all__ = ["Cassette", "CassetteCall", "CassetteMode", "CassetteTool"]

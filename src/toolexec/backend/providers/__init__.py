"""Tools of APIs, programs and Python modules: what is read from a definition, such as an OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.backend.providers.backend import SourceBackend
    from toolexec.backend.providers.source import Definition, ProvidedTool, Source
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.backend.providers.backend": ("SourceBackend",),
            "toolexec.backend.providers.source": ("Definition", "ProvidedTool", "Source"),
        },
    )

__all__ = ["Definition", "ProvidedTool", "Source", "SourceBackend"]

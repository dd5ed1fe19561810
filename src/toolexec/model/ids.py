"""Tool IDs: `name`, `namespace:name` or `namespace:name:version`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from toolexec.errors import InvalidToolIDError

MAX_NAME_LENGTH = 128
"""The most characters that a namespace, a name or a version may have."""

_SEGMENT = re.compile(r"[A-Za-z0-9_.\-]{1,128}", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9_.+\-]{1,128}", re.ASCII)
_FOREIGN = re.compile(r"[^A-Za-z0-9_.\-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ToolID:
    """The three parts of a tool ID; `str()` joins them again.

    >>> ToolID.parse("git:log:1.2.0")
    ToolID(name='log', namespace='git', version='1.2.0')
    """

    name: str
    namespace: str = ""
    version: str = ""

    @classmethod
    def parse(cls, text: str) -> ToolID:
        """Split *text*; raises InvalidToolIDError naming the part that is wrong."""
        parts = text.split(":") if isinstance(text, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if parts is None or not 1 <= len(parts) <= 3:
            raise InvalidToolIDError(
                f"{_quote(text)} is not a tool ID; write name, namespace:name or namespace:name:version",
                op="validate_tool_id",
                tool_id=str(text)[:200],
            )
        namespace = parts[0] if len(parts) > 1 else ""
        name = parts[1] if len(parts) > 1 else parts[0]
        version = parts[2] if len(parts) > 2 else ""
        labels = (("namespace", namespace), ("name", name), ("version", version))[len(parts) == 1 :][: len(parts)]
        if len(parts) == 1:
            labels = (("name", name),)
        for label, segment in labels:
            problem = check_segment(segment, version=label == "version")
            if problem:
                raise InvalidToolIDError(
                    f"{_quote(text)} is not a tool ID: its {label} {problem}", op="validate_tool_id", tool_id=text[:200]
                )
        return cls(name, namespace, version)

    def __str__(self) -> str:
        return joined(self.name, self.namespace, self.version)


def joined(name: str, namespace: str, version: str) -> str:
    """Return the ID of these parts, which are legal."""
    if not namespace:
        return name
    return f"{namespace}:{name}:{version}" if version else f"{namespace}:{name}"


def check_segment(segment: str, *, version: bool = False) -> str | None:
    """Return what is wrong with one part of an ID, or None. Versions may also contain `+`."""
    if not segment:
        return "is empty"
    if len(segment) > MAX_NAME_LENGTH:
        return f"has {len(segment)} characters; {MAX_NAME_LENGTH} is the most"
    if (_VERSION if version else _SEGMENT).fullmatch(segment):
        return None
    allowed = "letters, digits and _ . - +" if version else "letters, digits and _ . -"
    foreign = list(dict.fromkeys(c for c in segment if not (_VERSION if version else _SEGMENT).fullmatch(c)))
    return f"contains {' '.join(map(repr, foreign[:10]))}; allowed are {allowed}"


def clean_segment(text: str) -> str:
    """Return the nearest legal ID part for a foreign name: `@scope/server` gives `scope-server`; may be empty."""
    return _FOREIGN.sub("-", text).strip("-")[:MAX_NAME_LENGTH]


def without_version(tool_id: str) -> str:
    """Return the ID without its version: `git:log` of `git:log:1.2.0`, which may be any text; raises nothing."""
    return ":".join(tool_id.split(":", 2)[:2])


def _quote(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 200 else f"{shown[:197]}..."

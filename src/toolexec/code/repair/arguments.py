"""Arguments that do not fit their tool, as what to write in their place."""

from __future__ import annotations

import re
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.source import calls_of, instead, split

__all__ = ["about_arguments"]

_REFUSED: Final = re.compile(r"(?:InputValidationError|ToolError): arguments of (\S+) are not valid: ")
_UNKNOWN: Final = re.compile(r"'(\w+)' is not a known name(?!; did you mean)")
_MISSING: Final = re.compile(r'"(\w+)" is a required property')
_TYPE: Final = re.compile(r'/(\w+): (".*?"|[\w.+-]+) is not of type "(integer|number|string|boolean)"')
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")


def about_arguments(failure: Failure) -> str:
    """Return what to write instead; "" where nothing certain can be said."""
    refused = _REFUSED.match(failure.message)
    if refused is None:
        return ""
    unknown, missing = _UNKNOWN.findall(failure.message), _MISSING.findall(failure.message)
    if len(unknown) == 1 and len(missing) == 1:
        return _renamed(unknown[0], missing[0], failure)
    if unknown and not missing:
        return _left_out(unknown[0], refused[1], failure)
    if found := _TYPE.search(failure.message):
        return _converted(found[1], found[2], found[3], failure)
    return ""


def _renamed(old: str, new: str, failure: Failure) -> str:
    found = re.search(rf"(?<![\w.])(['\"]?){old}\1\s*(?:=(?!=)|:)", failure.code)
    return instead(found[0], found[0].replace(old, new)) if found is not None else ""


def _left_out(name: str, tool_id: str, failure: Failure) -> str:
    short = re.sub(r"\W", "_", tool_id.rpartition(":")[2])
    called = re.search(rf"(?<![\w.])((?:\w+\.)*{re.escape(short)})\(", failure.code)
    for _, inner in calls_of(called[1], failure.code) if called is not None else ():
        parts = split(inner.strip().removeprefix("{").removesuffix("}") if inner.startswith("{") else inner)
        for part in parts:
            if re.match(rf"['\"]?{name}\b", part):
                forms = (f", {part}", f"{part}, ", part)
                text = next((each for each in forms if each in failure.code), "")
                return f"leave `{text}` out" if text else ""
    return ""


def _converted(name: str, value: str, kind: str, failure: Failure) -> str:
    plain = value.strip('"')
    if kind in ("integer", "number") and _NUMBER.fullmatch(plain):
        new = plain
    elif kind == "string" and _NUMBER.fullmatch(value):
        new = f'"{value}"'
    elif kind == "boolean" and plain.lower() in ("true", "false"):
        new = plain.capitalize() if failure.language == "python" else plain.lower()
    else:
        return ""
    written = rf"['\"]{re.escape(plain)}['\"]" if value.startswith('"') else re.escape(value)
    found = re.search(rf"(?<![\w.])(['\"]?{name}['\"]?\s*[=:]\s*){written}", failure.code)
    return instead(found[0], f"{found[1]}{new}") if found is not None else ""

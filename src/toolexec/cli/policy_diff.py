"""A configuration with more rules in its policy, as a diff that a person reads and `patch` applies."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from toolexec.model.json_value import JSONDict

_TABLE: Final = re.compile(r"(?m)^[ \t]*\[policy\][ \t]*(#.*)?$")
_RULE: Final = re.compile(r"(?m)^[ \t]*\[\[policy\.rules\]\]")
_NEXT: Final = re.compile(r"(?m)^[ \t]*\[")
_DEFAULT: Final = re.compile(r"(?m)^[ \t]*default[ \t]*=.*$")
_DENY: Final = 'default = "deny"'


def policy_diff(files: Sequence[Path], rules: Sequence[tuple[JSONDict, int]]) -> str:
    """Return the unified diff that adds *rules*, each with its number of calls, to the policy of the first TOML file of
    *files*, and has the rest denied.

    Where there is no such file, or its policy is written in a form that cannot be added to, it is a `[policy]` of the
    new rules alone, to be put in by hand. Raises OSError when a file cannot be read.
    """
    file = next((each for each in files if each.suffix.lower() == ".toml"), None)
    if file is not None:
        before = file.read_text(encoding="utf-8-sig")
        after = _with_rules(before, rules)
        if _is_right(before, after, rules):
            lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
            return "".join(difflib.unified_diff(*lines, str(file), str(file)))
    where = f"# For the policy of {files[0]}:\n" if files else "# For toolexec.toml:\n"
    return f"{where}[policy]\n{_DENY}\n{_written(rules)}"


def _with_rules(text: str, rules: Sequence[tuple[JSONDict, int]]) -> str:
    text = text if not text or text.endswith("\n") else f"{text}\n"
    table, first = _TABLE.search(text), _RULE.search(text)
    if table is not None:
        end = following.start() if (following := _NEXT.search(text, table.end())) else len(text)
        section = text[table.end() : end]
        changed = _DEFAULT.sub(_DENY, section, 1) if _DEFAULT.search(section) else f"\n{_DENY}{section}"
        text = text[: table.end()] + changed + text[end:]
    else:
        at = first.start() if first is not None else len(text)
        gap = "\n" if first is not None or not text else ""
        text = f"{text[:at]}{'' if first or not text else chr(10)}[policy]\n{_DENY}\n{gap}{text[at:]}"
    return f"{text.rstrip(chr(10))}\n{_written(rules)}"


def _written(rules: Sequence[tuple[JSONDict, int]]) -> str:
    parts: list[str] = []
    for rule, count in rules:
        lines = [f"{key} = {_toml(value)}" for key, value in rule.items()]
        calls = "1 call" if count == 1 else f"{count} calls"
        parts.append("\n".join(["", f"# {calls}", "[[policy.rules]]", *lines, ""]))
    return "".join(parts)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_toml(str(key))} = {_toml(each)}" for key, each in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(value: str) -> str:
    """Return a TOML string; what has no printed form is escaped, so that a person sees what is there."""
    return '"' + "".join(map(_character, value)) + '"'


def _character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    code = ord(character)
    if character.isprintable():
        return character
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_right(before: str, after: str, rules: Sequence[tuple[JSONDict, int]]) -> bool:
    """Return whether *after* says the same but for the rules and the default."""
    try:
        old, new = tomllib.loads(before), tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        return False
    policy = old.get("policy", {})
    wanted = {**policy, "default": "deny", "rules": [*policy.get("rules", []), *(dict(rule) for rule, _ in rules)]}
    return new == {**old, "policy": wanted}

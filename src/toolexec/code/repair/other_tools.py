"""A tool that is not there, as the one of its namespace that does what its name says."""

from __future__ import annotations

import re
from typing import Final

from toolexec.code.names import python_name
from toolexec.code.repair.bare_names import catalogue_of
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.near_keys import singular, words_of
from toolexec.code.repair.source import calls_of, instead, split
from toolexec.code.tools import Tools

_NAMED: Final = re.compile(r"(['\"]?)(\w+)\1\s*(?:=(?!=)|:|$)")
_MOST: Final = 500


def about_other_tool(path: str, failure: Failure, tools: Tools) -> str:
    """Return what to write for a tool that is not there: the only one of its namespace that reads, whose name has the
    same verb, which is described by all else of the name, and takes what is given; "" without one."""
    space, _, name = path.replace(":", ".").rpartition(".")
    written = f"tools.{space}.{name}"
    same = [each for each in catalogue_of(tools.index).tools.get(name, ()) if tools.allows(each)]
    if len(same) == 1 and written in failure.code:
        return instead(written, f"tools.{_namespace_of(same[0])}.{name}")
    calls = [inner for _, inner in calls_of(written, failure.code)]
    verb, *nouns = [singular(each) for each in words_of(name)] or [""]
    if not calls or not nouns:
        return ""
    group = [each for paths in catalogue_of(tools.index).tools.values() for each in paths]
    near = [each for each in dict.fromkeys(group) if _namespace_of(each) == space][:_MOST]
    found = [each for each in near if all(_takes(each, verb, nouns, inner, tools) for inner in calls)]
    if len(found) != 1:
        return ""
    return instead(written, f"tools.{space}.{python_name(found[0].rpartition(':')[2])}")


def _namespace_of(path: str) -> str:
    return ".".join(map(python_name, path.split(":")[:-1]))


def _takes(path: str, verb: str, nouns: list[str], inner: str, tools: Tools) -> bool:
    entry = tools.index.find(path) if tools.allows(path) else None
    if entry is None or not entry.tool.annotations.read_only:
        return False
    schema = entry.tool.input_schema.to_json()
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required", []) if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not isinstance(required, list):
        return False
    name = path.rpartition(":")[2]
    said = {singular(each) for each in words_of(f"{name} {entry.tool.description}")}
    if [singular(each) for each in words_of(name)][:1] != [verb] or not {*nouns} <= said:
        return False
    parts = split(inner.strip().removeprefix("{").removesuffix("}") if inner.startswith("{") else inner)
    named = [found[2] for each in parts if "=" in each or inner.startswith("{") if (found := _NAMED.match(each))]
    if len(named) == len(parts):
        return {*map(str, required)} <= {*named} <= {*properties}
    return not named and len(parts) == len(required)

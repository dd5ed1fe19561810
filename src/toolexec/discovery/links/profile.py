"""What one tool gives and takes: its results' values and its arguments, each with the keys under which they meet.

A key is `entity/field` (`issue/id`), `entity/` for a value that is just called `issue`, `/field` for a field that means
something by itself (`/email`), or `entity/*` for a tool that by its name gives such things, at an unknown place in its
result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from toolexec.discovery.links.leaves import Argument, Leaf, arguments_of, leaves_of
from toolexec.discovery.links.names import (
    Name,
    ToolName,
    entities_of,
    hint_of,
    noun_of,
    parse_name,
    parse_tool_name,
)
from toolexec.discovery.links.vocabulary import CONTENT, OWNERS, PORTABLE
from toolexec.model.json_value import JSONValue
from toolexec.model.tool import Tool

_BY_VERB: Final = {"list": 1.0, "get": 0.9, "": 0.8, "make": 0.6, "change": 0.35}
_UNKNOWN_PLACE: Final = 0.45
_OPAQUE_BY_VERB: Final = {"list": 1.0, "get": 0.9, "make": 0.75}
_ELSEWHERE: Final = 0.85
_PER_LEVEL: Final = 0.02
_TEXT_ORDER: Final = {"id": 0.75, "key": 0.74, "slug": 0.7, "name": 0.68, "username": 0.7, "email": 0.4, "code": 0.6,
                      "path": 0.6, "sha": 0.6}  # fmt: skip
_NUMBER_ORDER: Final = {"id": 0.78, "number": 0.78}
_DATES: Final = frozenset({"date", "date-time", "time", "duration"})
_SCALARS: Final = frozenset({"string", "integer", "number"})
_ABOUT_PEOPLE: Final = frozenset({"name", "email", "phone", "fullname"})
_MAX_KEYS: Final = 24


@dataclass(frozen=True, slots=True)
class Output:
    """A value in a tool's result. `path` is None where the place is unknown, `factor` how good a source the tool is
    for it (1 is best), `many` whether there may be several."""

    tool_id: str
    path: str | None
    kind: str
    format: str
    pattern: str
    factor: float


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of a tool. `wanted` are the keys of the values that fit, each with how well (1 is best).

    Arguments of several tools with the same `slot` mean the same thing; empty: it is unknown.
    """

    argument: Argument
    wanted: tuple[tuple[str, float], ...]
    format: str
    pattern: str
    slot: str

    @property
    def name(self) -> str:
        """The argument's name, with dots for those inside of objects."""
        return self.argument.name


def outputs_of(tool: Tool) -> dict[str, Output]:
    """Return what the tool gives, by key; of several values with one key, the best."""
    about = parse_tool_name(tool.namespace, tool.name)
    if about.verb == "delete" or tool.annotations.destructive is True:
        return {}
    by_verb = _BY_VERB[about.verb]
    if tool.annotations.read_only and about.verb != "list":
        by_verb = 0.9
    found: dict[str, Output] = {}
    schema_text = tool.output_schema.text if tool.output_schema is not None else ""
    leaves = leaves_of(schema_text) if schema_text else []
    for leaf in leaves:
        keys = _keys_of_leaf(leaf, about.noun)
        for key, sure in keys:
            factor = by_verb * sure
            known = found.get(key)
            if known is None or known.factor < factor:
                found[key] = Output(tool.id, leaf.path, leaf.kind, leaf.format, leaf.pattern, factor)
    silent = not any(map(_is_telling, leaves)) and (bool(leaves) or '"properties"' not in schema_text)
    if silent and about.noun and about.verb in _OPAQUE_BY_VERB:
        unknown = Output(tool.id, None, "", "", "", _UNKNOWN_PLACE * _OPAQUE_BY_VERB[about.verb])
        for entity, _ in entities_of(about.noun):
            found.setdefault(f"{entity}/*", unknown)
    return found


def inputs_of(tool: Tool) -> list[Input]:
    """Return what the tool takes, required arguments first."""
    about = parse_tool_name(tool.namespace, tool.name)
    return [_input(argument, about) for argument in arguments_of(tool.input_schema.text)]


def input_called(name: str) -> Input:
    """Return an argument of which only the name is known."""
    return _input(Argument((name,), True, {}), ToolName("", ""))


def _is_telling(leaf: Leaf) -> bool:
    """Return whether there is more to a result than a text without structure."""
    return bool(leaf.containers) or bool(leaf.name and noun_of(leaf.name)) or leaf.kind != "string"


def _keys_of_leaf(leaf: Leaf, noun: str) -> tuple[tuple[str, float], ...]:
    return _keys(leaf.name, leaf.containers, leaf.hint, noun, leaf.format == "email")


@lru_cache(maxsize=16384)
def _keys(own: str, containers: tuple[str, ...], hint: str, noun: str, is_email: bool) -> tuple[tuple[str, float], ...]:
    name = parse_name(own)
    outer = next((entity for entity in map(noun_of, reversed(containers)) if entity), "")
    if not own or (not name.fields and not noun_of(own)):
        name = parse_name(noun)  # `get_user_id` gives a bare value, or `{"result": ...}`
        if not name.fields or outer:
            return ()
    level = 1.0 - _PER_LEVEL * max(len(containers) - 1, 0)
    found: dict[str, float] = {}
    fields = name.fields
    if is_email and "email" not in fields:
        fields = (*fields, "email")
        found["/email"] = level * 0.9
    for entity, sure in _owners(name, outer, hint, noun):
        for field in fields or ("",):
            found.setdefault(f"{entity}/{field}", sure * level)
    for field in fields:
        if field in PORTABLE:
            found.setdefault(f"/{field}", level * (1.0 if not outer else _ELSEWHERE))
    return tuple(found.items())


def _owners(name: Name, outer: str, hint: str, noun: str) -> Iterator[tuple[str, float]]:
    """Yield what a value with this name belongs to, each with how surely."""
    if name.entity:
        if name.fields or name.entity.rpartition(" ")[2] not in CONTENT:
            at_home = not outer and name.entity.rpartition(" ")[2] == noun.rpartition(" ")[2]
            for entity, sure in entities_of(name.entity):
                yield entity, sure if at_home else sure * _ELSEWHERE
        return
    main = noun.rpartition(" ")[2]
    if outer:
        at_home = outer.rpartition(" ")[2] == main
        for entity, sure in entities_of(outer):
            yield entity, sure if at_home else sure * _ELSEWHERE
        return
    named = noun_of(hint)
    if named:
        yield from entities_of(named)
    for entity, sure in entities_of(noun) if noun else ():
        yield entity, sure if not named or named.rpartition(" ")[2] == main else sure * _ELSEWHERE


def _input(argument: Argument, about: ToolName) -> Input:
    name = parse_name(argument.names[-1])
    node = argument.items if argument.many else argument.node
    format, pattern = _text(node.get("format")), _text(node.get("pattern"))
    fixed = any(key in part for part in (node, argument.node) for key in ("enum", "const"))
    if argument.secret or fixed or format in _DATES or (argument.kind and argument.kind not in _SCALARS):
        return Input(argument, (), format, pattern, "")
    wanted: dict[str, float] = {}
    for key, base in _wanted(name, argument, about, format):
        wanted[key] = max(wanted.get(key, 0.0), base)
    best = sorted(wanted.items(), key=lambda item: -item[1])[:_MAX_KEYS]
    slot = ""
    if best and best[0][1] >= 0.75:
        slot = f"{best[0][0]}:{argument.name}" if name.is_qualifier else best[0][0]
    return Input(argument, tuple(best), format, pattern, slot)


def _wanted(name: Name, argument: Argument, about: ToolName, format: str) -> Iterator[tuple[str, float]]:
    hint = hint_of(argument.description)
    weight = 1.0
    entity = name.entity
    if name.is_qualifier:
        entity, weight = hint.entity or about.noun, 0.8
    fields = name.fields
    if format == "email" and "email" not in fields:
        fields = (*fields, "email")
        yield "user/email", 0.75
        yield "/email", 0.75
    if format == "uri" and not fields:
        yield "/url", 0.6
    if entity and fields:
        for owner, sure in entities_of(entity):
            yield f"{owner}/", 0.6 * sure * weight
            yield f"{owner}/*", sure * weight
            for field in fields:
                yield f"{owner}/{field}", sure * weight
        for field in fields:
            if field in PORTABLE:
                yield f"/{field}", 0.7 * weight
    elif fields:
        yield from _ownerless(fields, hint.entity, about)
    elif entity and not (name.is_content or (name.is_qualifier and not hint.field)):
        yield from _fieldless(entity, argument.kind, hint.field, weight)


def _ownerless(fields: tuple[str, ...], hinted: str, about: ToolName) -> Iterator[tuple[str, float]]:
    """Yield the keys for `id`, `email` and the like, of which only the tool says whose they are."""
    for field in fields:
        content = about.verb == "make" or (about.verb == "change" and field in _ABOUT_PEOPLE)
        if hinted:
            for owner, sure in entities_of(hinted):
                yield f"{owner}/{field}", 0.9 * sure
        if field in PORTABLE:
            yield f"/{field}", 0.4 if content else 0.8
        if field in OWNERS:
            yield f"{OWNERS[field]}/{field}", 0.4 if content else 0.9
        if about.noun and not content:
            for owner, sure in entities_of(about.noun):
                yield f"{owner}/{field}", 0.9 * sure
                yield f"{owner}/*", 0.9 * sure


def _fieldless(entity: str, kind: str, hinted: str, weight: float) -> Iterator[tuple[str, float]]:
    """Yield the keys for `issue` and the like: a value of that name, or what identifies the thing among others."""
    order = _TEXT_ORDER if kind == "string" else _NUMBER_ORDER if kind in ("integer", "number") else {
        **_TEXT_ORDER, **_NUMBER_ORDER
    }  # fmt: skip
    for owner, sure in entities_of(entity):
        sure *= weight  # noqa: PLW2901
        yield f"{owner}/", 0.85 * sure
        yield f"{owner}/*", 0.85 * sure
        if hinted:
            yield f"{owner}/{hinted}", 0.95 * sure
        for field, base in order.items():
            yield f"{owner}/{field}", base * sure * (0.6 if hinted and hinted != field else 1.0)


def _text(value: JSONValue) -> str:
    return value[:500] if isinstance(value, str) else ""

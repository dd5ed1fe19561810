"""Calls of tools that are written wrongly: the tool, its namespace, an argument, a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.mutants.model import Change, Right, operator
from toolexec.code.repair.source import end_of, split

_VERBS: Final[Mapping[str, str]] = {
    "get": "fetch",
    "list": "get",
    "find": "search",
    "search": "find",
    "create": "add",
    "add": "create",
    "send": "post",
    "update": "set",
    "read": "get",
    "delete": "remove",
    "cancel": "delete",
    "estimate": "calculate",
    "convert": "exchange",
}
_ARGUMENTS: Final[Mapping[str, str]] = {
    "id": "uid",
    "query": "search",
    "city": "location",
    "limit": "max_results",
    "text": "content",
    "to": "recipient",
    "subject": "title",
    "body": "message",
    "name": "title",
    "status": "state",
    "amount": "value",
    "start": "start_date",
    "end": "end_date",
    "days": "num_days",
    "date": "day",
    "folder": "path",
    "path": "filename",
    "unit": "units",
    "units": "unit",
    "page": "page_number",
}


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a tool: where its name and what is in its brackets stand, its arguments, and its schema."""

    path: str
    start: int
    opened: int
    end: int
    parts: tuple[str, ...]
    schema: Mapping[str, Any]


def _calls(right: Right) -> Iterator[_Call]:
    schemas = {re.sub(r"[:-]", ".", each).replace("_", "").lower(): schema for each, schema in right.schemas.items()}
    for found in re.finditer(r"(?<![\w.])tools\.([\w.]+)\(", right.code):
        end, schema = end_of(right.code, found.end() - 1), schemas.get(found[1].replace("_", "").lower())
        if not end or schema is None:
            continue
        inner = right.code[found.end() : end - 1].strip()
        if right.is_python:
            parts = split(inner)
            named = all(re.match(r"\w+\s*=(?!=)", each) for each in parts)
        else:
            parts = split(inner[1:-1]) if inner.startswith("{") and inner.endswith("}") else []
            named = (bool(parts) or inner in ("", "{}")) and all(re.match(r"\w+\s*(?::|$)", each) for each in parts)
        if named:
            yield _Call(found[1], found.start(), found.end(), end - 1, tuple(parts), schema)


def _written(right: Right, call: _Call, parts: list[str], *names: str) -> Change:
    inner = ", ".join(parts)
    new = inner if right.is_python else f"{{ {inner} }}" if parts else "{}"
    return Change(call.opened, call.end, new, names)


def _arguments(right: Right) -> Iterator[tuple[_Call, int, str, str, Mapping[str, Any]]]:
    """Yield each argument of the calls: its call, its number, its name, its value as text, and its schema."""
    for call in _calls(right):
        properties = call.schema.get("properties", {})
        for number, part in enumerate(call.parts):
            name = re.match(r"\w+", part)
            if name is None:
                continue
            value = part[name.end() :].lstrip("=: ").strip() or name[0]
            schema = properties.get(name[0], {})
            target = schema.get("$ref", "").removeprefix("#/$defs/")
            yield call, number, name[0], value, call.schema.get("$defs", {}).get(target, schema)


def _replaced(right: Right, call: _Call, number: int, name: str, value: str, *names: str) -> Change:
    part = f"{name}={value}" if right.is_python else f"{name}: {value}"
    return _written(right, call, [*call.parts[:number], part, *call.parts[number + 1 :]], *names)


def _kind(schema: Mapping[str, Any]) -> str:
    ways = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return str(ways[0].get("type", "")) if len(ways) == 1 else ""


@operator()
def argument_by_synonym(right: Right) -> Iterator[Change]:
    """`city` as `location`, `limit` as `max_results`."""
    for call, number, name, value, _ in _arguments(right):
        if name in _ARGUMENTS and _ARGUMENTS[name] not in call.schema["properties"]:
            yield _replaced(right, call, number, _ARGUMENTS[name], value, name)


@operator()
def argument_in_other_case(right: Right) -> Iterator[Change]:
    """`order_id` as `orderId`."""
    for call, number, name, value, _ in _arguments(right):
        new = re.sub(r"_(\w)", lambda found: found[1].upper(), name)
        yield _replaced(right, call, number, new if new != name else name.capitalize(), value, name)


@operator()
def argument_with_noun(right: Right) -> Iterator[Change]:
    """`id` as `order_id`, `order_id` as `id`."""
    for call, number, name, value, _ in _arguments(right):
        noun = call.path.split("_")[-1].split(".")[-1].rstrip("s")
        new = name.rpartition("_")[2] if "_" in name else f"{noun}_{name}"
        if new not in call.schema["properties"]:
            yield _replaced(right, call, number, new, value, name)


@operator()
def argument_of_other_number(right: Right) -> Iterator[Change]:
    """`tags` as `tag`, `city` as `citys`."""
    for call, number, name, value, _ in _arguments(right):
        yield _replaced(right, call, number, name[:-1] if name.endswith("s") else f"{name}s", value, name)


@operator()
def argument_by_any_other_name(right: Right) -> Iterator[Change]:
    """An argument is called what no API calls it."""
    for call, number, name, value, _ in _arguments(right):
        if name in call.schema.get("required", ()):
            yield _replaced(right, call, number, "target_value", value, name)


@operator()
def argument_left_out(right: Right) -> Iterator[Change]:
    """An argument that is required is not given."""
    for call, number, name, _, _ in _arguments(right):
        if name in call.schema.get("required", ()):
            yield _written(right, call, [*call.parts[:number], *call.parts[number + 1 :]], name)


@operator()
def argument_added(right: Right) -> Iterator[Change]:
    """An argument that the tool has not is given, too."""
    for call in _calls(right):
        new, part = ("verbose", "verbose=True" if right.is_python else "verbose: true")
        if new not in call.schema.get("properties", {}):
            yield _written(right, call, [*call.parts, part], "leave `verbose", f"{part}` out", "is not a known name")


@operator()
def sorting_added(right: Right) -> Iterator[Change]:
    """A way to sort that the tool has not is asked for."""
    for call in _calls(right):
        part = 'sort_by="created"' if right.is_python else 'sort_by: "created"'
        if "sort_by" not in call.schema.get("properties", {}):
            yield _written(right, call, [*call.parts, part], part, "is not a known name")


@operator()
def number_as_text(right: Right) -> Iterator[Change]:
    """A number is given as text with a mark before it."""
    for call, number, name, value, schema in _arguments(right):
        if _kind(schema) in ("integer", "number") and value.isdigit():
            yield _replaced(right, call, number, name, f'"#{value}"', name)


@operator()
def list_as_one(right: Right) -> Iterator[Change]:
    """One item is given for a list."""
    for call, number, name, value, schema in _arguments(right):
        if _kind(schema) == "array" and value.startswith("[") and len(split(value[1:-1])) == 1:
            yield _replaced(right, call, number, name, value[1:-1], f"[{value[1:-1]}]", "list", "array")


@operator()
def one_as_list(right: Right) -> Iterator[Change]:
    """A list of one is given for its item."""
    for call, number, name, value, schema in _arguments(right):
        if _kind(schema) in ("string", "integer", "number") and re.fullmatch(r"[\w.\"'-]+", value):
            yield _replaced(right, call, number, name, f"[{value}]", f"{name}={value}", f"{name}: {value}", "a list")


@operator()
def choice_unknown(right: Right) -> Iterator[Change]:
    """A value that is not among those of an argument."""
    for call, number, name, value, schema in _arguments(right):
        ways = [each for each in schema.get("anyOf", [schema]) if "enum" in each or "const" in each]
        if ways and re.fullmatch(r"(['\"])\w+\1", value):
            yield _replaced(right, call, number, name, f'"{value[1:-1]}_mode"', value[1:-1])


@operator()
def choice_in_capitals(right: Right) -> Iterator[Change]:
    """A value of an argument in capital letters."""
    for call, number, name, value, schema in _arguments(right):
        ways = [each for each in schema.get("anyOf", [schema]) if "enum" in each or "const" in each]
        if ways and re.fullmatch(r"(['\"])\w+\1", value):
            yield _replaced(right, call, number, name, value.upper(), value[1:-1])


@operator()
def object_spread(right: Right) -> Iterator[Change]:
    """What belongs into an argument that is an object is given beside it."""
    for call, number, name, value, schema in _arguments(right):
        if schema.get("properties") and value.startswith("{"):
            keys = [re.fullmatch(r"(['\"]?)(\w+)\1\s*(?::\s*(.+))?", each, re.DOTALL) for each in split(value[1:-1])]
            if all(keys):
                sign = "=" if right.is_python else ": "
                flat = [f"{each[2]}{sign}{each[3] or each[2]}" for each in keys if each is not None]
                yield _written(right, call, [*call.parts[:number], *flat, *call.parts[number + 1 :]], name)


@operator()
def object_as_text(right: Right) -> Iterator[Change]:
    """An object or a list is given as JSON."""
    for call, number, name, value, _ in _arguments(right):
        if value.startswith(("{", "[")):
            made = f"__import__('json').dumps({value})" if right.is_python else f"JSON.stringify({value})"
            yield _replaced(
                right, call, number, name, made, f"{name}={value}", f"{name}: {value}", "object", "array", "list"
            )


@operator()
def key_in_argument(right: Right) -> Iterator[Change]:
    """A key of an object that is given is called otherwise."""
    for call, number, name, value, schema in _arguments(right):
        for found in re.finditer(r"(?<=[{ ,])(['\"]?)(\w+)\1:", value):
            if found[2] in schema.get("properties", {}):
                new = f"{value[: found.start(2)]}{found[2]}_value{value[found.end(2) :]}"
                yield _replaced(right, call, number, name, new, found[2])


@operator()
def arguments_in_one(right: Right) -> Iterator[Change]:
    """The arguments are given as one object that is called `args`."""
    for call in _calls(right):
        if len(call.parts) > 1:
            pairs = [re.sub(r"^(\w+)\s*=\s*", r'"\1": ', each) for each in call.parts]
            name = "args=" if right.is_python else "args: "
            names = re.match(r"\w+", call.parts[0])
            yield _written(right, call, [f"{name}{{{', '.join(pairs)}}}"], names[0] if names is not None else "")


@operator()
def none_for_required(right: Right) -> Iterator[Change]:
    """Nothing is given for an argument that is required."""
    for call, number, name, _, schema in _arguments(right):
        if name in call.schema.get("required", ()) and _kind(schema):
            yield _replaced(right, call, number, name, "None" if right.is_python else "null", name)


def _renamed(call: _Call, space: str, name: str, *names: str) -> Change:
    return Change(call.start, call.opened - 1, f"tools.{space}.{name}" if space else f"tools.{name}", names)


def _parts(call: _Call) -> tuple[str, str]:
    space, _, name = call.path.rpartition(".")
    return space, name


@operator()
def tool_by_other_verb(right: Right) -> Iterator[Change]:
    """`get_order` as `fetch_order`."""
    for call in _calls(right):
        space, name = _parts(call)
        verb, _, rest = name.partition("_")
        if rest and verb in _VERBS:
            yield _renamed(call, space, f"{_VERBS[verb]}_{rest}", name)


@operator()
def tool_of_other_number(right: Right) -> Iterator[Change]:
    """`list_orders` as `list_order`."""
    for call in _calls(right):
        space, name = _parts(call)
        yield _renamed(call, space, name[:-1] if name.endswith("s") else f"{name}s", name)


@operator()
def tool_in_other_order(right: Right) -> Iterator[Change]:
    """`list_orders` as `orders_list`."""
    for call in _calls(right):
        space, name = _parts(call)
        verb, _, rest = name.partition("_")
        if rest:
            yield _renamed(call, space, f"{rest}_{verb}", name)


@operator()
def tool_without_verb(right: Right) -> Iterator[Change]:
    """`list_orders` as `orders`."""
    for call in _calls(right):
        space, name = _parts(call)
        rest = name.partition("_")[2]
        if rest:
            yield _renamed(call, space, rest, name)


@operator()
def tool_with_noun(right: Right) -> Iterator[Change]:
    """`send` as `send_message`, `find_titles` as `find`."""
    for call in _calls(right):
        space, name = _parts(call)
        yield _renamed(
            call, space, name.partition("_")[0] if "_" in name else f"{name}_{space.partition('.')[0]}", name
        )


@operator()
def tool_in_other_case(right: Right) -> Iterator[Change]:
    """`list_orders` as `listOrders`."""
    for call in _calls(right):
        space, name = _parts(call)
        yield _renamed(call, space, re.sub(r"_(\w)", lambda found: found[1].upper(), name), name)


@operator()
def namespace_of_other_number(right: Right) -> Iterator[Change]:
    """`shop` as `shops`."""
    for call in _calls(right):
        space, name = _parts(call)
        if space:
            yield _renamed(
                call, space[:-1] if space.endswith("s") else f"{space}s", name, f"{space}.{name}", f"{space}:{name}"
            )


@operator()
def namespace_unknown(right: Right) -> Iterator[Change]:
    """A tool of a namespace that is not there."""
    for call in _calls(right):
        space, name = _parts(call)
        if space:
            yield _renamed(call, "service", name, f"{space}.{name}", f"{space}:{name}")


@operator()
def namespace_in_name(right: Right) -> Iterator[Change]:
    """`shop.list_orders` as `shop.shop_list_orders`."""
    for call in _calls(right):
        space, name = _parts(call)
        if space:
            yield _renamed(call, space, f"{space.replace('.', '_')}_{name}", f"{space}.{name}", f"{space}:{name}")

"""Arguments that do not fit their tool, as what to write in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from toolexec.code.repair.choices import about_choice
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.given_values import about_given_values, fits
from toolexec.code.repair.near_keys import is_other_word
from toolexec.code.repair.refusals import unknown_inside
from toolexec.code.repair.signatures import signature_of
from toolexec.code.repair.source import calls_of, end_of, instead, split
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_REFUSED: Final = re.compile(r"(?:InputValidationError|ToolError): arguments of (\S+) are not valid: ")
_UNKNOWN: Final = re.compile(r"'(\w+)' is not a known name(?!; did you mean)")
_MEANT: Final = re.compile(r"is not a known name; did you mean '(\w+)'")
_MISSING: Final = re.compile(r'\(root\): "(\w+)" is a required property')
_MISSING_IN: Final = re.compile(r'/(\w+)(?:/\d+)?: "(\w+)" is a required property')
_NOT_LIST: Final = re.compile(r'/(\w+): the value is not of type "array"')
_TYPE: Final = re.compile(r'/(\w+): (".*?"|[\w.+-]+) is not of type "(integer|number|string|boolean)"')
_TEXT_FOR: Final = re.compile(r'/(\w+): ".*" is not of type "(?:object|array)"')
_CHOICE: Final = re.compile(r'/(\w+): "([^"]*)" is not one of ([^\n]*?)(?=; |$)')
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_SAME: Final = tuple(
    frozenset(group.split())
    for group in (
        "limit count k max max_count max_items max_results n num_results page_size per_page size take top top_k top_n",
        "after continuation_token cursor next next_cursor next_page_token next_token page_token starting_after",
        "keyword keywords q query question search search_term term text",
        "departure from from_address from_city from_location from_place origin source src start",
        "arrival dest destination end target to to_address to_city to_location to_place",
        "body content message text",
        "headline subject title",
        "address email email_address mail recipient to",
        "at date day on when",
        "after begin begin_date from from_date since start start_date",
        "before end end_date to_date until",
    )
)
"""Names that APIs have for one thing: an argument that is not known is the one of the tool with another of them."""


_SAME_WORDS: Final = tuple(frozenset(each for each in same if "_" not in each) for same in _SAME)


def about_arguments(failure: Failure, tools: Tools | None = None) -> str:
    """Return what to write instead; "" where nothing certain can be said."""
    refused = _REFUSED.match(failure.message)
    if refused is None:
        return ""
    advice, signature = _about_refused(refused, failure, tools), signature_of(refused[1], tools)
    if " instead of " not in advice:
        given, properties = _given(refused[1], tools), _properties_of(refused[1], tools)
        call = _call_of(refused[1], failure)
        kinds = about_given_values(call, given, properties, is_python=failure.language == "python")
        inside = next(unknown_inside(refused[1], given, failure, tools), "") if tools is not None else ""
        advice = "; ".join(each for each in (advice, kinds or inside) if each)
    return f"{signature}: {advice}" if signature and advice else signature or advice


def _about_refused(refused: re.Match[str], failure: Failure, tools: Tools | None) -> str:
    """Return what to write for the first argument that does not fit."""
    properties = _properties_of(refused[1], tools)
    meant = _MEANT.findall(failure.message)
    unknown = _UNKNOWN.findall(failure.message)
    missing = [each for each in _MISSING.findall(failure.message) if each not in meant]
    if unknown and missing and (advice := _wrapped(unknown, missing, properties, refused[1], failure)):
        return advice
    if len(unknown) == 1 and len(missing) == 1:
        return _renamed(unknown[0], missing[0], failure)
    if unknown and (advice := _by_another_name(unknown, missing, properties, refused[1], failure, tools)):
        return advice
    if unknown and not missing:
        return (
            ""
            if _may_be_another(unknown[0], refused[1], properties, tools)
            else _left_out(unknown[0], refused[1], failure)
        )
    if found := _MISSING_IN.search(failure.message):
        return _renamed_in(found[1], found[2], properties, refused[1], failure, tools)
    if found := _NOT_LIST.search(failure.message):
        return _in_list(found[1], failure)
    if found := _TEXT_FOR.search(failure.message):
        return _as_it_is(found[1], failure)
    if found := _CHOICE.search(failure.message):
        return about_choice(found[1], found[2], re.findall(r'"([^"]*)"', found[3]), failure)
    if found := _TYPE.search(failure.message):
        return _converted(found[1], found[2], found[3], failure)
    return ""


def _properties_of(tool_id: str, tools: Tools | None) -> Mapping[str, Any]:
    """Return the arguments of a tool, each with its schema; what is a reference to a part of it is followed."""
    entry = tools.index.find(tool_id) if tools is not None and tools.allows(tool_id) else None
    schema = entry.tool.input_schema.to_json() if entry is not None else None
    if not isinstance(schema, dict) or not isinstance(properties := schema.get("properties"), dict):
        return {}
    known = schema.get("$defs")
    return {name: _followed(each, known if isinstance(known, dict) else {}) for name, each in properties.items()}


def _followed(schema: JSONValue, known: Mapping[str, JSONValue]) -> JSONValue:
    target = schema.get("$ref") if isinstance(schema, dict) else None
    return known.get(target.removeprefix("#/$defs/")) if isinstance(target, str) else schema


def _inner(schema: object) -> Mapping[str, Any]:
    """Return the properties of an argument that is an object."""
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _call_of(tool_id: str, failure: Failure) -> tuple[str, str, str]:
    """Return the only call of a tool in the program: its name there, its text, and what is in its brackets."""
    short = re.sub(r"\W", "_", tool_id.rpartition(":")[2])
    names = list(dict.fromkeys(re.findall(rf"(?<![\w.])((?:\w+\.)*{re.escape(short)})\(", failure.code)))
    calls = [(name, *call) for name in names for call in calls_of(name, failure.code)]
    return calls[0] if len(calls) == 1 else ("", "", "")


def _wrapped(
    unknown: list[str], missing: list[str], properties: Mapping[str, Any], tool_id: str, failure: Failure
) -> str:
    """Advise on what belongs into an argument that is an object with these names."""
    holders = [name for name in missing if {*unknown} <= {*_inner(properties.get(name))}]
    called, old, inner = _call_of(tool_id, failure)
    if len(holders) != 1 or len(missing) != 1 or not old:
        return ""
    is_python = failure.language == "python"
    parts = split(inner if is_python else inner.strip().removeprefix("{").removesuffix("}"))
    within, beside = [], []
    for part in parts:
        found = re.match(r"(['\"]?)(\w+)\1\s*(?:=(?!=)|:|$)\s*", part)
        if found is None:
            return ""
        value = part[found.end() :] or found[2]
        (within if found[2] in unknown else beside).append(f'"{found[2]}": {value}' if is_python else part)
        if is_python and found[2] not in unknown:
            beside[-1] = part
    held = f"{{{', '.join(within)}}}" if is_python else f"{{ {', '.join(within)} }}"
    new = f"{holders[0]}={held}" if is_python else f"{holders[0]}: {held}"
    given = ", ".join([new, *beside])
    return f"`{holders[0]}` has them: {instead(old, f'{called}({given})' if is_python else f'{called}({{ {given} }})')}"


def _by_another_name(
    unknown: list[str],
    missing: list[str],
    properties: Mapping[str, Any],
    tool_id: str,
    failure: Failure,
    tools: Tools | None,
) -> str:
    """Advise on the first name for which the tool has another one that means the same."""
    given = _given(tool_id, tools)
    unset = [name for name in properties if name not in given]
    pairs = _paired(unknown, unset, missing, given, properties)
    if pairs and (said := [_renamed(old, new, failure) for old, new in pairs.items()])[0]:
        return "; ".join(each for each in said if each)
    free = missing or unset
    for name in unknown:
        meant = [other for other in free if any(name.lower() in same and other.lower() in same for same in _SAME)]
        if len(meant) == 1:
            return _renamed(name, meant[0], failure)
    return ""


def _paired(
    unknown: list[str],
    free: list[str],
    missing: list[str],
    given: Mapping[str, Any],
    properties: Mapping[str, Any],
) -> dict[str, str]:
    """Return the name that the tool has for each that it does not know: one with a word of it, and at the end the only
    one that is missing for the only one that is left, or the only one whose value is of its kind."""
    found: dict[str, str] = {}
    for name in unknown:
        words = {*re.findall(r"[a-z]+", name.lower())}
        unset = (each for each in free if each not in found.values())
        could = [each for each in unset if _could_be(given.get(name), properties.get(each))]
        own = {other: {*re.findall(r"[a-z]+", other.lower())} for other in could}
        close = [other for other, of in own.items() if words & of]
        close = close or [other for other, of in own.items() if any(words & same and of & same for same in _SAME_WORDS)]
        close = close or [other for other, of in own.items() if any(is_other_word(a, b) for a in words for b in of)]
        close = close if len(close) == 1 else [other for other in close if other in missing]
        if len(close) == 1:
            found[name] = close[0]
    left, wanted = [each for each in unknown if each not in found], [e for e in missing if e not in found.values()]
    if len(left) > 1 and len(wanted) == 1:
        left = [each for each in left if each in given and fits(given[each], properties.get(wanted[0]))]
    if len(left) == len(wanted) == 1:
        found[left[0]] = wanted[0]
    return found


def _could_be(value: JSONValue, schema: object) -> bool:
    """Return whether a value may be meant for an argument: one of an object has parts."""
    return isinstance(value, dict | list | None) or not _inner(schema) or fits(value, schema)


def _given(tool_id: str, tools: Tools | None) -> Mapping[str, Any]:
    """Return the arguments of the last call of a tool that was refused."""
    calls = [call for call in tools.tool_calls() if call.tool_id == tool_id and call.error] if tools is not None else []
    return calls[-1].args or {} if calls else {}


def _renamed(old: str, new: str, failure: Failure) -> str:
    found = re.search(rf"(?<![\w.])(['\"]?){old}\1\s*(?:=(?!=)|:)", failure.code)
    return instead(found[0], found[0].replace(old, new)) if found is not None else ""


def _renamed_in(
    holder: str, missing: str, properties: Mapping[str, Any], tool_id: str, failure: Failure, tools: Tools | None
) -> str:
    """Advise on the only key of an object that its argument does not know, for the only one that is missing."""
    schema, value = properties.get(holder), _given(tool_id, tools).get(holder)
    if isinstance(schema, Mapping) and isinstance(value, list) and value:
        schema, value = _items_of(schema, tool_id, tools), value[0]
    known = _inner(schema)
    others = [key for key in value if key not in known] if isinstance(value, Mapping) else []
    if len({*_MISSING_IN.findall(failure.message)}) > 1 or len(others) != 1:
        return ""
    written = re.findall(rf"(?<![\w.])['\"]?{re.escape(others[0])}['\"]?\s*:", failure.code)
    about = f"`{holder}` has {', '.join(known)}"
    return f"{about}: {instead(written[0], written[0].replace(others[0], missing))}" if len({*written}) == 1 else about


def _in_list(name: str, failure: Failure) -> str:
    """Advise on an object that is given for a list of such."""
    for found in re.finditer(rf"(?<![\w.])['\"]?{name}['\"]?\s*[=:]\s*(?=\{{)", failure.code):
        end = end_of(failure.code, found.end())
        old = failure.code[found.start() : end]
        return f"`{name}` is a list: {instead(old, f'{found[0]}[{failure.code[found.end() : end]}]')}" if end else ""
    return ""


def _items_of(schema: Mapping[str, Any], tool_id: str, tools: Tools | None) -> JSONValue:
    """Return the schema of the items of a list."""
    entry = tools.index.find(tool_id) if tools is not None else None
    whole = entry.tool.input_schema.to_json() if entry is not None else None
    known = whole.get("$defs") if isinstance(whole, dict) else None
    return _followed(schema.get("items"), known if isinstance(known, dict) else {})


def _as_it_is(name: str, failure: Failure) -> str:
    """Advise on an object or a list that was made text of."""
    for dump in ("json.dumps", "JSON.stringify"):
        for old, inner in calls_of(dump, failure.code):
            if (
                re.search(rf"(?<![\w.])['\"]?{name}['\"]?\s*[=:]\s*{re.escape(old)}", failure.code)
                and len(split(inner)) == 1
            ):
                return f"`{name}` is taken as it is, not as text: {instead(old, inner)}"
    return ""


def _may_be_another(name: str, tool_id: str, properties: Mapping[str, Any], tools: Tools | None) -> bool:
    """Return whether a value may be meant for an argument that is not given: without it the tool may find another."""
    given = _given(tool_id, tools)
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    free = [each for other, each in properties.items() if other not in given]
    return any(fits(value, each) and value in each.get("enum", [value]) for each in free if isinstance(each, Mapping))


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

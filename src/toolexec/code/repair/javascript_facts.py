"""What the reads of a JavaScript program that found nothing were made from, and what there is instead.

A run that reports of its reads (see `watch`) gives what reading the program cannot: the very value, whatever made it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from toolexec.code.repair.near_keys import alike, fold, part_of, path_to, words_of
from toolexec.code.repair.promises import about_promises
from toolexec.code.repair.shown import shown_keys, shown_value, whole_value
from toolexec.code.repair.source import instead
from toolexec.code.repair.tables import parts_of
from toolexec.code.repair.times import time_as_text
from toolexec.code.repair.watch import Watched
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_MOST: Final = 3
_MOST_OWN: Final = 8
_OF_ARRAYS: Final = frozenset(
    {"length", "map", "filter", "forEach", "find", "some", "every", "flatMap", "findIndex", "reduce", "slice", "sort"}
    | {"includes", "indexOf", "at", "push"}
)
_ARRAY_METHODS: Final = sorted(
    {*_OF_ARRAYS, "join", "reverse", "concat", "flat", "pop", "shift", "splice", "keys", "values", "entries", "fill"}
)
_COMPARED: Final = re.compile(r"([\w$]+(?:\??\.[\w$]+)+)\s*(?:={2,3})\s*(['\"])([^'\"\n]{1,60})\2")
_ASKED: Final = re.compile(
    r"(?P<chain>[\w$]+(?:\??\.[\w$]+)+?)\.includes\((?P<quoted>(['\"])(?P<text>[^'\"\n]{1,60})\3)\)"
)
_SOME: Final = re.compile(
    r"(?P<chain>[\w$]+(?:\??\.[\w$]+)+?)\.(?:some|find|filter|every)\(\(?(?P<item>[\w$]+)\)? *=> *(?P=item) *===?"
    r" *(?P<quoted>(['\"])(?P<text>[^'\"\n]{1,60})\4)\)"
)
_IN: Final = re.compile(r"(?:['\"`\])]|(?<!\w)(?<!\bconst )(?<!\blet )(?<!\bvar )[\w$]+) in [\w$(]")
_LOOP: Final = re.compile(r"\bfor\s*\(\s*(?:const|let|var)?\s*[\w$]+ in\b")
_READ: Final = re.compile(r"(?<=[\w$)\]])\??\.([A-Za-z_$][\w$]*)(?![\w$]|\s*\(|\s*=[^=>])")
_TAKEN: Final = re.compile(r"\{([^{}=;()]{1,200})\}\s*(?:=[^=>]|\)\s*=>|of\b)")
_OWN: Final = re.compile(r"([A-Za-z_$][\w$]*)['\"]?\s*(?:[:,}](?!:)|=[^=])|\.([A-Za-z_$][\w$]*)\s*[-+*/?|&]*=[^=]")
_MADE_OF_NOTHING: Final = re.compile(r"\b(?:undefined|NaN|null)\b|\[object \w+\]|^\d*(?:\.\d+){2,}|\d\.\d+\.")
_NAMES: Final = frozenset({"tools", "Math", "JSON", "Object", "Number", "Promise", "console", "this", "files", "env"})
_OF_NAMES: Final = re.compile(rf"(?<![\w$.])(?:{'|'.join(sorted(_NAMES))}|Array|Date|String|Symbol)(?:\.[\w$]+)+")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_OF_ALL: Final = frozenset(
    {"length", "size", "prototype", "constructor", "message", "name", "stack", "cause", "code", "index", "groups"}
)


def may_be_watched(code: str, value: JSONValue, tools: Tools, *, is_empty: bool) -> bool:
    """Return whether a program that did not fail may have read what is not there: its value says so, or its reads."""
    is_folded = isinstance(value, str) and ".reduce(" in code
    if is_empty or is_folded or _is_of_nothing(value, 0) or len(_IN.findall(code)) > len(_LOOP.findall(code)):
        return True
    results = [call.value for call in tools.tool_calls() if call.error is None and not call.is_open]
    known = {key for part in parts_of(results) if isinstance(part, dict) for key in part} | _OF_ALL
    own = {name for pair in _OWN.findall(code) for name in pair}
    return any(key not in known and key not in own for key in _READ.findall(_OF_NAMES.sub("_", code)))


def _is_of_nothing(value: JSONValue, depth: int) -> bool:
    if isinstance(value, dict | list) and depth < 4:
        inner = value.items() if isinstance(value, dict) else ((("", each)) for each in value)
        return any(_is_of_nothing(key, 9) or _is_of_nothing(each, depth + 1) for key, each in inner)
    return isinstance(value, str) and len(value) < 10_000 and _MADE_OF_NOTHING.search(value) is not None


def facts_of_failure(code: str, message: str, line: int, found: Sequence[Watched]) -> list[str]:
    """Return what is known of the reads that a failure comes from, the last of them first."""
    is_null = " of null" in message or "null" in message
    is_iterated = "not iterable" in message
    chosen: list[Watched] = []
    for each in reversed(found):
        if each.op == "null" and not (is_null and (each.line in (0, line) or not chosen)):
            continue
        if each.op == "in" or (each.op == "iterate" and not is_iterated):
            continue
        if each.op == "read" and each.kind == "array" and each.key.isdigit() and " of undefined" not in message:
            continue
        chosen.append(each)
    chosen.sort(key=lambda each: (each.line != line, -each.at))
    return _said(code, chosen)[:2]


def facts_of_value(code: str, found: Sequence[Watched], tools: Tools, *, is_empty: bool) -> list[str]:
    """Return what is known of the reads that found nothing in a program that did not fail."""
    results = [call.value for call in tools.tool_calls() if call.error is None and not call.is_open]
    objects = [part for part in parts_of(results) if isinstance(part, dict)]
    chosen = [
        each
        for each in found
        if each.op in ("text", "many", "fold", "in")
        or (each.op == "none" and is_empty)
        or (each.op == "read" and each.kind == "object" and not _may_be_absent(code, each, objects))
        or (each.op == "read" and each.kind not in ("object", "array"))
        or (each.op == "read" and each.kind == "array" and not each.key.isdigit())
    ]
    return _said(code, chosen)


def _may_be_absent(code: str, read: Watched, objects: Sequence[dict[str, JSONValue]]) -> bool:
    """Return whether the program asks whether there is the key, or an object of the same kind has it: then this one may
    well be without it."""
    own = _dict(read.value).keys()
    if re.search(rf"\.{re.escape(read.key)}\s*(?:\?\?|\|\||\?\.|[!=]==?\s*(?:undefined|null)\b)", code):
        return True
    return any(read.key in each and own & each.keys() for each in objects)


def _said(code: str, found: Sequence[Watched]) -> list[str]:
    said = [text for each in found for text in _about(code, each)]
    return list(dict.fromkeys(said))[:_MOST]


def _about(code: str, read: Watched) -> Iterator[str]:
    base = _base(code, read)
    of = f"`{base}`" if base else _origin(read)
    match read.op:
        case "null":
            named = f"`{base}.{read.key}`" if base else f"`{read.key}` of {_origin(read)}"
            yield f"{named} is null here: check it first, as with `?.`"
        case "read" if read.kind == "Promise":
            about = f"`{read.key}` is read from a promise{f', {of}' if base else ''}"
            yield f"{about}: {_awaited(code, [base]) or 'await it first'}"
        case "text" if read.kind == "Promise":
            named = re.findall(r"(?<![\w$.])[A-Za-z_$][\w$]*", _line(code, read.line))
            said = next(about_promises(code), "") or _awaited(code, named) or "await it first"
            yield f"a promise was put into text or a number: {said}"
        case "text":
            yield f"an object with {shown_keys([_dict(read.value)])} was put into text: read one of its keys"
        case "iterate":
            has = _has(read)
            made = f"`Object.values({base or '...'})` and `Object.entries` give what it has"
            yield f"{of} is {has}, and no array: {made}"
        case "in":
            yield f"`in` asks for a place in an array; `.includes({json.dumps(read.key)})` asks for an item"
        case "many":
            whole = f"Math.{read.key}("
            yield f"`{whole[:-1]}` takes numbers, and got an array: {instead(whole, f'{whole}...')}"
        case "fold":
            yield from _of_fold(read)
        case "none":
            yield from _of_none(read)
        case "read" if read.kind == "array":
            yield from _of_array(read, of)
        case "read" if read.kind == "object":
            yield _of_object(read, code, base, of)
        case "get":
            yield f"a Map has no {json.dumps(read.key)}: `.get(key)` reads it, and it has {shown_value(_firsts(read))}"
        case "read":
            yield _of_kind(read, base, code)
        case _:
            pass


def _line(code: str, line: int) -> str:
    lines = code.splitlines()
    return lines[line - 1][:1000] if 0 < line <= len(lines) else ""


def _awaited(code: str, names: Sequence[str]) -> str:
    """Return what to write where the one of these names is bound that is bound to a call; "" where not one is."""
    found = [
        bound[1]
        for name in dict.fromkeys(names)
        if name
        for bound in re.finditer(rf"\b(?:const|let|var)\s+{re.escape(name)}\s*(=\s*(?!await\b)[\w$.]+\()", code)
        if not re.match(r"=\s*(?:async|function|new)\b", bound[1])
    ]
    return instead(found[0], f"= await {found[0][1:].lstrip()}") if len(found) == 1 else ""


def _base(code: str, read: Watched) -> str:
    """Return what the key is read from, as the program has it, in the line or one of the next: QuickJS gives the place
    before a read."""
    lines = code.splitlines()
    last = r"\[" if read.key.isdigit() else rf"\??\.{re.escape(read.key)}(?![\w$])"
    chain = r"([A-Za-z_$][\w$]*(?:\??\.[\w$]+|\[[\w$'\"]+\]|\(\))*?)"
    if not re.fullmatch(r"[\w$]+", read.key) or not re.search(last, code):
        last = r"\[[\w$.]+\]"
    for at in range(max(read.line - 1, 0), min(read.line + 3, len(lines))):
        if len(lines[at]) <= 1000 and (found := re.search(chain + last, lines[at])) and found[1] not in _NAMES:
            return found[1]
    return ""


def _origin(read: Watched) -> str:
    if not read.path:
        return f"a {read.kind}"
    tool, _, rest = read.path.partition("[]")
    return f"each item of `{tool}`" if not rest and "[]" in read.path else f"`{read.path}`"


def _has(read: Watched) -> str:
    value = read.value
    if isinstance(value, dict) and (whole := whole_value(value)):
        return whole
    return f"an object with {shown_keys([_dict(value)])}"


def _of_object(read: Watched, code: str, base: str, of: str) -> str:
    value = _dict(read.value)
    key, made = read.key, f" (of {read.path})" if base and read.path else ""
    missing = f"{of}{made} has no `{key}`, it is {_has(read)}"
    near = alike(key, [*value])
    if key in _OF_ARRAYS and not near:
        lists = [name for name, part in value.items() if isinstance(part, list)]
        if len(lists) == 1:
            return f"{missing}: the array is in `{lists[0]}`"
        return f"{missing}: `Object.values({base or '...'})` is an array of what it has, `Object.keys` of its keys"
    path = path_to(key, [value]) if not near else ()
    meant = near or ".".join(path)
    if isinstance(value.get(near), dict | list):  # a part of it is meant
        part = part_of(key, near, [*_dict(value[near])])
        meant = f"{near}.{part}" if part else ""
    if meant and base and re.search(rf"{re.escape(base)}\.{re.escape(key)}\b", code):
        return f"{missing}: {instead(f'{base}.{key}', f'{base}.{meant}')}"
    return f"{missing}; `{meant or near}` is near" if meant or near else missing


def _of_array(read: Watched, of: str) -> Iterator[str]:
    size, items = read.size or 0, read.value if isinstance(read.value, list) else []
    if read.key.isdigit():
        yield (
            f"{of} is empty: it has no item {read.key}"
            if not size
            else f"{of} has {size} items, and none at {read.key}"
        )
        return
    if re.fullmatch(r"-\d+", read.key):
        yield f"{of} has {size} items, and none at {read.key}: `.at({read.key})` counts from the end"
        return
    near = _near(read.key, _ARRAY_METHODS).replace("`,", "()`,").removesuffix("`") + "()`"
    near = near if near != "()`" else ""
    row = next((each for each in items if isinstance(each, dict)), None)
    has = f" of objects with {shown_keys([row])}" if row is not None else f", {shown_value(items)}"
    yield f"{of} is an array{has}; it has no `{read.key}`{f': {near} is near' if near else ''}"


def _of_kind(read: Watched, base: str, code: str) -> str:
    """Say what a value that is not a plain object has: a date, a set, text, a number."""
    near, same = _near(read.key, read.own), _same(read.key, read.own)
    shown = f", {shown_value(read.value)}" if isinstance(read.value, str | int | float | list) else ""
    of = f"`{base}` is {_article(read.kind)}{shown}" if base else f"it is read from {_article(read.kind)}{shown}"
    if same and base:
        return f"{of}, without `{read.key}`: {instead(f'{base}.{read.key}', f'{base}.{same}')}"
    added = re.findall(rf"(?<![\w$.]){re.escape(base)} *\+= *([\w$.]+)(?=;|$)", code, re.MULTILINE) if base else []
    if isinstance(read.value, str) and len(added) == 1 and re.match(r"\d", read.value):
        new = instead(f"{base} += {added[0]}", f"{base} += Number({added[0]})")
        return f"{of}, as `{added[0]}` is text that was added to a number: {new}"
    if isinstance(read.value, str) and _NUMBER.fullmatch(read.value) and base and read.key.startswith("to"):
        return f"{of}: {instead(f'{base}.{read.key}', f'Number({base}).{read.key}')}"
    if read.kind == "string":
        meant = f"`new Date({base or '...'})` reads it" if time_as_text([read.value]) else ""
        if read.key in _OF_ARRAYS or read.key == "join":
            meant = meant or f'`{base or "..."}.split("\\n")` gives its lines'
        return f"{of}: it has no `{read.key}`{f'; {meant}' if meant else f'; {near} is near' if near else ''}"
    if near:
        return f"{of}: it has no `{read.key}`; {near} is near"
    return f"{of}: it has no `{read.key}`, but {', '.join(_first_of(read.own))}"


def _article(kind: str) -> str:
    return f"a {kind}" if kind[:1].isupper() else {"string": "text", "number": "a number"}.get(kind, f"a {kind}")


def _same(name: str, known: Sequence[str]) -> str:
    """Return the one name that is meant: with the same letters, or `size` for `length`; "" without one."""
    if name == "length" and "size" in known:
        return "size"
    found = [each for each in known if fold(each) == fold(name)]
    return found[0] if len(found) == 1 else ""


def _near(name: str, known: Sequence[str]) -> str:
    """Return the methods that a name is near to, as text: of its letters, or of its words."""
    words = {each for each in words_of(name) if len(each) > 2}
    found = [*difflib.get_close_matches(name, known, 2, cutoff=0.75)]
    found += [each for each in known if words & set(words_of(each)) and each not in found][:4]
    if not found and re.search(r"format|strf|toiso|tostr", name, re.IGNORECASE):
        found = [each for each in known if re.match(r"to(?:ISO|Locale\w*Date)?String$|toFixed", each)][:4]
    return ", ".join(f"`{each}`" for each in found[:4])


def _first_of(own: Sequence[str]) -> list[str]:
    return [each for each in own if not each.startswith(("to", "set"))][:_MOST_OWN] or [*own[:_MOST_OWN]]


def _of_none(read: Watched) -> Iterator[str]:
    """Say that a search found nothing, and what the values are that it compares."""
    if read.kind == "string" or isinstance(read.value, str):
        yield f"`match({read.of})` found nothing in {shown_value(read.value)}: it is null here, check it first"
        return
    called = f"{read.key}({read.of})" if read.of else f"{read.key}()"
    size = read.size or 0
    compared = [*_compared(read)]
    what = f"`{called}` found none of {size} items" if size else f"`{called}` is of an empty array"
    yield f"{what}; {'; '.join(compared)}" if compared else what


def _compared(read: Watched) -> Iterator[str]:
    items = read.value if isinstance(read.value, list) else []
    for chain, _, text in _COMPARED.findall(read.of):
        keys = chain.replace("?", "").split(".")[1:]
        values: list[JSONValue] = []
        for each in items:
            part: JSONValue = each
            for key in keys:
                part = _dict(part).get(key)
            values.append(part)
        others = list(dict.fromkeys(each for each in values if isinstance(each, str)))
        if text not in others and others:
            yield f"no `{chain}` is {json.dumps(text)}, there are {', '.join(map(shown_value, others[:_MOST_OWN]))}"
        elif not others and items and isinstance(items[0], dict) and keys[0] not in items[0]:
            yield f"the items have no `{keys[0]}`, they have {shown_keys(items)}"
    for found in (*_ASKED.finditer(read.of), *_SOME.finditer(read.of)):
        keys = found["chain"].replace("?", "").split(".")[1:]
        rows = [row for each in items for row in _list(_at(each, keys)) if isinstance(row, dict)]
        having = dict.fromkeys(key for row in rows for key, part in row.items() if part == found["text"])
        if len(having) == 1:
            key, (item, old) = next(iter(having)), _asked(found)
            new = old.replace(f".includes({found['quoted']})", f".some(({item}) => {item} === {found['quoted']})")
            new = re.sub(rf"(?<=\W){re.escape(item)} ?===? ?(?=['\"])", f"{item}.{key} === ", new)
            yield f"`{found['chain']}` is an array of objects with {shown_keys(rows)}: {instead(old, new)}"


def _asked(found: re.Match[str]) -> tuple[str, str]:
    """Return the name of an item, and the whole question."""
    return found.groupdict().get("item") or "each", found[0]


def _at(value: JSONValue, keys: Sequence[str]) -> JSONValue:
    for key in keys:
        value = _dict(value).get(key)
    return value


def _of_fold(read: Watched) -> Iterator[str]:
    items = read.value if isinstance(read.value, list) else []
    row = next((each for each in items if isinstance(each, dict)), None)
    strings = [*_numbers_as_text(row, "")] if row is not None else []
    used = [(path, text) for path, text in strings if re.search(rf"{re.escape(path)}(?![\w$])", read.of)]
    about = "`reduce` began with a number and gave text, as an item is text"
    if used:
        path, text = used[0]
        summed = re.search(rf"\+ *([\w$]+{re.escape(path)})(?![\w$])", read.of)
        new = instead(summed[0], f"+ Number({summed[1]})") if summed else "`Number(...)` makes a number of it"
        yield f"{about}: `{path[1:]}` is text, such as {shown_value(text)}; {new}"
    else:
        yield f"{about} or an object: `Number(...)` makes a number of text"


def _numbers_as_text(value: JSONValue, path: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers that are text in an object, and in those in it, by their paths."""
    for key, part in _dict(value).items():
        if isinstance(part, str) and _NUMBER.fullmatch(part):
            yield f"{path}.{key}", part
        yield from _numbers_as_text(part, f"{path}.{key}")


def _firsts(read: Watched) -> JSONValue:
    items = read.value if isinstance(read.value, list) else []
    return [each[0] for each in items if isinstance(each, list) and each]


def _list(value: JSONValue) -> list[JSONValue]:
    return value if isinstance(value, list) else []


def _dict(value: JSONValue) -> dict[str, JSONValue]:
    return value if isinstance(value, dict) else {}

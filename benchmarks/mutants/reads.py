"""Results that are taken for what they are not: another key, another level, another form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks.mutants.model import Change, Right, change, operator
from toolexec.code.repair.source import end_of

SYNONYMS: Final[Mapping[str, str]] = {
    "id": "uid",
    "name": "title",
    "title": "name",
    "total": "total_amount",
    "amount": "value",
    "price": "unit_price",
    "cost": "price",
    "quantity": "count",
    "qty": "quantity",
    "count": "total",
    "status": "state",
    "state": "status",
    "email": "email_address",
    "city": "location",
    "date": "day",
    "start": "start_time",
    "end": "end_time",
    "created_at": "created",
    "due": "due_date",
    "temperature": "temp",
    "author": "user",
    "assignee": "owner",
    "tags": "labels",
    "labels": "tags",
    "text": "content",
    "body": "message",
    "summary": "description",
    "url": "link",
    "phone": "phone_number",
    "address": "street_address",
    "currency": "currency_code",
    "size": "bytes",
    "level": "severity",
    "kind": "type",
    "type": "kind",
    "lat": "latitude",
    "lon": "lng",
    "number": "no",
    "customer": "customer_name",
    "items": "results",
    "results": "items",
    "rows": "data",
}
"""Key of a result → what a model that has not seen one takes it for."""

_LISTS: Final = ("data", "results", "items", "entries", "list")
_JAVASCRIPT: Final = (
    r"(?<![\w$.])([A-Za-z_$][\w$]*(?:\??\.[A-Za-z_$][\w$]*|\[[^\[\]\n]*\])*)\??\.({0})(?![\w$]|\s*\(|\s*=[^=])"
)
_PYTHON: Final = r"(?<![\w.])([A-Za-z_]\w*(?:\.\w+|\[[^\[\]\n]*\])*)\[(['\"])({0})\2\](?!\s*=[^=])"


def _reads(right: Right) -> Iterator[tuple[re.Match[str], str, str, int, int]]:
    """Yield each read of a key that results have: the match, the base, the key, and where the key alone stands."""
    known = "|".join(map(re.escape, sorted(filter(str.isidentifier, right.keys), key=len, reverse=True)))
    if not known:
        return
    pattern = (_PYTHON if right.is_python else _JAVASCRIPT).replace("{0}", known)
    for found in re.finditer(pattern, right.code):
        key = 3 if right.is_python else 2
        if not found[1].startswith("tools"):
            yield found, found[1], found[key], found.start(key), found.end(key)


def _named(right: Right, new: str) -> str:
    return f'["{new}"]' if right.is_python else f".{new}"


def _renamed(right: Right, key: str, new: str) -> Iterator[Change]:
    if new and new != key and new not in right.keys:
        for _, _, read, start, end in _reads(right):
            if read == key:
                yield Change(start, end, new, (key,))


def _each_key(right: Right) -> list[str]:
    return list(dict.fromkeys(key for _, _, key, _, _ in _reads(right)))


@operator()
def key_in_other_case(right: Right) -> Iterator[Change]:
    """`full_name` as `fullName`, `fullName` as `full_name`, `id` as `ID`."""
    for key in _each_key(right):
        camel = re.sub(r"_(\w)", lambda found: found[1].upper(), key)
        snake = re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key)
        new = camel if camel != key else snake if snake != key else key.upper() if len(key) < 4 else key.capitalize()
        yield from _renamed(right, key, new)


@operator()
def key_by_synonym(right: Right) -> Iterator[Change]:
    """`total` as `total_amount`, `status` as `state`."""
    for key in _each_key(right):
        yield from _renamed(right, key, SYNONYMS.get(key, ""))


@operator()
def key_with_noun(right: Right) -> Iterator[Change]:
    """`id` as `order_id`, where the base is an order."""
    for _, base, key, start, end in _reads(right):
        noun = re.split(r"\W", base)[0].rstrip("s").lower()
        if len(noun) > 2 and f"{noun}_{key}" not in right.keys:
            yield Change(start, end, f"{noun}_{key}", (key,))


@operator()
def key_cut(right: Right) -> Iterator[Change]:
    """`starts_at` as `starts`, `price_cents` as `price`."""
    for key in _each_key(right):
        yield from _renamed(right, key, key.rpartition("_")[0])


@operator()
def key_end_only(right: Right) -> Iterator[Change]:
    """`full_name` as `name`, `order_total` as `total`."""
    for key in _each_key(right):
        yield from _renamed(right, key, key.partition("_")[2])


@operator()
def key_of_other_number(right: Right) -> Iterator[Change]:
    """`items` as `item`, `tag` as `tags`."""
    for key in _each_key(right):
        yield from _renamed(right, key, key[:-1] if key.endswith("s") else f"{key}s")


@operator()
def key_misspelt(right: Right) -> Iterator[Change]:
    """Two letters of a key in the other order."""
    for key in _each_key(right):
        yield from _renamed(right, key, f"{key[0]}{key[2]}{key[1]}{key[3:]}" if len(key) > 3 else "")


@operator()
def key_with_unit(right: Right) -> Iterator[Change]:
    """`duration` as `duration_minutes`, for a number."""
    for key in _each_key(right):
        value = right.keys[key]
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield from _renamed(right, key, f"{key}_minutes" if "dur" in key or "time" in key else f"total_{key}")


@operator()
def part_left_out(right: Right) -> Iterator[Change]:
    """`guest.name` as `name`: a level is left out."""
    for found, base, key, _, _ in _reads(right):
        above = re.search(r"""(?:\[(['"])(\w+)\1\]|\??\.(\w+))$""", base)
        name = (above[2] or above[3]) if above is not None else ""
        if above is not None and isinstance(right.keys.get(name), dict):
            short = base[: above.start()] + _named(right, key)
            yield change(found, short, name)


@operator()
def part_joined(right: Right) -> Iterator[Change]:
    """`guest.name` as `guest_name`."""
    for found, base, key, _, _ in _reads(right):
        above = re.search(r"""(?:\[(['"])(\w+)\1\]|\??\.(\w+))$""", base)
        name = (above[2] or above[3]) if above is not None else ""
        if above is not None and isinstance(right.keys.get(name), dict):
            yield change(
                found, base[: above.start()] + _named(right, f"{name}_{key}"), f'["{name}"]["{key}"]', f".{name}.{key}"
            )


@operator()
def part_taken_for_whole(right: Right) -> Iterator[Change]:
    """`rate.amount` as `rate`."""
    for found, base, key, _, _ in _reads(right):
        above = re.search(r"""(?:\[(['"])(\w+)\1\]|\??\.(\w+))$""", base)
        name = (above[2] or above[3]) if above is not None else ""
        if above is not None and isinstance(right.keys.get(name), dict):
            yield change(found, base, key)


@operator()
def wrapper_added(right: Right) -> Iterator[Change]:
    """`page.items` as `page.data.items`."""
    for found, base, _, _, _ in _reads(right):
        if base in _of_calls(right):
            yield change(found, base + _named(right, "data") + found[0].removeprefix(base), found[0])


@operator()
def wrapper_around_list(right: Right) -> Iterator[Change]:
    """`orders` as `orders.items`, where the result is the list."""
    for name, value in _of_calls(right).items():
        if isinstance(value, list):
            for found in re.finditer(
                rf"(?<=\bin )\b{name}\b(?=:|\]|\)| if)|\b{name}\b(?=\.map|\.filter)|(?<=of ){name}(?=\))", right.code
            ):
                yield change(found, f"{name}{_named(right, 'results')}", name)


@operator()
def wrapper_left_out(right: Right) -> Iterator[Change]:
    """`page.items` as `page`."""
    for found, base, key, _, _ in _reads(right):
        if base in _of_calls(right) and isinstance(right.keys.get(key), list):
            yield change(found, base, key)


@operator()
def wrapper_renamed(right: Right) -> Iterator[Change]:
    """`page.bookings` as `page.results`."""
    for _, base, key, start, end in _reads(right):
        if base in _of_calls(right) and isinstance(right.keys.get(key), list):
            new = next(each for each in _LISTS if each not in right.keys)
            yield Change(start, end, new, (key,))


@operator()
def wrapper_by_noun(right: Right) -> Iterator[Change]:
    """`page.data` as `page.page`: the key is called like what it is for."""
    for _, base, key, start, end in _reads(right):
        if base in _of_calls(right) and isinstance(right.keys.get(key), list) and base.isidentifier() and base != key:
            yield Change(start, end, base if base not in right.keys else f"{base}_list", (key,))


@operator()
def item_for_list(right: Right) -> Iterator[Change]:
    """`page.items[0].id` as `page.items.id`."""
    for found in re.finditer(r"\[(?:0|-1)\](?=\.[a-z_]\w*(?![\w(])|\[['\"])", right.code):
        yield change(found, "", "[0]", "[-1]", "list", "array")


@operator()
def list_for_item(right: Right) -> Iterator[Change]:
    """`order.id` as `order[0].id`."""
    for found, base, _, _, _ in _reads(right):
        if isinstance(_of_calls(right).get(base), dict):
            yield change(found, f"{base}[0]{found[0].removeprefix(base)}", found[0])


@operator()
def place_behind_end(right: Right) -> Iterator[Change]:
    """`rows[0]` as `rows[9]`."""
    for found in re.finditer(r"(?<=[\w\])])\[(?:0|-1|1|2)\]", right.code):
        yield change(found, "[99]", "items", "empty", "the last is", found[0])


@operator()
def keys_of_object_for_items(right: Right) -> Iterator[Change]:
    """An object is looped over, as if it were the list that it has."""
    pattern = r"(?<= in )(\w+)\[(['\"])(\w+)\2\](?=:|\]|\)| if)" if right.is_python else r"(?<=of )(\w+)()\.(\w+)(?=\))"
    for found in re.finditer(pattern, right.code):
        if isinstance(right.keys.get(found[3]), list):
            yield change(found, found[1], found[3])


@operator()
def values_of_object_for_pairs(right: Right) -> Iterator[Change]:
    """`for key, value in prices.items()` without `.items()`."""
    if right.is_python:
        for found in re.finditer(r"(?<=in )([\w.\[\]\"']+)\.items\(\)", right.code):
            yield change(found, found[1], ".items()")
    else:
        for found in re.finditer(r"Object\.(entries|values|keys)\(([\w.]+)\)", right.code):
            yield change(found, found[2], found[0])


@operator()
def method_of_text_on_number(right: Right) -> Iterator[Change]:
    """A number is stripped, as if it were text."""
    for found, _, key, _, _ in _reads(right):
        value = right.keys[key]
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield change(
                found,
                f"{found[0]}.{'strip' if right.is_python else 'trim'}()",
                "a number",
                ".strip()`",
                ".trim()`",
                "number",
            )


@operator()
def text_taken_for_object(right: Right) -> Iterator[Change]:
    """`order.customer` as `order.customer.name`, where it is text."""
    for found, _, key, _, _ in _reads(right):
        if isinstance(right.keys[key], str):
            yield change(found, f"{found[0]}{_named(right, 'name')}", "text")


@operator()
def number_taken_for_object(right: Right) -> Iterator[Change]:
    """`order.total` as `order.total.amount`, where it is a number."""
    for found, _, key, _, _ in _reads(right):
        value = right.keys[key]
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield change(found, f"{found[0]}{_named(right, 'amount')}", "number", found[0])


@operator()
def list_taken_for_object(right: Right) -> Iterator[Change]:
    """A list is read by a key of its items."""
    for found, _, key, _, _ in _reads(right):
        value = right.keys[key]
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield change(found, f"{found[0]}{_named(right, next(iter(value[0])))}", "list", "array")


@operator()
def choice_in_other_case(right: Right) -> Iterator[Change]:
    """A text that results have is compared in another case: then nothing is found."""
    texts = {value for value in right.keys.values() if isinstance(value, str) and value.isalpha()}
    for found in re.finditer(r"(?:===?|!==?) (['\"])(\w+)\1", right.code):
        if found[2] in texts:
            new = found[2].upper() if found[2].islower() else found[2].lower()
            yield change(found, found[0].replace(found[2], new), found[2])


@operator()
def other_choice(right: Right) -> Iterator[Change]:
    """A text that results have is compared as another form of it: then nothing is found."""
    texts = {value for value in right.keys.values() if isinstance(value, str) and value.isalpha()}
    for found in re.finditer(r"(?:===?|!==?) (['\"])(\w+)\1", right.code):
        if found[2] in texts:
            yield change(found, found[0].replace(found[2], f"is_{found[2]}"), found[2])


@operator()
def result_inside_envelope(right: Right) -> Iterator[Change]:
    """The result of a call is read from `.data`, `.result` or as JSON."""
    ends = (
        (".data", ".json()", '["result"]', ".content[0].text")
        if right.is_python
        else (".data", ".result", ".content[0].text")
    )
    for number, found in enumerate(_calls(right)):
        text = right.code[found[0] : found[1]]
        bare = f"({text})" if text.startswith("await") else text
        yield Change(found[0], found[1], bare + ends[number % len(ends)], (text, text.removeprefix("await ")))


def _calls(right: Right) -> Iterator[tuple[int, int]]:
    """Yield where each call of a tool stands that a name is bound to."""
    for found in re.finditer(r"(?<== )(?:await )?tools\.[\w.]+\(", right.code):
        end = end_of(right.code, found.end() - 1)
        if end and right.code[end : end + 1] in ("\n", ";", ""):
            yield found.start(), end


def _of_calls(right: Right) -> Mapping[str, object]:
    """Return the names that are bound to the result of a call alone, each with a value that it may have."""
    found: dict[str, object] = {}
    for start, _ in _calls(right):
        name = re.search(r"(?<![\w.])(\w+) = $", right.code[:start])
        if name is not None:
            path = re.match(r"(?:await )?tools\.([\w.]+)\(", right.code[start:])
            index = path[1].replace("_", "").lower() if path is not None else ""
            value = index if index in _results(right) else None
            found[name[1]] = _results(right)[value] if value is not None else {}
    return found


def _results(right: Right) -> Mapping[str, object]:
    return {re.sub(r"[:-]", ".", each).replace("_", "").lower(): value for each, value in right.by_tool.items()}

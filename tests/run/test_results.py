"""Values that are too large to be shown: kept, read page by page, and only by those who may."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from typing import Any

import pytest

from toolexec.errors import ConfigurationError, InputValidationError, InvalidResultError, ResultNotFoundError
from toolexec.model.origin import HERE, Caller, Origin
from toolexec.run.outline import Outline
from toolexec.run.results import ResultStore

ROWS = {
    "items": [{"id": n, "name": f"näme {n}", "tags": ["a", "b"], "note": None} for n in range(3000)],
    "next": "page 2",
}
TEXT = "\n".join(f"line {n}: {'x' * (n % 70)} ünd" for n in range(5000))
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 300).decode()
VALUES: dict[str, Any] = {
    "rows": ROWS,
    "text": TEXT,
    "media": PNG,
    "keys": {f"key {n}": n for n in range(20_000)},
    "big key": {"k" * 200_000: 1, "after": 2},
    "control characters": {"\x00" * 300 + str(n): "\x01" * 300 for n in range(200)},
    "astral": "😀\U0010ffff" * 20_000,
    "one line": "x" * 100_000,
    "long items": [{"body": "word " * 30_000}, "b" * 60_000, 3],
    "numbers": list(range(30_000)),
    "mixed": [1, "a", None, {"a": 1}, [2]] * 5000,
    "nested": json.loads("[" * 100 + json.dumps("x y " * 20_000) + "]" * 100),
}


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def whole(store: ResultStore, handle: str, path: str = "", max_bytes: int | None = None) -> Any:
    """A value put together from its pages, with items that no page holds read by their paths."""
    text, items, members, offset = "", [], {}, 0
    while True:
        page = store.read(handle, HERE, path=path, offset=offset, max_bytes=max_bytes)
        assert size(page.to_dict()) <= (max_bytes or store.max_bytes)
        if page.kind == "value":
            return page.value
        if page.kind == "text":
            text += page.value
        elif page.kind == "array":
            items += [whole(store, handle, page.cut[0], max_bytes)] if page.cut else page.value
        else:
            key = next(iter(page.value), "")
            members |= {key: whole(store, handle, page.cut[0], max_bytes)} if page.cut else page.value
        if page.next is None:
            return {"text": text, "array": items, "object": members}[page.kind]
        offset = page.next


@pytest.mark.parametrize("value", [None, True, 7, 1.5, "short", {"a": [1, 2]}, [], "x" * 49_000, list(range(9000))])
def test_a_value_that_fits_is_given_as_it_is(value: Any) -> None:
    """A value within the budget is the very same object, and nothing is kept."""
    store = ResultStore()
    shown = store.show(value, HERE)
    assert shown.value is value
    assert (shown.handle, shown.bytes, len(store)) == ("", 0, 0)


@pytest.mark.full
@pytest.mark.parametrize("max_bytes", [1000, 1700, 50_000])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_an_outline_keeps_to_the_budget_whatever_the_value(value: Any, max_bytes: int) -> None:
    """An outline is never longer than the budget, and tells the size, the handle and how to read on."""
    store = ResultStore()
    shown = store.show(value, HERE, max_bytes)
    assert isinstance(shown.value, Outline)
    assert size(shown.value) <= max_bytes
    assert shown.bytes == shown.value["bytes"] == size(value)
    assert shown.handle == shown.value["handle"]
    assert "read_result" in shown.value["about"]


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_an_outline_is_not_outlined_again(value: Any) -> None:
    """An outline that is shown again is the same; within a smaller budget it is a smaller one of the same value."""
    store = ResultStore()
    shown = store.show(value, HERE)
    again = store.show(shown.value, HERE)
    smaller = store.show(shown.value, HERE, 1000)
    assert (again.value, again.handle, again.bytes) == (shown.value, shown.handle, shown.bytes)
    assert (smaller.handle, smaller.bytes) == (shown.handle, shown.bytes)
    assert size(smaller.value) <= 1000
    assert len(store) == 1


def test_a_tool_cannot_pass_for_an_outline() -> None:
    """A value that looks like an outline is outlined as any other."""
    store = ResultStore(1000)
    fake = {"handle": store.show(TEXT, HERE).handle, "kind": "text", "bytes": 1, "about": "x", "head": "y" * 5000}
    shown = store.show(fake, HERE)
    assert shown.handle != fake["handle"]
    assert size(shown.value) <= 1000


@pytest.mark.full
@pytest.mark.parametrize("max_bytes", [5000, None])
@pytest.mark.parametrize(
    "name", ["rows", "text", "media", "astral", "one line", "long items", "numbers", "mixed", "nested"]
)
def test_all_pages_together_are_the_value(name: str, max_bytes: int | None) -> None:
    """Read page by page, and where a page cannot hold an item by its path, a value is byte for byte what was kept."""
    store = ResultStore()
    handle = store.show(VALUES[name], HERE, 1000).handle
    assert digest(whole(store, handle, max_bytes=max_bytes)) == digest(VALUES[name])


@pytest.mark.full
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_the_pages_of_the_json_text_are_the_value_whatever_it_is(value: Any) -> None:
    """With as_json every value, however odd its keys, comes back byte for byte."""
    store = ResultStore()
    handle = store.show(value, HERE, 1000).handle
    text, offset = "", 0
    while offset is not None:
        page = store.read(handle, HERE, offset=offset, as_json=True)
        assert size(page.to_dict()) <= store.max_bytes
        text, offset = text + page.value, page.next
    assert hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() == digest(value)


@pytest.mark.full
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_pages_and_matches_keep_to_the_smallest_budget(value: Any) -> None:
    """Every page and every list of matches is within the budget, and the next one always begins further on."""
    store = ResultStore()
    handle = store.show(value, HERE, 1000).handle
    for wanted in ({}, {"as_json": True}, {"grep": "x"}, {"grep": "/[0-9a-f]/i"}, {"grep": "\x01"}):
        offset = 0
        for _ in range(5):
            page = store.read(handle, HERE, offset=offset, max_bytes=1, **wanted)  # pyright: ignore[reportArgumentType]
            assert size(page.to_dict()) <= 1000
            if page.next is None:
                assert page.offset + page.count == page.total
                break
            assert page.next > offset
            offset = page.next


def test_a_page_can_be_smaller_but_not_larger_than_the_store_allows() -> None:
    """max_bytes lowers the size of a page, and cannot raise it over the store's."""
    store = ResultStore(5000)
    handle = store.show(TEXT, HERE).handle
    assert size(store.read(handle, HERE, max_bytes=10**9).to_dict()) <= 5000
    assert size(store.read(handle, HERE, max_bytes=2000).to_dict()) <= 2000


def test_text_is_cut_at_ends_of_lines() -> None:
    """A page of text ends where a line does; with a limit it has just so many characters."""
    store = ResultStore()
    handle = store.show(TEXT, HERE).handle
    first = store.read(handle, HERE, max_bytes=2000)
    assert first.value.endswith("\n")
    assert TEXT.startswith(first.value)
    piece = store.read(handle, HERE, offset=3, limit=10)
    assert (piece.value, piece.count, piece.next) == (TEXT[3:13], 10, 13)


def test_items_and_members_are_paged() -> None:
    """Offset and limit count the items of an array and the keys of an object."""
    store = ResultStore()
    handle = store.show(ROWS, HERE).handle
    page = store.read(handle, HERE, path="items", offset=10, limit=2)
    assert [item["id"] for item in page.value] == [10, 11]
    assert (page.total, page.next) == (3000, 12)
    last = store.read(handle, HERE, offset=1)
    assert last.value == {"next": "page 2"}
    assert last.to_dict() == {"kind": "object", "value": {"next": "page 2"}, "offset": 1, "count": 1, "total": 2}


def test_a_page_is_a_copy() -> None:
    """Changing a page does not change the kept value."""
    store = ResultStore()
    handle = store.show(ROWS, HERE).handle
    store.read(handle, HERE, path="items", limit=1).value[0]["id"] = "changed"
    assert store.read(handle, HERE, path="items[0].id").value == 0


def test_a_number_of_many_digits_is_read_as_text() -> None:
    """A number can be too large as well; its digits are paged."""
    store = ResultStore(1000)
    shown = store.show(10**3000, HERE)
    assert shown.value["kind"] == "text"
    assert size(shown.value) <= 1000
    assert store.read(shown.handle, HERE).value.startswith("1000")


@pytest.mark.parametrize(
    "stranger",
    [
        HERE,
        Origin(session="a"),
        Origin(caller=Caller(id="bob", tenant="t"), session="a"),
        Origin(caller=Caller(id="ann", tenant="u"), session="a"),
        Origin(caller=Caller(id="ann"), session="a"),
    ],
)
def test_a_handle_works_only_for_its_caller(stranger: Origin) -> None:
    """Another caller's handle fails in exactly the way of one that never was; the caller's other sessions can read."""
    store = ResultStore()
    owner = Origin(caller=Caller(id="ann", tenant="t"), session="a")
    handle = store.show(TEXT, owner).handle
    with pytest.raises(ResultNotFoundError) as theirs:
        store.read(handle, stranger)
    with pytest.raises(ResultNotFoundError) as unknown:
        store.read("r-nothing", stranger)
    assert theirs.value.to_dict() == unknown.value.to_dict()
    assert store.read(handle, Origin(caller=Caller(id="ann", tenant="t"), session="b")).total == len(TEXT)


def test_without_a_caller_the_session_is_what_counts() -> None:
    """Without a known caller, a handle works in its own session only."""
    store = ResultStore()
    handle = store.show(TEXT, Origin(session="a")).handle
    assert store.read(handle, Origin(session="a", client="other")).total == len(TEXT)
    with pytest.raises(ResultNotFoundError):
        store.read(handle, Origin(session="b"))


def test_somebody_elses_outline_is_no_way_to_their_value() -> None:
    """An outline that another caller made is shown again as the plain object that it is."""
    store = ResultStore()
    outline = store.show(ROWS, Origin(session="a"), 20_000).value | {"more": "x" * 3000}
    shown = store.show(Outline(outline), Origin(session="b"), 1000)
    assert shown.handle != outline["handle"]
    assert shown.bytes == size(outline)


@pytest.mark.full
def test_handles_are_not_guessable() -> None:
    """No two handles are alike, and none has an order in it."""
    store = ResultStore()
    handles = {store.show(TEXT, HERE).handle for _ in range(200)}
    assert len(handles) == 200
    assert all(len(handle) >= 18 for handle in handles)


def test_what_is_not_read_expires() -> None:
    """A value goes when it has not been read for so long; reading it makes it stay."""
    now = [0.0]
    store = ResultStore(keep_seconds=60, clock=lambda: now[0])
    read, unread = store.show(TEXT, HERE).handle, store.show(ROWS, HERE).handle
    now[0] = 50
    assert store.read(read, HERE).offset == 0
    now[0] = 100
    assert len(store) == 1
    assert store.kept_bytes == size(TEXT)
    assert store.read(read, HERE).offset == 0
    with pytest.raises(ResultNotFoundError, match="run the tool again"):
        store.read(unread, HERE)


def test_the_least_recently_used_values_make_room() -> None:
    """Over the number or the bytes that may be kept, what was not read for the longest time goes."""
    store = ResultStore(max_kept=3)
    first, second, third = (store.show(TEXT, HERE).handle for _ in range(3))
    store.read(first, HERE)
    fourth = store.show(TEXT, HERE).handle
    assert [handle for handle in (first, second, third, fourth) if is_there(store, handle)] == [first, third, fourth]
    store = ResultStore(max_kept_bytes=size(TEXT) * 2)
    handles = [store.show(TEXT, HERE).handle for _ in range(5)]
    assert [is_there(store, handle) for handle in handles] == [False, False, False, True, True]
    assert store.kept_bytes == size(TEXT) * 2


def test_one_who_keeps_much_does_not_push_others_out() -> None:
    """The caller that keeps most loses something first."""
    store = ResultStore(max_kept=10)
    modest = Origin(session="modest")
    kept = store.show(TEXT, modest).handle
    for _ in range(50):
        store.show(TEXT, Origin(session="greedy"))
    assert store.read(kept, modest).total == len(TEXT)
    assert len(store) == 10


def test_a_value_that_is_too_large_to_be_kept_is_outlined_without_a_handle() -> None:
    """The outline then says that the whole is not kept."""
    store = ResultStore(max_kept_bytes=10_000)
    shown = store.show(TEXT, HERE)
    assert (shown.handle, shown.value["handle"]) == ("", "")
    assert "not kept" in shown.value["about"]
    assert len(store) == 0
    again = store.show(shown.value, HERE, 1000)
    assert size(again.value) <= 1000


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.items[2].id", 2),
        ("$", None),
        ("items.2.id", 2),
        ("items[-1].id", 2999),
        ('["items"][0]["id"]', 0),
        ('"items"[0]', None),
        ("items[?id==`7`].name | [0]", "näme 7"),
        ("items[:2].{id: id, n: name}", [{"id": 0, "n": "näme 0"}, {"id": 1, "n": "näme 1"}]),
        ("length(items)", 3000),
        ("missing || next", "page 2"),
    ],
)
def test_a_path_selects(path: str, value: Any) -> None:
    """Plain paths and JMESPath lead to parts of the value."""
    store = ResultStore()
    page = store.read(store.show(ROWS, HERE).handle, HERE, path=path)
    assert value is None or page.value == value


@pytest.mark.full
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("itms", "there is no 'itms' at the top; did you mean items"),
        ("items[99999]", "it has 3,000 items"),
        ("items.name", r"use \[0\] or \[\*\]"),
        ("next.more", "nothing below it"),
        ("items[", "cannot select"),
        ('["items\\x"]', "cannot select"),
        ("length(next, next)", "cannot select"),
        ("to_string(@)", "of the functions there are"),
        ("[@, @] | [@, @]", "one new object"),
        ("items[*][*][*].a.b.c | " + " | ".join(["@"] * 20) + "!", "cannot select"),
        ("a" * 501, "500 characters"),
    ],
)
def test_a_path_that_makes_no_sense_is_refused_in_words(path: str, reason: str) -> None:
    """The error says how far a path leads and what is there."""
    store = ResultStore()
    handle = store.show(ROWS, HERE).handle
    with pytest.raises(InputValidationError, match=reason):
        store.read(handle, HERE, path=path)


@pytest.mark.full
def test_a_path_cannot_take_for_ever() -> None:
    """A search through a large value that takes too many steps is given up."""
    store = ResultStore()
    handle = store.show([[{"a": 1}] * 500] * 1000, HERE).handle
    with pytest.raises(InputValidationError, match="too many steps"):
        store.read(handle, HERE, path="[*][?a==`1`][].a")


def test_many_keys_are_counted_where_one_is_missing() -> None:
    """The error names some keys, and how many more there are."""
    store = ResultStore()
    handle = store.show(VALUES["keys"], HERE).handle
    with pytest.raises(InputValidationError, match="and 19,990 more"):
        store.read(handle, HERE, path="nothing")


@pytest.mark.parametrize(
    "wrong", [{"offset": -1}, {"limit": 0}, {"offset": -1, "grep": "a"}, {"limit": 0, "grep": "a"}]
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    """A page begins at 0 or later and has at least one item."""
    store = ResultStore()
    handle = store.show(ROWS, HERE).handle
    with pytest.raises(InputValidationError, match="or more"):
        store.read(handle, HERE, **wrong)


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ({"path": "items", "offset": 3000}, "there are 3,000 items"),
        ({"offset": 5}, "there are 2 members"),
        ({"path": "items[0].id", "offset": 1}, "there is 1 value"),
        ({"path": "items[0].name", "offset": 6}, "there are 6 characters"),
        ({"path": "items[0]", "as_json": True, "offset": 10**9}, "characters"),
        ({"grep": "page 2", "offset": 1}, "there is 1 match"),
        ({"grep": "nowhere", "offset": 1}, "there are 0 matches"),
    ],
)
def test_a_page_past_the_end_is_refused_with_how_much_there_is(asked: dict[str, Any], there: str) -> None:
    """A page that would begin past the end is an error that counts what there is, and no empty page."""
    store = ResultStore()
    handle = store.show(ROWS, HERE).handle
    with pytest.raises(InputValidationError, match=f"past the end: .*{there}"):
        store.read(handle, HERE, **asked)


def test_what_is_empty_has_one_empty_page() -> None:
    """The first page of what has nothing in it is empty, and no error."""
    store = ResultStore()
    handle = store.show({"none": [], "rows": ROWS}, HERE).handle
    assert store.read(handle, HERE, path="none").to_dict()["total"] == 0
    assert store.read(handle, HERE, grep="nowhere").count == 0


def test_grep_finds_lines_with_those_around() -> None:
    """Of a text the lines are found, whatever their case, with two lines around and the offset to read on from."""
    store = ResultStore()
    page = store.read(store.show(TEXT, HERE).handle, HERE, grep="LINE 77:")
    (found,) = page.value
    assert found["line"] == 78
    assert found["text"].startswith("line 77: ")
    assert [line[:7] for line in found["before"] + found["after"]] == ["line 75", "line 76", "line 78", "line 79"]
    assert TEXT[found["offset"] :].startswith("line 77: ")
    assert (page.kind, page.count, page.total, page.next) == ("matches", 1, 1, None)


def test_grep_counts_all_matches_and_pages_through_them() -> None:
    """The count is of all matches; offset and limit go through them."""
    store = ResultStore()
    handle = store.show(TEXT, HERE).handle
    page = store.read(handle, HERE, grep="/^line [0-9]+:/", limit=3, offset=2)
    assert [found["line"] for found in page.value] == [3, 4, 5]
    assert (page.total, page.next) == (5000, 5)
    assert store.read(handle, HERE, grep="line").count == 50
    nothing = store.read(handle, HERE, grep="no such words")
    assert (nothing.value, nothing.total, nothing.next) == ([], 0, None)


def test_grep_finds_leaves_and_keys_by_path() -> None:
    """Of an object the leaves and the keys are found, each with the path that reads it."""
    store = ResultStore()
    value = {"a b": [{"Name": "Ann"}, {"name": {"first": "x"}}], "n": 1234, "pad": "p " * 1000 + "needle" + " q" * 1000}
    handle = store.show(value, HERE, 1000).handle
    page = store.read(handle, HERE, grep="name")
    assert page.value == [
        {"path": '["a b"][0].Name', "value": "Ann"},
        {"path": '["a b"][1].name', "value": "(object of 1 keys)"},
    ]
    assert store.read(handle, HERE, grep="/^12.4$/").value == [{"path": "n", "value": 1234}]
    for pattern in ("needle", "/needle/", "/NEEDLE/i"):
        (found,) = store.read(handle, HERE, grep=pattern).value
        assert "needle" in found["value"]
        assert found["characters"] == len(value["pad"])
    assert store.read(handle, HERE, grep="ann", path='"a b"[0]').value == [{"path": '"a b"[0].Name', "value": "Ann"}]


def test_a_pattern_takes_time_in_proportion_to_the_text() -> None:
    """A pattern that makes backtracking engines hang is just a pattern."""
    store = ResultStore()
    handle = store.show("a" * 200_000 + "!", HERE).handle
    assert store.read(handle, HERE, grep="/^(a+)+$/").total == 0


@pytest.mark.parametrize("pattern", ["/(/", "/(a{1000}){1000}/", "/(?=a)/", "x" * 501])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    """A pattern that does not parse, or is too large, is an error in words."""
    store = ResultStore()
    handle = store.show(TEXT, HERE).handle
    with pytest.raises(InputValidationError, match=r"pattern|500"):
        store.read(handle, HERE, grep=pattern)


@pytest.mark.full
def test_what_cannot_be_written_as_json_is_an_error() -> None:
    """A value that contains itself cannot be kept."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidResultError, match="cannot be written"):
        ResultStore().show(loop, HERE)


def test_what_json_does_not_have_is_put_down_as_text() -> None:
    """Odd objects, as a runner without checks lets through, count with their text."""
    store = ResultStore(1000)
    odd = {"when": threading.Lock}
    assert store.show(odd, HERE).value is odd
    shown = store.show([complex(1, 2)] * 500, HERE)
    assert store.read(shown.handle, HERE, limit=1).value == ["(1+2j)"]


def test_settings_that_make_no_sense_are_refused() -> None:
    """A store without room is a mistake."""
    with pytest.raises(ConfigurationError, match="max_bytes must be 1000 or more"):
        ResultStore(999)
    for name in ("keep_seconds", "max_kept_bytes", "max_kept"):
        with pytest.raises(ConfigurationError, match="above 0"):
            ResultStore(**{name: 0})  # pyright: ignore[reportArgumentType]


def test_threads_can_share_a_store() -> None:
    """Values that several threads show and read at once neither mix nor get lost."""
    store = ResultStore(1000, max_kept=10_000)
    wrong: list[str] = []

    def work(number: int) -> None:
        origin = Origin(session=str(number))
        for turn in range(40):
            text = f"{number} {turn} " * 500
            handle = store.show(text, origin).handle
            if store.read(handle, origin, limit=8).value != text[:8]:
                wrong.append(text[:8])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(store) == 320


def is_there(store: ResultStore, handle: str) -> bool:
    try:
        store.read(handle, HERE)
    except ResultNotFoundError:
        return False
    return True

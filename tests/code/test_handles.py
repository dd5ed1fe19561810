"""Results too large for a sandbox stay on the host."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolexec.code.handles import Handle, Handles
from toolexec.errors import ConfigurationError, InvalidRequestError
from toolexec.run.large import Budget

ISSUES = [{"id": number, "title": f"issue {number}", "open": number % 2 == 0} for number in range(20)]


def keep(handles: Handles, value: Any) -> Handle:
    handle = handles.keep(value, json.dumps(value))
    assert handle is not None
    return handle


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_is_at_least_one(budget: int) -> None:
    """Less makes no sense and is refused."""
    with pytest.raises(ConfigurationError, match="at least 1"):
        Handles(budget)


def test_what_fits_needs_none() -> None:
    """Up to the budget a value travels."""
    handles = Handles(5)
    assert handles.keep("abc", '"abc"') is None
    assert handles.keep("abcd", '"abcd"') is not None
    assert len(handles) == 1


def test_what_a_handle_tells() -> None:
    """ID, type, size as JSON, number of items, and how the JSON begins."""
    handle = keep(Handles(10), ISSUES)
    text = json.dumps(ISSUES)
    fields = {"type": "array", "bytes": len(text), "length": 20, "preview": text[:500]}
    assert handle == Handle(id=handle.id, **fields)
    assert handle.to_dict() == {"id": handle.id, **fields}


@pytest.mark.parametrize(
    ("value", "type_", "length"),
    [
        ("text", "string", 4),
        ({"a": 1}, "object", 1),
        ([1, 2], "array", 2),
        ((1, 2), "array", 2),
        ("", "string", 0),
    ],
    ids=repr,
)
def test_the_types(value: Any, type_: str, length: int) -> None:
    """Types are those of JSON; the length is that of the value."""
    handle = keep(Handles(1), value)
    assert (handle.type, handle.length) == (type_, length)


@pytest.mark.parametrize("value", [12345, -1.25, True, None], ids=repr)
def test_what_has_no_parts_needs_none(value: Any) -> None:
    """There is nothing to read of a number, a boolean or null."""
    assert Handles(1).keep(value, json.dumps(value)) is None


def test_an_id_is_never_used_twice() -> None:
    """Not for the same value, not after it was dropped, and not by others; it cannot be guessed either."""
    stores = [Handles(10), Handles(10)]
    seen = {keep(handles, ISSUES).id for handles in stores for _ in range(50)}
    for handles in stores:
        handles.drop(seen)
    seen |= {keep(handles, ISSUES).id for handles in stores for _ in range(50)}
    assert len(seen) == 200
    assert all(len(handle_id) == 18 for handle_id in seen)


def test_what_is_dropped_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may read as much as it likes, one after the other; what it drops is gone permanently."""
    monkeypatch.setattr("toolexec.code.handles._MAX_KEPT", 1000)
    handles = Handles(10)
    for _ in range(10):
        handle = keep(handles, "x" * 700)
        handles.drop([handle.id, "h-unknown", 5, handle.id])
    assert len(handles) == 0
    with pytest.raises(InvalidRequestError, match="there is no result"):
        handles.read(handle.id)


def test_the_room_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code cannot fill the host's memory with results (1,000 bytes here)."""
    monkeypatch.setattr("toolexec.code.handles._MAX_KEPT", 1000)
    handles = Handles(10)
    for letter in "abc":
        keep(handles, letter * 298)
    with pytest.raises(InvalidRequestError, match="ask the tools for less"):
        handles.keep("y" * 200, json.dumps("y" * 200))
    assert len(handles) == 3
    assert keep(handles, "z" * 90)


class TestReading:
    """Code reads parts of what it cannot have."""

    @pytest.mark.parametrize(
        ("part", "expected"),
        [
            ({}, ISSUES),
            ({"offset": 18}, ISSUES[18:]),
            ({"limit": 2}, ISSUES[:2]),
            ({"offset": 3, "limit": 2}, ISSUES[3:5]),
            ({"offset": 99}, []),
            ({"limit": 0}, []),
            ({"path": "[0].title"}, "issue 0"),
            ({"path": "[0].title", "offset": 6}, "0"),
            ({"path": "[*].id", "limit": 3}, [0, 1, 2]),
            ({"path": "[?id > `17`].title"}, ["issue 18", "issue 19"]),
            ({"path": "[?contains(title, '19')] | [0].id"}, 19),
            ({"path": "length(@)"}, 20),
            ({"path": "max_by(@, &id).id"}, 19),
            ({"path": "[-2:].id"}, [18, 19]),
            ({"path": "[5]", "offset": 1}, ISSUES[5]),
            ({"path": "nothing"}, None),
        ],
        ids=str,
    )
    def test_a_part(self, part: dict[str, Any], expected: Any) -> None:
        """A path selects, offset and limit cut lists and strings."""
        handles = Handles(10)
        assert handles.read(keep(handles, ISSUES).id, **part) == expected

    @pytest.mark.parametrize(
        "path",
        [
            "[@, @]",
            "{a: @}",
            "[@,@]|[@,@]|[@,@]",
            "`[1, 2, 3]`",
            '[*].`"long"`',
            "to_string(@)",
            "join(',', [*].title)",
            "map(&id, @)",
            "sort(`[1]`)",
            "[",
            "length(",
            "abs('x')",
            "no_such_function(@)",
            "a" * 201,
        ],
    )
    def test_a_path_only_selects(self, path: str) -> None:
        """Refuses a path that does not parse or could enlarge the value, with the reason."""
        handles = Handles(10)
        handle = keep(handles, ISSUES)
        with pytest.raises(InvalidRequestError):
            handles.read(handle.id, path=path)

    @pytest.mark.parametrize("part", [{"offset": -1}, {"limit": -1}])
    def test_negative_numbers(self, part: dict[str, int]) -> None:
        """Refuses negative numbers: a slice from the end would be a surprise."""
        handles = Handles(10)
        handle = keep(handles, ISSUES)
        with pytest.raises(InvalidRequestError, match="0 or more"):
            handles.read(handle.id, **part)

    def test_an_unknown_handle(self) -> None:
        """The error names it."""
        with pytest.raises(InvalidRequestError, match="'h7'"):
            Handles().read("h7")


class TestPages:
    """A guest reads what a program uses, piece by piece."""

    @pytest.mark.parametrize("budget", [1, 10, 60, 500, 100_000])
    @pytest.mark.parametrize("backward", [False, True])
    def test_all_pages_of_a_list_are_the_list(self, budget: int, backward: bool) -> None:
        """In either direction and whatever the budget, with a handle for what does not fit."""
        handles = Handles(budget)
        value = [*ISSUES, "text", "y" * 70_000, 5, None, [], {}, [[1, [2]]], 10**30]
        left, right = 0, len(value)
        items: list[Any] = []
        handle = handles._keep(value, 1, 1, "")
        while left < right:
            page = json.loads(
                handles.page(handle.id, offset=right if backward else left, limit=right - left, backward=backward)
            )
            part = page["items"]
            assert 0 < len(part) <= right - left
            for place, held in page.get("held", {}).items():
                assert part[int(place)] is None
                part[int(place)] = handles.read(held["id"])
            items = [*part, *items] if backward else [*items, *part]
            left, right = (left, right - len(part)) if backward else (left + len(part), right)
        assert items == value

    def test_a_page_fits_the_budget(self) -> None:
        """A page has as many items as fit, and fewer on request."""
        handles = Handles(1000)
        handle = keep(handles, ["x" * 90] * 50)
        assert len(json.loads(handles.page(handle.id))["items"]) == 10
        assert len(json.loads(handles.page(handle.id, most_bytes=300))["items"]) == 3
        assert len(json.loads(handles.page(handle.id, limit=2))["items"]) == 2
        assert len(json.loads(handles.page(handle.id, offset=49))["items"]) == 1
        assert json.loads(handles.page(handle.id, offset=50)) == {"items": []}

    def test_objects(self) -> None:
        """Their keys come with their values, or alone."""
        handles = Handles(20)
        handle = keep(handles, {"a": 1, "b": [1, 2, 3], "c": "long" * 50_000, "d": {"e": "f" * 50}})
        first = json.loads(handles.page(handle.id, strings=False))
        assert (first["keys"], first["items"], "held" in first) == (["a", "b"], [1, [1, 2, 3]], False)
        second = json.loads(handles.page(handle.id, offset=2))
        assert (second["keys"], second["held"]["0"]["type"]) == (["c"], "string")
        assert json.loads(handles.page(handle.id, offset=2, strings=False))["keys"] == []
        third = json.loads(handles.page(handle.id, offset=3))
        assert (third["keys"], third["held"]["0"]["type"]) == (["d"], "object")
        assert json.loads(handles.page(handle.id, of="keys", offset=1)) == {"keys": ["b", "c", "d"]}

    def test_strings(self) -> None:
        """A piece has at most a million characters."""
        handles = Handles(20)
        value = "é" * 1_100_000
        handle = keep(handles, value)
        first = json.loads(handles.page(handle.id))["text"]
        assert len(first) == 1 << 20
        assert first + json.loads(handles.page(handle.id, offset=len(first)))["text"] == value

    @pytest.mark.parametrize("part", [{"offset": -1}, {"limit": -1}])
    def test_negative_numbers(self, part: dict[str, int]) -> None:
        """Refuses negative numbers."""
        handles = Handles(10)
        handle = keep(handles, ISSUES)
        with pytest.raises(InvalidRequestError, match="0 or more"):
            handles.page(handle.id, **part)

    def test_work_without_end(self) -> None:
        """A page, a path and an answer are given up when their budget is spent."""
        handles = Handles(10)
        handle = keep(handles, ISSUES)
        spent = Budget(steps=1)
        spent.spend()
        with pytest.raises(InvalidRequestError, match="too many steps"):
            handles.read(handle.id, path="[?abs(abs(abs(id))) > `3`]", budget=Budget(steps=50))
        big = [["x" * 100] * 5000] * 5
        with pytest.raises(InvalidRequestError, match="too many steps"):
            Handles(1 << 20).answer(big, Budget(steps=100))
        stopped = Budget()
        stopped.stop()
        with pytest.raises(InvalidRequestError, match="stopped"):
            handles.read(handle.id, path="[*].id", budget=stopped)


class TestArguments:
    """In arguments a handle stands for the whole."""

    def test_it_is_replaced_anywhere(self) -> None:
        """In dicts, lists and tuples, with or without what else it tells; other values stay."""
        handles = Handles(10)
        handle = keep(handles, ISSUES)
        plain, full = {"$handle": handle.id}, {"$handle": handle.id, **handle.to_dict()}
        del full["id"]
        resolved = handles.resolve({"a": plain, "b": [full, 1, (plain,)], "c": "text"})
        assert resolved == {"a": ISSUES, "b": [ISSUES, 1, [ISSUES]], "c": "text"}
        assert resolved["a"] is resolved["b"][0]

    @pytest.mark.parametrize(
        "value",
        [{"$handle": 1}, {"$handle": "h1"}, {"$handle": "h-AAAAAAAAAAAAAAAA", "mine": 2}, {"handle": "h1"}],
        ids=str,
    )
    def test_what_only_looks_like_one(self, value: Any) -> None:
        """A lookalike is left as it is."""
        handles = Handles(10)
        keep(handles, ISSUES)
        assert handles.resolve(value) == value

    def test_an_unknown_one(self) -> None:
        """Refuses a reference from elsewhere: its position means nothing here."""
        foreign = keep(Handles(10), ISSUES).id
        with pytest.raises(InvalidRequestError, match=foreign):
            Handles().resolve([{"$handle": foreign}])

    def test_many_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The resolved values are bounded together (1,000 bytes here): a short request cannot become a huge one."""
        monkeypatch.setattr("toolexec.code.handles._MAX_KEPT", 1000)
        handles = Handles(10)
        one = {"$handle": keep(handles, "x" * 298).id}
        assert handles.resolve([one] * 3) == ["x" * 298] * 3
        with pytest.raises(InvalidRequestError, match="together"):
            handles.resolve([one] * 4)

    def test_endless_nesting(self) -> None:
        """Refuses endless nesting instead of following it."""
        loop: list[Any] = []
        loop.append(loop)
        with pytest.raises(InvalidRequestError, match="too deep"):
            Handles().resolve(loop)

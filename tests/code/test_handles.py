"""Results too large for a sandbox stay on the host."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolexec.code.handles import Handle, Handles
from toolexec.errors import ConfigurationError, InvalidRequestError

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
    assert handle == Handle(id="h1", type="array", bytes=len(text), length=20, preview=text[:500])
    assert handle.to_dict() == {"id": "h1", "type": "array", "bytes": len(text), "length": 20, "preview": text[:500]}


@pytest.mark.parametrize(
    ("value", "type_", "length"),
    [
        ("text", "string", 4),
        ({"a": 1}, "object", 1),
        ([1, 2], "array", 2),
        ((1, 2), "array", 6),
        (12345, "number", 5),
        (1.25, "number", 4),
        (True, "boolean", 4),
        (None, "null", 4),
    ],
    ids=repr,
)
def test_the_types(value: Any, type_: str, length: int) -> None:
    """They are JSON's; what has no items counts the characters of its JSON."""
    handle = keep(Handles(1), value)
    assert (handle.type, handle.length) == (type_, length)


def test_the_same_value_has_one_handle() -> None:
    """Asking again, or reading the whole of it, takes no more room."""
    handles = Handles(10)
    first = keep(handles, ISSUES)
    assert keep(handles, ISSUES) == first
    assert keep(handles, handles.read(first.id, limit=1000)).id == first.id
    assert keep(handles, list(ISSUES)).id == "h2"


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
        """A path selects, offset and limit cut lists and texts."""
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
        """What does not parse, or could make the value larger than it is, is refused with the reason."""
        handles = Handles(10)
        handle = keep(handles, ISSUES)
        with pytest.raises(InvalidRequestError):
            handles.read(handle.id, path=path)

    @pytest.mark.parametrize("part", [{"offset": -1}, {"limit": -1}])
    def test_negative_numbers(self, part: dict[str, int]) -> None:
        """They are refused: a slice from the end would be a surprise."""
        handles = Handles(10)
        handle = keep(handles, ISSUES)
        with pytest.raises(InvalidRequestError, match="0 or more"):
            handles.read(handle.id, **part)

    def test_an_unknown_handle(self) -> None:
        """The error names it."""
        with pytest.raises(InvalidRequestError, match="'h7'"):
            Handles().read("h7")


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

    @pytest.mark.parametrize("value", [{"$handle": 1}, {"$handle": "h1", "mine": 2}, {"handle": "h1"}], ids=str)
    def test_what_only_looks_like_one(self, value: Any) -> None:
        """It is left as it is."""
        handles = Handles(10)
        keep(handles, ISSUES)
        assert handles.resolve(value) == value

    def test_an_unknown_one(self) -> None:
        """It is refused."""
        with pytest.raises(InvalidRequestError, match="'h1'"):
            Handles().resolve([{"$handle": "h1"}])

    def test_many_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What they stand for together is bounded (1,000 bytes here): a short request cannot become a huge one."""
        monkeypatch.setattr("toolexec.code.handles._MAX_KEPT", 1000)
        handles = Handles(10)
        one = {"$handle": keep(handles, "x" * 298).id}
        assert handles.resolve([one] * 3) == ["x" * 298] * 3
        with pytest.raises(InvalidRequestError, match="together"):
            handles.resolve([one] * 4)

    def test_endless_nesting(self) -> None:
        """It is refused and not followed."""
        loop: list[Any] = []
        loop.append(loop)
        with pytest.raises(InvalidRequestError, match="too deep"):
            Handles().resolve(loop)

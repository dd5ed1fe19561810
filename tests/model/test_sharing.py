"""Equal values of many tools are one object."""

from __future__ import annotations

import enum

import pytest

from toolexec.errors import InvalidToolError
from toolexec.model import Tool, ToolAnnotations, sharing
from toolexec.model.sharing import shared_parts, shared_tags, shared_text


def fresh(text: str) -> str:
    """An equal text that is another object."""
    return "".join(list(text))


def tool(**parts: object) -> Tool:
    """A tool whose strings are objects of their own."""
    given = {"name": fresh("log"), "namespace": fresh("git"), "input_schema": True, **parts}
    return Tool(**given)  # pyright: ignore[reportArgumentType]


def test_tools_share_what_is_equal() -> None:
    """Namespace, name, version, title, tags and annotations are there once."""
    made = [
        tool(
            version=fresh("1.0"),
            title=fresh("Log"),
            tags=[fresh("ab"), "c"],
            annotations=ToolAnnotations(read_only=True),
        )
        for _ in range(2)
    ]
    for part in ("name", "namespace", "version", "title", "tags", "annotations"):
        assert getattr(made[0], part) is getattr(made[1], part)
    alone = Tool(name=fresh("alone"), input_schema=True)
    assert alone.id is alone.name


def test_a_restored_tool_shares_too() -> None:
    """A restored tool takes as little memory as a new one."""
    made = tool(version="1.0", title="Log")
    again = Tool.restored(made.id, fresh("Log"), "", "true")
    assert again == made.replace(tags=())
    for part in ("name", "namespace", "version", "title"):
        assert getattr(again, part) is getattr(made, part)


@pytest.mark.parametrize("tool_id", ["a", "a:b", "a:b:1.0"])
def test_parts_of_an_id(tool_id: str) -> None:
    """Name, namespace, version, as `ToolID` has them."""
    made = Tool.restored(tool_id, "", "", "true")
    assert shared_parts(tool_id) == (made.name, made.namespace, made.version)
    assert made == Tool(name=made.name, namespace=made.namespace, version=made.version, input_schema=True)


def test_only_plain_strings_are_shared() -> None:
    """An enum's member or another subclass of str does not turn up in tools that never had it."""

    class Title(enum.StrEnum):
        LOG = "only in an enum"

    assert shared_text(Title.LOG) is Title.LOG
    assert type(shared_text(fresh("only in an enum"))) is str
    first, second = "x" * 65, fresh("x" * 65)
    assert shared_text(second) is second is not first


def test_annotations_that_are_not_plain_stay() -> None:
    """A title is a tool's own, and a value that is not a boolean is refused."""
    titled = ToolAnnotations(title="T", read_only=True)
    assert tool(annotations=titled).annotations is titled
    with pytest.raises(InvalidToolError, match="read_only must be true or false"):
        ToolAnnotations(read_only=1)  # pyright: ignore[reportArgumentType]
    assert tool(annotations=ToolAnnotations(read_only=True)).annotations.read_only is True


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many different values do not pile up."""
    monkeypatch.setattr(sharing, "_MOST", 50)
    for number in range(500):
        tool(name=f"n{number}", tags=[f"t{number}"])
        assert len(sharing._strings) <= 53
        assert len(sharing._tags) <= 50
    for number in range(500):
        shared_parts(f"s{number}:n{number}:{number}")
        assert len(sharing._strings) <= 53


def test_many_tags_are_shared_one_by_one() -> None:
    """Long lists are seldom equal."""
    tags = tuple(f"tag{number}" for number in range(12))
    made = shared_tags(tags)
    assert made == tags
    assert made[0] is shared_tags((tags[0],))[0]
    assert shared_tags(made) is not made

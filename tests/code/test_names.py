"""What code calls a tool, and which tool that is."""

from __future__ import annotations

import keyword
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec import InMemoryIndex, LocalBinding, Tool
from toolexec.code.names import TOOLS_METHODS, ToolNames, attribute_path, paths_of, preferred, python_name, tool_at
from toolexec.errors import ToolNotFoundError
from toolexec.model import ToolID


def index_of(*tool_ids: str) -> InMemoryIndex:
    index = InMemoryIndex()
    for tool_id in tool_ids:
        add(index, tool_id)
    return index


def add(index: InMemoryIndex, tool_id: str) -> None:
    index.register(make(tool_id), LocalBinding(tool_id))


def make(tool_id: str) -> Tool:
    parsed = ToolID.parse(tool_id)
    return Tool(name=parsed.name, namespace=parsed.namespace, version=parsed.version, input_schema={"type": "object"})


class Listings(InMemoryIndex):
    """An index that counts how often all its tools are listed."""

    count = 0

    def tools(self) -> Any:
        self.count += 1
        return super().tools()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("create_issue", "create_issue"),
        ("list-issues", "list_issues"),
        ("get.file", "get_file"),
        ("import", "import_"),
        ("None", "None_"),
        ("match", "match"),
        ("2fa", "_2fa"),
        ("-x", "_x"),
        ("__init__", "_init__"),
        ("--", "_"),
        ("_own", "_own"),
        ("naïve", "na_ve"),
        ("", "_"),
    ],
)
def test_python_name(name: str, expected: str) -> None:
    """Letters, digits and `_` stay; keywords, digits at the start and several `_` there are given way to."""
    assert python_name(name) == expected


@given(st.text(max_size=40))
def test_a_python_name_can_always_be_written(name: str) -> None:
    """A Python name is an identifier, not a keyword, has no special meaning, and is its own Python name."""
    result = python_name(name)
    assert result.isidentifier()
    assert result.isascii()
    assert not keyword.iskeyword(result)
    assert not result.startswith("__")
    assert python_name(result) == result


@pytest.mark.parametrize("name", sorted(TOOLS_METHODS))
def test_what_tools_can_do_itself_stays_reachable(name: str) -> None:
    """A namespace or a lone tool of that name gets a `_`; inside a namespace the name is free."""
    assert attribute_path(name, name) == (f"{name}_", name)
    assert attribute_path("", name) == (f"{name}_",)


@pytest.mark.parametrize(
    ("path", "tool_id"),
    [
        (("github", "create_issue"), "github:create_issue"),
        (("github", "list_issues"), "github:list-issues"),
        (("my_ns", "get_file"), "my-ns:get.file"),
        (("echo",), "echo"),
        (("say_it",), "say-it"),
        (("run_",), "run"),
        (("search_", "web"), "search:web"),
        (("github",), "github"),
        (("v", "old"), "v:old"),
        (("v", "import_"), "v:import"),
    ],
)
def test_tool_at(path: tuple[str, ...], tool_id: str) -> None:
    """The exact name, else the only one that comes to it; a version is left to the index."""
    index = index_of(
        "github:create_issue",
        "github:list-issues",
        "my-ns:get.file",
        "echo",
        "say-it",
        "run",
        "search:web",
        "github",
        "v:old:1.0.0",
        "v:old:1.10.0",
        "v:import:1.0.0",
        "v:import:2.0.0",
    )
    assert tool_at(index, path) == tool_id
    assert index.find(tool_id) is not None


def test_the_exact_name_wins() -> None:
    """Another tool that comes to the same name cannot take it away."""
    index = index_of("a:do-it", "a:do_it", "a:do.it")
    assert tool_at(index, ["a", "do_it"]) == "a:do_it"


def test_a_shared_name_is_nobodys() -> None:
    """The error lists the tools that it could be."""
    with pytest.raises(ToolNotFoundError) as caught:
        tool_at(index_of("a:do-it", "a:do.it"), ["a", "do_it"])
    assert caught.value.details["close"] == ["a:do-it", "a:do.it"]
    assert caught.value.details["ambiguous"] is True


@pytest.mark.parametrize(
    ("path", "close"),
    [
        (("github", "create_isue"), ["github:create-issue"]),
        (("github", "zzz"), ["github:create-issue", "github:star"]),
        (("githb", "star"), ["github:star"]),
        (("githb", "zzz"), ["github:create-issue", "github:star"]),
        (("github",), ["github:create-issue", "github:star"]),
        (("ech",), ["echo"]),
        (("nothing", "like"), []),
        (("github", "star", "more"), []),
        ((), []),
    ],
)
def test_an_unknown_path_gives_what_may_be_meant(path: tuple[str, ...], close: list[str]) -> None:
    """Similar names of the namespace, else some of its tools, else those of a similar namespace."""
    with pytest.raises(ToolNotFoundError) as caught:
        tool_at(index_of("github:create-issue", "github:star", "echo"), path)
    assert sorted(caught.value.details["close"]) == close


def test_the_error_names_no_tool_that_code_may_not_see() -> None:
    """Neither similar ones nor those that share a name."""
    index = index_of("a:do-it", "a:do.it", "a:done")
    for path in (("a", "do_it"), ("a", "don")):
        with pytest.raises(ToolNotFoundError) as caught:
            tool_at(index, path, allowed=lambda tool_id: tool_id == "a:nothing")
        assert caught.value.details == {"close": []}


@pytest.mark.parametrize("path", [("a:b",), ("a", "b:1.0.0"), ("", "b"), ("a", ""), ("a", "b\n"), ("a:b", "1.0.0")])
def test_a_path_is_no_way_around_an_id(path: tuple[str, ...]) -> None:
    """Parts that no code can write as attributes lead nowhere."""
    with pytest.raises(ToolNotFoundError):
        tool_at(index_of("a:b", "b", "a:b:1.0.0"), path)


def test_a_huge_name_is_not_repeated() -> None:
    """A requested name comes back cut."""
    with pytest.raises(ToolNotFoundError) as caught:
        tool_at(index_of("a:b"), ["a" * 100_000, "b" * 100_000])
    assert len(caught.value.tool_id or "") < 1_000


def test_exact_names_need_no_listing() -> None:
    """Exact names are one lookup, however many tools there are."""
    index = Listings()
    add(index, "a:b")
    names = ToolNames(index)
    assert names.at(["a", "b"]) == "a:b"
    assert index.count == 0


def test_other_names_are_learned_once_for_each_state() -> None:
    """A changed index is listed again, so that new tools are found and removed ones are not."""
    index = Listings()
    add(index, "a:b-c")
    names = ToolNames(index)
    assert [names.at(["a", "b_c"]) for _ in range(3)] == ["a:b-c"] * 3
    assert index.count == 1
    add(index, "a:d-e")
    assert names.at(["a", "d_e"]) == "a:d-e"
    assert index.count == 2
    index.unregister("a:b-c")
    with pytest.raises(ToolNotFoundError):
        names.at(["a", "b_c"])


def test_tool_at_remembers_an_index_as_long_as_it_lives() -> None:
    """Remembers an index as long as it lives, and works with one that cannot be remembered."""
    index = Listings()
    add(index, "a:b-c")
    assert [tool_at(index, ["a", "b_c"]) for _ in range(3)] == ["a:b-c"] * 3
    assert index.count == 1

    class Unhashable(Listings):
        __hash__ = None  # type: ignore[assignment]

    other = Unhashable()
    add(other, "a:b-c")
    assert [tool_at(other, ["a", "b_c"]) for _ in range(2)] == ["a:b-c"] * 2
    assert other.count == 2


def test_path_of() -> None:
    """The attributes that lead to a tool; None for one that only its ID reaches."""
    index = index_of("a:b-c", "a:b_c", "a:d-e", "v:w:1.0.0", "v:w:2.0.0", "x-1:y", "lone")
    names = ToolNames(index)
    paths = {entry.tool.id: names.path_of(entry.tool) for entry in index.tools()}
    assert paths == {
        "a:b-c": None,
        "a:b_c": ("a", "b_c"),
        "a:d-e": ("a", "d_e"),
        "v:w:1.0.0": None,
        "v:w:2.0.0": ("v", "w"),
        "x-1:y": ("x_1", "y"),
        "lone": ("lone",),
    }


@pytest.mark.parametrize("order", [1, -1])
def test_paths_of_agrees_with_tool_at(order: int) -> None:
    """In any order the exact name wins, and a shared one belongs to no tool."""
    ids = ["a:b-c", "a:b_c", "a:b.c", "a:d-e", "a:d.e", "x-1:y", "x.1:y", "x-1:z", "run"][::order]
    names = ToolNames(index_of(*ids))
    keys = {(make(tool_id).namespace, make(tool_id).name): tool_id for tool_id in ids}
    found = paths_of(keys)
    assert found == {key: names.path_of(make(tool_id)) for key, tool_id in keys.items()}
    assert found["a", "b_c"] == ("a", "b_c")
    assert found["a", "d-e"] is None
    assert found["x-1", "z"] == ("x_1", "z")


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["1.2.0", "1.10.0", "1.9.0"], "a:b:1.10.0"),
        (["1.2.0", "", "2.0.0"], "a:b"),
        (["latest", "0.1.0"], "a:b:0.1.0"),
        (["beta", "alpha"], "a:b:beta"),
    ],
)
def test_preferred_chooses_as_an_index_does(versions: list[str], expected: str) -> None:
    """No version, else the highest semantic one, else the last text."""
    ids = [f"a:b:{version}".rstrip(":") for version in versions]
    found = index_of(*ids).find("a:b")
    assert found is not None
    assert preferred(map(make, ids))["a", "b"].id == expected == found.tool.id


@pytest.mark.parametrize(
    ("path", "tool_id"),
    [
        (("github", "createIssue"), "github:create-issue"),
        (("GitHub", "create_issue"), "github:create-issue"),
        (("github__create_issue",), "github:create-issue"),
        (("create_issue",), "github:create-issue"),
        (("createIssue",), "github:create-issue"),
    ],
)
def test_another_spelling_of_the_only_tool(path: tuple[str, ...], tool_id: str) -> None:
    """Case, `_` and a missing namespace do not matter where only one tool can be meant."""
    assert tool_at(index_of("github:create-issue", "github:close"), path) == tool_id


def test_another_spelling_of_several_tools() -> None:
    """Of several tools none is called, unless the program may call only one; the error lists them."""
    index = index_of("a:get_one", "b:get_one", "b:getOne")
    with pytest.raises(ToolNotFoundError) as caught:
        tool_at(index, ("get_one",))
    assert set(caught.value.close) == {"a:get_one", "b:get_one", "b:getOne"}
    assert tool_at(index, ("get_one",), allowed=lambda tool_id: tool_id == "a:get_one") == "a:get_one"
    assert tool_at(index, ("b", "getOne")) == "b:getOne"
    with pytest.raises(ToolNotFoundError):
        tool_at(index, ("b", "get__one"))


def test_an_unknown_namespace() -> None:
    """The tools of that name, or with these words, are what was meant; none of them is called."""
    index = index_of("shop:list_orders", "shop:get_order", "mail:send")
    for path, close in ((("orders", "list_orders"), "shop:list_orders"), (("orders", "get"), "shop:get_order")):
        with pytest.raises(ToolNotFoundError) as caught:
            tool_at(index, path)
        assert caught.value.close == (close,)


@pytest.mark.parametrize(
    ("there", "name", "first"),
    [
        (("get_vessel", "list_berths", "assign_berth"), "get_berths", "a:list_berths"),
        (
            ("list_blocks", "get_container", "search_containers", "move_container"),
            "list_containers",
            "a:search_containers",
        ),
        (("extend_loan", "list_borrowed"), "list_loans", "a:list_borrowed"),
    ],
)
def test_what_a_tool_is_of_counts_more_than_its_verb(there: tuple[str, ...], name: str, first: str) -> None:
    """The first tool that may be meant is of the same thing, and one that reads for one that reads."""
    with pytest.raises(ToolNotFoundError) as caught:
        tool_at(index_of(*(f"a:{each}" for each in there)), ("a", name))
    assert caught.value.close[0] == first

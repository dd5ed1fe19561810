"""Names that vendors allow."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.adapter import NameMap, vendor_name
from toolexec.errors import ToolNotFoundError
from toolexec.model import ToolID

LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
segments = st.from_regex(r"[a_.\-+]{1,6}", fullmatch=True) | st.sampled_from(["a" * 128, "b" * 90, "9", "-"])
names = st.builds(
    lambda name, namespace: str(ToolID(name.replace("+", "-"), namespace.replace("+", "-"))),
    segments,
    segments | st.just(""),
)


@pytest.mark.full
@given(st.sets(names, max_size=40), st.booleans())
def test_no_two_tools_share_a_name(ids: set[str], letter_first: bool) -> None:
    """Whatever they are called, every name is legal, is one tool's, and leads back to it."""
    found = NameMap(ids, letter_first=letter_first)
    vendor = {tool_id: found.to_vendor(tool_id) for tool_id in ids}
    assert len(set(vendor.values())) == len(ids)
    assert all(LEGAL.fullmatch(name) for name in vendor.values())
    assert all(found.to_id(name) == tool_id for tool_id, name in vendor.items())
    if letter_first:
        assert all(re.match(r"[A-Za-z_]", name) for name in vendor.values())


@pytest.mark.full
@given(st.lists(names, unique=True, max_size=20), st.randoms())
def test_the_order_does_not_matter(ids: list[str], rng: random.Random) -> None:
    """The same tools have the same names."""
    shuffled = list(ids)
    rng.shuffle(shuffled)
    assert NameMap(ids).to_dict() == NameMap(shuffled).to_dict()


def test_a_tool_cannot_take_the_hashed_name_of_another() -> None:
    """Not even one that was named after it."""
    honest = ["a.b", "a_b"]
    target = NameMap(honest).to_vendor("a.b")
    found = NameMap([*honest, target])
    assert len({found.to_vendor(tool_id) for tool_id in found}) == 3
    assert found.to_id(found.to_vendor(target)) == target


def test_names_stay_readable() -> None:
    """A tool on its own has the plain name; where several come to the same, none of them has."""
    found = NameMap(["git:log:1.2.0", "x", "x.y", "x-y", "x_y"])
    assert found.to_vendor("git:log:1.2.0") == "git__log__1_2_0" == vendor_name("git:log:1.2.0")
    assert found.to_vendor("x-y") == "x-y"
    assert re.fullmatch(r"x_y_[0-9a-f]{8}", found.to_vendor("x.y"))
    assert list(found) == sorted(found)
    assert len(found) == 5
    assert "x" in found
    assert "y" not in found


def test_a_long_name_keeps_its_beginning() -> None:
    """A long name keeps its beginning and ends in a hash."""
    name = vendor_name("n:" + "a" * 100)
    assert len(name) == 64
    assert name.startswith("n__aaa")
    assert vendor_name("2fa") == "2fa"
    assert vendor_name("2fa", letter_first=True) == "_2fa"


def test_reserved_names_are_nobodys() -> None:
    """A tool of that name gets another one."""
    found = NameMap(["search_tools"], reserved=["search_tools"])
    assert found.to_vendor("search_tools") != "search_tools"
    assert found.to_id("search_tools") == "search_tools", "as an ID it is itself"


def test_a_name_of_another_set_is_understood() -> None:
    """As long as it is one tool's only."""
    pair = NameMap(["a.b", "a_b"])
    alone = NameMap(["a.b"])
    assert alone.to_id(pair.to_vendor("a.b")) == "a.b"
    assert pair.to_id("a_b") == "a_b"
    with pytest.raises(ToolNotFoundError):
        NameMap(["a.b", "a+b:c", "a-b.c", "x.y:z", "x_y:z"]).to_id("x_y__z")


def test_an_unknown_name_suggests_others() -> None:
    """In the words of the vendor."""
    found = NameMap(["shop:price"])
    with pytest.raises(ToolNotFoundError) as caught:
        found.to_id("shop_price")
    assert caught.value.details["close"] == ["shop__price"]
    with pytest.raises(ToolNotFoundError):
        found.to_vendor("shop:other")

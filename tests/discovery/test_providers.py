"""What providers say of themselves, kept by ID."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.adapter.provider_card import ProviderCard
from toolexec.discovery import Discovery
from toolexec.discovery.providers import InMemoryProviderStore
from toolexec.errors import ConfigurationError, ProviderNotFoundError
from toolexec.model import Tool

TRIP = Tool(name="trip", input_schema={"type": "object"})


def card(name: str = "Travel", version: str = "1.0.0", **parts: Any) -> ProviderCard:
    return ProviderCard(name=name, version=version, **parts)


def test_register_describe_list_remove() -> None:
    """The ID is made of name and version unless one is given; the list has the IDs, in order."""
    store = InMemoryProviderStore()
    assert store.register(card("Beta", skills=(TRIP,))) == "Beta:1.0.0"
    assert store.register(card("Alpha"), "zz:with:colons") == "zz:with:colons"
    assert store.register(card("Alpha", "")) == "Alpha"
    assert [id for id, _ in store.list()] == ["Alpha", "Beta:1.0.0", "zz:with:colons"]
    assert store.describe("Beta:1.0.0").skills == (TRIP,)
    store.remove("zz:with:colons")
    assert [id for id, _ in store.list()] == ["Alpha", "Beta:1.0.0"]


def test_a_known_id_gets_the_new_card() -> None:
    """The latest card counts."""
    store = InMemoryProviderStore(max_providers=1)
    store.register(card(description="old"))
    store.register(card(description="new"))
    assert store.describe("Travel:1.0.0").description == "new"


def test_nobody_can_change_what_is_kept() -> None:
    """Neither the giver of a card nor its reader can change it."""
    schemes: dict[str, Any] = {"key": {"in": ["header"]}}
    store = InMemoryProviderStore()
    given: Any = card(security_schemes=schemes)
    id = store.register(given)
    schemes["key"]["in"].append("query")
    given.security_schemes["key"]["in"].append("path")
    got: Any = store.describe(id)
    assert got.security_schemes == {"key": {"in": ["header"]}}
    got.security_schemes["key"]["in"].append("cookie")
    store.list()[0][1].security_schemes.clear()  # type: ignore[attr-defined]
    assert store.describe(id).security_schemes == {"key": {"in": ["header"]}}


@pytest.mark.parametrize("id", ["", "  ", "a\nb", "x" * 513, 5])
def test_ids_that_cannot_be(id: Any) -> None:
    """Refuses invalid IDs on every path."""
    store = InMemoryProviderStore()
    for ask in (store.describe, store.remove, lambda given: store.register(card(), given)):
        with pytest.raises(ConfigurationError):
            ask(id)
    assert store.list() == []


def test_what_is_no_card() -> None:
    """Refuses an invalid card and keeps nothing of it."""
    store = InMemoryProviderStore()
    for bad in ("card", {"name": "a"}, None):
        with pytest.raises(ConfigurationError, match="takes a ProviderCard"):
            store.register(bad)  # type: ignore[arg-type]
    assert store.list() == []


def test_unknown_ones() -> None:
    """The error has similar IDs, if there are any."""
    store = InMemoryProviderStore()
    store.register(card())
    for ask in (store.describe, store.remove):
        with pytest.raises(ProviderNotFoundError, match=r"did you mean Travel:1\.0\.0") as caught:
            ask("Travel:1.0.1")
        assert caught.value.details["close"] == ["Travel:1.0.0"]
    with pytest.raises(ProviderNotFoundError, match="list has all"):
        store.describe("zzz")


def test_there_is_an_end_of_room() -> None:
    """A full store takes no other card, and says what to do."""
    store = InMemoryProviderStore(max_providers=1)
    store.register(card())
    with pytest.raises(ConfigurationError, match="raise max_providers"):
        store.register(card("Other"))
    with pytest.raises(ConfigurationError, match="1 or more"):
        InMemoryProviderStore(max_providers=0)


def test_by_way_of_discovery() -> None:
    """The facade keeps cards in a store of its own, or in yours."""
    store = InMemoryProviderStore()
    for discovery in (Discovery(), Discovery(providers=store)):
        assert discovery.register_provider(card()) == "Travel:1.0.0"
        assert discovery.register_provider(card(), "mine") == "mine"
        assert discovery.describe_provider("mine") == card()
        assert [id for id, _ in discovery.list_providers()] == ["Travel:1.0.0", "mine"]
    assert len(store.list()) == 2

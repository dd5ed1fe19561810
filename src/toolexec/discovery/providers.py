"""Which providers of tools there are, and what each says of itself."""

from __future__ import annotations

import difflib
import threading
from typing import Final, Protocol

from toolexec.adapter.provider_card import ProviderCard
from toolexec.errors import ConfigurationError, ProviderNotFoundError

_MAX_ID: Final = 512
_MAX_CLOSE: Final = 3


class ProviderStore(Protocol):
    """Keeps the cards of providers. What goes in and what comes out are copies, so that no caller can change what is
    kept. Every method is safe to call from several threads at once."""

    def register(self, card: ProviderCard, id: str | None = None) -> str:
        """Keep a card, in place of an earlier one with the same ID, and give the ID: *id*, or the card's own.

        Raises ConfigurationError for what is not a card, and for an ID that cannot be one.
        """
        ...

    def describe(self, id: str) -> ProviderCard:
        """Return the card with this ID; raises ConfigurationError for what cannot be an ID, and
        ProviderNotFoundError."""
        ...

    def list(self) -> list[tuple[str, ProviderCard]]:
        """Return all cards with their IDs, by ID."""
        ...

    def remove(self, id: str) -> None:
        """Forget a card; raises as `describe` does."""
        ...


class InMemoryProviderStore:
    """A `ProviderStore` in this process's memory, for at most *max_providers* cards."""

    def __init__(self, *, max_providers: int = 10_000) -> None:
        """Raises ConfigurationError for a limit below 1."""
        if max_providers < 1:
            raise ConfigurationError(f"max_providers must be 1 or more, not {max_providers}")
        self._max = max_providers
        self._lock = threading.Lock()
        self._cards: dict[str, ProviderCard] = {}

    def register(self, card: ProviderCard, id: str | None = None) -> str:
        """Keep a card; see `ProviderStore.register`. Raises ConfigurationError when there is no room for another."""
        if not isinstance(card, ProviderCard):
            raise ConfigurationError(
                f"register takes a ProviderCard, not {type(card).__name__}", code="invalid_provider"
            )
        key = _checked(card.id if id is None else id)
        kept = card.copy()
        with self._lock:
            if key not in self._cards and len(self._cards) >= self._max:
                raise ConfigurationError(f"there are {self._max} providers already; remove one, or raise max_providers")
            self._cards[key] = kept
        return key

    def describe(self, id: str) -> ProviderCard:
        """Return the card with this ID; see `ProviderStore.describe`."""
        with self._lock:
            card = self._cards.get(_checked(id))
        if card is None:
            raise self._not_found(id)
        return card.copy()

    def list(self) -> list[tuple[str, ProviderCard]]:
        """Return all cards with their IDs, by ID."""
        with self._lock:
            cards = sorted(self._cards.items(), key=lambda item: item[0])
        return [(id, card.copy()) for id, card in cards]

    def remove(self, id: str) -> None:
        """Forget a card; see `ProviderStore.remove`."""
        with self._lock:
            card = self._cards.pop(_checked(id), None)
        if card is None:
            raise self._not_found(id)

    def _not_found(self, id: str) -> ProviderNotFoundError:
        with self._lock:
            known = [*self._cards]
        close = difflib.get_close_matches(id, known, n=_MAX_CLOSE)
        hint = f"; did you mean {' or '.join(close)}?" if close else "; list has all of them"
        return ProviderNotFoundError(f"no provider {id}{hint}", details={"close": close})


def _checked(id: object) -> str:
    if not isinstance(id, str) or not id.strip():
        raise ConfigurationError("a provider's ID must be a text, and not empty", code="invalid_provider")
    if len(id) > _MAX_ID or not id.isprintable():
        raise ConfigurationError(
            f"a provider's ID has at most {_MAX_ID} characters, all of them printable", code="invalid_provider"
        )
    return id

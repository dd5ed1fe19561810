"""Answers of clients to what a server asks them, as records by which they reach it from another server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final, Literal, TypeAlias, TypeVar

from toolexec.errors import ConfigurationError, StateError
from toolexec.process.poll import pauses
from toolexec.server.sealing import opened, sealed
from toolexec.server.state import StateStore, key_of

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")
Forwarded: TypeAlias = Literal["taken", "gone", "too_long"]
"""What became of an answer: the server that asked has it; none waits for it; it is too long to be passed on."""

_OPEN: Final = "open"
_TAKEN: Final = "taken"
_SILENT: Final = 6.0  # a server that has not looked for so long does not wait any more
_KEPT: Final = 60.0
_LONGEST: Final = 256 << 10
_FIRST, _PAUSE = 0.1, 1.0


@dataclass(frozen=True, slots=True)
class QuestionName:
    """A question to the client of a session, and the key of the caller that both belong to."""

    session: str
    question: str
    owner: str


class KeptReplies:
    """The records of questions that are open at *endpoint*, in what *store* gives.

    Only an open question takes an answer, and only one. An answer is at most 256 KiB long, there for a minute, and
    encrypted with the first of *keys* and with what only the session's client knows.
    """

    def __init__(self, store: Callable[[], StateStore | None], keys: Sequence[str] = (), endpoint: str = "") -> None:
        self._store = store
        self._keys = tuple(keys) or ("",)
        self._endpoint = endpoint

    async def open(self, name: QuestionName) -> bool:
        """Keep that this server waits for an answer; return whether that is kept."""

        async def put(store: StateStore) -> bool:
            await store.put("stream", self._key(name), _OPEN, _SILENT)
            return True

        return await self._try(put) or False

    async def close(self, name: QuestionName) -> None:
        """Keep that nobody waits for an answer any more."""
        await self._try(lambda store: store.delete("stream", self._key(name)))

    async def answer(self, name: QuestionName) -> bytes:
        """Wait for the answer to an open question, and take it."""
        for pause in pauses(_FIRST, _PAUSE):
            await asyncio.sleep(pause)
            found = await self._try(lambda store: self._take(store, name))
            if found is not None:
                return found
        raise AssertionError

    async def give(self, name: QuestionName, answer: bytes) -> Forwarded:
        """Pass an answer on to the server that waits for it, and wait until that has it. Raises StateError and
        ConfigurationError where the store cannot be used."""
        store, key = self._store(), self._key(name)
        if store is None or await store.get("stream", key) != _OPEN:
            return "gone"
        if len(answer) > _LONGEST:
            return "too_long"
        text = sealed(answer, self._keys[0], self._secret(name), self._about(name))
        if not await store.swap("stream", key, _OPEN, text, _KEPT):
            return "gone"
        until = monotonic() + _SILENT
        for pause in pauses(_FIRST, _PAUSE):
            await asyncio.sleep(pause)
            found = await store.get("stream", key)
            if found != text:
                return "taken" if found == _TAKEN else "gone"
            if monotonic() >= until:
                break
        return "gone" if await store.swap("stream", key, text, _OPEN, _SILENT) else "taken"

    async def _take(self, store: StateStore, name: QuestionName) -> bytes | None:
        key = self._key(name)
        if await store.swap("stream", key, _OPEN, _OPEN, _SILENT):
            return None
        text = await store.get("stream", key)
        if text is None:  # this server was silent for too long
            await store.add("stream", key, _OPEN, _SILENT)
            return None
        found = opened(text, self._keys, self._secret(name), self._about(name))
        if found is None or not await store.swap("stream", key, text, _TAKEN, _KEPT):
            return None
        return found

    def _key(self, name: QuestionName) -> str:
        return key_of(self._endpoint, "question", name.session, name.question, name.owner)

    def _secret(self, name: QuestionName) -> str:
        return f"{name.session}\0{name.question}"

    def _about(self, name: QuestionName) -> tuple[str, ...]:
        return ("reply", self._endpoint, name.owner)

    async def _try(self, do: Callable[[StateStore], Awaitable[T]]) -> T | None:
        try:
            store = self._store()
            return await do(store) if store is not None else None
        except (ConfigurationError, StateError) as error:
            logger.error("a client's answer could not come from another server: %s", error)
            return None

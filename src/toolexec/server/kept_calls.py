"""Calls that wait between two requests, as records that outlive the server and that others can go on with.

A record says whose call it is and what it asks, but not what it is: the client repeats that. So a call can be made from
its beginning as long as nothing was done for it, and with the answers that its questions have got meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from toolexec.errors import ApprovalRequiredError, ConfigurationError, StateError
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest
from toolexec.server.elicitation import answer_in
from toolexec.server.state import StateStore, key_of

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")
_SLACK: Final = 60.0
_REMEMBERED: Final = 3600.0


def _used() -> str:
    """Return the record of a call that a server goes on with; no other is the same, so the server that wrote it knows
    it again."""
    return json.dumps({"used": secrets.token_hex(8)})


def about(request: ApprovalRequest) -> str:
    """Return what a question is about, as a short text: the same for every process, and for no other question."""
    caller = request.caller
    facts = [
        request.tool_id, request.args, request.reason, request.description, request.path, request.backend,
        request.longest, caller.method, caller.realm, caller.id,
    ]  # fmt: skip
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def refuse_state(why: str) -> NoReturn:
    """Raise MCPError for a state that cannot be used, which *why* says."""
    raise MCPError(code=INVALID_PARAMS, message=why, data={"reason": "invalid_request_state"})


class KeptCall:
    """The record of one call, as the server that works on it sees it.

    `is_begun` says that something was done for it: from then on no server begins it again.

    The store may be a server that fails between a change and its answer. So a change that may have been made already is
    known again by its text, which no other process writes, and a record that may not be there is made by who needs it.
    """

    def __init__(self, calls: KeptCalls, key: str, owner: str, digest: str) -> None:
        self.is_begun: bool = False
        self._calls = calls
        self._key = key
        self._facts: JSONDict = {"owner": owner, "digest": digest}
        self._text = ""
        self._is_sure = True
        self._used = _used()
        self._guard = threading.Lock()
        self._is_waiting = False
        self._order = asyncio.Lock()

    async def wait(self, number: int, asked: Mapping[str, str], timeout: float) -> None:
        """Keep that it waits for at most *timeout* seconds, for the answers number *number*: to *asked*, what its
        questions are about. Where that cannot be kept, this process alone can go on with it."""
        with self._guard:
            self._is_waiting = True  # from here on nothing begins without a look at the record
        async with self._order:
            facts = {**self._facts, "number": number, "asked": dict(asked), "until": time.time() + timeout}
            text = json.dumps({**facts, "begun": self.is_begun})
            is_kept = await self._calls.write(self._key, text, timeout)
            self._text, self._is_sure, self._used = text if is_kept is not False else "", is_kept is True, _used()
            self._is_waiting = bool(self._text)

    async def claim(self) -> bool:
        """Return whether this server may go on with it: no other one does then. Raises MCPError where that cannot be
        found out; it can be tried again."""
        async with self._order:
            if self._text and not await self._replace(self._used):
                return False
            self._text, self._is_waiting = "", False
            return True

    def begin(self) -> Awaitable[None] | None:
        """Keep, before it is done, that something is done for it; any thread may call this, and awaits what it returns
        on the event loop, before it is done.

        That raises ApprovalRequiredError where another server goes on with it, or where this cannot be found out.
        """
        with self._guard:
            if self.is_begun:
                return None
            if not self._is_waiting:
                self.is_begun = True
                return None
        return self._begin()

    async def _begin(self) -> None:
        async with self._order:
            if self.is_begun:
                return
            if self._text:
                facts = json.loads(self._text)
                begun = json.dumps({**facts, "begun": True})
                try:
                    left = max(facts["until"] - time.time(), 0.0) + _SLACK
                    is_ours = await self._replace(begun, left)
                except MCPError as error:
                    raise ApprovalRequiredError(
                        "the store of waiting calls cannot be reached", retryable=True
                    ) from error
                if not is_ours:
                    raise ApprovalRequiredError("another server goes on with this call")
                self._text, self._is_sure = begun, True
            self.is_begun = True

    async def _replace(self, new: str, ttl: float = _REMEMBERED) -> bool:
        """Have the record be *new* in place of what this server has written; return whether it is."""
        if await self._calls.swap(self._key, self._text, new, ttl):
            return True
        found = await self._calls.read(self._key)
        if found is None and not self._is_sure:
            return await self._calls.add(self._key, new, ttl) or await self._calls.read(self._key) == new
        return found == new


class KeptCalls:
    """The records of the calls that wait at *endpoint*, in what *store* gives; None keeps nothing."""

    def __init__(self, store: Callable[[], StateStore | None], endpoint: str = "") -> None:
        self._store = store
        self._endpoint = endpoint

    def call(self, name: str, owner: str, digest: str) -> KeptCall:
        """Return the record of a call of *owner* with the ID *name*; nothing is written yet."""
        return KeptCall(self, key_of(self._endpoint, name), owner, digest)

    async def take(
        self, name: str, number: str, owner: str, digest: str, replies: Mapping[str, object]
    ) -> dict[str, list[ApprovalAnswer]]:
        """Take over a call that another process has left, and return the answers among *replies* by what they are
        about. Raises MCPError where there is no such call, or it is not to be made again."""
        key = key_of(self._endpoint, name)
        text = await self.read(key)
        if text is None:
            refuse_state("this requestState is not good any more: it is not known here, or has expired; "
                         "nothing was run again")  # fmt: skip
        facts: Any = json.loads(text)
        used = "this requestState is not good any more: it was used before; nothing was run again"
        if "used" in facts:
            refuse_state(used)
        if facts["owner"] != owner or facts["digest"] != digest:
            refuse_state("this requestState belongs to another call")
        if number != str(facts["number"]):
            refuse_state(used)
        if time.time() > facts["until"]:
            refuse_state("this requestState is not good any more: it has expired; nothing was run again")
        if facts["begun"]:  # it is left to that server, which may live
            refuse_state("another server works on this call, or has ended; what it did until then is unknown, and "
                         "nothing was run again")  # fmt: skip
        if not await self.swap(key, text, _used()):
            refuse_state(used)
        answers: dict[str, list[ApprovalAnswer]] = {}
        for asked, what in facts["asked"].items():
            if asked in replies:
                answers.setdefault(what, []).append(answer_in(replies[asked]))
        return answers

    async def write(self, key: str, text: str, timeout: float) -> bool | None:
        """Write a record, and return whether it is kept; None where that is not known."""
        try:
            if (store := self._store()) is None:
                return False
            await store.put("suspended", key, text, timeout + _SLACK)
        except (ConfigurationError, StateError) as error:
            logger.error("a call that waits would not outlive this server: %s", error)
            return None if isinstance(error, StateError) else False
        return True

    async def swap(self, key: str, old: str, new: str, ttl: float = _REMEMBERED) -> bool:
        """Replace a record that is *old*; return whether it was. Raises MCPError where the store cannot be reached."""
        return await self._do(lambda store: store.swap("suspended", key, old, new, ttl)) or False

    async def add(self, key: str, text: str, ttl: float) -> bool:
        """Keep a record where there is none; return whether there was none. Raises MCPError as `swap` does."""
        return await self._do(lambda store: store.add("suspended", key, text, ttl)) or False

    async def read(self, key: str) -> str | None:
        """Return a record, if there is one. Raises MCPError as `swap` does."""
        return await self._do(lambda store: store.get("suspended", key))

    async def _do(self, do: Callable[[StateStore], Awaitable[T]]) -> T | None:
        try:
            store = self._store()
            return await do(store) if store is not None else None
        except (ConfigurationError, StateError) as error:
            logger.error("%s", error)
            raise MCPError(
                code=INTERNAL_ERROR,
                message="the store of waiting calls cannot be reached; try again later",
                data={"reason": "state_unavailable", "retryable": True},
            ) from None

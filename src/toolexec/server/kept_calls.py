"""Calls that wait between two requests, as records that outlive the server and that others can go on with.

A record says whose call it is and what it asks, but not what it is: the client repeats that. So a call can be made from
its beginning as long as nothing was done for it, and with the answers that its questions have got meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from toolexec.errors import ApprovalRequiredError, ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest
from toolexec.server.elicitation import answer_in
from toolexec.server.state import StateStore, key_of

__all__ = ["KeptCall", "KeptCalls", "about", "refuse_state"]

logger: logging.Logger = logging.getLogger(__name__)
_USED: Final = '{"used": true}'
_SLACK: Final = 60.0
_REMEMBERED: Final = 3600.0


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
    """

    def __init__(self, calls: KeptCalls, key: str, owner: str, digest: str) -> None:
        self.is_begun: bool = False
        self._calls = calls
        self._key = key
        self._facts: JSONDict = {"owner": owner, "digest": digest}
        self._text = ""

    def wait(self, number: int, asked: Mapping[str, str], timeout: float) -> None:
        """Keep that it waits for at most *timeout* seconds, for the answers number *number*: to *asked*, what its
        questions are about. Where that cannot be kept, this process alone can go on with it."""
        facts = {**self._facts, "number": number, "asked": dict(asked), "until": time.time() + timeout}
        self._text = self._calls.write(self._key, {**facts, "begun": self.is_begun}, timeout)

    def claim(self) -> bool:
        """Return whether this server may go on with it: no other one does then. Raises MCPError where that cannot be
        found out."""
        text, self._text = self._text, ""
        return not text or self._calls.swap(self._key, text, _USED)

    def begin(self) -> None:
        """Keep, before it is done, that something is done for it; any thread may call this.

        Raises ApprovalRequiredError where another server goes on with it, or that cannot be found out.
        """
        if self.is_begun:
            return
        text = self._text
        if text:
            facts = json.loads(text)
            begun = json.dumps({**facts, "begun": True})
            try:
                left = max(facts["until"] - time.time(), 0.0) + _SLACK
                is_ours = self._calls.swap(self._key, text, begun, left)
            except MCPError as error:
                raise ApprovalRequiredError("the store of waiting calls cannot be reached", retryable=True) from error
            if not is_ours:
                raise ApprovalRequiredError("another server goes on with this call")
            self._text = begun
        self.is_begun = True


class KeptCalls:
    """The records of the calls that wait at *endpoint*, in what *store* gives; None keeps nothing."""

    def __init__(self, store: Callable[[], StateStore | None], endpoint: str = "") -> None:
        self._store = store
        self._endpoint = endpoint

    def call(self, name: str, owner: str, digest: str) -> KeptCall:
        """Return the record of a call of *owner* with the ID *name*; nothing is written yet."""
        return KeptCall(self, key_of(self._endpoint, name), owner, digest)

    def take(
        self, name: str, number: str, owner: str, digest: str, replies: Mapping[str, object]
    ) -> dict[str, list[ApprovalAnswer]]:
        """Take over a call that another process has left, and return the answers among *replies* by what they are
        about. Raises MCPError where there is no such call, or it is not to be made again."""
        key = key_of(self._endpoint, name)
        text = self._read(key)
        if text is None:
            refuse_state("this requestState is not good any more: it is not known here, or has expired; "
                         "nothing was run again")  # fmt: skip
        facts: Any = json.loads(text)
        used = "this requestState is not good any more: it was used before; nothing was run again"
        if text == _USED:
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
        if not self.swap(key, text, _USED):
            refuse_state(used)
        answers: dict[str, list[ApprovalAnswer]] = {}
        for asked, what in facts["asked"].items():
            if asked in replies:
                answers.setdefault(what, []).append(answer_in(replies[asked]))
        return answers

    def write(self, key: str, facts: JSONDict, timeout: float) -> str:
        """Write a record, and return it; empty where nothing is kept."""
        text = json.dumps(facts)
        try:
            if (store := self._store()) is None:
                return ""
            store.put("suspended", key, text, timeout + _SLACK)
        except ConfigurationError as error:
            logger.error("a call that waits would not outlive this server: %s", error)
            return ""
        return text

    def swap(self, key: str, old: str, new: str, ttl: float = _REMEMBERED) -> bool:
        """Replace a record that is *old*; return whether it was. Raises MCPError where the store cannot be reached."""
        try:
            store = self._store()
            return store is not None and store.swap("suspended", key, old, new, ttl)
        except ConfigurationError as error:
            raise _unreachable(error) from None

    def _read(self, key: str) -> str | None:
        try:
            store = self._store()
            return store.get("suspended", key) if store is not None else None
        except ConfigurationError as error:
            raise _unreachable(error) from None


def _unreachable(error: ConfigurationError) -> MCPError:
    logger.error("%s", error)
    return MCPError(code=INTERNAL_ERROR, message="the store of waiting calls cannot be reached; try again later")

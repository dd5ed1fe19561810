"""What conversations cost a model in tokens, by cause, and how many tokens they may cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from toolexec.errors import ContextBudgetError
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Caller, Origin
from toolexec.run.context_settings import ContextSettings
from toolexec.run.excerpt import encode
from toolexec.run.tokens import PROSE, VALUES, counted_with

Cause: TypeAlias = Literal["instructions", "tools", "search", "describe", "code", "results", "errors"]
"""What tokens went into: the server's instructions, the list of tools, finding tools, reading about them, running code,
the results of calls, and failures."""

CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)

Counted: TypeAlias = Callable[[Cause, int, int], None]
"""Receives a cause, and the tokens that a model read and wrote."""

_NOTHING: Final[dict[Cause, int]] = dict.fromkeys(CAUSES, 0)
_CHARACTERS: Final[Mapping[Cause, float]] = {
    "instructions": PROSE,
    "tools": 4.5,
    "search": PROSE,
    "describe": PROSE,
    "code": VALUES,
    "results": VALUES,
    "errors": PROSE,
}
_WRITTEN: Final = 3.0
"""Of arguments and programs, which have many names and short strings."""
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCost:
    """What one conversation has cost so far, each token once, in tokens.

    `read` is what the model had to read, by cause, `written` what it wrote: arguments and programs. Only causes that
    there were are in them. `calls` counts replies; `idle` is how many seconds ago the last one was. Images and audio
    are not counted.
    """

    caller: str = ""
    tenant: str = ""
    client: str = ""
    session: str = ""
    calls: int = 0
    idle: float = 0.0
    read: Mapping[Cause, int] = field(default_factory=dict[Cause, int])
    written: Mapping[Cause, int] = field(default_factory=dict[Cause, int])

    @property
    def total(self) -> int:
        """All tokens, read and written."""
        return sum(self.read.values()) + sum(self.written.values())

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        words = {"caller": self.caller, "tenant": self.tenant, "client": self.client, "session": self.session}
        data: JSONDict = {name: word for name, word in words.items() if word}
        data |= {"tokens": self.total, "calls": self.calls, "idleSeconds": round(self.idle, 1)}
        return {**data, "read": dict(self.read), "written": dict(self.written)}


class _Account:
    """The tokens of one conversation, or of a caller."""

    __slots__ = ("calls", "client", "owner", "read", "total", "used", "written")

    def __init__(self, owner: _Account | None, client: str, now: float) -> None:
        self.owner = owner
        self.client = client
        self.used = now
        self.calls = 0
        self.total = 0
        self.read = _NOTHING.copy()
        self.written = _NOTHING.copy()

    def clear(self) -> None:
        self.calls = self.total = 0
        self.read = _NOTHING.copy()
        self.written = _NOTHING.copy()


_Key: TypeAlias = tuple[str, str, str, str]


class ContextMeter:
    """Counts the tokens of conversations: for each session of each caller, by cause.

    A conversation is the session of an origin; without one, all that its caller does. It is kept in memory, for the
    10,000 that were used last, and begins at 0 again when it was `settings.idle` seconds without a call. `observer`, if
    it is set, is notified of everything that is counted, on the thread that counts. *clock* gives seconds. Safe to use
    from several threads. Raises ConfigurationError where exact counting lacks its vocabulary.
    """

    def __init__(self, settings: ContextSettings | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings: ContextSettings = settings if settings is not None else ContextSettings()
        self.counts: bool = self.settings.count != "off"
        self._counter = counted_with(self.settings.count)
        self.observer: Counted | None = None
        self._exact = self.settings.count == "exact"
        self._limits = bool(self.settings.max_session_tokens or self.settings.max_caller_tokens)
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[_Key, _Account] = {}
        self._callers: dict[_Key, _Account] = {}
        self._read = _NOTHING.copy()
        self._written = _NOTHING.copy()

    @property
    def read(self) -> Mapping[Cause, int]:
        """All tokens that models read, by cause; they only grow."""
        return self._read

    @property
    def written(self) -> Mapping[Cause, int]:
        """All tokens that models wrote, by cause; they only grow."""
        return self._written

    def count(self, origin: Origin, cause: Cause, read: str = "", written: Any = None, *, again: bool = False) -> int:
        """Count what a model has to read for a *cause*, and what it wrote for that (JSON); return the
        tokens of both. With *again* it takes the place of what was read for the same cause, as a list of tools that
        is asked for once more does. Nothing is counted with `off`.
        """
        if not self.counts:
            return 0
        tokens = self._counter(read, _CHARACTERS[cause]) if read else 0
        # JSON and `repr` differ in quotes and blanks; what is estimated need not be encoded.
        wrote = self._counter(encode(written) if self._exact else repr(written), _WRITTEN) if written else 0
        both = tokens + wrote
        with self._lock:
            account = self._account(origin)
            if again:
                before = account.read[cause]
                account.total -= before
                account.read[cause] = 0
                if account.owner is not None:  # which may have begun again since then
                    account.owner.total = max(account.owner.total - before, 0)
            account.read[cause] += tokens
            account.written[cause] += wrote
            account.total += both
            account.calls += 1
            self._read[cause] += tokens
            self._written[cause] += wrote
            if account.owner is not None:
                account.owner.total += both
        if self.observer is not None:
            self.observer(cause, tokens, wrote)
        return both

    def tokens(self, text: str, cause: Cause = "results") -> int:
        """Return how many tokens a text has that is read for a *cause*."""
        return self._counter(text, _CHARACTERS[cause])

    def check(self, origin: Origin) -> None:
        """Raise ContextBudgetError where the conversation of *origin*, or its caller, has as many tokens as there may
        be."""
        if not (self._limits and self.counts):
            return
        settings = self.settings
        with self._lock:
            account = self._account(origin)
            owner = account.owner
            if settings.max_session_tokens and account.total >= settings.max_session_tokens:
                raise _used_up("session", account.total, settings.max_session_tokens, account)
            if settings.max_caller_tokens and owner is not None and owner.total >= settings.max_caller_tokens:
                raise _used_up("caller", owner.total, settings.max_caller_tokens, account)

    def cost(self, origin: Origin) -> ContextCost:
        """Return what the conversation of *origin* has cost so far."""
        key = _key(origin)
        with self._lock:
            account = self._sessions.get(key)
            return self._cost(key, account) if account is not None and self._is_fresh(account) else _none(key)

    def costs(self) -> list[ContextCost]:
        """Return what each conversation that was not idle for too long has cost so far, the most expensive first."""
        with self._lock:
            fresh = [(key, account) for key, account in self._sessions.items() if self._is_fresh(account)]
            found = [self._cost(key, account) for key, account in fresh]
        return sorted(found, key=lambda cost: (-cost.total, cost.caller, cost.session))

    def report(self) -> JSONDict:
        """Return everything as JSON-able data, for operators: the settings, all tokens since the start, and each
        conversation."""
        settings = self.settings
        limits = {"session": settings.max_session_tokens, "caller": settings.max_caller_tokens}
        with self._lock:
            read, written = ({k: n for k, n in each.items() if n} for each in (self._read, self._written))
        costs = [cost.to_dict() for cost in self.costs()]
        return {"count": settings.count, "limits": limits, "read": read, "written": written, "conversations": costs}

    # -- accounts -----------------------------------------------------------------------------------------------

    def _account(self, origin: Origin) -> _Account:
        now = self._clock()
        caller = origin.caller
        key = (caller.method, caller.realm, caller.id, origin.session)
        account = self._sessions.get(key)
        if account is None:
            owner = self._owner(caller, now) if caller.id else None
            account = _kept(self._sessions, key, _Account(owner, origin.client, now))
        idle = self.settings.idle
        if now - account.used > idle:
            account.clear()
        account.used = now
        owner = account.owner
        if owner is not None:
            if now - owner.used > idle:
                owner.clear()
            owner.used = now
        return account

    def _owner(self, caller: Caller, now: float) -> _Account:
        key = (caller.method, caller.realm, caller.id, "")
        found = self._callers.get(key)
        return found if found is not None else _kept(self._callers, key, _Account(None, "", now))

    def _is_fresh(self, account: _Account) -> bool:
        return self._clock() - account.used <= self.settings.idle

    def _cost(self, key: _Key, account: _Account) -> ContextCost:
        _, tenant, caller, session = key
        return ContextCost(
            caller=caller,
            tenant=tenant,
            client=account.client,
            session=session,
            calls=account.calls,
            idle=max(self._clock() - account.used, 0.0),
            read={cause: n for cause, n in account.read.items() if n},
            written={cause: n for cause, n in account.written.items() if n},
        )


def _key(origin: Origin) -> _Key:
    caller = origin.caller
    return (caller.method, caller.realm, caller.id, origin.session)


def _none(key: _Key) -> ContextCost:
    _, tenant, caller, session = key
    return ContextCost(caller=caller, tenant=tenant, session=session)


def _kept(accounts: dict[_Key, _Account], key: _Key, account: _Account) -> _Account:
    """Add an account; where there are too many, a tenth of them goes, those that were not used for the longest time."""
    if len(accounts) >= _MOST:
        oldest = sorted(accounts, key=lambda each: accounts[each].used)[: _MOST // 10]
        for each in oldest:
            del accounts[each]
    accounts[key] = account
    return account


def _used_up(scope: str, used: int, limit: int, account: _Account) -> ContextBudgetError:
    causes: JSONDict = {cause: n for cause in CAUSES if (n := account.read[cause] + account.written[cause])}
    largest = max(causes, key=causes.__getitem__) if causes else "results"
    whose = "this conversation has" if scope == "session" else "the conversations of this caller have"
    next_step = (
        "answer with what you know, or go on in a new conversation"
        if scope == "session"
        else "answer with what you know"
    )
    return ContextBudgetError(
        f"{whose} used {used:,} tokens of {limit:,}, most of them for {largest}; no further call is made: {next_step} "
        f"(an operator can raise context.max_{scope}_tokens)",
        op="context",
        details={"scope": scope, "used": used, "limit": limit, "causes": causes},
    )

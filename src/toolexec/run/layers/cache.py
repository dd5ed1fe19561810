"""Answer calls from what the tool answered to the same call before."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import blake2b
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

from toolexec.backend.here import Wait
from toolexec.discovery.index import Registered
from toolexec.errors import ToolExecError, Violation
from toolexec.model.bound import Bound
from toolexec.model.cache_hint import CacheHint, read_hint
from toolexec.model.call import Progress, ProgressCallback, ToolCall
from toolexec.model.content import ToolReply
from toolexec.model.declared import Bytes, setting
from toolexec.model.events import StreamEvent
from toolexec.model.id_patterns import IDPatterns
from toolexec.model.json_value import NotJSONError, to_json
from toolexec.model.origin import ANYONE, Caller
from toolexec.model.settings import check_ranges, checked
from toolexec.model.tree_size import has_many
from toolexec.run.approvals import approved
from toolexec.run.audit.record import canonical_text
from toolexec.run.cache_stores import CacheStore, MemoryCache, SQLiteCache
from toolexec.run.cache_writes import Place, Writes, WriteWatch, place_of
from toolexec.run.large import json_pieces, walked
from toolexec.run.layer import Layer
from toolexec.run.repeating import is_repeatable
from toolexec.run.resolve import Find, copied, resolved
from toolexec.run.runner import Runner
from toolexec.run.settings import CacheSettings
from toolexec.run.types import Result

logger: logging.Logger = logging.getLogger(__name__)
_MAX_TOOLS: Final = 10_000
_ANY: Final = CacheHint()


@checked("Cache")
@dataclass(eq=False, repr=False, kw_only=True)
class Cache(CacheSettings):
    """A part of a `Gate`: answers a call from what the tool answered to the same call in the last *ttl* seconds.

    The same call is one of the same tool, with the same definition and backend, the same arguments and, by *identity*,
    the same caller (`tenant`: any caller of one tenant; `none`: anyone). Equal calls at the same time are one call of
    the tool. What comes from the cache has `Result.cached`. Failures are never kept; streams pass by. A call that is
    `fresh` has the tool called in any case, and its answer kept.

    An answer that came of other calls (a skill, a tool that calls tools, a fallback) is not kept: the rules decide on
    each of those again, and their own answers are kept.

    A call of a tool that is not read-only ends what was read from the same backend before, by any caller, unless it
    certainly did nothing.

    Only tools that are marked read-only have their answers kept. *rules* maps patterns of tool IDs to seconds, the
    first that fits counts, and 0 means never; a rule may also name tools that are only marked idempotent. A destructive
    tool is never answered for.

    A service may say that an answer must not be kept, only for so long, or only for its caller: the headers
    `Cache-Control`, `Age` and `Vary: *` of HTTP services count, and `toolexec/cache` in the `meta` of a reply.

    Of a function of this program, an answer is for the Exec that has it: another one with the same gate has functions
    of its own. Give Execs whose functions differ under one ID no *path* in common.

    Answers are kept in memory, at most *max_bytes*, those not used for the longest time going first, and none that is
    larger than *max_entry_bytes*. With *path* they are in an SQLite database, too, and outlive the process. *clock*
    gives seconds since 1970. Raises ConfigurationError for numbers that make no sense, and a file that cannot be used.
    """

    rules: Mapping[str, float] | None = None
    max_entry_bytes: Bytes = setting(1 << 20, "The longest answer that is kept.", above=0)
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        rules = self.rules or {}
        check_ranges("Cache", least={f"rules[{pattern!r}]": seconds for pattern, seconds in rules.items()})
        self.memory: MemoryCache = MemoryCache(self.max_bytes)
        self.store: CacheStore | None = SQLiteCache(self.path, self.max_bytes) if self.path is not None else None
        self.writes: Writes = Writes(self.store, max([self.ttl, *rules.values()]), self.clock)
        self._rules = [(IDPatterns("a rule of a Cache", [pattern]), seconds) for pattern, seconds in rules.items()]
        self._plans: dict[str, _Plan] = {}
        self._entries: dict[str, int] = {}

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that answers calls of *inner* from the cache."""
        return _Cached(self, WriteWatch(self.writes, self._is_read, inner, find), find)

    def apart(self) -> Cache:
        """Implement `KeepsOutcomes.apart`."""
        return replace(self, path=None)

    def clear(self) -> None:
        """Forget all answers."""
        self.memory.clear()
        if self.store is not None:
            self.store.clear()

    def close(self) -> None:
        """Close the file, if there is one."""
        if self.store is not None:
            self.store.close()

    def plan(self, entry: Registered) -> _Plan:
        """Return how answers of the tool are kept."""
        known = self._plans.get(entry.tool.id)
        if known is not None and known.entry is entry:
            return known
        ttl = self._ttl(entry)
        digest = bytes.fromhex(approved(entry, ANYONE).digest) if ttl else b""
        if ttl and entry.binding.kind == "local":  # what is behind it is a function, and another one in another Exec
            number = self._entries[entry.tool.id] = self._entries.get(entry.tool.id, -1) + 1
            digest = blake2b(digest + number.to_bytes(8), digest_size=32).digest() if number else digest
        if len(self._plans) >= _MAX_TOOLS:
            self._plans.clear()
        plan = self._plans[entry.tool.id] = _Plan(entry, ttl, digest, place_of(entry.binding))
        return plan

    def _is_read(self, entry: Registered) -> bool:
        """Return whether calls of the tool leave what others read as it is; so do those whose answers may be kept."""
        return entry.tool.annotations.read_only or self._ttl(entry) > 0

    def _ttl(self, entry: Registered) -> float:
        tool = entry.tool
        if not is_repeatable(tool):
            return 0.0
        for pattern, seconds in self._rules:
            if pattern.match(tool.id):
                return seconds
        return self.ttl if tool.annotations.read_only else 0.0

    def key(self, plan: _Plan, call: ToolCall) -> bytes | None:
        """Return the key of the call's answer; None for arguments that have no JSON form, which the call refuses."""
        try:
            args = canonical_text(call.args or {})
        except (TypeError, ValueError, RecursionError):
            try:
                args = canonical_text(to_json(dict(call.args or {})))
            except (NotJSONError, TypeError, ValueError, RecursionError):
                return None
        text = f"{self._who(call.origin.caller)}\0{args}\0"
        state = self.writes.token(plan.place)
        return blake2b(text.encode("utf-8", "surrogatepass") + state, key=plan.digest, digest_size=24).digest()

    def allowed(self, result: Result) -> float:
        """Return for how many seconds an answer may be kept by what comes with it; 0 for not at all."""
        hint = read_hint(result.reply.meta) if result.reply is not None else _ANY
        return 0.0 if hint.private and self.identity != "caller" else hint.max_age

    def _who(self, caller: Caller) -> str:
        if self.identity == "none":
            return ""
        return canonical_text([caller.realm, caller.id] if self.identity == "caller" else [caller.realm])

    def get(self, key: bytes) -> bytes | None:
        """Return the answer under *key*, if there is one that still counts."""
        now = self.clock()
        found = self.memory.get(key, now)
        if found is None and self.store is not None:
            found = self.store.get(key, now)
            if found is not None:
                self.memory.put(key, *found, now)
        return None if found is None else found[0]

    def put(self, key: bytes, answer: bytes, ttl: float) -> None:
        """Keep an answer for *ttl* seconds."""
        now = self.clock()
        self.memory.put(key, answer, now + ttl, now)
        if self.store is not None:
            self.store.put(key, answer, now + ttl, now)


class _Plan(NamedTuple):
    """How answers of one tool are kept: for how long (0: not at all), the digest of its definition, and its backend."""

    entry: Registered
    ttl: float
    digest: bytes
    place: Place


class _Made(NamedTuple):
    """A call that was made: its result, what is kept of it, and whether others may have that result."""

    result: Result
    answer: bytes | None
    is_for_others: bool


class _Inside:
    """What is known of the calls that are made while a tool works."""

    __slots__ = ("has_calls",)

    def __init__(self) -> None:
        self.has_calls = False


_INSIDE: ContextVar[_Inside | None] = ContextVar("toolexec_inside_cached_call", default=None)


def _note_call() -> None:
    """Record that the tool which works here, if any, makes a call."""
    if (inside := _INSIDE.get()) is not None:
        inside.has_calls = True


_Place: TypeAlias = tuple[asyncio.AbstractEventLoop, bytes, float | None]


@dataclass(slots=True)
class _Flight:
    """A call that is under way, by whom, and how many wait for it; `listeners` get its progress."""

    task: asyncio.Task[_Made]
    caller: Caller
    waiting: int = 0
    listeners: list[ProgressCallback] = field(default_factory=list[ProgressCallback])


class _Cached(Layer):
    def __init__(self, cache: Cache, inner: Runner, find: Find) -> None:
        super().__init__(inner)
        self._cache = cache
        self._find = find
        self._flights: dict[_Place, _Flight] = {}

    async def run(self, call: ToolCall) -> Result:
        _note_call()
        started = perf_counter()
        plan = self._cache.plan(resolved(call, self._find))
        key = None
        if plan.ttl:
            find_key = partial(self._cache.key, plan, call)
            key = await walked(find_key) if has_many(call.args) else find_key()
        if key is None:
            return await self.inner.run(call)
        if call.fresh:
            return (await self._make(call, plan, key)).result
        answer = self._cache.get(key)
        return await self._join(call, plan, key) if answer is None else _decoded(answer, plan, started)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        _note_call()
        return self.inner.stream(call)

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether the answer is known, or none is ever kept; calls that others may join need the loop."""
        if not super().runs_in_thread(call, within):
            return False
        try:
            plan = self._cache.plan(resolved(call, self._find))
        except ToolExecError:
            return False  # the call on the loop raises it
        key = self._cache.key(plan, call) if plan.ttl else None
        return key is None or (not call.fresh and self._cache.get(key) is not None)

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        inner = self.inner_in_thread
        started = perf_counter()
        if inner is None or not super().runs_in_thread(call, within):
            return None
        _note_call()
        plan = self._cache.plan(resolved(call, self._find))
        key = self._cache.key(plan, call) if plan.ttl else None
        if key is None:
            return inner.run_in_thread(call, wait, within)
        answer = None if call.fresh else self._cache.get(key)
        return None if answer is None else _decoded(answer, plan, started)

    # -- one call of the tool for all that ask the same --------------------------------------------------------

    async def _join(self, call: ToolCall, plan: _Plan, key: bytes) -> Result:
        """Wait for the call that is under way, or begin it. It goes on as long as anyone waits for it."""
        started = perf_counter()
        place = (asyncio.get_running_loop(), key, call.timeout)  # whose limit is another one makes a call of its own
        flight = self._flights.get(place)
        is_first = flight is None
        if flight is None:
            flight = self._begin(place, call, plan)
        elif call.on_progress is not None:
            flight.listeners.append(call.on_progress)
        flight.waiting += 1
        try:
            await asyncio.wait([flight.task])
        finally:
            flight.waiting -= 1
            if not flight.task.done() and not flight.waiting:
                self._flights.pop(place, None)  # it ends now, and no other caller is to join it
                flight.task.cancel()
                await asyncio.wait([flight.task])
        try:
            made = flight.task.result()
        except ToolExecError as error:
            if is_first:
                raise
            if flight.caller != call.origin.caller:
                return (await self._make(call, plan, key)).result
            raise copy.copy(error) from error.__cause__
        result = made.result
        if is_first:
            return result
        if result.error is None and not made.is_for_others:
            return (await self._make(call, plan, key)).result  # that answer is for the one who asked first
        if result.error is not None and flight.caller != call.origin.caller:
            return (await self._make(call, plan, key)).result  # and it may be that one's credentials that were refused
        if made.answer is not None:
            return _decoded(made.answer, plan, started)
        return await walked(partial(_shared, result)) if has_many(result.value) else _shared(result)

    def _begin(self, place: _Place, call: ToolCall, plan: _Plan) -> _Flight:
        listeners: list[ProgressCallback] = []
        if call.on_progress is not None:
            listeners.append(call.on_progress)

            def report(progress: Progress) -> None:
                for listener in [*listeners]:
                    try:
                        listener(progress)
                    except Exception:  # one caller's mistake is not the others'
                        logger.exception("a progress callback failed")

            call = copied(call, self._find, plan.entry, on_progress=report)
        task = asyncio.get_running_loop().create_task(self._make(call, plan, place[1]))
        flight = self._flights[place] = _Flight(task, call.origin.caller, listeners=listeners)

        def forget(_: object) -> None:
            if self._flights.get(place) is flight:
                del self._flights[place]

        task.add_done_callback(forget)
        return flight

    async def _make(self, call: ToolCall, plan: _Plan, key: bytes) -> _Made:
        """Make the call and keep its answer, if it can be kept."""
        inside = _Inside()
        with Bound(_INSIDE, inside):
            result = await self.inner.run(call)
        allowed = 0.0 if inside.has_calls or not _is_own(result, plan) else self._cache.allowed(result)
        seconds = min(plan.ttl, allowed)
        answer = _encoded(result, self._cache.max_entry_bytes) if result.error is None and seconds else None
        if answer is not None:
            self._cache.put(key, answer, seconds)
        return _Made(result, answer, allowed > 0)


def _is_own(result: Result, plan: _Plan) -> bool:
    """Return whether the tool itself has answered, where it was asked: no fallback did."""
    is_there = result.binding is None or place_of(result.binding) == plan.place
    return is_there and result.tool_id == plan.entry.tool.id


def _encoded(result: Result, most: int) -> bytes | None:
    """Return a result as JSON; None where it has no such form, or more than *most* bytes."""
    reply = result.reply
    parts: list[Any] = [result.tool_id, result.value]
    if reply is not None or result.warnings:
        kept = {"content": list(reply.content), "has": reply.has_structured, "meta": reply.meta} if reply else None
        parts += [kept, [asdict(warning) for warning in result.warnings]]
    pieces: list[str] = []
    size = 0
    try:
        for piece in json_pieces(parts):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                return None
    except (TypeError, ValueError, RecursionError):
        return None
    return "".join(pieces).encode()


def _shared(result: Result) -> Result:
    """Return a copy of a result for another caller."""
    error, value, reply = copy.copy(result.error), copy.deepcopy(result.value), copy.deepcopy(result.reply)
    return replace(result, error=error, value=value, reply=reply, cached=error is None)


def _decoded(answer: bytes, plan: _Plan, started: float) -> Result:
    """Return the result that was kept, with values of its own."""
    tool_id, value, *rest = json.loads(answer)
    result = Result(tool_id, value, None, 0.0, plan.entry.binding)
    result.cached = True
    if rest:
        kept, warnings = rest
        result.warnings = tuple(Violation(**each) for each in warnings)
        if kept is not None:
            has = kept["has"]
            structured = value if has else None
            result.reply = ToolReply(
                content=kept["content"], structured=structured, has_structured=has, meta=kept["meta"]
            )
    result.duration = perf_counter() - started
    return result

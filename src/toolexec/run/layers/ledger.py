"""Record calls that may change something before they are made, and never repeat one of unknown outcome silently."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final

from toolexec.discovery.index import Registered
from toolexec.errors import AuditError, ConfigurationError, Outcome, PolicyError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.id_patterns import IDPatterns
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import ApprovalRequest
from toolexec.model.redaction import Redactor, redactor
from toolexec.model.settings import check_ranges, checked
from toolexec.model.tree_size import has_many
from toolexec.run.audit.record import canonical
from toolexec.run.effects import Effect, EffectLedger, EffectState, new_effect, state_of
from toolexec.run.large import is_small, json_pieces, walked
from toolexec.run.layer import Layer, last_result
from toolexec.run.reconcile import check_outcome
from toolexec.run.repeating import is_repeatable, outcome_of
from toolexec.run.resolve import Find, child_of, copied, resolved
from toolexec.run.runner import Runner
from toolexec.run.types import Result

logger: logging.Logger = logging.getLogger(__name__)
_MAX_VALUE: Final = 1 << 20
_READ_IT: Final = "read what it did with another tool, or take another idempotency key to do it again"
_YES: Final = ("once", "session", "always")


@checked("Ledger")
class Ledger:
    """A part of a `Gate`: writes calls of tools that must not run twice to *ledger* (or the file of one) before they
    are made, and what became of them after that: the `outcome` of their errors.

    These are all tools but those that are marked read-only or idempotent and are not destructive; *tools* are patterns
    of the IDs that it is for. When a call ends without an answer (a lost connection, a time limit, a cancellation,
    a process that died), its outcome is unknown; one that was refused, or never sent, may be made again. After
    an unknown outcome the next equal call, of the same tool with the same arguments by the same caller, is not simply
    made:

    - A tool may name another one in its `meta`, as `toolexec/check`. That must be read-only; it gets those of the
      arguments that its schema has, and `idempotency_key`, and answers true, false, or `{"done": ..., "value": ...}`.
    - Without an answer from that, the caller is asked, where it can be, for *ask_timeout* seconds.
    - Else the call raises PolicyError with the code `outcome_unknown`. `EffectLedger.settle` records how it was.

    A call with an `idempotency_key` is done once: an equal one gets the same answer again, with `Result.cached`, and is
    refused where that could not be read, or is too large to be kept. So is a step of a durable run, whose key the run
    makes; beside that it is a call as those without a key, so that no other run repeats one of unknown outcome. The
    backend gets the key with each attempt (`ToolCall.idempotency_key`); without one the ledger makes one for each
    effect. Raises AuditError when the file cannot be used; a call that cannot be recorded is not made.
    """

    def __init__(
        self,
        ledger: EffectLedger | str | Path,
        *,
        tools: Sequence[str] = ("*",),
        ask_timeout: float = 120.0,
        redact: Redactor = redactor,
    ) -> None:
        check_ranges("Ledger", above={"ask_timeout": ask_timeout})
        self.effects: EffectLedger = ledger if isinstance(ledger, EffectLedger) else EffectLedger(ledger)
        self.tools: tuple[str, ...] = tuple(tools)
        self._patterns = IDPatterns("tools of a Ledger", self.tools)
        self.ask_timeout = ask_timeout
        self.redact = redact

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that records calls of *inner*."""
        return _Recorded(self, inner, find, inner)

    def wrap_with(self, inner: Runner, find: Find, others: Runner) -> Runner:
        """Implement `CallsOthers.wrap_with`."""
        return _Recorded(self, inner, find, others)

    def apart(self) -> Ledger:
        """Implement `KeepsOutcomes.apart`."""
        effects = EffectLedger(None, keep=self.effects.keep, clock=self.effects.clock)
        return Ledger(effects, tools=self.tools, ask_timeout=self.ask_timeout, redact=self.redact)

    def close(self) -> None:
        """Close the file."""
        self.effects.close()

    def concerns(self, entry: Registered) -> bool:
        """Return whether calls of the tool are recorded."""
        return not is_repeatable(entry.tool) and self._patterns.match(entry.tool.id)


class _Recorded(Layer):
    in_thread = False  # an approver may have to be asked

    def __init__(self, rules: Ledger, inner: Runner, find: Find, others: Runner) -> None:
        super().__init__(inner)
        self._rules = rules
        self._effects = rules.effects
        self._find = find
        self._others = others

    async def run(self, call: ToolCall) -> Result:
        entry = resolved(call, self._find)
        if not self._rules.concerns(entry):
            return await self.inner.run(call)
        effect = await self._begin(entry, call)
        if isinstance(effect, Result):
            return effect
        try:
            result = await self.inner.run(copied(call, self._find, entry, idempotency_key=effect.sent))
        except BaseException as error:
            self._end(effect, state_of(outcome_of(error)))
            raise
        value = _value_of(result) if call.idempotency_key else None
        self._end(effect, _state(result), value)
        return result

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        entry = resolved(call, self._find)
        effect = await self._begin(entry, call) if self._rules.concerns(entry) else None
        if isinstance(effect, Result):
            yield StreamEvent(kind="done", data=effect.value, tool_id=effect.tool_id, cached=True)
            return
        if effect is not None:
            call = copied(call, self._find, entry, idempotency_key=effect.sent)
        state: EffectState = "unknown"
        value: str | None = None
        events = self.inner.stream(call)
        try:
            async for event in events:
                if event.kind in ("done", "error"):
                    result = last_result(event, call)
                    state = _state(result)
                    value = _value_of(result)
                yield event
        except ToolExecError as error:
            state = state_of(outcome_of(error))
            raise
        finally:
            try:
                await events.aclose()
            finally:
                if effect is not None:
                    self._end(effect, state, value)

    # -- before the call ----------------------------------------------------------------------------------------

    async def _begin(self, entry: Registered, call: ToolCall) -> Effect | Result:
        """Record that the call begins, or return the answer that is known; raises PolicyError."""
        args = call.args or {}
        digest = await walked(partial(_digest, args)) if has_many(args) else _digest(args)
        effect = self._effect(entry, call, digest)
        has_key = bool(_own_key(call))

        def may_begin(earlier: Effect | None) -> bool:
            if earlier is None or earlier.state in ("failed", "not_done", "repeated"):
                return True
            is_same = has_key or earlier.sent == effect.sent
            return not is_same and (earlier.state == "done" or earlier.is_live)

        earlier = self._effects.begin(effect, may_begin)
        if earlier is None:
            return effect
        if earlier.args != effect.args:
            raise ConfigurationError(
                f"the idempotency key of this call of {entry.tool.id} was used with other arguments; take another one",
                tool_id=entry.tool.id,
                op="ledger",
            )
        if earlier.state == "done":
            return _repeated(entry, earlier)
        if earlier.is_live:
            raise _unknown(entry, earlier, "is under way", "wait for its answer", code="effect_in_progress")
        answer = await self._found_out(entry, call, earlier)
        if answer is not None:
            return answer
        again = self._effect(entry, call, digest, sent=earlier.sent)  # a backend that knows the key does it only once
        return again if self._effects.begin(again, may_begin) is None else await self._begin(entry, call)

    def _effect(self, entry: Registered, call: ToolCall, args: str, sent: str = "") -> Effect:
        caller = call.origin.caller
        who = json.dumps([entry.tool.id, caller.realm, caller.id, _own_key(call) or f"\0{args}"])
        return new_effect(
            self._effects,
            key=blake2b(who.encode(), digest_size=16).hexdigest(),
            args=args,
            tool=entry.tool.id,
            run_id=call.run_id,
            parent=call.origin.parent,
            sent=sent or call.idempotency_key,
        )

    async def _found_out(self, entry: Registered, call: ToolCall, earlier: Effect) -> Result | None:
        """Find out about an effect of unknown outcome; return its answer when it was done, and None when the call may
        be made. Raises PolicyError."""
        found = await self._checked(entry, call, earlier)
        if found is not None:
            done, value = found
            self._effects.end(earlier.id, "done" if done else "not_done", value)
            if not done:
                return None
            known = self._effects.get(earlier.id)
            return _repeated(entry, known or earlier)
        if await self._may_repeat(entry, call, earlier):
            self._effects.end(earlier.id, "repeated")
            return None
        is_done = earlier.state == "unread"
        raise _unknown(
            entry, earlier, "was done, but its answer is not kept" if is_done else "did not say how it ended"
        )

    async def _checked(self, entry: Registered, call: ToolCall, earlier: Effect) -> tuple[bool, str] | None:
        """Return whether the earlier call was done, and its value, by the tool that knows; None where none does."""

        async def make(check: Registered, args: JSONDict) -> Result:
            return await self._others.run(child_of(call, self._find, check, args))

        found = await check_outcome(entry, call.args or {}, earlier.sent, self._find, make)
        return (found.done, json.dumps(found.value)) if found is not None else None

    async def _may_repeat(self, entry: Registered, call: ToolCall, earlier: Effect) -> bool:
        """Ask the caller, where that can be done, whether to make the call again."""
        ask = call.origin.ask
        if ask is None:
            return False
        schema = entry.tool.input_schema.to_json()
        args = call.args or {}
        show = partial(self._rules.redact.value, args, schema if isinstance(schema, Mapping) else None)
        request = ApprovalRequest(
            tool_id=entry.tool.id,
            args=show() if is_small(args) else await walked(show),
            reason=f"the same call began at {_moment(earlier)} and may have done its work; make it again?",
            caller=call.origin.caller,
            path=call.origin.path,
            run_id=call.run_id,
            longest="once",
        )
        try:
            answer = ask(request)
            if inspect.isawaitable(answer):
                async with asyncio.timeout(self._rules.ask_timeout):  # `wait_for` would go on with a cancelled call
                    answer = await answer
        except Exception as error:
            logger.warning("asking whether to repeat %s failed: %s", entry.tool.id, type(error).__name__)
            return False
        return answer in _YES

    def _end(self, effect: Effect, state: EffectState, value: str | None = None) -> None:
        try:
            self._effects.end(effect.id, state, value)
        except AuditError as error:  # what is done is done; it counts as unknown once this process has ended
            logger.error("the outcome of %s is not recorded: %s", effect.tool, error)


def _own_key(call: ToolCall) -> str:
    """Return the key that a caller has given to the call; that of a step names its place in one durable run only."""
    return "" if call.step else call.idempotency_key


def _digest(args: JSONObject) -> str:
    return blake2b(canonical(args), digest_size=16).hexdigest()


def _value_of(result: Result) -> str | None:
    """Return the answer of a call as JSON; None where there is none that can be read, or that can be kept."""
    if result.error is not None and result.value is None:
        return None
    pieces: list[str] = []
    left = _MAX_VALUE
    try:
        for piece in json_pieces(result.value):
            left -= len(piece)
            if left < 0:
                return None
            pieces.append(piece)
    except (TypeError, ValueError, RecursionError):
        return None
    return "".join(pieces)


def _repeated(entry: Registered, earlier: Effect) -> Result:
    """Return the answer of an effect that was done. Raises PolicyError where that is not kept."""
    if earlier.value is None:
        raise _unknown(entry, earlier, "was done, but its answer is not kept", _READ_IT)
    return Result(entry.tool.id, json.loads(earlier.value), None, 0.0, entry.binding, cached=True)


def _unknown(
    entry: Registered, earlier: Effect, how: str, advice: str = "", *, code: str = "outcome_unknown"
) -> PolicyError:
    advice = advice or f"it may have done its work: find out, then settle {earlier.id} in the ledger of effects"
    return PolicyError(
        f"{entry.tool.id} was not called: the same call began at {_moment(earlier)} and {how}; {advice}",
        tool_id=entry.tool.id,
        op="ledger",
        backend=entry.binding.backend,
        retryable=code == "effect_in_progress",
        code=code,
        details={"effect": earlier.id, "since": _moment(earlier)},
    )


def _state(result: Result) -> EffectState:
    """Return the state of an effect that ended with *result*; a value beside an error was read all the same."""
    if result.error is None or (result.outcome is Outcome.DONE and result.value is not None):
        return "done"
    return state_of(result.outcome)


def _moment(effect: Effect) -> str:
    return datetime.fromtimestamp(effect.began, UTC).isoformat(timespec="seconds")

"""The gate: every rule around calls, put together in the one right order."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol, TypeAlias, runtime_checkable

from toolexec.discovery.docs import DocStore
from toolexec.discovery.index import Index, Registered
from toolexec.discovery.view import DocsView, IndexView
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Caller, Origin, new_run_id
from toolexec.model.settings import checked
from toolexec.run.door import Admitting, Door, RecordedAttempt, RecordsAttempts, RefusesExcess
from toolexec.run.gated import Allows, Gated, GatedByPolicy
from toolexec.run.outcomes import AnswersSome, kept_apart
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner
from toolexec.run.still import Rechecked, StillAllowed

if TYPE_CHECKING:
    from toolexec.run.code_shares import CodeShares
    from toolexec.run.policy import Policy

__all__ = [
    "PARTS",
    "RECORDED",
    "AsksApprovers",
    "CallsOthers",
    "ChoosesTools",
    "Find",
    "Gate",
    "GatePart",
    "GroupEnd",
    "GroupObserver",
    "GroupRun",
    "GroupScope",
    "HidesByState",
    "HidesTheSame",
    "HidesTools",
    "KeepsOutcomes",
]

_MAX_VIEWS: Final = 64
PARTS: Final = (
    *("telemetry", "audit", "budget", "scan", "policy", "pinning", "approval", "rate_limit"),
    *("cache", "ledger", "fallback", "bulkhead", "breaker", "retry", "learning"),
)
"""The names of the parts of a gate, as its arguments have them."""

GroupEnd: TypeAlias = Callable[[BaseException | None], None]
"""A function that ends a chain or a run of code, with the exception that it ended with."""


class GatePart(Protocol):
    """One rule around calls."""

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that keeps the rule around *inner*."""
        ...


@runtime_checkable
class CallsOthers(Protocol):
    """A part that may call other tools than the one that was asked for."""

    def wrap_with(self, inner: Runner, find: Find, others: Runner) -> Runner:
        """Do the same as `GatePart.wrap`; calls of other tools are made by *others*, where policy, pinning, approval
        and rate limits decide on them."""
        ...


@runtime_checkable
class AsksApprovers(Protocol):
    """A part that asks about calls before they are made."""

    def wrap_while(self, still: StillAllowed, inner: Runner, find: Find) -> Runner:
        """Do the same as `GatePart.wrap`; it asks about no call that *still* refuses when it would."""
        ...


@runtime_checkable
class KeepsOutcomes(Protocol):
    """A part that keeps what calls came to, for later ones."""

    def apart(self) -> GatePart:
        """Return one with the same rules that keeps it in memory, for itself alone."""
        ...


RECORDED: ContextVar[str] = ContextVar("toolexec_recorded_run", default="")
"""The ID of the run that the current work is, where that is recorded otherwise, as the work may be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRun:
    """A run that makes calls of its own: a chain, or code. Its calls have `run_id` as their `origin.parent`.

    `origin` is where the whole run comes from; `details` are facts about it that hold no secrets (the number of steps;
    the language, size and digest of code).
    """

    kind: Literal["chain", "code"]
    run_id: str
    origin: Origin
    details: JSONObject = field(default_factory=JSONDict)


@runtime_checkable
class GroupObserver(Protocol):
    """A part that also wants to know of chains and code as a whole."""

    def begin(self, group: GroupRun) -> GroupEnd:
        """Take note that *group* begins; what is returned is called once, at its end, with its failure or None.

        May raise a ToolExecError: then the run does not begin.
        """
        ...


@runtime_checkable
class HidesTools(Protocol):
    """A part that keeps some callers from knowing of some tools."""

    def shows(self, entry: Registered, origin: Origin) -> bool:
        """Return whether *origin* may know of the tool; must be quick, it is asked for every tool of a search."""
        ...


@runtime_checkable
class ChoosesTools(Protocol):
    """A part that says which tools there are at an endpoint."""

    def index(self, endpoint: str) -> Index | None:
        """Return the tools that there are at *endpoint*, whatever its callers may do with them; None for an unknown
        endpoint."""
        ...


@runtime_checkable
class HidesTheSame(Protocol):
    """A part that hides tools, and can say for whom they are the same ones."""

    def shows(self, entry: Registered, origin: Origin) -> bool:
        """Implement `HidesTools.shows`; it always says the same of the same tool."""
        ...

    def view_key(self, origin: Origin) -> Hashable:
        """Return the same for all origins that it shows the same tools to; only their `caller` counts."""
        ...


@runtime_checkable
class HidesByState(Protocol):
    """A part that hides the same tools from everybody, and can say of which it has changed its mind."""

    def shows(self, entry: Registered, origin: Origin) -> bool:
        """Implement `HidesTools.shows`; it does not depend on *origin*."""
        ...

    @property
    def version(self) -> int:
        """Implement `TracksChanges.version`."""
        ...

    def changed_since(self, version: int) -> Collection[str] | None:
        """Implement `TracksChanges.changed_since`."""
        ...


@checked("Gate")
class Gate:
    """Rules around every call of an `Exec`, on whatever path it is made.

    Each part is optional, but a policy is always there: without one, `default_policy` asks before calls of tools that
    are marked as destructive and run outside of this program. A policy brings an approval part along, which asks the
    caller where that can be done.

    Outermost first they are: telemetry → audit → budget → scan → policy → pinning → approval → rate limit → cache →
    fallback → ledger → bulkhead → breaker → retry → learning; the time limit and the call itself are inside of all of
    them. So a call that is refused is traced and audited, no approver is asked for what is forbidden anyway, waiting
    for approval uses up no limit, an answer from the cache costs no backend anything and is looked at all the same, and
    each attempt of a retried call has a time limit of its own. A fallback, and a check of the ledger, are decided on
    and recorded like calls of their own.

    Runs of code, workflows, chains and skills pass the policy and the approval as a whole, too, before they begin;
    `code_shares` limits the runs of code of one caller (see `toolexec.run.admission.begun`).

    >>> from toolexec import Exec, Policy, Rule
    >>> gate = Gate(policy=Policy([Rule("deny", tools="shop:refund", reason="ask the shop")]))
    >>> with Exec(gate=gate).sync as ex:
    ...     _ = ex.add(lambda: "paid", "shop:refund")
    ...     ex.run_tool("shop:refund")
    Traceback (most recent call last):
        ...
    toolexec.errors.gate.PolicyError: the policy (rule 1) forbids this call of shop:refund: ask the shop; ...
    """

    is_live: ClassVar[bool] = False
    """Whether its rules, and how tools are shown, can be exchanged while calls are made."""

    def __init__(
        self,
        *,
        telemetry: GatePart | None = None,
        audit: GatePart | None = None,
        budget: GatePart | None = None,
        scan: GatePart | None = None,
        policy: GatePart | None = None,
        pinning: GatePart | None = None,
        approval: GatePart | None = None,
        rate_limit: GatePart | None = None,
        cache: GatePart | None = None,
        ledger: GatePart | None = None,
        fallback: GatePart | None = None,
        bulkhead: GatePart | None = None,
        breaker: GatePart | None = None,
        retry: GatePart | None = None,
        learning: GatePart | None = None,
        code_shares: CodeShares | None = None,
    ) -> None:
        if policy is None:
            policy = default_policy()
        if approval is None:
            approval = _asking(policy)
        self.telemetry = telemetry
        self.audit = audit
        self.budget = budget
        self.scan = scan
        self.policy = policy
        self.pinning = pinning
        self.approval = approval
        self.rate_limit = rate_limit
        self.cache = cache
        self.ledger = ledger
        self.fallback = fallback
        self.bulkhead = bulkhead
        self.breaker = breaker
        self.retry = retry
        self.learning = learning
        self.code_shares = code_shares
        self.present: Callable[[Caller], Caller | None] = as_it_was
        """Gives a caller with the roles and scopes of this moment; None for one that has no rights any more."""
        self._outside = _given(telemetry, audit, budget, scan)
        self._deciding = _given(policy, pinning, approval, rate_limit)
        self._inside = _given(cache, fallback, ledger, bulkhead, breaker, retry, learning)
        self.parts: tuple[GatePart, ...] = (*self._outside, *self._deciding, *self._inside)
        self._observers = [part for part in self.parts if isinstance(part, GroupObserver)]
        hiding = [part for part in self.parts if isinstance(part, HidesTools)]
        self._same = [part for part in hiding if isinstance(part, HidesTheSame)]
        self._by_state = [part for part in hiding if isinstance(part, HidesByState)]
        self._lasting: list[HidesTools] = [*self._same, *self._by_state]
        self._passing = [part for part in hiding if part not in self._lasting]
        self._views: OrderedDict[tuple[Hashable, ...], IndexView] = OrderedDict()
        self._lock = threading.Lock()

    def wrap(self, runner: Runner, find: Find, layers: Sequence[Callable[[Runner], Runner]] = ()) -> Runner:
        """Return *runner* with all parts around it, and *layers* of the user's inside of those.

        Innermost is the `Door`: all that reaches *runner* is an Attempt that the rules have admitted.
        """
        return self.wrap_while(None, runner, find, layers)

    def wrap_while(
        self,
        still: StillAllowed | None,
        runner: Runner,
        find: Find,
        layers: Sequence[Callable[[Runner], Runner]] = (),
    ) -> Runner:
        """Do what `wrap` does for rules that may not be the present ones any more when a call has passed them, as one
        that waited for an approver, for its turn or for another attempt: then *still* decides, too."""
        records = next((part for part in self.parts if isinstance(part, RecordsAttempts)), None)
        keeps = bool(layers)
        door = Door(runner if still is None else Rechecked(runner, still), find, records, keeps=keeps)
        # What is inside may answer a call that does not come to the door, or have it wait until it does.
        admitting = partial(Admitting, find=find, keeps=keeps, still=still if self._inside or layers else None)
        door.undecided = self._in_place(admitting(door), find, records, still)
        made: Runner = door
        for layer in reversed(layers):
            made = layer(made)
        replays = getattr(runner, "replays", False) is True  # nothing is done then
        for each in reversed(self._inside):
            part = each.apart() if replays and isinstance(each, KeepsOutcomes) else each
            around = partial(self._around, part, find, admitting, records, still)
            if isinstance(runner, AnswersSome) and isinstance(part, KeepsOutcomes):
                apart = partial(self._around, part.apart(), find, admitting, records, still)
                made = kept_apart(runner, made, around, apart)
            else:
                made = around(made)
        made = _wrapped(self._deciding, admitting(made), find, still)
        made = _wrapped(self._outside, RefusesExcess(made), find)
        allows = None if layers else self._allows()
        return Gated(made, find) if allows is None else GatedByPolicy(made, find, runner, allows)

    def _around(
        self,
        part: GatePart,
        find: Find,
        admitting: Callable[[Runner], Admitting],
        records: RecordsAttempts | None,
        still: StillAllowed | None,
        inner: Runner,
    ) -> Runner:
        if isinstance(part, CallsOthers):
            return part.wrap_with(inner, find, self._in_place(admitting(inner), find, records, still))
        return part.wrap(inner, find)

    def _allows(self) -> Allows | None:
        """Return what says that no part has anything to do with a call; None where a part may have with any."""
        from toolexec.run.layers.approval import Approval
        from toolexec.run.policy import Policy

        policy, approval = self.policy, self.approval
        if type(policy) is not Policy or type(approval) is not Approval or approval.decide != policy.decide:
            return None  # one of another class may do more
        return policy.allows if self.parts == (policy, approval) else None

    def _in_place(
        self, admitting: Admitting, find: Find, records: RecordsAttempts | None, still: StillAllowed | None
    ) -> Runner:
        """Return what makes calls that take the place of another one: each is decided on and recorded by itself."""
        runner = _wrapped(self._deciding, admitting, find, still)
        return RecordedAttempt(runner, find, records) if records is not None else runner

    def replaced(self, parts: Mapping[str, GatePart | None], *, code_shares: CodeShares | None) -> Gate:
        """Return a gate with the same parts but these, by the names that arguments have, and these shares."""
        return Gate(**{**{name: getattr(self, name) for name in PARTS}, **parts}, code_shares=code_shares)

    def shows(self, entry: Registered, origin: Origin) -> bool:
        """Return whether *origin* may know of the tool."""
        return all(part.shows(entry, origin) for part in (*self._lasting, *self._passing))

    def view(self, index: Index, docs: DocStore, origin: Origin) -> tuple[Index, DocStore]:
        """Return what *origin* may know of. Where only parts that are `HidesTheSame` or `HidesByState` hide tools, the
        view is kept for the next time; what others hide is found out each time.
        """
        if not self._lasting and not self._passing:
            return index, docs
        view, whole = index, self._present(index, origin)
        caller = origin.caller
        question = f"{caller.realm}\0{caller.id}"
        if self._lasting:
            view = self._lasting_view(index, whole, Origin(caller=caller), question)
        if self._passing:
            parts = self._passing
            view = IndexView(
                view,
                lambda entry: all(part.shows(entry, origin) for part in parts),
                question,
                stable=False,
                whole=whole,
            )
        return view, DocsView(docs, view)

    def _present(self, index: Index, origin: Origin) -> Index | None:
        """Return the tools of *index* that there are for *origin*, whatever it may do with them."""
        if isinstance(self.policy, ChoosesTools):
            return self.policy.index(origin.caller.endpoint)
        return index

    def _lasting_view(self, index: Index, whole: Index | None, origin: Origin, question: str) -> IndexView:
        parts = self._lasting
        key = (id(index), question, *(part.view_key(origin) for part in self._same))
        with self._lock:
            view = self._views.get(key)
            if view is None:
                shows = partial(_shown_by, tuple(parts), origin)
                view = IndexView(index, shows, question, states=self._by_state, whole=whole)
                self._views[key] = view  # it keeps the index, so that no other one gets the same id
                if len(self._views) > _MAX_VIEWS:
                    self._views.popitem(last=False)
            self._views.move_to_end(key)
        return view

    @contextmanager
    def group(
        self, kind: Literal["chain", "code"], origin: Origin, details: JSONObject, run_id: str = ""
    ) -> Generator[GroupScope, None, None]:
        """Open the scope of a chain or of code that runs in the block; yields the origin of the calls in it. *run_id*
        takes the place of a new ID.

        Set the scope's `failure` when the run failed without raising. Raises what an observer raises at the start.
        """
        if known := RECORDED.get():
            yield GroupScope(origin.within(kind, known))
            return
        run = GroupRun(kind=kind, run_id=run_id or new_run_id(), origin=origin, details=details)
        ends: list[GroupEnd] = []
        scope = GroupScope(origin.within(kind, run.run_id))
        try:
            for observer in self._observers:
                ends.append(observer.begin(run))  # noqa: PERF401 - one that raises must not lose those before it
            yield scope
        except BaseException as error:
            scope.failure = error
            raise
        finally:
            for end in reversed(ends):
                end(scope.failure)


def as_it_was(caller: Caller) -> Caller:
    """Return a caller with the rights that it had."""
    return caller


def _given(*parts: GatePart | None) -> tuple[GatePart, ...]:
    return tuple(part for part in parts if part is not None)


def _shown_by(parts: Sequence[HidesTools], origin: Origin, entry: Registered) -> bool:
    return all(part.shows(entry, origin) for part in parts)


def _wrapped(parts: Sequence[GatePart], runner: Runner, find: Find, still: StillAllowed | None = None) -> Runner:
    for part in reversed(parts):
        if still is not None and isinstance(part, AsksApprovers):
            runner = part.wrap_while(still, runner, find)
        else:
            runner = part.wrap(runner, find)
    return runner


@dataclass(slots=True)
class GroupScope:
    """The run of a chain or of code: where its calls come from, and how it failed, if it did."""

    origin: Origin
    failure: BaseException | None = None


def default_policy() -> Policy:
    """Return the policy of a gate without one: it asks for what is marked as destructive and runs outside of this
    program."""
    from toolexec.run.policy import Policy

    return Policy(remote_unmarked="allow")


def _asking(policy: GatePart) -> GatePart | None:
    """Return the part that asks where *policy* says so: without an approver such calls are refused."""
    from toolexec.run.layers.approval import Approval
    from toolexec.run.policy import Policy

    return Approval(policy.decide) if isinstance(policy, Policy) else None

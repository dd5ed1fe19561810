"""What callers may do: rules, and the verdict on a call that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from toolexec.discovery.index import Registered
from toolexec.discovery.view import without_hidden
from toolexec.errors import ConfigurationError, ToolExecError, ToolNotFoundError
from toolexec.model.call import ToolCall
from toolexec.model.declared import declared
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import Caller, Origin
from toolexec.model.settings import checked
from toolexec.model.tree_size import has_many
from toolexec.run.large import walked
from toolexec.run.layer import Layer
from toolexec.run.policy_conditions import as_json
from toolexec.run.policy_rules import Decide, Rule, Verdict, check_effect, check_keys, is_destructive
from toolexec.run.refusals import denied
from toolexec.run.resolve import Find, decided, resolved
from toolexec.run.run_request import RunRequest
from toolexec.run.runner import Runner
from toolexec.run.settings import Effect, PolicySettings

__all__ = ["Authorize", "Effect", "Policy", "Rule", "Verdict"]

_MAX_PLANS: Final = 50_000
_MAX_VERDICTS: Final = 64
_STRENGTH: Final[Mapping[str, int]] = {"allow": 0, "ask": 1, "deny": 2}
_EVERYBODY: Final = ()
_REMOTE: Final = "remote_destructive"
_REMOTE_REASON: Final = (
    "it runs outside of this program and may destroy data: its server says so, or does not say otherwise"
)
_Facts = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the policy says of one tool and one kind of caller: the verdict where it is the same for all arguments,
    else the rules that the arguments decide between; and whether the caller may know of the tool."""

    verdict: Verdict | None
    rules: tuple[Rule, ...]
    remote: Effect
    shows: bool
    verdicts: dict[tuple[bool, ...], Verdict] = field(default_factory=dict[tuple[bool, ...], Verdict])
    """By which of the rules apply: the verdict that this means."""


class _Tool:
    """A tool as it was when plans were made for it."""

    __slots__ = ("entry", "plans")

    def __init__(self, entry: Registered) -> None:
        self.entry = entry
        self.plans: dict[_Facts, _Plan] = {}


@checked("Policy")
class Policy:
    """Rules around calls, and around what a caller may know of.

    Of the rules that match a call the strictest counts: `deny` before `ask` before `allow`, whatever their order; the
    first of its kind gives the reason. Where none matches it is *default*.

    Beneath them is one more rule: tools that are marked as destructive, and that run on a backend outside of this
    program, get *remote_destructive* (`allow` switches that off). Those that do not say whether they are, and are not
    read-only, get *remote_unmarked* (None: the same). It counts unless a rule matches that says which tools it means
    (see `Rule.says_which`) and allows or asks; beside `default` the stricter of the two counts. A tool is judged by
    what its ID leads to: its full ID, and the backend that the call would go to.

    A tool that a caller may not call, whatever the arguments, is hidden from that caller.

    Runs of code, workflows, chains and skills are decided as a whole by the rules that name them (see `Rule`), and
    where none matches by *default_runs*; their calls are decided one by one as well.

    Raises ConfigurationError for an unknown effect, and for invalid rules.

    >>> from toolexec import Exec, Gate, Rule
    >>> policy = Policy([Rule("allow", tools="shop:*"), Rule("deny", tools="shop:delete_*")])
    >>> with Exec(gate=Gate(policy=policy)).sync as ex:
    ...     _ = ex.add(lambda: 4.5, "shop:price"), ex.add(lambda: None, "shop:delete_order")
    ...     [found.id for found in ex.search_tools("")]
    ['shop:price']
    """

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        *,
        default: Effect = PolicySettings.default,
        remote_destructive: Effect = PolicySettings.remote_destructive,
        remote_unmarked: Effect | None = PolicySettings.remote_unmarked,
        default_runs: Effect = PolicySettings.default_runs,
    ) -> None:
        check_effect(default, "the default of a policy")
        check_effect(default_runs, "default_runs of a policy")
        check_effect(remote_destructive, "remote_destructive of a policy")
        if remote_unmarked is not None:
            check_effect(remote_unmarked, "remote_unmarked of a policy")
        if not all(isinstance(rule, Rule) for rule in rules):
            raise ConfigurationError("the rules of a policy must be a list of Rule; Rule.from_dict reads one")
        self.rules: tuple[Rule, ...] = tuple(
            rule if rule.name else replace(rule, name=f"rule {number}") for number, rule in enumerate(rules, start=1)
        )
        self.default: Effect = default
        self.remote_destructive: Effect = remote_destructive
        self.remote_unmarked: Effect = remote_destructive if remote_unmarked is None else remote_unmarked
        self.default_runs: Effect = default_runs
        self._by_caller = any(rule.is_personal and not rule.is_for_runs for rule in self.rules)
        self._tools: dict[str, _Tool] = {}
        self._plans = 0

    @classmethod
    def from_dict(cls, data: JSONObject) -> Policy:
        """Read a policy from JSON data: `rules` (see `Rule.from_dict`), `default`, `remote_destructive`,
        `remote_unmarked` and `default_runs`.

        Raises ConfigurationError for unknown keys, naming the nearest one, and for values that make no sense.
        """
        check_keys(data, ("rules", *declared(PolicySettings)), "a policy")
        rules = data.get("rules", ())
        if not isinstance(rules, Sequence) or isinstance(rules, str):
            raise ConfigurationError(f"the rules of a policy must be a list, not {type(rules).__name__}")
        read: list[Rule] = []
        for number, rule in enumerate(rules, start=1):
            try:
                read.append(Rule.from_dict(rule))
            except ConfigurationError as error:
                raise ConfigurationError(f"rule {number} of the policy: {error.message}") from error
        return cls(
            read,
            **{name: value for name, value in data.items() if name != "rules"},
        )

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that refuses what the policy denies; what it asks about is left to `Approval`."""
        return Authorize(inner, find, self.decide, self.shows)

    def decide(self, entry: Registered, call: ToolCall) -> Verdict:
        """Return what becomes of *call*, whose tool is *entry*. Raises nothing."""
        plan = self._plan(entry, call.origin.caller)
        return plan.verdict or self._weigh(plan, call)

    def allows(self, entry: Registered, caller: Caller) -> bool:
        """Return whether calls of the tool by *caller* are allowed whatever their arguments are. Raises nothing."""
        verdict = self._plan(entry, caller).verdict
        return verdict is not None and verdict.effect == "allow"

    def may_ask(self, entry: Registered) -> bool:
        """Return whether an approver may be asked about a call of the tool, by some caller and with some arguments."""
        places = [Registered(entry.tool, (binding,), binding) for binding in entry.bindings]
        return self.default == "ask" or any(
            self._remote(place) == "ask"
            or any(rule.effect == "ask" and rule.concerns_tool(place) for rule in self.rules)
            for place in places
        )

    def decide_run(self, run: RunRequest) -> Verdict:
        """Return whether the run may begin: what the strictest of its rules says, else `default_runs`."""
        rules = [rule for rule in self.rules if rule.concerns_run(run)]
        strictest = max(rules, key=lambda rule: _STRENGTH[rule.effect], default=None)
        if strictest is not None:
            return Verdict(effect=strictest.effect, rule=strictest.name, reason=strictest.reason)
        return Verdict(effect=self.default_runs, rule="default_runs", reason=_default_reason(self.default_runs))

    def shows(self, entry: Registered, origin: Origin) -> bool:
        """Return whether *origin* may know of the tool: whether some arguments may let it call, or ask to."""
        return self._plan(entry, origin.caller).shows

    def view_key(self, origin: Origin) -> tuple[Any, ...]:
        """Return the same for all callers that the rules show the same tools to; see `HidesTheSame`."""
        return self._facts(origin.caller)

    # -- plans --------------------------------------------------------------------------------------------------

    def _facts(self, caller: Caller) -> _Facts:
        return (caller.id, *caller.roles, None, *caller.scopes) if self._by_caller else _EVERYBODY

    def _plan(self, entry: Registered, caller: Caller) -> _Plan:
        facts = self._facts(caller) if self._by_caller else _EVERYBODY  # without a call, as every call passes here
        known = self._tools.get(entry.tool.id)
        if known is not None and known.entry is entry:
            plan = known.plans.get(facts)
            if plan is not None:
                return plan
        return self._study(entry, caller, facts)

    def _study(self, entry: Registered, caller: Caller, facts: _Facts) -> _Plan:
        """Make a plan and keep it."""
        if self._plans >= _MAX_PLANS:  # of callers that come and go, and of tools that change; it fills up again
            self._tools = {}
            self._plans = 0
        known = self._tools.get(entry.tool.id)
        if known is None or known.entry is not entry:
            known = self._tools[entry.tool.id] = _Tool(entry)
        plan = known.plans[facts] = self._make_plan(entry, caller)
        self._plans += 1
        return plan

    def _make_plan(self, entry: Registered, caller: Caller) -> _Plan:
        rules = tuple(rule for rule in self.rules if rule.concerns(entry, caller))
        remote = self._remote(entry)
        always = tuple(rule for rule in rules if not rule.conditions)
        denied = any(rule.effect == "deny" for rule in always)
        verdict = self._judge(always, remote) if denied or len(always) == len(rules) else None
        # With the best of arguments every condition that lets through holds, and none that denies.
        hopeful = tuple(rule for rule in rules if rule.effect != "deny")
        shows = not denied and self._judge(hopeful, remote).effect != "deny"
        return _Plan(verdict, rules, remote, shows)

    def _remote(self, entry: Registered) -> Effect:
        """Return what the rule for tools outside of this program says of one."""
        if entry.binding.kind == "local" or not is_destructive(entry.tool):
            return "allow"
        return self.remote_destructive if entry.tool.annotations.destructive else self.remote_unmarked

    def _weigh(self, plan: _Plan, call: ToolCall) -> Verdict:
        """Return the verdict where it is the arguments that decide."""
        args = as_json(call.args or {})
        applying = tuple([not rule.conditions or rule.applies(args) for rule in plan.rules])
        verdict = plan.verdicts.get(applying)
        if verdict is None:
            rules = [rule for rule, applies in zip(plan.rules, applying, strict=True) if applies]
            verdict = self._judge(rules, plan.remote)
            if len(plan.verdicts) < _MAX_VERDICTS:
                plan.verdicts[applying] = verdict
        return verdict

    def _judge(self, rules: Sequence[Rule], remote: Effect) -> Verdict:
        """Return the verdict of *rules* that all match, where *remote* is what the rule for remote backends says."""
        strictest = max(rules, key=lambda rule: _STRENGTH[rule.effect], default=None)
        if strictest is None:
            found = Verdict(effect=self.default, rule="default", reason=_default_reason(self.default))
        else:
            found = Verdict(effect=strictest.effect, rule=strictest.name, reason=strictest.reason)
            if strictest.effect == "deny" or any(rule.says_which and rule.effect != "deny" for rule in rules):
                return found
        if _STRENGTH[remote] > _STRENGTH[found.effect]:
            return Verdict(effect=remote, rule=_REMOTE, reason=_REMOTE_REASON)
        return found


def _default_reason(effect: Effect) -> str:
    return "" if effect == "allow" else "no rule allows it"


class Authorize(Layer):
    """Asks *decide* about the tool that each call leads to, and raises PolicyError for what is denied, before anything
    runs. Tools that *shows* hides are not suggested in place of one that is misspelt."""

    def __init__(self, inner: Runner, find: Find, decide: Decide, shows: Callable[[Registered, Origin], bool]) -> None:
        super().__init__(inner)
        self._find = find
        self._decide = decide
        self._shows = shows

    def before(self, call: ToolCall) -> Coroutine[Any, Any, None] | None:
        """Refuse a call that is denied; see `Layer.before`."""
        try:
            entry = resolved(call, self._find)
        except ToolNotFoundError as error:
            if not error.details.get("close"):
                raise
            raise without_hidden(error, lambda tool_id: self._visible(tool_id, call.origin)) from None
        if has_many(call.args):
            return self._decide_later(call, entry)
        _let_pass(entry, decided(call, entry, self._decide))
        return None

    async def _decide_later(self, call: ToolCall, entry: Registered) -> None:
        """Decide off the event loop, as conditions walk the arguments."""
        _let_pass(entry, await walked(partial(decided, call, entry, self._decide)))

    def _visible(self, tool_id: str, origin: Origin) -> Registered | None:
        try:
            entry = self._find(tool_id)
        except ToolExecError:
            return None
        return entry if self._shows(entry, origin) else None


def _let_pass(entry: Registered, verdict: Verdict) -> None:
    if verdict.effect == "deny":
        raise denied(entry, verdict)

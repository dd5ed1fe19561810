"""One rule of a policy: which calls it means, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Final, TypeAlias, get_args

from toolexec.discovery.index import Registered
from toolexec.discovery.summary import Filters
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.call import ToolCall
from toolexec.model.id_patterns import IDPatterns
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.languages import KNOWN_LANGUAGES, base_language
from toolexec.model.origin import Caller
from toolexec.model.settings import checked
from toolexec.model.tags import normalize_tags
from toolexec.model.tool import Tool
from toolexec.run.policy_conditions import Condition, read_conditions
from toolexec.run.policy_truth import Truth
from toolexec.run.run_request import PROFILES, RUN_KINDS, RunRequest
from toolexec.run.settings import Effect

_EFFECTS: Final = get_args(Effect)
_OF_RUNS: Final = ("runs", "profiles", "languages")
_TEXTS: Final = ("tools", "namespaces", "tags", "backends", "callers", "roles", "scopes", *_OF_RUNS)
_PATTERNS: Final = ("tools", "namespaces", "backends", "callers", "roles", "scopes")
_OF_CALLS: Final = ("tools", "namespaces", "tags", "backends", "when")
_HINTS: Final = ("read_only", "destructive", "idempotent", "open_world")
_SAME_WORD: Final = 0.75
"""From here on, a word is taken for a misspelling of another one: of `pyton`, not of `java`."""
_DESTRUCTIVE: Final = Filters(destructive=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a call: it is made, it is refused, or an approver is asked. `rule` is the name of the rule that
    decided, `reason` what that rule gives as its reason; either is for people to read."""

    effect: Effect
    rule: str = ""
    reason: str = ""


Decide: TypeAlias = Callable[[Registered, ToolCall], Verdict]
"""Gives the verdict on a call of a tool."""


@checked("Rule", leave="*")
@dataclass(frozen=True, slots=True)
class Rule:
    """Says what becomes of the calls that it matches: `allow`, `deny` or `ask`.

    A rule without matchers matches every call, and no run. Of several matchers all must match; of several values of one
    matcher, one must. A single value may stand for a list of one.

    `tools` are patterns of IDs as in a shell, case-sensitive: `github:delete_*`; one without a version means all
    versions. `namespaces`, `callers`, `roles` and `scopes` are such patterns, too; an anonymous caller has the
    ID `""`, which `*` matches as well. `tags` are words that a tool has. `backends` are patterns of the kind, the name,
    or both, of the backend that a call would go to: `mcp`, `git*`, `mcp:git`. `read_only`, `destructive`, `idempotent`
    and `open_world` compare with the tool's annotations as a caller must read them: a tool that does not say whether it
    is destructive is, unless it is read-only.

    `when` maps arguments (their names, or JMESPath expressions) to conditions: `{"branch": {"equals": "main"}}`. The
    operators are equals, not, in, matches (a regular expression for the whole string), glob (as in a shell), path_under
    and path_glob (for paths, however they are spelled; patterns as in `.gitignore`), above, below and exists.

    A condition is true, false, or unknown: where a value has another type or is a path that leads to an unknown
    place, where the expression does not fit the arguments or leaves out elements of a list, and where the elements of a
    list give different answers. All conditions must be true for an `allow` rule to match; a `deny` or `ask` rule also
    matches where some are unknown. A missing value makes conditions false, except `exists`, and `not`, which is
    unknown.

    A rule with `runs`, `profiles` or `languages` is for runs as a whole, and matches no call: `runs` are some of code,
    workflow, chain and skill, `profiles` the security profiles that code would run in (dev, standard, hardened),
    `languages` what code is in (python, bash, ...), whatever it is called by its caller: `js` and TypeScript are
    javascript. Beside them only `callers`, `roles` and `scopes` make sense.

    `reason` is shown to the caller that is refused and to the approver; `name` is what the rule is called there.

    Raises ConfigurationError for what makes no sense.

    >>> from toolexec import Exec, Gate, Policy
    >>> small = Rule("allow", tools="shop:refund", when={"amount": {"below": 50}})
    >>> with Exec(gate=Gate(policy=Policy([small], default="deny"))).sync as ex:
    ...     _ = ex.add(lambda amount: "paid", "shop:refund")
    ...     ex.run_tool("shop:refund", {"amount": 20}).value
    'paid'
    """

    effect: Effect
    _: KW_ONLY
    tools: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    tags: Sequence[str] = ()
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    backends: Sequence[str] = ()
    callers: Sequence[str] = ()
    roles: Sequence[str] = ()
    scopes: Sequence[str] = ()
    runs: Sequence[str] = ()
    profiles: Sequence[str] = ()
    languages: Sequence[str] = ()
    when: JSONObject = field(default_factory=JSONDict, hash=False)
    reason: str = ""
    name: str = ""
    conditions: tuple[Condition, ...] = field(init=False, repr=False, compare=False)
    hints: Filters = field(init=False, repr=False, compare=False)
    patterns: Mapping[str, IDPatterns] = field(init=False, repr=False, compare=False)
    """The matchers that are patterns and were given, by name."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        check_effect(self.effect, "the effect of a rule")
        for name in _TEXTS:
            put(self, name, _strings(name, getattr(self, name)))
        put(self, "tags", tuple(_tag(tag) for tag in self.tags))
        put(self, "languages", tuple(_language(name) for name in self.languages))
        for name in _HINTS:
            if not isinstance(getattr(self, name), bool | None):
                raise ConfigurationError(f"{name} of a rule must be true or false, not {getattr(self, name)!r}")
        for name in ("reason", "name"):
            if not isinstance(getattr(self, name), str):
                raise ConfigurationError(f"{name} of a rule must be a text, not {getattr(self, name)!r}")
        given = {name: values for name in _PATTERNS if (values := getattr(self, name))}
        put(self, "patterns", {name: IDPatterns(f"{name} of a rule", values) for name, values in given.items()})
        put(self, "conditions", read_conditions(self.when))
        put(self, "hints", Filters(**{name: getattr(self, name) for name in _HINTS}))
        if self.is_for_runs:
            self._check_runs()

    @classmethod
    def from_dict(cls, data: JSONObject) -> Rule:
        """Read a rule from JSON data with the fields above.

        Raises ConfigurationError for unknown keys, naming the nearest one, and for values that make no sense.
        """
        check_keys(data, [part.name for part in fields(cls) if part.init], "a rule")
        if "effect" not in data:
            raise ConfigurationError(f"a rule needs an effect: {', '.join(_EFFECTS)}")
        empty = sorted(name for name in _TEXTS if name in data and not data[name] and not isinstance(data[name], str))
        if empty:
            raise ConfigurationError(f"{empty[0]} of a rule is empty; leave it out to match everything")
        return cls(**data)

    def _check_runs(self) -> None:
        for name, known in (("runs", RUN_KINDS), ("profiles", PROFILES)):
            for value in getattr(self, name):
                if value not in known:
                    hint = did_you_mean(value, known, otherwise=f"use {', '.join(known)}")
                    raise ConfigurationError(f"{name} of a rule cannot be {value!r}; {hint}")
        calls = [name for name in _OF_CALLS if getattr(self, name)]
        calls += [name for name in _HINTS if getattr(self, name) is not None]
        if calls:
            own = next(name for name in _OF_RUNS if getattr(self, name))
            raise ConfigurationError(
                f"a rule is for runs or for calls of tools: it cannot have both {own} and {calls[0]}; write two rules"
            )
        for name in ("profiles", "languages"):
            if getattr(self, name) and self.runs and "code" not in self.runs:
                raise ConfigurationError(
                    f"{name} of a rule are for code: {', '.join(self.runs)} run in none; leave them out"
                )

    @property
    def is_for_runs(self) -> bool:
        """Whether the rule matches runs as a whole, and no calls."""
        return bool(self.runs or self.profiles or self.languages)

    @property
    def is_personal(self) -> bool:
        """Whether it matters who calls."""
        return bool(self.callers or self.roles or self.scopes)

    @property
    def says_which(self) -> bool:
        """Whether the rule says which tools it means, so that it takes the place of the rule for destructive tools of
        remote backends: by ID, namespace, tag or backend (`*` alone says nothing), or as destructive ones."""
        named = (self.tools, self.namespaces, self.backends)
        return (
            any(values and all(value.strip("*") for value in values) for values in named)
            or bool(self.tags)
            or self.destructive is True
        )

    def concerns(self, entry: Registered, caller: Caller) -> bool:
        """Return whether the rule matches calls of the tool by *caller*, whatever the conditions on arguments say."""
        return self.concerns_tool(entry) and self._is_for(caller)

    def concerns_tool(self, entry: Registered) -> bool:
        """Return whether the rule matches calls of the tool by some callers."""
        tool, binding, tools = entry.tool, entry.binding, self.patterns.get("tools")
        return (
            not self.is_for_runs
            and (tools is None or tools.match(tool.id))
            and self._fits("namespaces", (tool.namespace,))
            and (not self.tags or not set(self.tags).isdisjoint(tool.tags))
            and self._fits("backends", (binding.kind, binding.backend, f"{binding.kind}:{binding.backend}"))
            and self.hints.accept(tool, ())
        )

    def concerns_run(self, run: RunRequest) -> bool:
        """Return whether the rule matches a run of code, a workflow, a chain or a skill."""
        return (
            self.is_for_runs
            and (not self.runs or run.kind in self.runs)
            and (not self.profiles or run.profile in self.profiles)
            and (not self.languages or run.language in self.languages)
            and self._is_for(run.origin.caller)
        )

    def _is_for(self, caller: Caller) -> bool:
        return (
            self._fits("callers", (caller.id,))
            and self._fits("roles", caller.roles)
            and self._fits("scopes", caller.scopes)
        )

    def _fits(self, name: str, values: Collection[str]) -> bool:
        patterns = self.patterns.get(name)
        return patterns is None or patterns.fit_any(values)

    def holds(self, args: JSONValue) -> Truth:
        """Return whether the conditions hold for *args*, which `as_json` gave; None stands for unreadable ones."""
        answer = Truth.TRUE
        for condition in self.conditions:
            outcome = condition.holds(args)
            if outcome is Truth.FALSE:
                return outcome
            if outcome is Truth.UNKNOWN:
                answer = outcome
        return answer

    def applies(self, args: JSONValue) -> bool:
        """Return whether the rule matches *args*: one that allows, only where its conditions hold for certain; one that
        denies or asks, also where that is unknown."""
        holds = self.holds(args)
        return holds is Truth.TRUE or (holds is Truth.UNKNOWN and self.effect != "allow")


def is_destructive(tool: Tool) -> bool:
    """Return whether the tool may destroy data, as a caller must read its annotations."""
    return _DESTRUCTIVE.accept(tool, ())


def check_effect(effect: Any, what: str) -> None:
    """Raise ConfigurationError for an unknown effect."""
    if effect not in _EFFECTS:
        hint = did_you_mean(effect, _EFFECTS, otherwise=f"use {', '.join(_EFFECTS)}")
        raise ConfigurationError(f"{what} cannot be {effect!r}; {hint}")


def check_keys(data: Any, known: Collection[str], what: str) -> None:
    """Raise ConfigurationError for what is not a mapping, or has keys that are not *known*."""
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"{what} must be a mapping of {', '.join(known)}, not {type(data).__name__}")
    for key in data:
        if key not in known:
            hint = did_you_mean(key, known, otherwise=f"the keys are {', '.join(known)}")
            raise ConfigurationError(f"{what} has the unknown key {key!r}; {hint}")


def _strings(name: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        return (values,)
    if not isinstance(values, Sequence) or not all(isinstance(value, str) for value in values):
        raise ConfigurationError(f"{name} of a rule must be a list of strings, not {values!r}")
    return tuple(values)


def _language(name: str) -> str:
    """Return the one name of a language. Raises ConfigurationError for what is rather a typing error."""
    found = base_language(name)
    if found == "workflow":
        raise ConfigurationError(f"languages of a rule cannot be {name!r}, which is not code; use runs = workflow")
    if found not in KNOWN_LANGUAGES:  # a sandbox of a plugin may have others
        from difflib import get_close_matches

        if not found or get_close_matches(found, KNOWN_LANGUAGES, cutoff=_SAME_WORD):
            hint = did_you_mean(found, KNOWN_LANGUAGES, otherwise=f"use {', '.join(KNOWN_LANGUAGES)}")
            raise ConfigurationError(f"languages of a rule cannot be {name!r}; {hint}")
    return found


def _tag(tag: str) -> str:
    words = normalize_tags([tag])
    if not words:
        raise ConfigurationError(f"{tag!r} in the tags of a rule is not a tag; use letters, digits and - _ .")
    return words[0]

"""Cases of a policy: calls and runs, none of which is made, and what the policy must say of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

from toolexec.backend.offering import is_offer_id
from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.errors.hints import did_you_mean
from toolexec.model.binding import Binding, LocalBinding, MCPBinding, ProviderBinding
from toolexec.model.call import ToolCall
from toolexec.model.ids import ToolID
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.languages import base_language
from toolexec.model.origin import ANYONE, Caller, Origin
from toolexec.model.tool import Tool, ToolAnnotations
from toolexec.run.policy_rules import Verdict, check_effect, check_keys
from toolexec.run.run_request import PROFILES, RUN_KINDS, RunKind, RunRequest
from toolexec.run.settings import Effect

_TOP: Final = ("tools", "callers", "tests")
_HINTS: Final = ("read_only", "destructive", "idempotent", "open_world")
_TOOL: Final = ("backend", "tags", *_HINTS)
_CALLER: Final = ("id", "roles", "scopes", "tenant")
_CASE: Final = ("name", "caller", "endpoint", "tool", "args", "run", "profile", "language", "expect", "rule")
_READS: Final[Mapping[str, Any]] = {"read_only": True, "idempotent": True}
"""The annotations of resources and prompts, whatever their server says."""
_BACKENDS: Final[Mapping[str, Callable[[str, str], Binding]]] = {
    "local": lambda _, tool: LocalBinding(tool),
    "mcp": MCPBinding,
    "provider": ProviderBinding,
}


class Judge(Protocol):
    """What a policy does for a case."""

    def decide(self, entry: Registered, call: ToolCall) -> Verdict:
        """Return what becomes of a call."""
        ...

    def decide_run(self, run: RunRequest) -> Verdict:
        """Return what becomes of a run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCase:
    """A call or a run, and what a policy must say of it: *expect*, and *rule*, the name of the rule that decides, where
    that is not empty."""

    name: str
    expect: Effect
    rule: str = ""
    subject: tuple[Registered, ToolCall] | RunRequest

    @property
    def endpoint(self) -> str:
        """The endpoint that the caller comes to; empty for the main one."""
        made = self.subject if isinstance(self.subject, RunRequest) else self.subject[1]
        return made.origin.caller.endpoint

    def verdict(self, policy: Judge) -> Verdict:
        """Return what *policy* says."""
        if isinstance(self.subject, RunRequest):
            return policy.decide_run(self.subject)
        return policy.decide(*self.subject)

    def problem(self, verdict: Verdict) -> str:
        """Return in which way *verdict* is not what is expected; empty where it is."""
        by = f"by {verdict.rule}" + (f" ({verdict.reason})" if verdict.reason else "")
        if verdict.effect != self.expect:
            return f"expected {self.expect}, but it is {verdict.effect} {by}"
        if self.rule and verdict.rule != self.rule:
            return f"expected {self.expect} by {self.rule}, but it is {by}"
        return ""


def read_cases(data: Any, servers: Mapping[str, str], profile: str = "standard") -> list[PolicyCase]:
    """Read cases from JSON data: `tests`, and the `tools` and `callers` that they name.

    A tool's `backend` is `local`, `mcp:NAME` or `provider:NAME`. *servers* has the backends of a configuration by
    name: a tool that is not among `tools`, and whose namespace is the name of one, runs there. It then counts as one
    that does not say what it does. *profile* is the one of code whose case names none.

    Raises ConfigurationError: a key is unknown, a value makes no sense, a tool's backend is not known.
    """
    check_keys(data, _TOP, "a file of policy tests")
    tools, callers, tests = (data.get(name) or {} for name in _TOP)
    reader = _Reader(_mapping(tools, "tools"), _mapping(callers, "callers"), servers, profile)
    if not isinstance(tests, Sequence) or isinstance(tests, str) or not tests:
        raise ConfigurationError("a file of policy tests needs a list of `tests`")
    found: list[PolicyCase] = []
    for number, test in enumerate(tests, start=1):
        try:
            found.append(reader.case(test, number))
        except ToolExecError as error:
            raise ConfigurationError(f"test {number}: {error.message}") from error
    return found


class _Reader:
    def __init__(self, tools: JSONObject, callers: JSONObject, servers: Mapping[str, str], profile: str) -> None:
        self._servers = servers
        self._profile = profile
        self._tools = {name: self._entry(name, facts) for name, facts in tools.items()}
        self._callers = {name: _caller(facts, f"the caller {name}") for name, facts in callers.items()}

    def case(self, data: Any, number: int) -> PolicyCase:
        check_keys(data, _CASE, "a policy test")
        expect = data.get("expect", "")
        check_effect(expect, "expect")
        if ("tool" in data) == ("run" in data):
            raise ConfigurationError("a policy test is for a `tool` or for a `run`, and for one of them")
        caller = self._caller(data.get("caller", ""))
        origin = Origin(caller=replace(caller, endpoint=str(data.get("endpoint", ""))))
        subject = self._call(data, origin) if "tool" in data else _run(data, origin, self._profile)
        name = str(data.get("name") or data.get("tool") or data.get("run"))
        return PolicyCase(name=f"{number}. {name}", expect=expect, rule=str(data.get("rule", "")), subject=subject)

    def _call(self, data: JSONObject, origin: Origin) -> tuple[Registered, ToolCall]:
        _leave_out(data, ("profile", "language"), "a call")
        tool_id = str(data["tool"])
        args = _mapping(data.get("args") or {}, "args")
        entry = self._tools.get(tool_id) or self._entry(tool_id, {})
        return entry, ToolCall(tool_id, dict(args), origin=origin)

    def _caller(self, given: Any) -> Caller:
        if not isinstance(given, str):
            return _caller(given, "the caller")
        return self._callers.get(given) or (Caller(id=given) if given else ANYONE)

    def _entry(self, tool_id: str, facts: Any) -> Registered:
        check_keys(facts, _TOOL, f"the tool {tool_id}")
        space = ToolID.parse(tool_id).namespace
        backend = facts.get("backend") or self._servers.get(space)
        if not backend:
            raise ConfigurationError(
                f"where does {tool_id} run? Say so: tools: {{{tool_id}: {{backend: mcp:NAME}}}}, or provider:NAME, or "
                "local for a Python function"
            )
        hints = {name: facts[name] for name in _HINTS if name in facts}
        wrong = [name for name, value in hints.items() if not isinstance(value, bool)]
        if wrong:
            raise ConfigurationError(f"{wrong[0]} of the tool {tool_id} must be true or false")
        return tool_at(tool_id, str(backend), tags=_strings(facts.get("tags"), "tags"), hints=hints)


def tool_at(
    tool_id: str, backend: str, *, tags: Sequence[str] = (), hints: Mapping[str, Any] | None = None
) -> Registered:
    """Return a tool as policies see it, on a *backend* such as `mcp:github`, with annotations; a resource or a prompt
    (`docs:review:+prompt`) has those of one that only reads.

    Raises ConfigurationError for another kind of backend, and InvalidToolIDError.
    """
    kind, _, name = backend.partition(":")
    if kind not in _BACKENDS or bool(name) == (kind == "local"):
        hint = did_you_mean(kind, _BACKENDS, otherwise="use local, mcp:NAME or provider:NAME")
        raise ConfigurationError(f"the backend of {tool_id} cannot be {backend!r}; {hint}")
    parsed = ToolID.parse(tool_id)
    binding = _BACKENDS[kind](name, parsed.name)
    tool = Tool(
        name=parsed.name,
        namespace=parsed.namespace,
        version=parsed.version,
        input_schema={"type": "object"},
        tags=tuple(tags),
        annotations=ToolAnnotations(**{**(_READS if is_offer_id(tool_id) else {}), **(hints or {})}),
    )
    return Registered(tool, (binding,), binding)


def _run(data: JSONObject, origin: Origin, usual: str) -> RunRequest:
    _leave_out(data, ("args",), "a run")
    kind, profile, language = (str(data.get(name, "")) for name in ("run", "profile", "language"))
    for value, known, what in ((kind, RUN_KINDS, "run"), (profile, ("", *PROFILES), "profile")):
        if value not in known:
            raise ConfigurationError(f"{what} cannot be {value!r}; {did_you_mean(value, known)}")
    if kind != "code" and (profile or language):
        raise ConfigurationError("only code has a profile and a language")
    if kind == "code":
        profile, language = profile or usual, base_language(language or "python")
    return RunRequest(kind=cast("RunKind", kind), origin=origin, profile=profile, language=language)


def _caller(facts: Any, what: str) -> Caller:
    check_keys(facts, _CALLER, what)
    return Caller(
        id=str(facts.get("id", "")),
        roles=_strings(facts.get("roles"), "roles"),
        scopes=_strings(facts.get("scopes"), "scopes"),
        tenant=str(facts.get("tenant", "")),
    )


def _strings(values: Any, what: str) -> tuple[str, ...]:
    values = [values] if isinstance(values, str) else values or []
    if not isinstance(values, Sequence) or not all(isinstance(value, str) for value in values):
        raise ConfigurationError(f"{what} must be a list of strings")
    return tuple(values)


def _mapping(value: Any, what: str) -> JSONDict:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{what} must be a mapping, not {type(value).__name__}")
    return dict(value)


def _leave_out(data: JSONObject, names: Sequence[str], what: str) -> None:
    for name in names:
        if name in data:
            raise ConfigurationError(f"{what} has no {name}; leave it out")

"""From what was done to the narrowest rules that allow it: read from an audit log, for a person to look at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonpath
from typing import Any, Final, cast

from toolexec.backend.offering import is_offer_id
from toolexec.errors import ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.ids import ToolID
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Caller, Origin
from toolexec.model.redaction import REDACTED
from toolexec.run.policy import Policy
from toolexec.run.policy_cases import tool_at
from toolexec.run.run_request import RUN_KINDS, RunKind, RunRequest

_FEW: Final = 5
_ENOUGH: Final = 4
_DEFAULTS: Final = ("default", "default_runs", "remote_destructive")
"""What decides where no rule does."""

_Callers = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Rules that allow what was done and is not allowed by a rule yet, each with the number of calls that it is for.

    `refused` has calls that a rule of the policy now denies or asks about, by tool and rule: these stay so. `unclear`
    has those whose arguments are not in the log, and that a rule allows, denies or asks about by their arguments: a
    rule without these would allow more than was done, so that there is none. `skipped` counts records that do not say
    enough: of a log whose records were cut.
    """

    rules: list[tuple[JSONDict, int]]
    refused: list[tuple[str, str]]
    unclear: list[tuple[str, str]]
    skipped: int


@dataclass(slots=True)
class _Use:
    """What was done with one tool on one backend, or with runs of one kind."""

    callers: set[str] = field(default_factory=set[str])
    count: int = 0
    args: list[JSONObject] | None = field(default_factory=list[JSONObject])
    """None where some of them are not in the log."""

    def add(self, caller: str, args: object) -> None:
        self.callers.add(caller)
        self.count += 1
        if self.args is None or not isinstance(args, Mapping) or "left_out" in args:
            self.args = None
        else:
            self.args.append(cast("JSONObject", args))


def suggest(records: Iterable[JSONObject], policy: Policy, *, conditions: bool = False) -> Suggestion:
    """Return the narrowest rules for what succeeded in *records* of an audit log, beside those of *policy*.

    A rule names the tools, the backend that each ran on, and who called them; tools with the same backend and callers
    share one. With *conditions*, tools whose arguments are in the log (`audit.args = "redacted"`) get a rule of their
    own, which limits the arguments that every call had: paths to the directory that all are in, and others to the
    values that were used, where these are five or fewer, and came four times in all and twice each on average.

    Runs of code, workflows, chains and skills get rules where the policy denies those that no rule names.

    A log has no annotations of tools, so that rules of *policy* by annotation match as for a tool without any.
    """
    calls: dict[tuple[str, str], _Use] = defaultdict(_Use)
    runs: dict[tuple[str, str], _Use] = defaultdict(_Use)
    refused: dict[tuple[str, str], None] = {}
    unclear: dict[tuple[str, str], None] = {}
    skipped = 0
    for record in records:
        if record.get("outcome") != "ok":
            continue
        caller, args = _caller(record), record.get("args")
        if record.get("kind") == "call":
            verdict = _present(policy, record, caller)
            if verdict is None:
                skipped += 1
            elif isinstance(verdict, _Unclear):
                unclear[str(record["tool"]), verdict.rule] = None
            elif verdict == "":
                calls[_plain(str(record["tool"])), _backend(record)].add(caller.id, args)
            elif verdict != "allow":
                refused[str(record["tool"]), verdict] = None
        elif record.get("kind") in RUN_KINDS:
            run = _run(record, caller)
            verdict = policy.decide_run(run)
            if verdict.rule != "default_runs" and verdict.effect != "allow":
                refused[str(run), verdict.rule] = None
            elif verdict.effect != "allow":
                runs[run.kind, run.language].add(caller.id, None)
    rules = [*_rules_of_calls(calls, conditions=conditions), *_rules_of_runs(runs)]
    return Suggestion(rules=rules, refused=list(refused), unclear=list(unclear), skipped=skipped)


@dataclass(frozen=True, slots=True)
class _Unclear:
    """What becomes of a call depends on arguments that are not in the log."""

    rule: str


def _present(policy: Policy, record: JSONObject, caller: Caller) -> str | _Unclear | None:
    """Return what a rule says of the call today: `allow`, or the name of the rule that denies it or asks; empty where
    only a default decides, and None where the record says too little."""
    args = record.get("args")
    known = cast("JSONObject", args) if isinstance(args, Mapping) else {}
    try:
        entry = tool_at(str(record["tool"]), _backend(record))
        call = ToolCall(entry.tool.id, dict(known), origin=Origin(caller=caller))
        verdict = policy.decide(entry, call)
    except (KeyError, ToolExecError):
        return None
    if not isinstance(args, Mapping) or "left_out" in args or REDACTED in str(known):
        for rule in policy.rules:
            if rule.conditions and rule.concerns(entry, caller):
                return _Unclear(rule.name)
    if verdict.rule in (*_DEFAULTS, ""):
        return ""
    return "allow" if verdict.effect == "allow" else verdict.rule


def _rules_of_calls(uses: Mapping[tuple[str, str], _Use], *, conditions: bool) -> Iterable[tuple[JSONDict, int]]:
    alike: dict[tuple[str, _Callers], list[tuple[str, int]]] = defaultdict(list)
    for (tool, backend), use in sorted(uses.items()):
        callers = tuple(sorted(use.callers))
        when = _conditions(use.args) if conditions and use.args else {}
        if when:
            rule = _rule([tool], backend, callers)
            yield {**rule, "when": when}, use.count
        else:
            alike[backend, callers].append((tool, use.count))
    for (backend, callers), tools in alike.items():
        yield _rule([tool for tool, _ in tools], backend, callers), sum(count for _, count in tools)


def _rule(tools: Sequence[str], backend: str, callers: _Callers) -> JSONDict:
    return {
        "effect": "allow",
        "tools": [_literal(tool) for tool in tools],
        "backends": [_literal(backend)],
        "callers": [_literal(caller) for caller in callers],
    }


def _rules_of_runs(uses: Mapping[tuple[str, str], _Use]) -> Iterable[tuple[JSONDict, int]]:
    for (kind, language), use in sorted(uses.items()):
        languages: JSONDict = {"languages": [language]} if language else {}
        callers = [_literal(caller) for caller in sorted(use.callers)]
        yield {"effect": "allow", "runs": [kind], **languages, "callers": callers}, use.count


def _conditions(calls: Sequence[JSONObject]) -> JSONDict:
    """Return the conditions that all *calls* meet, for each argument that all of them have."""
    found: JSONDict = {}
    for name in sorted(set.intersection(*(set(call) for call in calls))):
        if name.isidentifier():  # another one would be an expression
            condition = _condition([call[name] for call in calls])
            if condition:
                found[name] = condition
    return found


def _condition(values: Sequence[Any]) -> JSONDict:
    strings = [value for value in values if isinstance(value, str)]
    if any(REDACTED in text for text in strings):
        return {}
    if len(strings) == len(values) and all(text.startswith("/") for text in strings):
        directory = commonpath([text if text.endswith("/") else text.rpartition("/")[0] or "/" for text in strings])
        usable = directory.strip("/") and not any(part in ("..", "~") for text in strings for part in text.split("/"))
        return {"path_under": directory} if usable else {}
    if all(isinstance(value, str | bool | int) for value in values):
        distinct = list(dict.fromkeys((type(value), value) for value in values))
        if len(distinct) <= _FEW and len(values) >= max(2 * len(distinct), _ENOUGH):
            return {"in": [value for _, value in distinct]}
    return {}


def _run(record: JSONObject, caller: Caller) -> RunRequest:
    details = record.get("details")
    language = str(cast("JSONObject", details).get("language", "")) if isinstance(details, Mapping) else ""
    kind = cast("RunKind", record["kind"])
    return RunRequest(kind=kind, origin=Origin(caller=caller), language=language if kind == "code" else "")


def _caller(record: JSONObject) -> Caller:
    facts = record.get("caller")
    if not isinstance(facts, Mapping):
        return Caller()
    roles = facts.get("roles")
    return Caller(id=str(facts.get("id", "")), roles=tuple(map(str, roles)) if isinstance(roles, Sequence) else ())


def _backend(record: JSONObject) -> str:
    kind = str(record["binding"])
    name = record.get("answered_backend") or record["backend"]
    return "local" if kind == "local" else f"{kind}:{name}"


def _plain(tool_id: str) -> str:
    """Return the ID without its version, as rules name tools; that of a resource or a prompt is whole: without its mark
    it would allow the tool of the same name, and each other offer of that name."""
    if is_offer_id(tool_id):
        return tool_id
    parsed = ToolID.parse(tool_id)
    return f"{parsed.namespace}:{parsed.name}" if parsed.namespace else parsed.name


def _literal(text: str) -> str:
    """Return the pattern that matches this text and no other."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)

"""The gate against a slow, plain reference, over random rules, bindings, faults, and every path of a call: alone, as a
stream, with a key, in chains, workflows, skills and code, undone and tried."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Tool
from toolexec.backend import ProviderBackend
from toolexec.errors import BackendUnavailableError, ConnectionLostError, ExecutionError, ToolExecError
from toolexec.model import ProviderBinding, ToolAnnotations
from toolexec.model.origin import ApprovalRequest, Origin, acting
from toolexec.run.audit import AuditLog, read_last
from toolexec.run.effects import EffectLedger
from toolexec.run.gate import Gate
from toolexec.run.layers.approval import Approval
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.fallback import Fallback
from toolexec.run.layers.ledger import Ledger
from toolexec.run.layers.retry import Retry
from toolexec.run.policy import Policy, Rule
from toolexec.run.reconcile import CHECK
from toolexec.run.repeating import is_repeatable
from toolexec.run.undo import UNDO

SERVERS = ("a", "b", "c")
NAMES = ("one", "two", "three", "undo", "check")
IDS = tuple(f"t:{name}" for name in NAMES)
ATTEMPTS = 3
NOT_MADE = {
    "policy_denied",
    "approval_denied",
    "approval_required",
    "outcome_unknown",
    "effect_in_progress",
    "backend_unavailable",
    "tool_not_found",
    "validation_input",
}
"""Outcomes of attempts that reached no backend."""
HINTS = (
    ToolAnnotations(),
    ToolAnnotations(read_only=True),
    ToolAnnotations(idempotent=True),
    ToolAnnotations(destructive=True),
    ToolAnnotations(idempotent=True, destructive=True),
)


RUNS = {
    "chain": "chain",
    "undo": "chain",
    "trial": "chain",
    "workflow": "workflow",
    "workflow, undone": "workflow",
    "skill": "skill",
    "code": "code",
    "code, at once": "code",
    "code, chained": "code",
}
"""The ways to use tools that are runs as a whole, and what rules call these."""
WAYS = ("call", "stream", "key", *RUNS)
CODE = {
    "code": """
for n, tool in enumerate(TOOLS):
    try:
        await tools.run(tool, {"x": n % 2})
    except Exception:
        pass
""",
    "code, at once": """
import asyncio
await asyncio.gather(*(tools.run(tool, {"x": n % 2}) for n, tool in enumerate(TOOLS)), return_exceptions=True)
""",
    "code, chained": """
await tools.run_chain([{"tool": tool, "args": {"x": n % 2}} for n, tool in enumerate(TOOLS)])
""",
}
SKILL = """+++
name = "%s"
description = "Calls a tool, and another one where that fails."
+++
try {
  run("%s", {x: 1})
} catch error {
  run("%s", {x: 0})
}
"""


@dataclass
class RuleOf:
    """A rule as the reference reads it."""

    effect: Any
    tools: tuple[str, ...]
    servers: tuple[str, ...]
    x: int | None
    """The argument that it is for; None for any."""

    def matches(self, server: str, tool: str, args: Any) -> bool:
        """Return whether the rule is for this call."""
        return (
            (not self.tools or tool in self.tools)
            and (not self.servers or server in self.servers)
            and (self.x is None or args.get("x") == self.x)
        )


@dataclass
class World:
    """What one seed makes: servers with faults, tools with bindings, rules, and an approver; and what happened."""

    chance: random.Random
    effects: list[tuple[str, str, str]] = field(default_factory=list)
    """Each effect that a server has seen: its name, the tool, and the arguments as JSON."""
    approved: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """How often the approver has said yes to that."""
    rules: list[RuleOf] = field(default_factory=list)
    default: Any = "allow"
    denied_runs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    tools: dict[str, Tool] = field(default_factory=dict)
    is_one_call: bool = False
    repeated: list[str] = field(default_factory=list)
    """What was done though it may have been done already."""
    spent: str = ""
    """The tool that may have done the work of the current call, where that must not be done twice."""

    def __post_init__(self) -> None:
        chance = self.chance
        for _ in range(chance.randrange(4)):
            effect = chance.choice(["allow", "ask", "deny"])
            tools = tuple(chance.sample(IDS, chance.randrange(3)))
            servers = tuple(chance.sample(SERVERS, chance.randrange(2 if tools else 3)))
            self.rules.append(RuleOf(effect, tools, servers, chance.choice([None, None, 0, 1])))
        self.faults = ("", "", "", "down", "lost", "busy", "no")
        self.default = chance.choice(["allow", "allow", "ask", "deny"])
        if chance.random() < 0.4:  # little is forbidden and much goes wrong: calls go from place to place
            self.rules.clear()
            self.default, self.faults = "allow", ("", "down", "lost", "lost", "lost")
        if chance.random() < 0.3:
            self.denied_runs = tuple(chance.sample(["chain", "workflow", "skill", "code"], 2))

    def decision(self, server: str, tool: str, args: str) -> str:
        """Return what the rules say, by reading them one after the other."""
        given = json.loads(args)
        matching = [rule.effect for rule in self.rules if rule.matches(server, tool, given)]
        for effect in ("deny", "ask", "allow"):
            if effect in matching:
                return effect
        return self.default

    async def answer(self, server: str, name: str, args: Any) -> Any:
        """Answer a call at a server, or fail it in one of the ways there are."""
        fault = self.chance.choice(self.faults)
        if fault == "down":
            raise BackendUnavailableError("down")
        self.effects.append((server, f"t:{name}", as_text(args)))
        if self.spent and name != "check":  # kept for the test: what a backend raises is the outcome of its call
            self.repeated.append(f"{self.spent} may have done it, and {name} at {server} did it again")
        if fault in ("lost", "busy") and self.is_one_call and not is_repeatable(self.tools[name]):
            self.spent = f"{name} at {server}"
        await asyncio.sleep(0)
        if fault == "lost":
            raise ConnectionLostError("gone")
        if fault == "busy":
            raise ExecutionError("busy", retryable=True)
        if fault == "no":
            raise ExecutionError("no")
        return True if name == "check" else {"n": 1}

    def ask(self, request: ApprovalRequest) -> Any:
        """Approve half of what is asked."""
        if self.chance.random() < 0.5:
            return "no"
        self.approved[request.backend.removeprefix("provider:"), request.tool_id, as_text(request.args)] += 1
        return "once"


def as_text(args: Any) -> str:
    """Return arguments as JSON, the same for the same ones."""
    return json.dumps(args, sort_keys=True)


def made(world: World, log: AuditLog, path: Path) -> Exec:
    """Return an Exec of this world."""
    chance = world.chance
    policy = Policy(
        [
            *(Rule("deny", runs=kind) for kind in world.denied_runs),
            *(
                Rule(
                    rule.effect,
                    tools=rule.tools,
                    backends=rule.servers,
                    when={} if rule.x is None else {"x": {"equals": rule.x}},
                )
                for rule in world.rules
            ),
        ],
        default=world.default,
        remote_destructive="allow",
    )
    others = {
        tool: chance.sample(IDS, chance.randint(1, 3)) for tool in chance.sample(IDS, chance.randint(0, len(IDS)))
    }
    fallback = Fallback(others, bindings=chance.random() < 0.8)
    retry = Retry(attempts=ATTEMPTS, pause=0, max_pause=0.001, sleep=lambda seconds: asyncio.sleep(0))
    gate = Gate(
        policy=policy,
        approval=Approval(policy.decide, ask=world.ask),
        audit=Audit(log),
        fallback=fallback if chance.random() < 0.8 else None,
        retry=retry if chance.random() < 0.7 else None,
        ledger=Ledger(EffectLedger(path / "effects.db")) if chance.random() < 0.3 else None,
    )
    ex = Exec(gate=gate)
    for server in SERVERS:
        ex.backends.register(
            ProviderBackend(server, lambda name, args, server=server: world.answer(server, name, args))
        )
    if chance.random() < 0.5:
        ex.add_skill(SKILL % ("try", *chance.sample(IDS, 2)))
    for name in NAMES:
        meta = {UNDO: "t:undo", CHECK: "t:check"} if name in ("one", "two", "three") else {}
        hints = ToolAnnotations(read_only=True) if name == "check" else chance.choice(HINTS)
        tool = Tool(name=name, namespace="t", input_schema={"type": "object"}, annotations=hints, meta=meta)
        world.tools[name] = tool
        for server in chance.sample(SERVERS, chance.randint(1, 3)):
            ex.index.register(tool, ProviderBinding(server, name))
    return ex


async def act(world: World, ex: Exec, way: str) -> None:
    """Use the tools in one of the ways there are."""
    chance = world.chance
    tools = [chance.choice(IDS) for _ in range(chance.randint(1, 3))]
    world.is_one_call, world.spent = way in ("call", "stream", "key"), ""
    try:
        if way == "call":
            await ex.run_tool(tools[0], {"x": chance.randrange(2)})
        elif way == "key":
            await ex.run_tool(tools[0], {"x": 1}, idempotency_key=chance.choice("kl"))
        elif way == "stream":
            async for _ in ex.stream_tool(tools[0], {}):
                pass
        elif way == "skill":
            await ex.run_tool("skill:try")
        elif way in CODE:
            await ex.execute_code(f"TOOLS = {tools!r}\n{CODE[way]}")
        elif way.startswith("workflow"):
            lines = "\n".join(f'v{n} := run("{tool}", {{x: {n % 2}}})' for n, tool in enumerate(tools))
            await ex.run_workflow(lines, on_error="undo" if way == "workflow, undone" else "stop")
        else:
            steps = [{"tool": tool, "args": {"x": n % 2}} for n, tool in enumerate(tools)]
            await ex.run_chain(steps, on_error="undo" if way == "undo" else "stop", dry_run=way == "trial")
    except ToolExecError:
        pass  # refused, or nothing to call: what counts is what the servers have seen


def recorded_effects(records: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Return what the log says that was done, by server and tool."""
    found: Counter[tuple[str, str]] = Counter()
    later: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if record["kind"] == "attempt":
            later.setdefault(record["run_id"], []).append(record)
            if record["outcome"] not in NOT_MADE and not record.get("cached"):
                found[record["backend"], record["tool"]] += 1
    for record in records:
        if record["kind"] != "call":
            continue
        more = later.get(record["run_id"], [])
        if record.get("cached") and not more:
            continue
        if any(each["attempt"] == 1 for each in more):
            continue  # the call itself got no further than the rules
        outcome = more[0]["after"] if more else record["outcome"]
        if outcome not in NOT_MADE:
            found[record["backend"], record["tool"]] += 1
    return found


def check_parents(records: list[dict[str, Any]], seed: int) -> None:
    """Require that what a run has called leads to the record of that run."""
    known = {record["run_id"] for record in records if record["kind"] in ("call", "chain", "code")}
    for record in records:
        if record["kind"] == "call" and record.get("path", "direct") != "direct":
            assert record.get("parent") in known, f"seed {seed}: {record['tool']} has no parent in the log"


async def one_world(seed: int, path: Path) -> None:
    """Run one random sequence and compare it with the reference."""
    world = World(random.Random(seed))
    path.mkdir()
    log = AuditLog.open(path / "audit.jsonl")
    try:
        async with made(world, log, path) as ex:
            with acting(Origin()):
                for _ in range(world.chance.randint(1, 4)):
                    before, way = len(world.effects), world.chance.choice(WAYS)
                    await act(world, ex, way)
                    is_denied = RUNS.get(way) in world.denied_runs
                    assert not is_denied or len(world.effects) == before, f"seed {seed}: a denied {way} ran"
        records = list(read_last(path / "audit.jsonl", 10_000))
    finally:
        log.close()
    assert not world.repeated, f"seed {seed}: {world.repeated}"
    done = Counter(world.effects)
    for effect, count in done.items():
        decision = world.decision(*effect)
        assert decision != "deny", f"seed {seed}: the rules deny {effect}"
        if decision == "ask":
            assert count <= ATTEMPTS * world.approved[effect], f"seed {seed}: {effect} without an approval"
    seen = Counter((server, tool) for server, tool, _ in world.effects)
    assert recorded_effects([each for each in records if each.get("tool") != "skill:try"]) == seen, (
        f"seed {seed}: the log differs from what the servers saw"
    )
    check_parents(records, seed)


@pytest.mark.parametrize("block", range(4))
async def test_no_effect_without_a_decision_and_each_in_the_log_once(block: int, tmp_path: Path) -> None:
    """Random sequences do only what the rules allow, and the log names the server of each effect."""
    for seed in range(block * 25, block * 25 + 25):
        await one_world(seed, tmp_path / str(seed))


@pytest.mark.soak
async def test_the_same_for_ten_thousand_sequences(tmp_path: Path) -> None:
    """The same holds for as many as it takes; TOOLEXEC_SEEDS says how many."""
    for seed in range(1000, 1000 + int(os.environ.get("TOOLEXEC_SEEDS", "10000"))):
        await one_world(seed, tmp_path / str(seed))

"""What the gate adds to a call that it allows: each part by itself, and all of them together."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS, SCHEMA, answer
from toolexec import Exec, Tool, ToolAnnotations
from toolexec.backend import ProviderBackend
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.audit.log import AuditLog
from toolexec.run.gate import Gate
from toolexec.run.layers.approval import Approval
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.budget import Budget
from toolexec.run.layers.rate_limit import RateLimit
from toolexec.run.layers.telemetry import Telemetry
from toolexec.run.pinning import Pins
from toolexec.run.policy import Policy, Rule
from toolexec.run.results import ResultStore

ORIGIN = Origin(caller=Caller(id="ann", roles=("dev",), tenant="acme"), session="s1", client="bench")
RULES = [
    *(Rule("deny", tools=(f"other{number}:*",)) for number in range(10)),
    Rule("deny", tools=("bench:*",), when={"text": "secret"}),
    Rule("ask", destructive=True, namespaces=("mail",)),
    Rule("allow", roles=("dev",), namespaces=("bench",)),
]
BATCH = 200


def parts(folder: Path) -> dict[str, dict[str, Any]]:
    """By name: what a gate is made of. Nothing of it says no."""
    policy = Policy(RULES)
    made: dict[str, Callable[[], dict[str, Any]]] = {
        "policy": lambda: {"policy": policy},
        "approval": lambda: {"approval": Approval(policy.decide)},
        "rate_limit": lambda: {"rate_limit": RateLimit(rate=1e9, burst=10**9, per_caller=1e9, per_tool=1e9)},
        "audit": lambda: {"audit": Audit(AuditLog.open(folder / "one.jsonl"))},
        "pinning": lambda: {"pinning": Pins(folder / "pins-one.json")},
        "budget": lambda: {"budget": Budget(ResultStore())},
        "telemetry_off": lambda: {"telemetry": Telemetry()},
    }
    found: dict[str, dict[str, Any]] = {name: make() for name, make in made.items()}
    found["all"] = {
        **made["policy"](),
        **made["approval"](),
        **made["rate_limit"](),
        "audit": Audit(AuditLog.open(folder / "all.jsonl")),
        "pinning": Pins(folder / "pins-all.json"),
        **made["budget"](),
    }
    found["all_and_telemetry_off"] = {
        **made["policy"](),
        **made["approval"](),
        **made["rate_limit"](),
        "audit": Audit(AuditLog.open(folder / "more.jsonl")),
        "pinning": Pins(folder / "pins-more.json"),
        **made["budget"](),
        **made["telemetry_off"](),
    }
    return found


async def call(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """A provider that answers at once."""
    return await answer(dict(args))


def make_exec(gate: Gate | None, *, remote: bool, reading: bool = False) -> Exec:
    """One tool, local or of a provider; pinning looks at the latter only."""
    ex = Exec(gate=gate)
    hints = ToolAnnotations(read_only=reading)
    tool = Tool(name="echo", namespace="bench", input_schema=SCHEMA, output_schema=SCHEMA, annotations=hints)
    if remote:
        ex.add_backends(ProviderBackend("bench", call, tools=[tool]))
    else:
        ex.add(tool, handler=answer)
    return ex


async def batch(ex: Exec) -> float:
    """The seconds of a call, as the mean of many."""
    started = perf_counter()
    for _ in range(BATCH):
        await ex.run_tool("bench:echo", ARGS)
    return (perf_counter() - started) / BATCH


async def compare(meter: Meter, bare: Exec, gated: dict[str, Exec], suffix: str) -> None:
    """Each gate beside none, in turn, so that nothing else that happens on the machine falls on one side."""
    for name, ex in gated.items():
        with acting(ORIGIN):
            assert (await ex.run_tool("bench:echo", ARGS)).raise_for_error().value == ARGS
            await batch(bare)
            await batch(ex)
            gc.collect()
            added: list[float] = []
            for number in range(10 if meter.quick else 60):
                first, second = (bare, ex) if number % 2 else (ex, bare)
                taken = {id(first): await batch(first), id(second): await batch(second)}
                added.append(taken[id(ex)] - taken[id(bare)])
        meter.record(f"gate.{name}{suffix}", median(added))


async def main(meter: Meter) -> None:
    """A local tool, and one of a provider, which is pinned as well."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("", "_remote"):
            place = Path(folder) / (suffix or "local")
            place.mkdir()
            remote = bool(suffix)
            bare = make_exec(None, remote=remote)
            chosen = parts(place)
            gated = {name: make_exec(Gate(**found), remote=remote) for name, found in chosen.items()}
            if not remote:
                chosen["all_reading"] = {
                    **chosen["all"],
                    "audit": Audit(AuditLog.open(place / "reading.jsonl")),
                    "pinning": Pins(place / "pins-reading.json"),
                }
                gated["all_reading"] = make_exec(Gate(**chosen["all_reading"]), remote=False, reading=True)
                gated["off"] = make_exec(Gate(), remote=False)
            for ex in (bare, *gated.values()):
                await ex.start()
            with acting(ORIGIN):
                meter.record(f"gate.none{suffix}", await batch(bare))
            await compare(meter, bare, gated, suffix)
            for ex in (bare, *gated.values()):
                await ex.aclose()
            for found in chosen.values():
                if "audit" in found:
                    found["audit"].log.close()


if __name__ == "__main__":
    run_program(main)

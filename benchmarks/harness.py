"""Run the measured programs, each in a fresh interpreter, in turn, several rounds over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers import Peers
from toolexec.errors.hints import did_you_mean

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 420
_SLOWER = (
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONDEVMODE",
    "PYTHONASYNCIODEBUG",
    "PYTHONTRACEMALLOC",
)
"""Settings that no application runs with: without byte code, for one, each import would compile its source anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A measured program: the module in `benchmarks.programs`, how many rounds it takes part in, whose interpreter, and
    whether a quick run has it, too."""

    name: str
    module: str
    rounds: int = 5
    peer: str = ""
    args: tuple[str, ...] = ()
    quick: bool = True


PROGRAMS = (
    Program(name="calls", module="calls"),
    Program(name="default-gate", module="default_gate"),
    Program(name="floor", module="floor"),
    Program(name="fastmcp", module="peer_fastmcp", peer="fastmcp"),
    Program(name="pydantic-ai", module="peer_pydantic_ai", peer="pydantic-ai-slim"),
    Program(name="langchain", module="peer_langchain", peer="langchain-core"),
    Program(name="catalogue", module="catalogue"),
    *(
        Program(name=f"search-{size}", module="search_speed", rounds=rounds, args=(size,), quick=size != "100000")
        for size, rounds in (("1000", 3), ("10000", 3), ("100000", 2))
    ),
    *(
        Program(
            name=f"search-peers-{size}",
            module="peer_search_speed",
            rounds=1,
            peer="bm25s",
            args=(size,),
            quick=size == "1000",
        )
        for size in ("1000", "10000", "100000")
    ),
    *(
        Program(name=f"{name}-{size}", module=module, rounds=1, peer=peer, args=(size,), quick=False)
        for size in ("10000", "100000")
        for name, module, peer in (
            ("search-memory", "search_memory", ""),
            ("search-memory-peers", "peer_search_memory", "bm25s"),
        )
    ),
    Program(name="first-search", module="first_search", rounds=1),
    Program(name="ranking", module="search_ranking", rounds=1),
    Program(name="ranking-peers", module="peer_search_ranking", rounds=1, peer="bm25s", quick=False),
    Program(name="context", module="context", rounds=1, quick=False),
    Program(name="context-peers", module="peer_context", rounds=1, peer="fastmcp", quick=False),
    Program(name="concurrency", module="concurrency"),
    Program(name="worker", module="worker"),
    Program(name="code", module="code", rounds=3),
    Program(name="workflow-runs", module="workflow_runs", rounds=3),
    Program(name="durable", module="durable", rounds=2),
    Program(name="durable-postgres", module="durable_postgres", rounds=2, quick=False),
    Program(name="code-start", module="code_start", rounds=1),
    Program(name="starting", module="starting", rounds=1),
    Program(name="model-programs", module="model_programs", rounds=1),
    Program(name="mutants", module="mutants", rounds=1, quick=False),
    Program(name="code-monty", module="peer_monty_code", rounds=3, peer="pydantic-monty"),
    Program(name="code-fastmcp", module="peer_fastmcp_code", rounds=3, peer="fastmcp"),
    Program(name="code-smolagents", module="peer_smolagents_code", rounds=3, peer="smolagents"),
    Program(name="code-toolplane", module="peer_toolplane_code", rounds=3, peer="toolplane"),
    Program(name="mcp-calls", module="mcp_calls"),
    Program(name="http-calls", module="http_calls", rounds=3),
    Program(name="grpc-calls", module="grpc_calls", rounds=3),
    Program(name="openapi", module="openapi", rounds=1),
    Program(name="openapi-fastmcp", module="peer_fastmcp_openapi", rounds=1, peer="fastmcp", quick=False),
    Program(name="temporal", module="temporal", rounds=1, quick=False),
    Program(name="remote", module="remote", rounds=2, quick=False),
    Program(name="gate", module="gate_cost", rounds=3),
    Program(name="resilience-cost", module="resilience_cost", rounds=3),
    Program(name="workflow", module="workflow", rounds=3),
    Program(name="serve", module="serve_stdio", rounds=3),
    Program(name="serve-http", module="serve_http", rounds=3),
    Program(name="serve-start", module="serve_start", rounds=1),
    Program(name="serve-size", module="serve_size", rounds=1),
    Program(name="http-load", module="http_load", rounds=1, quick=False),
    Program(name="imports", module="imports", rounds=1, args=("asyncio", "toolexec", "toolexec:Exec")),
    Program(name="import-fastmcp", module="imports", rounds=1, peer="fastmcp", args=("fastmcp",)),
    Program(name="import-pydantic-ai", module="imports", rounds=1, peer="pydantic-ai-slim", args=("pydantic_ai",)),
    Program(name="import-langchain", module="imports", rounds=1, peer="langchain-core", args=("langchain_core.tools",)),
    Program(name="import-httpx", module="imports", rounds=1, peer="fastmcp", args=("httpx",)),
    *(
        Program(name=f"sandbox-{kind}", module="sandbox", rounds=1, args=(kind,), quick=False)
        for kind in ("bubblewrap", "docker", "containerd", "gvisor")
    ),
    *(
        Program(name=f"sandbox-many-{kind}", module="sandbox_many", rounds=1, args=(kind,), quick=False)
        for kind in ("bubblewrap", "docker", "containerd", "gvisor")
    ),
    Program(name="kubernetes", module="kubernetes", rounds=1, quick=False),
    Program(name="microvm", module="microvm", rounds=1, quick=False),
    Program(name="sandbox-peers", module="sandbox_peers", rounds=1, quick=False),
    Program(name="mcp-cycles", module="mcp_cycles", rounds=1, quick=False),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity over all rounds."""

    rounds: tuple[tuple[float, ...], ...]

    @property
    def median(self) -> float:
        """The median of the rounds' medians."""
        return median(median(samples) for samples in self.rounds)

    @property
    def lowest(self) -> float:
        """The lowest sample of all."""
        return min(map(min, self.rounds))

    @property
    def highest(self) -> float:
        """The highest sample of all."""
        return max(map(max, self.rounds))


@dataclass(slots=True)
class Outcome:
    """Everything that was measured, and what could not be."""

    figures: dict[str, Figure] = field(default_factory=dict[str, Figure])
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    problems: dict[str, str] = field(default_factory=dict[str, str])


def run_all(programs: Sequence[Program], peers: Peers | None, *, quick: bool) -> Outcome:
    """Run every program in every one of its rounds; a program that fails is a problem and runs no more."""
    outcome = Outcome()
    missing = {requirement.split(">")[0]: problem for requirement, problem in (peers.problems if peers else {}).items()}
    for program in programs:
        if program.peer in missing:
            outcome.problems[program.name] = f"{program.peer} could not be installed: {missing[program.peer]}"
    _prepare_sandbox()
    rounds = 1 if quick else max(program.rounds for program in programs)
    for number in range(rounds):
        for program in programs:
            if number >= program.rounds or program.name in outcome.problems:
                continue
            print(f"round {number + 1} of {rounds}: {program.name} ...", flush=True)
            try:
                _take_in(outcome, run_program(program, peers, quick=quick))
            except (subprocess.SubprocessError, ValueError) as error:
                outcome.problems[program.name] = _reason(error)
    return outcome


def _prepare_sandbox() -> None:
    """Have the embedded sandbox compiled with optimisation: the first use of a machine, or of a new version, makes do
    with a quick compilation that runs at half the speed, and finishes the other one while programs are measured."""
    subprocess.run([sys.executable, "-m", "toolexec", "sandbox", "build"], cwd=ROOT, capture_output=True, check=True)


def run_program(program: Program, peers: Peers | None, *, quick: bool) -> dict[str, Any]:
    """Run a program once; what it printed."""
    python = str(peers.python) if program.peer and peers else sys.executable
    command = [python, "-m", f"benchmarks.programs.{program.module}", *program.args, *(["--quick"] if quick else [])]
    env = {name: value for name, value in os.environ.items() if name not in _SLOWER}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    return json.loads(done.stdout.splitlines()[-1])


def select(names: Iterable[str]) -> list[Program]:
    """The programs with these names, where `_` is as good as `-`; raises ValueError for a name that none has."""
    known = {program.name: program for program in PROGRAMS}
    names = [name.replace("_", "-") for name in names]
    for name in names:
        if name not in known:
            raise ValueError(f"no program is called {name!r}; {did_you_mean(name, known)} (--list names them all)")
    return [known[name] for name in names]


def _take_in(outcome: Outcome, printed: dict[str, Any]) -> None:
    for key, samples in printed["samples"].items():
        known = outcome.figures.get(key, Figure(()))
        outcome.figures[key] = Figure((*known.rounds, tuple(samples)))
    outcome.facts |= printed["facts"]


def _reason(error: Exception) -> str:
    """The last line of a traceback, taken out of the frame that an exception group draws around it."""
    lines = [line.strip(" |+-") for line in (getattr(error, "stderr", None) or "").splitlines()]
    said = [line for line in lines if line]
    return said[-1][:300] if said else str(error)[:300]

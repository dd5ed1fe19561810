"""Which programs measure what a table shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.context_rows import CONTEXT_GROUPS, CONTEXT_NAMES
from benchmarks.harness import PROGRAMS, Program
from benchmarks.rows import GROUPS, NAMES, Row
from benchmarks.sandbox_rows import SANDBOX_GROUPS, SANDBOX_NAMES
from benchmarks.search_rows import SEARCH_GROUPS, SEARCH_NAMES

ALL_GROUPS: dict[str, tuple[Row, ...]] = GROUPS | CONTEXT_GROUPS | SEARCH_GROUPS | SANDBOX_GROUPS
ALL_NAMES = NAMES | CONTEXT_NAMES | SEARCH_NAMES | SANDBOX_NAMES
_KINDS = ("bubblewrap", "docker", "containerd", "gvisor")
_LARGE = ("10000", "100000")

MEASURES: dict[str, tuple[str, ...]] = {
    "calls": ("calls.",),
    "default-gate": ("default_gate.",),
    "floor": ("floor.",),
    "fastmcp": ("peers.fastmcp",),
    "pydantic-ai": ("peers.pydantic_ai",),
    "langchain": ("peers.langchain",),
    "catalogue": ("catalogue.",),
    **{f"search-{size}": (f"search.{size}.",) for size in ("1000", *_LARGE)},
    **{f"search-peers-{size}": (f"search_peers.{size}.",) for size in ("1000", *_LARGE)},
    **{f"search-memory-{size}": (f"search_memory.{size}.",) for size in _LARGE},
    **{f"search-memory-peers-{size}": (f"search_memory_peers.{size}.",) for size in _LARGE},
    "first-search": ("first_search.",),
    "ranking": ("ranking.toolexec", "ranking.fts5", "ranking.size"),
    "ranking-peers": ("ranking.",),
    "context": ("context.",),
    "context-peers": ("context_peers.",),
    "concurrency": ("concurrency.",),
    "worker": ("worker.",),
    "code": ("code.",),
    "workflow-runs": ("workflow.", "workflow.parse_and_check"),
    "durable": ("durable.",),
    "durable-postgres": ("durable.postgres.",),
    "code-start": ("code.first_use", "code.interpreter", "code.process_start"),
    "starting": ("starting.",),
    "model-programs": ("model_programs.",),
    "mutants": ("mutants.",),
    "code-monty": ("peers.monty",),
    "code-fastmcp": ("peers.fastmcp_",),
    "code-smolagents": ("peers.smolagents",),
    "code-toolplane": ("peers.toolplane",),
    "mcp-calls": ("mcp.",),
    "http-calls": ("http.",),
    "grpc-calls": ("grpc.",),
    "openapi": ("openapi.",),
    "openapi-fastmcp": ("openapi.fastmcp",),
    "temporal": ("temporal.",),
    "remote": ("remote.",),
    "gate": ("gate.",),
    "resilience-cost": tuple(
        f"gate.{part}" for part in ("retry", "breaker", "bulkhead", "fallback", "all_but_files", "cache", "ledger")
    ),
    "workflow": ("workflow.first", "workflow.format", "workflow.parse"),
    "serve": ("serve.",),
    "serve-http": ("serve_http.",),
    "serve-start": ("serve.all_tools", "serve.backends", "serve.ready"),
    "serve-size": ("serve.start_",),
    "http-load": ("http.handshake", "http.modern"),
    "imports": ("imports.", "dependencies"),
    "import-fastmcp": ("imports.fastmcp",),
    "import-pydantic-ai": ("imports.pydantic_ai",),
    "import-langchain": ("imports.langchain_core.tools",),
    "import-httpx": ("imports.httpx",),
    **{f"sandbox-{kind}": (f"sandbox.{kind}.",) for kind in _KINDS},
    **{f"sandbox-many-{kind}": (f"sandbox.{kind}.left", f"sandbox.{kind}.memory") for kind in _KINDS},
    "kubernetes": ("sandbox.kubernetes.",),
    "microvm": ("microvm.",),
    "sandbox-peers": ("sandbox_peers.",),
    "mcp-cycles": ("cycles.",),
}
"""What the keys of a program's figures begin with; of two programs that fit, the longer beginning counts."""


def measured_by(key: str) -> str:
    """Return the name of the program that measures the figure *key*."""
    fitting = [(start, name) for name, starts in MEASURES.items() for start in starts if key.startswith(start)]
    return max(fitting, key=lambda fit: len(fit[0]))[1]


def keys_of(group: str) -> list[str]:
    """Return the keys of all figures that a table shows, those it is compared with included."""
    return [key for row in ALL_GROUPS[group] for key in (row.key, *row.beside)]


def groups_of(names: Iterable[str]) -> list[str]:
    """Return the tables that have rows which these programs measure."""
    chosen = set(names)
    return [group for group, rows in ALL_GROUPS.items() if any(measured_by(row.key) in chosen for row in rows)]


def with_their_tables(programs: Sequence[Program]) -> list[Program]:
    """Return these programs and the others that the tables with their rows need."""
    wanted = {program.name for program in programs}
    wanted |= {measured_by(key) for group in groups_of(wanted) for key in keys_of(group)}
    return [program for program in PROGRAMS if program.name in wanted]

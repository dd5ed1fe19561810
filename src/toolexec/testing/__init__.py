"""What users and our own tests test with: in-memory parts, a scripted MCP server, contract suites.

The names are loaded at their first use, as those of the package itself are: the scripted server starts in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.testing.backend_suite import check_backend
    from toolexec.testing.escape_battery import run_battery
    from toolexec.testing.gateway_suite import check_gateway
    from toolexec.testing.index_suite import check_index
    from toolexec.testing.journal_suite import check_journal
    from toolexec.testing.loop_pauses import loop_not_held
    from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool, Trouble
    from toolexec.testing.memory import After, InMemoryBackend, RecordedCall
    from toolexec.testing.outcome_suite import OutcomeTrial, SandboxTrial, check_outcomes
    from toolexec.testing.runner_suite import check_runner
    from toolexec.testing.runtime_suite import check_runtime
    from toolexec.testing.sandbox_suite import check_sandbox
    from toolexec.testing.scripted_sandbox import ScriptedSandbox
    from toolexec.testing.searcher_suite import check_searcher
    from toolexec.testing.state_suite import check_state
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.testing.backend_suite": ("check_backend",),
            "toolexec.testing.state_suite": ("check_state",),
            "toolexec.testing.escape_battery": ("run_battery",),
            "toolexec.testing.gateway_suite": ("check_gateway",),
            "toolexec.testing.index_suite": ("check_index",),
            "toolexec.testing.journal_suite": ("check_journal",),
            "toolexec.testing.loop_pauses": ("loop_not_held",),
            "toolexec.testing.mcp_server": ("ScriptedServer", "ScriptedTool", "Trouble"),
            "toolexec.testing.memory": ("After", "InMemoryBackend", "RecordedCall"),
            "toolexec.testing.outcome_suite": ("OutcomeTrial", "SandboxTrial", "check_outcomes"),
            "toolexec.testing.runner_suite": ("check_runner",),
            "toolexec.testing.runtime_suite": ("check_runtime",),
            "toolexec.testing.sandbox_suite": ("check_sandbox",),
            "toolexec.testing.scripted_sandbox": ("ScriptedSandbox",),
            "toolexec.testing.searcher_suite": ("check_searcher",),
        },
    )

__all__ = [
    "After",
    "InMemoryBackend",
    "OutcomeTrial",
    "RecordedCall",
    "SandboxTrial",
    "ScriptedSandbox",
    "ScriptedServer",
    "ScriptedTool",
    "Trouble",
    "check_backend",
    "check_gateway",
    "check_index",
    "check_journal",
    "check_outcomes",
    "check_runner",
    "check_runtime",
    "check_sandbox",
    "check_searcher",
    "check_state",
    "loop_not_held",
    "run_battery",
]

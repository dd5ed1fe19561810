"""What users and our own tests test with: in-memory parts, a scripted MCP server, contract suites.

The names are loaded at their first use, as those of the package itself are: the scripted server starts in milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    "loop_not_held",
    "run_battery",
]

_HOME_OF = {
    "After": "memory",
    "InMemoryBackend": "memory",
    "OutcomeTrial": "outcome_suite",
    "RecordedCall": "memory",
    "SandboxTrial": "outcome_suite",
    "ScriptedSandbox": "scripted_sandbox",
    "ScriptedServer": "mcp_server",
    "ScriptedTool": "mcp_server",
    "Trouble": "mcp_server",
    "check_backend": "backend_suite",
    "check_gateway": "gateway_suite",
    "check_index": "index_suite",
    "check_journal": "journal_suite",
    "check_outcomes": "outcome_suite",
    "check_runner": "runner_suite",
    "check_runtime": "runtime_suite",
    "check_sandbox": "sandbox_suite",
    "check_searcher": "searcher_suite",
    "loop_not_held": "loop_pauses",
    "run_battery": "escape_battery",
}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'toolexec.testing' has no attribute {name!r}")
    return getattr(import_module(f"toolexec.testing.{home}"), name)

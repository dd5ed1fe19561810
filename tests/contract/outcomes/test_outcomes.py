"""The contract suite for odd answers against every provider and transport."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.contract.outcomes.command_trials import COMMAND, command_trial
from tests.contract.outcomes.guest_trials import GUEST, guest_trial
from tests.contract.outcomes.http_trials import HTTP, OPENAPI, REDIRECTS, http_trial, openapi_trial, redirect_trial
from tests.contract.outcomes.mcp_sse_trials import MCP_SSE, mcp_sse_trial
from tests.contract.outcomes.mcp_task_trials import MCP_TASKS, mcp_task_trial
from tests.contract.outcomes.mcp_trials import MCP_HTTP, MCP_STDIO, mcp_http_trial, mcp_stdio_trial
from tests.contract.outcomes.python_trials import PROVIDER, PYTHON, local_trial, module_trial, provider_trial

from toolexec.errors import Outcome
from toolexec.testing.outcome_suite import OUTCOME_CHECKS, MakeTrial, run_outcome_check

TRANSPORTS: Mapping[str, tuple[MakeTrial, Mapping[str, Outcome]]] = {
    "http": (http_trial, HTTP),
    "http get": (redirect_trial, REDIRECTS),
    "openapi": (openapi_trial, OPENAPI),
    "command": (command_trial, COMMAND),
    "mcp over stdio": (mcp_stdio_trial, MCP_STDIO),
    "mcp over http": (mcp_http_trial, MCP_HTTP),
    "mcp over sse": (mcp_sse_trial, MCP_SSE),
    "mcp tasks": (mcp_task_trial, MCP_TASKS),
    "python module": (module_trial, PYTHON),
    "function of a provider": (provider_trial, PROVIDER),
    "local": (local_trial, PYTHON),
    "guest": (guest_trial, GUEST),
}
CASES = [(kind, answer) for kind, (_, answers) in TRANSPORTS.items() for answer in answers]


@pytest.mark.parametrize("check", OUTCOME_CHECKS)
@pytest.mark.parametrize(("kind", "answer"), CASES)
async def test_an_odd_answer(kind: str, answer: str, check: str) -> None:
    """Every transport states the right outcome of an odd answer, and the work is never done twice."""
    make, answers = TRANSPORTS[kind]
    await run_outcome_check(make, answer, answers[answer], check)

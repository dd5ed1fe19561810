"""Rules about runs hold for the server's own tools."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec import Gate, Policy, Rule
from toolexec.server.tools.chaining import RUN_CHAIN
from toolexec.server.tools.coding import EXECUTE_CODE, RUN_WORKFLOW

from .conftest import Counter

ONLY_PYTHON = [Rule("deny", languages=["bash", "go"]), Rule("deny", runs="code", languages="javascript")]


@pytest.mark.parametrize("language", ["bash", "javascript", "js", "go"])
async def test_a_language_that_is_denied_is_not_run(language: str) -> None:
    """The reply names the language and the rule; Python runs."""
    counter = Counter(gate=Gate(policy=Policy(ONLY_PYTHON)))
    reply = await counter.ask(EXECUTE_CODE, code="1", language=language)
    assert reply.value["error"]["code"] == "policy_denied"
    assert (await counter.value(EXECUTE_CODE, code="1"))["value"] == 1
    await counter.ex.aclose()


@pytest.mark.parametrize(
    ("kind", "tool", "args"),
    [
        ("code", EXECUTE_CODE, {"code": "1"}),
        ("workflow", RUN_WORKFLOW, {"workflow": "return 1"}),
        ("chain", RUN_CHAIN, {"steps": [{"tool_id": "shop:order", "args": {"item": "tea"}}]}),
    ],
)
async def test_a_kind_of_run_that_is_denied_does_not_begin(kind: str, tool: Any, args: Any) -> None:
    """Each of the tools is a run for the policy."""
    counter = Counter(gate=Gate(policy=Policy([Rule("deny", runs=kind)])))
    reply = await counter.ask(tool, args)
    assert reply.value["error"]["code"] == "policy_denied"
    await counter.ex.aclose()

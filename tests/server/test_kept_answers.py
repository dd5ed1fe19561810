"""Answers that were kept, and callers to whom what they came of has been denied since."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.test_offers import adding

from toolexec import Exec, Gate, Policy, Rule, tool
from toolexec.model.origin import Caller, Origin
from toolexec.run.layers.cache import Cache
from toolexec.run.live_gate import LiveGate
from toolexec.server.kept_answers import AnswerRights, noting

ANN, BOB = Caller(id="ann", roles=("staff",)), Caller(id="bob")


async def test_what_callers_may_have() -> None:
    """A caller may have what came of tools, prompts and resources that it may know of now, and of nothing that is denied
    to it or is not there."""
    gate = LiveGate(Gate(policy=Policy()))
    came_of: list[set[str]] = [
        {"t:one"},
        {"docs:review:+prompt"},
        {"docs:shared-same:+resource", "docs:unlisted:+resource"},
    ]
    ex = Exec(gate=gate)
    ex.add(lambda: 1, "t:one")
    rights = AnswerRights(ex)
    async with adding(ex, "new", "docs"):
        ids = {offer.id for backend in ex.resources.backends() for offer in (await backend.offers()).every()}
        came_of[2] &= ids
        assert came_of[2]
        assert [await rights.allows(BOB, tools) for tools in came_of] == [True] * 3
        assert not await rights.allows(BOB, {"t:one", "t:none"})
        for denied, expected in (("t:*", [False, True, True]), ("docs:*", [True, False, False])):
            rule = Rule("allow", tools=denied, roles="staff")
            gate.exchange(Gate(policy=Policy([rule, Rule("deny", tools=denied, callers="bob")])))
            assert [await rights.allows(BOB, tools) for tools in came_of] == expected
            assert [await rights.allows(ANN, tools) for tools in came_of] == [True] * 3


@pytest.mark.parametrize("gate", [Gate(policy=Policy()), Gate(policy=Policy(), cache=Cache(ttl=60))])
async def test_all_tools_of_an_answer_are_known(gate: Gate) -> None:
    """Each tool that a call, a chain or a program has called is one that the answer came of, from a cache, too; one that
    the rules have refused is not."""
    denies = Gate(policy=Policy([Rule("deny", tools="t:shut")]), cache=gate.cache)
    async with Exec(gate=denies) as ex:
        for name in ("one", "two", "three", "shut"):
            ex.add(tool(f"t:{name}", read_only=True)(lambda: 1))
        steps: Any = [{"tool": "t:two"}, {"tool": "t:shut"}]
        program = "return [tools.t.three() for _ in range(2)]"

        async def job(origin: Origin, on_progress: Any) -> dict[str, Any]:
            await ex.run_tool("t:one")
            await asyncio.gather(ex.run_chain(steps), ex.execute_code(program))
            return {}

        for _ in range(2):
            noted = set[str]()
            await noting(job, noted)(Origin(caller=BOB), None)
            assert noted == {"t:one", "t:two", "t:three"}

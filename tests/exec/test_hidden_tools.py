"""Code that calls a tool which its policy denies gets the same answer by whatever name it calls it."""

from __future__ import annotations

import pytest

from toolexec import Exec, Gate, Policy, Rule
from toolexec.discovery.toolset import Toolset
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.endpoint_rules import RulesAt, endpoint_rules

_DENIED = Policy([Rule("deny", tools="my-ns:Do.It"), Rule("deny", tools="files:write")])


def add_tools(ex: Exec) -> None:
    """Two tools that are denied, and others, one of which is nearly called like one of these."""
    for tool_id in ("my-ns:Do.It", "my-ns:plain", "files:write", "files:Write", "other:read"):
        ex.add(lambda tool_id=tool_id: tool_id, tool_id)


@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("python", "tools.my_ns.Do_It()"),
        ("python", "tools['my-ns:Do.It']()"),
        ("python", "tools.run_tool('my-ns:Do.It', {})"),
        ("python", "tools.files.write()"),
        ("javascript", "await tools.my_ns.Do_It()"),
        ("javascript", "await tools.run('my-ns:Do.It', {})"),
        ("javascript", "await tools.files.write()"),
    ],
)
async def test_a_denied_tool_is_refused_by_each_of_its_names(language: str, program: str) -> None:
    """The policy refuses the call, with its reason, by the ID and by the path in code; no tool with nearly that name is
    called in its place."""
    async with Exec(gate=Gate(policy=_DENIED)) as ex:
        add_tools(ex)
        result = await ex.execute_code(f"return {program}", language=language)
        listed = await ex.execute_code("return [dir(tools), dir(tools.my_ns)]")
    assert "the policy (rule " in str(result.error)
    assert [getattr(call.error, "code", "") for call in result.tool_calls] == ["policy_denied"]
    assert "Do_It" not in str(listed.value)
    assert "plain" in str(listed.value)


@pytest.mark.parametrize("program", ["tools.my_ns.Do_It()", "tools.my_ns.Do_At()", "tools['my-ns:Do.It']()"])
async def test_a_tool_of_another_endpoint_is_not_there_by_any_name(program: str) -> None:
    """A tool outside of the toolset of an endpoint is answered as one that there is nowhere; its ID is not named."""
    rules = endpoint_rules(
        {"": RulesAt(policy=Policy()), "team": RulesAt(policy=_DENIED, toolset=Toolset(allow=["files:*", "other:*"]))}
    )
    async with Exec(gate=Gate(policy=rules)) as ex:
        add_tools(ex)
        rules.on(ex.index)
        with acting(Origin(caller=Caller(id="ann", endpoint="team"))):
            result = await ex.execute_code(f"return {program}")
            denied = await ex.execute_code("return tools.files.write()")
    asked = program.removeprefix("tools.").removesuffix("()").replace(".", ":")
    asked = "my-ns:Do.It" if "[" in program else asked
    assert f"no tool {asked}" in str(result.error)
    assert "forbids this call of files:write" in str(denied.error)

"""The patterns of `allowed_tools` mean what they mean in a policy."""

from __future__ import annotations

import pytest

from toolexec import Exec, tool
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy, Rule


@tool("files:old", version="1.2")
async def old() -> int:
    """Answer one."""
    return 1


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("files:old:1.2", True),
        ("files:*", True),
        ("files:old:1.*", True),
        ("files:old:*", True),
        ("files:ol?", True),
        ("files:[no]ld", True),
        ("files:old:2.*", False),
        ("files:old?", False),
        ("file?:new", False),
    ],
)
async def test_a_pattern_names_the_same_tools_for_code_as_in_a_policy(pattern: str, meant: bool) -> None:
    """A program may call what a rule of a policy with the same pattern allows, with a version and without."""
    async with Exec(gate=Gate(policy=Policy([Rule("allow", tools=pattern)], default="deny"))) as ex:
        ex.add(old)
        assert (await ex.run_chain([{"tool": "files:old:1.2"}])).ok is meant
    async with Exec() as ex:
        ex.add(old)
        result = await ex.execute_code("return tools.run_tool('files:old:1.2', {})", allowed_tools=[pattern])
    assert (result.error is None) is meant

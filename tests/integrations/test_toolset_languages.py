"""A toolset for code speaks the language of its programs."""

from __future__ import annotations

import pytest

from toolexec import Exec
from toolexec.integrations.toolset import Toolset


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@pytest.mark.parametrize(
    ("language", "program", "stub"),
    [
        ("python", "return tools.math.add_up(a=1, b=2)", "def add_up("),
        ("javascript", "return await tools.math.add_up({ a: 1, b: 2 });", "add_up(args: { a: number; b: number })"),
    ],
)
async def test_words_stub_and_program_fit_together(language: str, program: str, stub: str) -> None:
    """The description of execute_code, the stub of a tool and what runs are of one language."""
    async with Exec(default_language=language) as ex:
        ex.add(add, "math:add-up")
        toolset = Toolset(ex, mode="code")
        faces = {face.name: face for face in toolset.faces()}
        assert language in faces["execute_code"].description.lower()
        described = await toolset.call(faces["describe_tool"], {"tool_id": "math:add-up"})
        assert stub in described.value["stub"]
        answer = await toolset.call(faces["execute_code"], {"code": program})
        assert answer.value["value"] == 3

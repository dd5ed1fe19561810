"""What is done to a program before a sandbox gets it."""

from __future__ import annotations

import pytest

from toolexec import Exec, tool
from toolexec.code.repair.prepare import MAX_REPAIRED, Prepared, prepared
from toolexec.code.tools import Tools

FENCED = "Here it is:\n```\nresult = 1\n```"


@tool("math:add")
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


class TestLargePrograms:
    """Programs that take too long to read on the event loop."""

    @pytest.mark.parametrize("language", ["python", "javascript", "typescript"])
    async def test_they_run_as_they_are_written(self, language: str) -> None:
        """A program of more characters than the bound is not parsed; one below it is repaired."""
        async with Exec() as ex:
            tools = Tools(ex.index, ex.docs, ex.runner)
            large = FENCED + " " * (MAX_REPAIRED + 1 - len(FENCED))
            program = prepared(large, language, tools)
            assert program == Prepared(large, "python" if language == "python" else "javascript", program.names)
            assert prepared(FENCED, language, tools).code != FENCED

    async def test_they_still_call_tools_by_bare_names(self) -> None:
        """The names of tools are found in programs of any length."""
        async with Exec() as ex:
            ex.add(add)
            program = "x = 1\n" * MAX_REPAIRED + "return add(a=2, b=3)"
            assert (await ex.execute_code(program)).value == 5

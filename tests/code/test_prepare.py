"""What is done to a program before a sandbox gets it."""

from __future__ import annotations

import pytest

from toolexec import Exec, tool
from toolexec.code.repair.last_line import last_result
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
            program = "x = 1\n" * (MAX_REPAIRED // 6 + 1) + "return add(a=2, b=3)"
            assert (await ex.execute_code(program)).value == 5


class TestLastStatement:
    """A program that ends with its result, and does not return it."""

    @pytest.mark.parametrize(
        "code",
        [
            "if 1 > 2:\n    answer = 'no'\nelif 2 > 3:\n    answer = 'neither'\nelse:\n    answer = 'yes'",
            "try:\n    answer = 1 / 0\nexcept ZeroDivisionError:\n    answer = 'yes'",
            "import asyncio\nasync with asyncio.timeout(5):\n    answer: str = 'yes'",
            "def main():\n    return 'yes'\nif __name__ == '__main__':\n    answer = main()",
            "import json\nanswer = 'yes'\nprint(json.dumps(answer, indent=2))",
            "import json\nif __name__ == '__main__':\n    answer = 'yes'\n    print(json.dumps(answer))",
        ],
    )
    async def test_its_value(self, code: str) -> None:
        """Whichever way it takes, the program has the value, and a note says so."""
        async with Exec() as ex:
            result = await ex.execute_code(code)
            assert (result.value, len(result.notes)) == ("yes", 1), result.error

    @pytest.mark.parametrize(
        "code",
        [
            "answer = 1\nif answer:\n    answer = 2",
            "if x:\n    answer = 1\nelse:\n    result = 2",
            "if x:\n    answer = 1\nelse:\n    print('none')",
            "with suppress(ValueError):\n    answer = int('x')",
            "if __name__ != '__main__':\n    answer = 1",
            "answer = {1}\nprint(answer)",
            "answer = {1}\nprint(json.dumps(answer, default=list))",
            "print(json.dumps(answer))",
            "if x:\n    answer = 1\n" + "elif x:\n    answer = 2\n" * 1000 + "else:\n    answer = 3",
        ],
    )
    def test_what_is_not_certain(self, code: str) -> None:
        """Where a way sets another name or none, or what is printed may be no JSON, nothing is added."""
        assert last_result(code, "python") == ""

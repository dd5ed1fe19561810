"""A program that ends its own process, and one that its parser has no room for, are reported for what they are."""

from __future__ import annotations

import pytest

from toolexec import Exec
from toolexec.errors import InvalidRequestError


@pytest.mark.parametrize(("call", "code"), [("os._exit(3)", 3), ("os._exit(0)", 0), ("sys.exit(3)", 3)])
async def test_the_exit_code_is_the_programs(call: str, code: int) -> None:
    """WebAssembly knows success and failure alone, so that the guest sends the code before it goes."""
    async with Exec() as ex:
        done = await ex.execute_code(f"import os, sys\nprint('before')\n{call}\nprint('after')")
    assert done.stdout == "before\n"
    assert done.error is not None
    assert f"exit code {code}" in done.error.message


@pytest.mark.parametrize("brackets", ["[]", "()", "{}"])
async def test_brackets_too_deep_are_an_error_of_the_program(brackets: str) -> None:
    """Python's parser says that memory is used up, which is not what the program must fix."""
    async with Exec() as ex:
        done = await ex.execute_code(f"x = {brackets[0] * 300}1{brackets[1] * 300}\nreturn 1")
        right = await ex.execute_code("return " + "[" * 60 + "]" * 60)
    assert done.error is not None
    assert "brackets are nested 300 deep" in done.error.message
    assert right.error is None


@pytest.mark.parametrize("env", [{"A=B": "1"}, {"": "1"}, {"A\0": "1"}, {"A": "x\0"}, {"A": "\ud800"}, {"\ud800": "1"}])
@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_environments_that_no_process_can_have_are_refused(env: dict[str, str], language: str) -> None:
    """The error names the variable, before anything runs."""
    async with Exec() as ex:
        with pytest.raises(InvalidRequestError, match="env cannot have"):
            await ex.execute_code("return 1", language=language, env=env)

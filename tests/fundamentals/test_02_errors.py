"""When things go wrong: "the tool said no" is a value, "it could not be called" is an exception."""

from __future__ import annotations

import pytest

from toolexec import Exec, ExecutionError, InputValidationError, ToolNotFoundError, tool


@tool(namespace="bank")
def withdraw(amount: int, currency: str) -> int:
    """Take money out."""
    if amount > 100:
        raise ValueError("not enough money")
    return 100 - amount


async def test_a_tool_that_fails_is_a_result() -> None:
    """A failing tool gives a result with an error; the function's own exception is its cause."""
    async with Exec() as ex:
        ex.add(withdraw)

        result = await ex.run_tool("bank:withdraw", {"amount": 1000, "currency": "EUR"})

        assert not result.ok
        assert result.error is not None
        assert isinstance(result.error.__cause__, ValueError)
        assert "not enough money" in str(result.error)


async def test_a_result_can_raise() -> None:
    """`raise_for_error` is for callers who prefer exceptions."""
    async with Exec() as ex:
        ex.add(withdraw)
        with pytest.raises(ExecutionError, match="not enough money"):
            (await ex.run_tool("bank:withdraw", {"amount": 1000, "currency": "EUR"})).raise_for_error()


async def test_wrong_arguments_raise() -> None:
    """Arguments are checked before anything runs, and every mistake is reported at once."""
    async with Exec() as ex:
        ex.add(withdraw)

        with pytest.raises(InputValidationError) as caught:
            await ex.run_tool("bank:withdraw", {"amount": "lots", "colour": "red"})

        problems = {(violation.path, violation.keyword) for violation in caught.value.violations}
        assert problems == {("/amount", "type"), ("", "required"), ("", "additionalProperties")}


async def test_an_unknown_tool_raises() -> None:
    """The error suggests what may have been meant."""
    async with Exec() as ex:
        ex.add(withdraw)
        with pytest.raises(ToolNotFoundError, match="did you mean bank:withdraw"):
            await ex.run_tool("bank:withdrew")


async def test_errors_are_data() -> None:
    """Every error has a stable code and fields, so that no caller has to parse its message."""
    async with Exec() as ex:
        ex.add(withdraw)
        result = await ex.run_tool("bank:withdraw", {"amount": 1000, "currency": "EUR"})
        assert result.error is not None
        assert result.error.code == "handler_failed"
        assert result.error.tool_id == "bank:withdraw"
        assert result.error.retryable is False
        assert result.to_dict()["error"]["code"] == "handler_failed"

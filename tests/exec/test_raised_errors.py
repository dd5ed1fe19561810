"""What a tool raises reaches its caller as the same data, on every path, whatever the tool has put into it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.exec.paths import PATHS, Failure

from toolexec import Exec, Tool
from toolexec.backend import ProviderBackend
from toolexec.errors import BackendUnavailableError, ExecutionError, HandlerError, Outcome
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy


class UnreadableError(Exception):
    """An exception that has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class NumberedError(ExecutionError):
    """An error with the code of another service."""

    code = 404  # type: ignore[assignment]


RAISED: dict[str, Callable[[], BaseException]] = {
    "plain": lambda: ExecutionError("no", details={"a": [1]}),
    "done": lambda: ExecutionError("cut off", outcome="done"),
    "misspelt": lambda: ExecutionError("cut off", outcome="doen"),
    "not_sent": lambda: ExecutionError("cut off", outcome="not_sent"),
    "exception": lambda: ExecutionError(ValueError("inner")),  # type: ignore[arg-type]
    "nothing": lambda: ExecutionError(None),  # type: ignore[arg-type]
    "half": lambda: ExecutionError("a\ud800b", details={"a": "\ud800"}),
    "foreign_half": lambda: ValueError("a\ud800b"),
    "unreadable": UnreadableError,
    "caused": lambda: _caused(),
    "number": lambda: ExecutionError("no", code=42),  # type: ignore[arg-type]
    "numbered": lambda: NumberedError("no"),
    "truthy": lambda: ExecutionError("busy", retryable="yes"),  # type: ignore[arg-type]
    "places": lambda: ExecutionError("no", tool_id=5, backend=b"x", op=1),  # type: ignore[arg-type]
    "day": lambda: ExecutionError("no", details={"on": date(2026, 1, 31), "all": {2}, "error": ValueError("x")}),
    "numbers": lambda: ExecutionError("no", details={"share": float("nan"), "raw": b"\xff"}),
    "closed": lambda: ExecutionError("the ticket is closed", code="closed", details={"ticket": 7}),
    "limit": lambda: ExecutionError("one order a day", code="limit_exceeded"),
    "unavailable": lambda: BackendUnavailableError("down", details={"on": date(2026, 1, 31)}),
}
OF_A_PROVIDER = ("done", "exception", "unreadable", "day", "closed", "limit")
STATED = {
    "done": Outcome.DONE,
    "misspelt": Outcome.UNKNOWN,
    "truthy": Outcome.UNKNOWN,
    "places": Outcome.UNKNOWN,
}


def _caused() -> BaseException:
    error = ExecutionError("no")
    error.__cause__ = UnreadableError()
    return error


def build(path: Path) -> Exec:
    """Return an Exec with a tool here, and one of a provider, for each exception."""

    async def raises(name: str, args: Mapping[str, Any]) -> None:
        error = RAISED[name]()
        raise error

    def handler(name: str) -> Callable[[Any], Awaitable[None]]:
        return lambda args: raises(name, args)

    ex = Exec(
        gate=Gate(policy=Policy(default="allow", remote_destructive="allow")), journal=path / "runs.db", linger=0.01
    )
    for name in RAISED:
        ex.add(Tool(name=name, namespace="t", input_schema={"type": "object"}), handler=handler(name))
    offered = [Tool(name=name, namespace="p", input_schema={"type": "object"}) for name in RAISED]
    ex.add_backends(ProviderBackend("p", raises, tools=offered))
    return ex


def plain(failure: Failure) -> tuple[Any, ...]:
    """Return what programs read too, after a look at its types."""
    assert type(failure.code) is str
    assert type(failure.retryable) is bool
    assert failure.message.encode()
    assert failure.outcome is None or type(failure.outcome) is Outcome
    text = json.dumps(failure.details, allow_nan=False, ensure_ascii=False, sort_keys=True)
    assert text.encode()
    return failure.code, failure.retryable, failure.message, text


@pytest.mark.parametrize("namespace", ["t", "p"])
async def test_an_error_is_the_same_data_on_every_path(namespace: str, tmp_path: Path) -> None:
    """Code, message, details and whether to retry agree on all paths, and the outcome where one is read."""
    async with build(tmp_path) as ex:
        for name in RAISED if namespace == "t" else OF_A_PROVIDER:
            seen = {path: await call(ex, f"{namespace}:{name}") for path, call in PATHS.items()}
            failures = {path: failure for path, failure in seen.items() if failure is not None}
            assert failures.keys() == PATHS.keys(), f"{name}: {seen}"
            assert len({plain(failure) for failure in failures.values()}) == 1, f"{name}: {seen}"
            outcomes = {failure.outcome for failure in failures.values()} - {None}
            assert len(outcomes) == 1, f"{name}: {seen}"
            assert outcomes == {STATED.get(name, Outcome.REFUSED)} or name == "unavailable", f"{name}: {seen}"


async def test_details_are_not_shared_with_the_tool() -> None:
    """A caller who changes the details of an error does not change what the tool raises next."""
    kept: dict[str, Any] = {"rows": [1]}

    def fail() -> None:
        raise ExecutionError("no", details=kept)

    async with Exec() as ex:
        ex.add(fail, "t:fail")
        first = (await ex.run_tool("t:fail")).error
        assert first is not None
        first.details["rows"].append(2)
    assert kept == {"rows": [1]}


def test_the_text_of_an_outcome_is_the_outcome() -> None:
    """An outcome by its text is the same as by its name; one that does not exist is not taken for nothing done."""
    assert ExecutionError("no", outcome="done").outcome is Outcome.DONE
    assert HandlerError("no", outcome="nothing").outcome is Outcome.UNKNOWN

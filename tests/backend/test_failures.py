"""What an exception out of a tool means."""

from __future__ import annotations

import asyncio

import pytest

from toolexec.backend.failures import handler_failure
from toolexec.errors import HandlerError, RemoteToolError


@pytest.mark.parametrize(
    ("error", "message", "kind"),
    [
        (ValueError("no"), "t raised ValueError: no", "ValueError"),
        (KeyError(), "t raised KeyError", "KeyError"),
        (SystemExit(3), "t tried to end the process (SystemExit 3)", "SystemExit"),
        (KeyboardInterrupt(), "t raised KeyboardInterrupt", "KeyboardInterrupt"),
        (BaseExceptionGroup("two", [SystemExit(1)]), "t raised BaseExceptionGroup: two (1 sub-exception)", None),
    ],
)
def test_an_exception_becomes_the_failure_of_the_call(error: BaseException, message: str, kind: str | None) -> None:
    """The failure names the tool, the type and the text, and keeps the exception as its cause."""
    failure = handler_failure("t", error)
    assert isinstance(failure, HandlerError)
    assert str(failure) == message
    assert failure.details["type"] == (kind or type(error).__name__)
    assert failure.__cause__ is error


def test_an_execution_error_stays_what_it_is() -> None:
    """A handler may raise our own errors."""
    error = RemoteToolError("down")
    assert handler_failure("t", error) is error


def test_long_text_is_cut() -> None:
    """A message of a megabyte is cut."""
    assert len(str(handler_failure("t", ValueError("x" * 1_000_000)))) < 3000


def test_text_that_cannot_be_read_does_no_harm() -> None:
    """An exception whose `__str__` raises is a failure like any other."""

    class UnreadableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert str(handler_failure("t", UnreadableError())) == "t raised UnreadableError: (it has no readable text)"


async def test_stop_iteration_is_seen_through_its_disguise() -> None:
    """Python turns a StopIteration that leaves a coroutine into a RuntimeError; the failure names what was raised."""

    async def stop() -> None:
        raise StopIteration(5)

    with pytest.raises(RuntimeError) as caught:
        await stop()
    assert str(handler_failure("t", caught.value)) == "t raised StopIteration: 5"


def test_a_closing_generator_is_left_alone() -> None:
    """GeneratorExit is how Python closes a generator, and how it closes a coroutine without a task."""
    for generating in (True, False):
        with pytest.raises(GeneratorExit):
            handler_failure("t", GeneratorExit(), generating=generating)


async def test_generator_exit_out_of_a_running_coroutine_is_a_failure() -> None:
    """A coroutine is not closed while a task runs it: the handler itself has raised."""
    assert isinstance(handler_failure("t", GeneratorExit(), generating=False), HandlerError)
    with pytest.raises(GeneratorExit):
        handler_failure("t", GeneratorExit())


async def test_a_cancellation_from_inside_is_a_failure() -> None:
    """This task was not asked to end: the handler awaited something cancelled."""
    failure = handler_failure("t", asyncio.CancelledError())
    assert "cancelled from inside" in str(failure)


async def test_a_cancellation_from_outside_goes_on() -> None:
    """A requested cancellation is not turned into a failure."""

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            raise handler_failure("t", error) from None

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancellation_without_a_task_goes_on() -> None:
    """Outside of any event loop there is no task to ask."""
    with pytest.raises(asyncio.CancelledError):
        handler_failure("t", asyncio.CancelledError())

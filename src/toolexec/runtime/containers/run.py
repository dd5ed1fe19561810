"""One program in one container that a sandbox has started by itself: for sandboxes that need no more than that."""

from __future__ import annotations

import asyncio
import sys
from time import monotonic, perf_counter

from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.base import SandboxBackend, located
from toolexec.runtime.containers.engine import Container, Image
from toolexec.runtime.containers.guest import ContainerGuest, Run
from toolexec.runtime.guest.bundle import GuestSettings, boot_command
from toolexec.runtime.outcome import Ending
from toolexec.runtime.runs import language_of, result_of


def guest_command(work: str, *, language: str = "python", python: str = sys.executable) -> tuple[str, ...]:
    """Return what a container has to start for `run_guest`: a guest that works in the directory *work* there, with the
    interpreter *python* (3.9 or newer, with the standard library), and is ready for *language*.

    >>> guest_command("/work", python="/usr/bin/python3")[:2]
    ('/usr/bin/python3', '-I')
    """
    return boot_command(GuestSettings(language=language, work=work, init=False), python)


async def run_guest(backend: SandboxBackend, container: Container, request: ExecuteRequest) -> CodeResult:
    """Run a program in *container*, which has just started a `guest_command`, and return what came of it.

    The guest gets the files of the request, its calls are answered by the gateway, its output goes to where the request
    says, and it is stopped at the time limit, which counts from now on: of the container's limits only that one is
    kept here. The container is closed when this returns or raises. Raises InvalidRequestError for a language that no
    guest has, and for files that cannot be put, and SandboxUnavailableError when there is no guest in the container.
    Cancelling stops the program.
    """
    began, ends = perf_counter(), monotonic() + request.seconds
    try:
        language = language_of(backend, request)
        try:
            async with asyncio.timeout(request.seconds):
                guest = await ContainerGuest.greet(container, Image(name=backend.kind, reference=""), language)
        except TimeoutError:
            run = Run(ending=Ending(stopped="deadline", seconds=request.seconds, began=False))
        else:
            try:
                run = await guest.execute(request, ends)
            finally:
                await guest.aclose()
    except SandboxUnavailableError as error:
        raise located(error, backend) from error
    finally:
        await container.aclose()
    return result_of(backend, request, run.ending, began, {"language": language}, run.files)

"""Ask on the terminal whether a call may be made."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

try:
    import termios
except ModuleNotFoundError:  # pragma: no cover - Windows
    termios: Any = None

from toolexec.model.approval_text import argument_lines
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Approver
from toolexec.model.visible import visible_line

_TERMINAL: Final = "/dev/tty"
_MAX_ANSWER: Final = 1024
_ANSWERS: Final[dict[str, ApprovalAnswer]] = {
    "y": "once",
    "yes": "once",
    "once": "once",
    "s": "session",
    "session": "session",
    "a": "always",
    "always": "always",
}


def terminal_approver(path: str = _TERMINAL) -> Approver | None:
    """Asks the person at the terminal that controls this process, one question at a time; None where there is none.

    It is not read from stdin and not written to stdout, which may carry data. Whatever was typed before a question was
    shown does not answer it, and every answer but y, s and a is a no. A question that is cancelled is withdrawn.
    """
    if termios is None:
        return None
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return None
    turn = asyncio.Lock()

    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        async with turn:
            return _ANSWERS.get((await _typed(path, question(request))).strip().lower(), "no")

    return ask


def question(request: ApprovalRequest) -> str:
    """Return what the person gets to read: the tool, the arguments, who wants it, and why it is asked. Nothing of it
    can steer a terminal. Raises ApprovalRequiredError for arguments that cannot be shown whole.
    """
    arguments = argument_lines(request)
    caller = request.caller
    who = visible_line(caller.id, 100) or "somebody whom nobody knows"
    if caller.tenant:
        who = f"{who} of {visible_line(caller.tenant, 100)}"
    way = {"direct": "", "chain": ", as a step of a chain", "code": ", from code"}[request.path]
    lines = [
        "",
        f"May {visible_line(request.tool_id, 400)} be called{_where(request)}?",
        f"  about   {visible_line(request.description, 500)}",
        f"  caller  {who}{way}",
        f"  reason  {visible_line(request.reason, 500)}",
        "  with    " + ("\n          ".join(arguments) or "no arguments"),
    ]
    shown = [line for line in lines if line.strip() != "about"]
    return "\n".join(shown) + "\n  [y] once  [s] this session  [a] always  [N] no: "


def _where(request: ApprovalRequest) -> str:
    return f" on {visible_line(request.backend, 200)}" if request.backend else ""


async def _typed(path: str, text: str) -> str:
    """Return what is typed in answer to *text*, read by a thread that ends when the caller stops waiting."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()
    stopped, stop = os.pipe()

    def tell(line: str | BaseException) -> None:
        if not answer.done():
            answer.set_exception(line) if isinstance(line, BaseException) else answer.set_result(line)

    threading.Thread(
        target=_converse,
        args=(path, text, stopped, lambda line: loop.call_soon_threadsafe(tell, line)),
        name="toolexec-approval",
        daemon=True,
    ).start()
    try:
        return await answer
    finally:
        os.close(stop)  # which the thread sees, and closes the other end


def _converse(path: str, text: str, stopped: int, tell: Callable[[str | BaseException], object]) -> None:
    outcome: str | BaseException
    try:
        outcome = _converse_on(path, text, stopped)
    except Exception as error:
        outcome = error
    finally:
        os.close(stopped)
    with suppress(RuntimeError):  # the loop is closed: no caller waits
        tell(outcome)


def _converse_on(path: str, text: str, stopped: int) -> str:
    terminal = os.open(path, os.O_RDWR | os.O_NOCTTY)
    try:
        if os.tcgetpgrp(terminal) != os.getpgrp():
            raise PermissionError("this process is in the background of its terminal, so it cannot ask there")
        termios.tcflush(terminal, termios.TCIFLUSH)
        _write(terminal, text)
        typed = b""
        while b"\n" not in typed:
            readable, _, _ = select.select([terminal, stopped], [], [])
            if stopped in readable:
                _write(terminal, "\n  (not asked any more)\n")
                return ""
            piece = os.read(terminal, _MAX_ANSWER)
            typed += piece
            if not piece or len(typed) > _MAX_ANSWER:
                _write(terminal, "\n")
                return ""
        return typed.decode(errors="replace")
    finally:
        os.close(terminal)


def _write(terminal: int, text: str) -> None:
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(terminal, data) :]

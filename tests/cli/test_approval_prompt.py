"""The question on the terminal, on real terminals with a person who types."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.servers import server_environment

from toolexec.cli.approval_prompt import question, terminal_approver
from toolexec.model.origin import ApprovalRequest, Caller

PROGRAM = """
import asyncio, os, sys
from toolexec.cli.approval_prompt import terminal_approver
from toolexec.model.origin import ApprovalRequest

terminal = os.open(sys.argv[1], os.O_RDWR)  # the first terminal that a session's leader opens is its own
request = lambda name: ApprovalRequest(tool_id=name, args={{"a": 1}}, reason="because")

async def main():
    ask = terminal_approver()
    print("ready" if ask else "none", flush=True)
    sys.stdin.readline()
{body}

asyncio.run(main())
"""


class Terminal:
    """A program with a terminal of its own."""

    def __init__(self, body: str) -> None:
        self.us, self.them = os.openpty()
        indented = "\n".join(f"    {line}" for line in body.splitlines())
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(body=indented), os.ttyname(self.them)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=server_environment(),
        )
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        assert self.process.stdout.readline() == "ready\n"
        self.seen = ""

    def go(self) -> None:
        """Have the program begin to ask."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def read_until(self, text: str, times: int = 1) -> str:
        """Return the screen's content once *text* has appeared so many times."""
        deadline = time.monotonic() + 30
        while self.seen.count(text) < times:
            assert time.monotonic() < deadline, f"only {self.seen!r} was shown"
            if select.select([self.us], [], [], 0.2)[0]:
                self.seen += os.read(self.us, 4096).decode()
        return self.seen

    def type(self, text: str) -> None:
        """Type."""
        os.write(self.us, text.encode())

    def result(self) -> list[str]:
        """Return the final output of the program."""
        out, _ = self.process.communicate(timeout=60)
        return out.split()

    def close(self) -> None:
        """End it all."""
        self.process.kill()
        self.process.communicate()
        os.close(self.us)
        os.close(self.them)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Terminals that are closed afterwards."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def opened(terminals: list[Terminal], body: str) -> Terminal:
    """A terminal with a program that is ready to ask."""
    terminals.append(Terminal(body))
    return terminals[-1]


@pytest.mark.full
@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y\n", "once"),
        ("s\n", "session"),
        (" Always \n", "always"),
        ("\n", "no"),
        ("n\n", "no"),
        ("yess\n", "no"),
        ("\x04", "no"),
    ],
)
def test_answers(terminals: list[Terminal], typed: str, answer: str) -> None:
    """y, s and a approve; everything else, and the end of the input, does not."""
    terminal = opened(terminals, 'print(await ask(request("git:push")))')
    terminal.go()
    shown = terminal.read_until("[N] no: ")
    assert "May git:push be called?" in shown
    terminal.type(typed)
    assert terminal.result() == [answer]


def test_what_was_typed_before_does_not_count(terminals: list[Terminal]) -> None:
    """Keys pressed ahead of the question are dropped."""
    terminal = opened(terminals, 'print(await ask(request("git:push")))')
    terminal.type("y\n")
    terminal.go()
    terminal.read_until("[N] no: ")
    terminal.type("n\n")
    assert terminal.result() == ["no"]


def test_one_question_at_a_time(terminals: list[Terminal]) -> None:
    """The second is shown when the first is answered."""
    terminal = opened(terminals, 'print(*await asyncio.gather(ask(request("one")), ask(request("two"))))')
    terminal.go()
    assert "May two" not in terminal.read_until("[N] no: ")
    terminal.type("y\n")
    assert "May two be called?" in terminal.read_until("[N] no: ", 2)
    terminal.type("s\n")
    assert terminal.result() == ["once", "session"]


def test_a_cancelled_question_is_withdrawn(terminals: list[Terminal]) -> None:
    """Announces the withdrawal; the event loop goes on meanwhile, and the next question works."""
    body = """
task = asyncio.create_task(ask(request("one")))
await asyncio.to_thread(sys.stdin.readline)
task.cancel()
await asyncio.wait([task])
print(task.cancelled(), await ask(request("two")))
"""
    terminal = opened(terminals, body)
    terminal.go()
    terminal.read_until("[N] no: ")
    terminal.go()
    terminal.read_until("not asked any more")
    terminal.read_until("[N] no: ", 2)
    terminal.type("y\n")
    assert terminal.result() == ["True", "once"]


def test_too_much_is_typed(terminals: list[Terminal]) -> None:
    """A long line is no answer."""
    terminal = opened(terminals, 'print(await ask(request("one")))')
    terminal.go()
    terminal.read_until("[N] no: ")
    terminal.type("y" * 2000 + "\n")
    assert terminal.result() == ["no"]


async def test_a_terminal_that_is_not_ours() -> None:
    """A terminal that this process does not control cannot be asked on."""
    us, them = os.openpty()
    try:
        ask: Any = terminal_approver(os.ttyname(them))
        with pytest.raises(OSError):
            await ask(ApprovalRequest(tool_id="x", args={}, reason=""))
    finally:
        os.close(us)
        os.close(them)


def test_no_terminal() -> None:
    """Without a terminal there is no approver."""
    assert terminal_approver("/nonexistent/tty") is None
    code = "from toolexec.cli.approval_prompt import terminal_approver; print(terminal_approver())"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        start_new_session=True,
        capture_output=True,
        text=True,
        env=server_environment(),
        timeout=60,
    )
    assert ran.stdout == "None\n"


def test_what_the_question_says() -> None:
    """The tool, what it is about, who wants it and how, why, and the arguments."""
    request = ApprovalRequest(
        tool_id="git:push",
        args={"branch": "main"},
        reason="it is public",
        description="Pushes commits",
        caller=Caller(id="ann", tenant="acme"),
        path="code",
    )
    assert question(request).splitlines() == [
        "",
        "May git:push be called?",
        "  about   Pushes commits",
        "  caller  ann of acme, from code",
        "  reason  it is public",
        '  with    branch: "main"',
        "  [y] once  [s] this session  [a] always  [N] no: ",
    ]
    plain = question(ApprovalRequest(tool_id="x", args={}, reason="r"))
    assert "about" not in plain
    assert "somebody whom nobody knows" in plain


def test_nothing_can_steer_the_terminal() -> None:
    """Whatever names, strings and arguments contain, what is shown has no control characters and no forged lines."""
    evil = "\x1b[2J\x1b]0;title\x07\x9b1m\r\u202e\nMay harmless be called?"
    request = ApprovalRequest(
        tool_id=evil, args={evil: [evil]}, reason=evil, description=evil, caller=Caller(id=evil, tenant=evil)
    )
    shown = question(request)
    assert all(sign.isprintable() for line in shown.split("\n") for sign in line)
    assert sum(line.startswith("May ") for line in shown.split("\n")) == 1

"""A process of the command ends as itself, whatever its threads do."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading
from toolexec.cli.ending import leave_threads

class AtTheVeryEnd:
    def __del__(self):
        print("taken apart", file=sys.stderr)

kept = AtTheVeryEnd()
atexit.register(lambda: print("registered"))
THREADS
print("written", end=" ")
end = SystemExit(CODE)
leave_threads(end)
sys.exit(CODE)
"""
STUCK = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
QUICK = "threading.Timer(0.3, print, ['done']).start()"


@pytest.mark.parametrize(
    ("threads", "code", "ended"),
    [
        (STUCK, "141", ("written registered\n", "", 141)),
        (STUCK, "None", ("written registered\n", "", 0)),
        (STUCK, "'a message'", ("written registered\n", "a message\ntaken apart\n", 1)),
        (f"{STUCK}\n{QUICK}", "3", ("written done\nregistered\n", "taken apart\n", 3)),
        ("", "3", ("written registered\n", "taken apart\n", 3)),
    ],
    ids=["code", "no code", "message", "a thread that is waited for", "no threads"],
)
def test_daemon_threads_are_left(threads: str, code: str, ended: tuple[str, str, int]) -> None:
    """All that is registered and written is done; the interpreter is not taken apart around a daemon thread."""
    program = PROGRAM.replace("THREADS", threads).replace("CODE", code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ended

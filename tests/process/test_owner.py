"""Whose is it, and does that process live?"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from toolexec.process.owner import is_orphan, this_owner

_TELL = "from toolexec.process.owner import this_owner; print(this_owner(), flush=True); input()"


def test_this_process_lives() -> None:
    owner = this_owner()
    assert re.fullmatch(r"[0-9a-f]{16}-\d+-\d+", owner)
    assert owner == this_owner()
    assert not is_orphan(owner)


def test_a_process_is_an_orphan_maker_once_it_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", _TELL], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        assert not is_orphan(owner)
        process.kill()
    assert is_orphan(owner)


def test_a_number_that_is_used_again_is_somebody_else() -> None:
    machine, pid, started = this_owner().split("-")
    assert is_orphan(f"{machine}-{pid}-{int(started) - 1}")


@pytest.mark.parametrize("text", ["", "x", "0123456789abcdef-1-1", "{}-x-1", "{}-1-x", "{}-1", "{}-1-"])
def test_what_may_be_somebody_elses_is_left_alone(text: str) -> None:
    assert not is_orphan(text.format(this_owner().partition("-")[0]))

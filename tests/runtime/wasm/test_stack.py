"""The stack of a thread."""

from __future__ import annotations

import sys
import threading

import pytest

from toolexec.runtime.wasm import instance
from toolexec.runtime.wasm.instance import thread_stack_bytes


def in_thread(size: int) -> list[int | None]:
    """Return the stack that a thread of *size* bytes reports, twice."""
    told: list[int | None] = []
    before = threading.stack_size(size)
    try:
        thread = threading.Thread(target=lambda: told.extend([thread_stack_bytes(), thread_stack_bytes()]))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    return told


@pytest.mark.skipif(sys.platform != "linux", reason="asked on Linux alone")
def test_each_thread_knows_its_own_stack() -> None:
    """A thread reports the size that it was made with."""
    assert in_thread(1 << 20) == [1 << 20] * 2
    assert in_thread(16 << 20) == [16 << 20] * 2


def test_elsewhere_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then None is told."""
    monkeypatch.setattr(instance.sys, "platform", "other")
    assert in_thread(1 << 20) == [None, None]

"""Guests are stopped from any thread, run side by side, and leave nothing behind."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from toolexec.errors import ConfigurationError
from toolexec.runtime.wasm.guest import InstanceSettings, InstanceStopped
from toolexec.runtime.wasm.instance import Instance, Program

from .conftest import Stuck

Make = Callable[..., Any]


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "while True:\n try:\n  while True: pass\n except BaseException: pass",
        "time.sleep(1000)",
        "select.select([], [], [], 1000)",
        "re.match('(a*)*b', 'a' * 60)",
        "sum(range(10**15))",
        "while True: print('x' * 1000)",
        "while True: exchange('a')",
        "while True: open('f', 'w').write('x')",
    ],
)
def test_whatever_a_guest_does_it_can_be_stopped(sandbox: Make, in_thread: Any, code: str) -> None:
    """From another thread, while another guest goes on."""
    one, other, host = sandbox(), sandbox(), Stuck()
    other.instance.prepare(InstanceSettings(), host, lambda *_: None)
    _, other_ends = in_thread(lambda: other.run("exchange('a')\nvalue = sum(range(1_000_000))"))
    assert host.asked.wait(60)
    thread, ends = in_thread(lambda: one.run(f"post('running')\n{code}"))
    while not one.host.posted:
        threading.Event().wait(0.001)
    one.instance.stop()
    thread.join(60)
    assert isinstance(ends[0], InstanceStopped)
    host.answer.set()
    while not other_ends:
        threading.Event().wait(0.001)
    assert other_ends == [499999500000]


def test_a_stop_before_the_run_is_remembered(sandbox: Make) -> None:
    """The guest does not start."""
    one = sandbox()
    one.instance.stop()
    with pytest.raises(InstanceStopped):
        one.run("post('ran')")
    assert one.host.posted == []


def test_a_stop_during_a_host_call_takes_effect_after_it(program: Program, in_thread: Any) -> None:
    """The call is the host's to end; the guest gets no more turns."""
    instance, host = Instance(program), Stuck()
    instance.prepare(InstanceSettings(), host, lambda *_: None)
    thread, ends = in_thread(lambda: instance.run("while True:\n try: exchange('a')\n except BaseException: pass"))
    assert host.asked.wait(60)
    instance.stop()
    host.answer.set()
    thread.join(60)
    assert isinstance(ends[0], InstanceStopped)
    instance.close()


def test_stops_race_with_the_end_of_runs(program: Program, in_thread: Any) -> None:
    """Each run gives its value or is stopped, and nothing else ever happens."""
    for round_ in range(60):
        instance = Instance(program)
        instance.prepare(InstanceSettings(), Stuck(), lambda *_: None)
        thread, ends = in_thread(lambda instance=instance: instance.run("value = sum(range(1000))"))
        threading.Event().wait(round_ * 0.00005)
        instance.stop()
        instance.close()
        thread.join(60)
        assert ends == ["499500"] or isinstance(ends[0], InstanceStopped | ConfigurationError)


def test_closing_stops_a_run_and_frees_it_after(program: Program, in_thread: Any) -> None:
    """Memory that is in use is never freed under a guest."""
    instance, host = Instance(program), Stuck()
    instance.prepare(InstanceSettings(), host, lambda *_: None)
    thread, ends = in_thread(lambda: instance.run("post('a')\nwhile True: pass"))
    assert host.asked.wait(60)
    instance.close()
    instance.close()
    thread.join(60)
    assert isinstance(ends[0], InstanceStopped)
    with pytest.raises(ConfigurationError, match="cannot be used any more"):
        instance.run("")


# Many.


def test_many_guests_at_once_are_apart(program: Program, in_thread: Any) -> None:
    """64 threads, each with files, clock, seed and host of its own."""
    ends: list[list[Any]] = []
    threads: list[threading.Thread] = []
    for number in range(64):

        def work(number: int = number) -> str:
            class Own:
                def exchange(self, frame: str) -> str:
                    return f"{number}:{frame}"

                def post(self, frame: str) -> None: ...

            instance = Instance(program)
            settings = InstanceSettings(files={str(number): b""}, clock=float(number * 1000), seed=number)
            instance.prepare(settings, Own(), lambda *_: None)
            try:
                return instance.run(
                    "import os, time\nvalue = [os.listdir('/workspace'), round(time.time()), [exchange(str(i)) for i in range(5)]]"
                )
            finally:
                instance.close()

        thread, end = in_thread(work)
        threads.append(thread)
        ends.append(end)
    for thread in threads:
        thread.join(80)
    for number, end in enumerate(ends):
        calls = ", ".join(f'"{number}:{i}"' for i in range(5))
        assert end == [f'[["{number}"], {number * 1000}, [{calls}]]']


@pytest.mark.full
def test_many_runs_leave_nothing_behind(program: Program) -> None:
    """No memory, no file descriptors, no objects: closing frees all, without the garbage collector."""
    process = psutil.Process()
    alive: list[weakref.ref[Any]] = []

    def once() -> None:
        instance = Instance(program)
        instance.prepare(InstanceSettings(files={"a": b"x" * 100_000}), Stuck(), lambda *_: None)
        instance.run("x = bytearray(5_000_000)\nopen('/workspace/b', 'w').write('y' * 100_000)")
        instance.close()
        alive.append(weakref.ref(instance))

    gc.disable()
    try:
        for _ in range(30):
            once()
        before, descriptors = process.memory_info().rss, process.num_fds()
        for _ in range(150):
            once()
        grown = process.memory_info().rss - before
    finally:
        gc.enable()
    assert grown < 30_000_000
    assert process.num_fds() == descriptors
    assert not any(reference() for reference in alive)

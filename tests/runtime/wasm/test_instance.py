"""One guest: it runs, and ends in every way there is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wasmtime.component import Component

from toolexec.errors import ConfigurationError
from toolexec.runtime.wasm import instance as module
from toolexec.runtime.wasm.engine import fuel_for_cpu_ms, new_engine
from toolexec.runtime.wasm.guest import InstanceFailed, InstanceSettings, InstanceStopped
from toolexec.runtime.wasm.instance import Instance, Program

from .conftest import Stuck

Make = Callable[..., Any]


def ending(sandbox: Any, code: str) -> Any:
    """Return how code without an answer ends."""
    with pytest.raises((InstanceFailed, InstanceStopped)) as caught:
        sandbox.run(code)
    return caught.value


# Running.


@pytest.mark.full
def test_a_guest_keeps_its_memory_from_run_to_run(sandbox: Make) -> None:
    """Another guest has none of that memory."""
    one, other = sandbox(), sandbox()
    one.run("sys.kept = 5")
    assert one.run("value = sys.kept") == 5
    assert other.run("value = hasattr(sys, 'kept')") is False


def test_fuel_is_counted(sandbox: Make) -> None:
    """Over all runs of a grant; the same work burns the same."""
    one, other = (sandbox(fuel=10**10, seed=1, clock=0.0) for _ in range(2))
    for guest in (one, other):
        guest.run("value = sum(range(1000))")
    first = one.instance.fuel_used
    assert 0 < first == other.instance.fuel_used < fuel_for_cpu_ms(1000)
    one.run("value = sum(range(1000))")
    assert one.instance.fuel_used > first


def test_a_run_needs_a_grant(program: Program) -> None:
    """Before it there is nothing to run with."""
    instance = Instance(program)
    for use in (lambda: instance.run(""), lambda: instance.files, lambda: instance.output_dropped):
        with pytest.raises(ConfigurationError, match="not prepared"):
            use()
    assert instance.fuel_used == 0
    instance.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"memory_bytes": -1},
        {"fuel": -1},
        {"fuel": 1.5},
        {"output_bytes": -1},
        {"disk_bytes": -5},
        {"clock": -1.0},
        {"files": {"/a": b""}},
        {"files": {"a": b"xx"}, "disk_bytes": 1},
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(sandbox: Make, settings: dict[str, Any]) -> None:
    """Refuses an invalid grant, and the one before stays."""
    one = sandbox(files={"f": b""})
    with pytest.raises(ConfigurationError):
        one.instance.prepare(InstanceSettings(**settings), one.host, one.host.on_output)
    assert one.run("value = os.listdir()") == ["f"]


def test_a_thread_with_a_small_stack_is_refused(sandbox: Make, in_thread: Any) -> None:
    """A guest could run over its end; the thread is told what it needs, and nothing has run."""
    one = sandbox()
    before = threading.stack_size(1 << 20)
    try:
        thread, ends = in_thread(lambda: one.run("value = 1"))
    finally:
        threading.stack_size(before)
    thread.join()
    assert isinstance(ends[0], ConfigurationError)
    assert ends[0].details["needed_bytes"] == module.THREAD_STACK_BYTES
    assert one.run("value = 1") == 1


def test_a_guest_can_run_inside_of_another_s_host_call(sandbox: Make) -> None:
    """In the same thread; each sees its own world."""
    inner = sandbox(files={"inner": b""})
    outer = sandbox(files={"outer": b""})
    outer.host._exchange = lambda code: str(inner.run(code))
    assert outer.run("value = [exchange('value = os.listdir()'), os.listdir()]") == ["['inner']", ["outer"]]


def test_a_guest_runs_once_at_a_time(sandbox: Make, in_thread: Any, program: Program) -> None:
    """A second run is refused while the first goes on."""
    instance, host = Instance(program), Stuck()
    instance.prepare(InstanceSettings(), host, lambda *_: None)
    thread, ends = in_thread(lambda: instance.run("value = exchange('a')"))
    assert host.asked.wait(60)
    with pytest.raises(ConfigurationError, match="is running"):
        instance.run("value = 1")
    host.answer.set()
    thread.join()
    assert ends == ['"a"']
    instance.close()


# Ending.


def test_a_used_up_budget_ends_the_guest(sandbox: Make) -> None:
    """In Python and in C, and whatever the program catches."""
    for code in ("while True: pass", "re.match('(a*)*b', 'a' * 40)", "while True:\n try: 1/0\n except: pass"):
        one = sandbox(fuel=fuel_for_cpu_ms(20))
        failure = ending(one, code)
        assert failure.reason == "fuel"
        assert one.instance.fuel_used == fuel_for_cpu_ms(20)


@pytest.mark.parametrize(
    "code",
    [
        "def f(): f()\nf()",
        "def f(x): return sorted([1, 2], key=f)\nf(1)",
        "class A:\n def __add__(s, o): return s + o\nA() + A()",
        "class A:\n def __call__(s): return list(map(lambda x: s(), [1]))\nA()()",
        "class A:\n def __repr__(s): return '%r' % [s]\nrepr(A())",
        "re.compile('(' * 10_000 + ')' * 10_000)",
        "eval('(' * 100_000)",
        "eval('-' * 100_000 + '1')",
    ],
)
def test_a_recursion_is_an_error_of_the_program(sandbox: Make, code: str) -> None:
    """CPython notices it before the stack is at its end."""
    guarded = f"try: exec({code!r}, globals())\nexcept (RecursionError, SyntaxError, MemoryError): value = 'noticed'"
    assert sandbox(memory_bytes=256 << 20).run(guarded) == "noticed"


@pytest.mark.parametrize(
    "code",
    [
        "json.loads('[' * 1_000_000)",
        "x = []\nfor _ in range(100_000): x = [x]\nrepr(x)",
        "x = []\nfor _ in range(100_000): x = [x]\njson.dumps(x)",
        "x = ()\nfor _ in range(100_000): x = (x,)\nhash(x)",
        "x = []\nfor _ in range(100_000): x = [x]\ndel x",
        "sys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    ],
)
def test_a_recursion_that_nobody_notices_ends_the_guest_alone(sandbox: Make, in_thread: Any, code: str) -> None:
    """In a thread with a common stack; the next guest runs as if nothing had been."""
    one = sandbox(memory_bytes=256 << 20)
    thread, ends = in_thread(lambda: one.run(code))
    thread.join()
    assert isinstance(ends[0], InstanceFailed)
    assert ends[0].reason == "stack"
    assert sandbox().run("value = 1") == 1


def test_memory_is_bounded(sandbox: Make) -> None:
    """Over the bound is a MemoryError, which the program can handle."""
    code = """
        x = []
        try:
            while True: x.append(bytearray(1_000_000))
        except MemoryError:
            value = len(x)
    """
    assert 1 < sandbox(memory_bytes=64 << 20).run(code) < 64


def test_a_guest_that_cannot_handle_it_ends_for_memory(sandbox: Make) -> None:
    """Python gives up with an uncaught MemoryError."""
    failure = ending(sandbox(memory_bytes=64 << 20), "x = []\nwhile True: x.append(bytearray(1_000_000))")
    assert failure.reason == "memory"


def test_an_abort_is_a_trap(sandbox: Make) -> None:
    """The message says what wasmtime said, the report has the rest."""
    failure = ending(sandbox(), "os.abort()")
    assert failure.reason == "trap"
    assert "unreachable" in failure.message
    assert "os_abort" in failure.report


@pytest.mark.parametrize("call", ["exchange", "post"])
def test_a_host_that_raises_ends_the_guest(program: Program, call: str) -> None:
    """With the very exception as the cause; the program cannot catch it."""
    error = ValueError("no such tool")

    class Refusing:
        def exchange(self, frame: str) -> str:
            raise error

        post = exchange

    instance = Instance(program)
    instance.prepare(InstanceSettings(), Refusing(), lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(InstanceFailed, match="ValueError: no such tool") as caught:
        instance.run(f"try: {call}('a')\nexcept BaseException: value = 'caught'")
    assert caught.value.reason == "host"
    assert caught.value.__cause__ is error
    instance.close()


def test_an_interrupt_in_a_host_call_is_raised_as_it_is(sandbox: Make) -> None:
    """Such an interrupt is not about the guest."""
    one = sandbox()

    def interrupt(frame: str) -> str:
        raise KeyboardInterrupt

    one.host._exchange = interrupt
    with pytest.raises(KeyboardInterrupt):
        one.run("exchange('a')")


def test_output_that_nobody_takes_ends_the_guest(sandbox: Make, program: Program) -> None:
    """The exception of on_output is the cause."""
    one = sandbox()

    def full(stream: str, data: bytes) -> None:
        raise OSError("disk full")

    one.instance.prepare(InstanceSettings(), one.host, full)
    failure = ending(one, "print(1)")
    assert failure.reason == "host"
    assert isinstance(failure.__cause__, OSError)


def test_a_guest_that_ended_badly_is_over(sandbox: Make) -> None:
    """Its state is not to be trusted; what it used can still be read."""
    one = sandbox()
    ending(one, "open('f', 'w').write('x')\nos._exit(1)")
    for use in (lambda: one.run("value = 1"), lambda: one.instance.prepare(InstanceSettings(), one.host, print)):
        with pytest.raises(ConfigurationError, match="the guest exited with code 1; make another one"):
            use()
    one.instance.close()
    assert "f" in one.instance.files.to_mapping()
    assert one.instance.fuel_used > 0


def test_a_guest_has_no_disk_before_it_uses_one(sandbox: Make) -> None:
    """Find what a program changes after that."""
    one = sandbox()
    assert one.instance._prepared().disk is None
    assert one.instance.changed_files == {}
    one.run("open('f', 'w').write('x')")
    assert one.instance.changed_files == {"f": b"x"}


# Programs.


def test_a_program_is_loaded_from_a_file(program: Program, tmp_path: Path) -> None:
    """The file is what the component was serialised to."""
    path = tmp_path / "guest.cwasm"
    path.write_bytes(program.component.serialize())
    instance = Instance(Program.load(path))
    instance.prepare(InstanceSettings(), Stuck(), lambda *_: None)
    assert instance.run("value = 1") == "1"
    instance.close()


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    """With what to do about it."""
    (tmp_path / "x").write_bytes(b"not code")
    with pytest.raises(ConfigurationError, match="build the sandbox component again"):
        Program.load(tmp_path / "x")
    engine = new_engine()
    with pytest.raises(ConfigurationError, match="exports no function 'start'"):
        Program(engine, Component(engine, "(component)"))


def test_a_function_that_nobody_knows_is_a_trap() -> None:
    """Not a hole; and the version in an interface's name does not matter."""
    source = """
        (component
          (import "wasi:clocks/monotonic-clock@0.2.77" (instance $clock
            (export "now" (func (result u64)))
            (export "surprise" (func (result u64)))))
          (import "exchange" (func $exchange (param "frame" string) (result string)))
          (core module $m
            (import "clock" "now" (func $now (result i64)))
            (import "clock" "surprise" (func $surprise (result i64)))
            (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
            (func (export "start") (param $text i32) (param $size i32) (result i32)
              (drop (call $now))
              (if (i32.eqz (local.get $size)) (then (drop (call $surprise))))
              (i32.store (i32.const 16) (local.get $text))
              (i32.store (i32.const 20) (local.get $size))
              (i32.const 16)))
          (core func $now (canon lower (func $clock "now")))
          (core func $surprise (canon lower (func $clock "surprise")))
          (core instance $i (instantiate $m
            (with "clock" (instance (export "now" (func $now)) (export "surprise" (func $surprise))))))
          (func (export "start") (param "frame" string) (result string)
            (canon lift (core func $i "start") (memory (core memory $i "memory"))
              (realloc (core func $i "realloc")))))
    """
    engine = new_engine()
    program = Program(engine, Component(engine, source))
    instance = Instance(program)
    instance.prepare(InstanceSettings(), Stuck(), lambda *_: None)
    assert instance.run("known") == "known"
    with pytest.raises(InstanceFailed, match="has not been defined") as caught:
        instance.run("")
    assert caught.value.reason == "trap"
    instance.close()

"""Guests: instantiate one, run it, stop it from any thread, learn why it ended."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from wasmtime import Engine, Store, WasmtimeError
from wasmtime.component import Component

from toolexec.errors import ConfigurationError
from toolexec.runtime.json_text import JSONText
from toolexec.runtime.wasm import ffi
from toolexec.runtime.wasm.engine import STACK_BYTES, can_have_slots, new_engine
from toolexec.runtime.wasm.files import DEFAULT_BYTES, MemoryFiles
from toolexec.runtime.wasm.guest import (
    ExitCalled,
    Guest,
    Handles,
    HostCalls,
    InstanceFailed,
    InstanceSettings,
    InstanceStopped,
    OnOutput,
    Output,
    make_clock,
    make_random,
)
from toolexec.runtime.wasm.refused import GuestFaultError
from toolexec.runtime.wasm.world import World

THREAD_STACK_BYTES = STACK_BYTES + 1024 * 1024
"""The stack that a thread needs to run a guest: the guest's part, and one for the host functions that it calls."""

_known = threading.local()
_NO_LIMIT = 2**62
_DEADLINE = 1  # in raises of the engine's epoch: every raise asks every running guest


class Program:
    """A compiled component with its world, ready to be instantiated by any number of threads."""

    def __init__(self, engine: Engine, component: Component, file: int | None = None) -> None:
        """*engine* is one of `new_engine`, *component* was compiled or loaded with it, from the open *file* if any.

        Raises ConfigurationError if the component has no function `start`.
        """
        self.engine = engine
        self.component = component
        self.file: int | None = file
        """The open file with the compiled code, where it was loaded from one."""
        if file is not None:
            weakref.finalize(self, os.close, file)
        self.world: World = World(engine, component)
        start = component.get_export_index("start")
        if start is None:
            raise ConfigurationError("this component exports no function 'start'; build the sandbox component again")
        self.start = start

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a program that `Component.serialize` wrote. It is native code: only load what you made yourself.

        Raises ConfigurationError if wasmtime cannot use the file.
        """
        return cls._load(path, new_engine(), keep_file=True)

    @classmethod
    def _load(cls, path: str | Path, engine: Engine, *, keep_file: bool = False) -> Self:
        try:
            component = Component.deserialize_file(engine, str(path))
            # The cache closes the file that it has verified; `with_slots` needs the very same one.
            return cls(engine, component, os.open(path, os.O_RDONLY | os.O_CLOEXEC) if keep_file else None)
        except (WasmtimeError, OSError) as error:
            raise ConfigurationError(f"{path} cannot be loaded; build the sandbox component again: {error}") from error

    def with_slots(self, count: int) -> Self | None:
        """Load the same program for at most *count* instances at once, in memory that is used again; see `new_engine`.

        None where there can be no slots, and for a program that was not loaded from a file. Raises ConfigurationError
        when it does not fit into slots.
        """
        if self.file is None or count < 1 or not can_have_slots(count):
            return None
        return self._load(f"/proc/self/fd/{self.file}", new_engine(count))


class Instance:
    """A guest of its own: memory, files, clock and limits. Pre-warmed, prepared, run, and closed.

    `prepare` and `run` are for one thread at a time; `stop` and `close` may be called by any, at any time. What the
    guest keeps in its memory stays from run to run; a guest that ended without an answer cannot run again.
    """

    def __init__(self, program: Program, freed: Callable[[], None] | None = None) -> None:
        """Instantiate *program*; nothing of it runs yet. *freed* is called once its memory is free again.

        Raises WasmtimeError when *program* has no slot for it.
        """
        self.value: JSONText | None = None
        """Nothing: the answer has the value of the program."""
        self._program = program
        self._freed = freed
        self._stopped = threading.Event()
        self._lock = threading.Lock()  # guards the three below
        self._running = False
        self._closed = False
        self._over: str | None = None  # why it cannot run again
        self._handles = Handles()
        self._guest: Guest | None = None
        self._fuel = 0
        self._fuel_used = 0
        self._store = Store(program.engine)
        self._store.set_fuel(_NO_LIMIT)
        self._store.set_epoch_deadline(_NO_LIMIT)
        ffi.watch_epochs(self._store)
        instance = program.world.linker.instantiate(self._store, program.component)
        self._start: ffi.StringFunction[Guest] = ffi.StringFunction(self._store, instance, program.start)

    @property
    def files(self) -> MemoryFiles:
        """The guest's files. Raises ConfigurationError before `prepare`."""
        return self._prepared().files

    @property
    def changed_files(self) -> dict[str, bytes]:
        """The files that the guest made or changed, by path. Raises ConfigurationError before `prepare`."""
        disk = self._prepared().disk
        return disk.changed() if disk is not None else {}

    @property
    def output_dropped(self) -> int:
        """How many bytes of stdout and stderr were over the limit. Raises ConfigurationError before `prepare`."""
        return self._prepared().output.dropped

    @property
    def is_over(self) -> bool:
        """Whether it ended without an answer or was closed, and cannot run again."""
        return self._over is not None

    @property
    def fuel_used(self) -> int:
        """The fuel that runs have burned since `prepare`."""
        return self._fuel_used

    def prepare(self, settings: InstanceSettings, host: HostCalls, on_output: OnOutput) -> None:
        """Grant the guest what it may use from now on, and reset what was counted; it sees new files and clocks.

        Call it before the first run, and again whenever the next one is granted something else. Raises
        ConfigurationError if a setting makes no sense or the instance cannot run any more; it is then as before.
        """
        self._check_usable()
        for name in ("memory_bytes", "fuel", "output_bytes", "disk_bytes"):
            value = getattr(settings, name)
            if value is not None and (not isinstance(value, int) or value < 0):
                raise ConfigurationError(
                    f"{name} must be a whole number from 0 on, not {value!r}", details={"setting": name}
                )
        clock = make_clock(settings.clock)
        disk_bytes = DEFAULT_BYTES if settings.disk_bytes is None else settings.disk_bytes
        self._guest = Guest(
            clock=clock,
            random=make_random(settings.seed),
            disk=MemoryFiles.from_mapping(settings.files, max_bytes=disk_bytes, now=clock.stamp)
            if settings.files
            else None,
            disk_bytes=disk_bytes,
            environment=dict(settings.env),
            output=Output(settings.output_bytes, on_output),
            host=host,
            stopped=self._stopped,
            handles=self._handles,
        )
        self._store.set_limits(memory_size=_NO_LIMIT if settings.memory_bytes is None else settings.memory_bytes)
        self._fuel = _NO_LIMIT if settings.fuel is None else min(settings.fuel, _NO_LIMIT)
        self._fuel_used = 0
        self._store.set_fuel(self._fuel)

    @contextmanager
    def aside(self, on_output: OnOutput) -> Generator[None, None, None]:
        """Have runs in the block leave no trace but in the guest's memory: clock, random numbers, output and fuel are
        others meanwhile."""
        guest, fuel = self._prepared(), self._store.get_fuel()
        self._guest = replace(guest, clock=make_clock(0.0), random=make_random(0), output=Output(0, on_output))
        try:
            yield
        finally:
            self._guest = guest
            if not self.is_over:
                self._store.set_fuel(fuel)

    def run(self, frame: str) -> str:
        """Call the guest's `start` in this thread, and block until it answers.

        Raises InstanceStopped, InstanceFailed, and ConfigurationError if the guest is not prepared, is running, or
        cannot run any more, or if the thread has less stack than THREAD_STACK_BYTES. An exception of a host call that
        is not an Exception, such as KeyboardInterrupt, is raised as it is.
        """
        guest = self._prepared()
        check_stack()
        with self._lock:
            self._check_usable()
            if self._running:
                raise ConfigurationError("this guest is running; each needs an instance of its own")
            self._running = True
        try:
            return self._call(guest, frame)
        finally:
            with self._lock:
                self._running = False
                if self._closed:
                    self._free()

    def _call(self, guest: Guest, frame: str) -> str:
        # After this, a stop is seen: it either set the flag already, or will raise the epoch over the deadline.
        self._store.set_epoch_deadline(_DEADLINE)
        try:
            if self._stopped.is_set():
                raise InstanceStopped("the guest was stopped before it ran")
            return self._start(guest, frame)
        except ffi.CallError as error:
            fuel_left = self._store.get_fuel()
            words = guest.output.last_words
            outcome = judge(error, stopped=self._stopped.is_set(), fuel_left=fuel_left, last_words=words)
            self._over = str(outcome)
            raise outcome from error.failure
        finally:
            self._fuel_used = self._fuel - self._store.get_fuel()

    def stop(self) -> None:
        """End the guest as soon as possible, whatever it does: from any thread, at any time.

        It is remembered if it comes before `run`, and has no effect after the last. A host call that blocks is not
        interrupted; the guest ends when that returns.
        """
        self._stopped.set()
        self._program.engine.increment_epoch()

    def close(self) -> None:
        """Free the guest's memory now; a guest that runs is stopped, and freed when it has ended. Can be repeated."""
        with self._lock:
            self._closed = True
            self._over = self._over or "the instance was closed"
            if not self._running:
                self._free()
                return
        self.stop()

    def _free(self) -> None:
        self._store.close()
        freed, self._freed = self._freed, None
        if freed is not None:
            freed()

    def _prepared(self) -> Guest:
        if self._guest is None:
            raise ConfigurationError("this instance is not prepared; call `prepare` before")
        return self._guest

    def _check_usable(self) -> None:
        if self._over is not None:
            raise ConfigurationError(f"this instance cannot be used any more: {self._over}; make another one")


def thread_stack_bytes() -> int | None:
    """Return the size of this thread's stack; None where it is unknown (it is asked on Linux)."""
    try:
        size: int | None = _known.size
    except AttributeError:
        size = _known.size = _ask() if sys.platform == "linux" else None
    return size


def _ask() -> int | None:
    library = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(256)  # larger than the C library's structure anywhere
    if library.pthread_getattr_np(ctypes.c_size_t(threading.get_ident()), attributes):
        return None
    size = ctypes.c_size_t()
    failed = library.pthread_attr_getstacksize(attributes, ctypes.byref(size))
    library.pthread_attr_destroy(attributes)
    return None if failed else size.value


def check_stack() -> None:
    """Raise ConfigurationError when this thread has too little stack for a guest."""
    size = thread_stack_bytes()
    if size is not None and size < THREAD_STACK_BYTES:
        raise ConfigurationError(
            f"this thread has a stack of {size} bytes; a guest needs one with {THREAD_STACK_BYTES}: "
            "call threading.stack_size before the thread is made",
            details={"stack_bytes": size, "needed_bytes": THREAD_STACK_BYTES},
        )


def judge(error: ffi.CallError, *, stopped: bool, fuel_left: int, last_words: bytes = b"") -> BaseException:
    """Return what to raise for a guest that ended without an answer. *last_words* is the end of its stderr."""
    failure, report = error.failure, error.message
    if stopped:
        return InstanceStopped("the guest was stopped")
    if isinstance(failure, ExitCalled):
        return InstanceFailed("exit", str(failure), exit_code=failure.exit_code, report=report)
    if isinstance(failure, GuestFaultError):
        return InstanceFailed("trap", str(failure), report=report)
    if isinstance(failure, Exception):
        return InstanceFailed("host", f"a host call raised {type(failure).__name__}: {failure}", report=report)
    if failure is not None:
        return failure
    if not fuel_left:
        return InstanceFailed("fuel", "the guest used up its CPU budget", report=report)
    if "call stack exhausted" in report:
        return InstanceFailed("stack", "the guest's calls were nested too deep", report=report)
    if any(mark in report for mark in _OUT_OF_MEMORY) or b"MemoryError" in last_words:
        return InstanceFailed("memory", "the guest could not go on without more memory", report=report)
    return InstanceFailed("trap", f"the guest was ended: {report.strip().splitlines()[-1].strip()}", report=report)


_OUT_OF_MEMORY = ("rust_oom", "handle_alloc_error", "rdl_oom", "alloc_error_handler")
"""Functions in the report's backtrace that a guest ends in when an allocation fails and that is not handled."""

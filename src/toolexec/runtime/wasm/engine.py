"""How guests are compiled and run: one configuration, for compile time and run time."""

from __future__ import annotations

import hashlib
import json
import mmap
import platform
import sys

from wasmtime import Config, Engine
from wasmtime.component import Component

from toolexec.errors import ConfigurationError
from toolexec.runtime.wasm.component import installed_version
from toolexec.runtime.wasm.ffi import compile_for, compile_quickly, configure, has_slots, use_slots

STACK_BYTES = 4 * 1024 * 1024
"""How much of the calling thread's stack a guest may use: enough for CPython to notice a recursion first."""

FUEL_PER_CPU_MS = 25_000_000
"""Fuel that a guest can burn in a millisecond of CPU time.

Measured as fuel by `time.thread_time` of 15 Python programs on one core of a server: 6 million (integer loops), 7 to 9
million (most Python), 12 to 16 million (recursion, regular expressions, big integers), 20 and 25 million (SHA-256,
zlib). The highest is taken, so that a budget never ends a program early; most get about three times their budget.
"""

SLOT_BYTES = 1024 * 1024
"""The most memory that an idle slot keeps: its tables. That of the guest is given back to the system when it ends.

What is kept is reset by copying all of it, from the lowest address on, which costs 0.12 ms a MiB and leaves nothing
else in the processor's caches. What is given back costs a page fault for each page that the next guest uses, of 1 to 4
us: a short run has 370 in 27 MiB, and six of them in the first two.
"""

_SLOT_ADDRESSES = (4 << 30) + (64 << 20)  # 4 GiB for any 32-bit address, and what guards it
_MORE_ADDRESSES = 1 << 30

_CONFIG: dict[str, bool | int | str] = {
    "wasm_component_model": True,
    "consume_fuel": True,
    "epoch_interruption": True,
    "memory_init_cow": True,
    "cranelift_opt_level": "speed",
    "wasm_threads": False,
    "shared_memory": False,
}


_PORTABLE: dict[str, tuple[str, ...]] = {
    "x86_64": ("has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_popcnt"),  # every processor since 2009
    "aarch64": (),
}
"""What code that is to run on any machine of a kind may use beyond what all of them have."""


def compile_component(wasm: bytes, *, quick: bool = False, portable: bool = False) -> bytes:
    """Compile a component, and return the machine's code as any engine of one fingerprint loads it.

    See `new_engine` for *quick*. *portable* code runs on any Linux machine of this kind, not only where the processor
    is the same; raises ConfigurationError for a kind that is not known.
    """
    return bytes(Component(new_engine(quick=quick, portable=portable), wasm).serialize())


def new_engine(slots: int = 0, *, quick: bool = False, portable: bool = False) -> Engine:
    """Make an engine for compiling, loading and running components; engines of one fingerprint can share compiled code.

    With *slots*, that many components can run in it at once, in memory that it keeps until it is freed, at most
    SLOT_BYTES for each. Ask `can_have_slots` before: wasmtime ends the process when they cannot be mapped. A *quick*
    one compiles in a third of the time, without optimising; what it compiles behaves alike and runs in any of them.
    A *portable* one compiles for other machines, too.
    """
    config = Config()
    for name, value in _CONFIG.items():
        setattr(config, name, value)
    if quick:
        compile_quickly(config)
    if portable:
        kind = platform.machine()
        if sys.platform != "linux" or kind not in _PORTABLE:
            raise ConfigurationError(f"code for other machines can be compiled on Linux ({', '.join(_PORTABLE)}) only")
        compile_for(config, f"{kind}-unknown-linux-gnu", *_PORTABLE[kind])
    configure(config, stack_bytes=STACK_BYTES)
    if slots:
        use_slots(config, slots, keep_bytes=SLOT_BYTES)
    return Engine(config)


def can_have_slots(count: int) -> bool:
    """Check that an engine with so many slots can be made here: this wasmtime knows them, and there are addresses."""
    if sys.platform != "linux" or not has_slots():  # elsewhere a slot cannot go back to the image of the component
        return False
    try:
        mmap.mmap(
            -1, count * _SLOT_ADDRESSES + _MORE_ADDRESSES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0
        ).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def engine_fingerprint() -> str:
    """Return a string that identifies what compiled code depends on: wasmtime, its configuration, and the platform."""
    described = json.dumps([_CONFIG, STACK_BYTES, sys.platform, platform.machine()], sort_keys=True)
    digest = hashlib.sha256(described.encode()).hexdigest()[:16]
    return f"wasmtime-{installed_version('wasmtime', 'wasmtime')}-{digest}"


def fuel_for_cpu_ms(milliseconds: float) -> int:
    """Return the fuel for a budget of CPU time. Raises ConfigurationError unless the budget is above zero."""
    if not milliseconds > 0:
        raise ConfigurationError(f"a CPU budget must be above 0 ms, not {milliseconds}")
    return min(round(milliseconds * FUEL_PER_CPU_MS), 2**63 - 1)

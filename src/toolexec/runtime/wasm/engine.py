"""How guests are compiled and run: one configuration, for compile time and run time."""

from __future__ import annotations

import hashlib
import json
import platform
import sys

from wasmtime import Config, Engine

from toolexec.errors import ConfigurationError
from toolexec.runtime.wasm.component import installed_version
from toolexec.runtime.wasm.ffi import configure

__all__ = ["FUEL_PER_CPU_MS", "STACK_BYTES", "engine_fingerprint", "fuel_for_cpu_ms", "new_engine"]

STACK_BYTES = 4 * 1024 * 1024
"""How much of the calling thread's stack a guest may use: enough for CPython to notice a recursion first."""

FUEL_PER_CPU_MS = 25_000_000
"""Fuel that a guest can burn in a millisecond of CPU time.

Measured as fuel by `time.thread_time` of 15 Python programs on one core of a server: 6 million (integer loops), 7 to 9
million (most Python), 12 to 16 million (recursion, regular expressions, big integers), 20 and 25 million (SHA-256,
zlib). The highest is taken, so that a budget never ends a program early; most get about three times their budget.
"""

_CONFIG: dict[str, bool | int | str] = {
    "wasm_component_model": True,
    "consume_fuel": True,
    "epoch_interruption": True,
    "memory_init_cow": True,
    "cranelift_opt_level": "speed",
    "wasm_threads": False,
    "shared_memory": False,
}


def new_engine() -> Engine:
    """An engine for compiling, loading and running components; engines of one fingerprint can share compiled code."""
    config = Config()
    for name, value in _CONFIG.items():
        setattr(config, name, value)
    configure(config, stack_bytes=STACK_BYTES)
    return Engine(config)


def engine_fingerprint() -> str:
    """A string that changes with whatever compiled code depends on: wasmtime, its configuration, and the platform."""
    described = json.dumps([_CONFIG, STACK_BYTES, sys.platform, platform.machine()], sort_keys=True)
    digest = hashlib.sha256(described.encode()).hexdigest()[:16]
    return f"wasmtime-{installed_version('wasmtime', 'wasmtime')}-{digest}"


def fuel_for_cpu_ms(milliseconds: float) -> int:
    """The fuel for a budget of CPU time. Raises ConfigurationError unless the budget is above zero."""
    if not milliseconds > 0:
        raise ConfigurationError(f"a CPU budget must be above 0 ms, not {milliseconds}")
    return min(round(milliseconds * FUEL_PER_CPU_MS), 2**63 - 1)

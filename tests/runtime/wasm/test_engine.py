"""How guests are compiled and run."""

from __future__ import annotations

import sys

import pytest
from wasmtime import Store
from wasmtime.component import Component

from toolexec.errors import ConfigurationError
from toolexec.runtime.wasm.engine import (
    FUEL_PER_CPU_MS,
    can_have_slots,
    compile_component,
    engine_fingerprint,
    fuel_for_cpu_ms,
    new_engine,
)


def test_engines_share_what_they_compile() -> None:
    """A module compiled by one engine is loaded by another, and both count fuel."""
    code = Component(new_engine(), "(component)").serialize()
    engine = new_engine()
    Component.deserialize(engine, code)
    store = Store(engine)
    store.set_fuel(5)
    assert store.get_fuel() == 5


def test_an_engine_with_slots_runs_what_one_without_compiled() -> None:
    """Slots do not change compiled code, and so are not in the cache's key."""
    code = Component(new_engine(), "(component)").serialize()
    Component.deserialize(new_engine(2), code)


def test_portable_code_is_loaded_by_the_engine_of_this_machine() -> None:
    """Portable code is made for any processor of the kind, and so for this one; without slots and with them."""
    code = compile_component(b"(component)", portable=True)
    Component.deserialize(new_engine(), code)
    Component.deserialize(new_engine(2), code)


def test_portable_code_needs_a_machine_of_a_known_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portable code is refused elsewhere, and nothing is compiled for a machine that was guessed."""
    monkeypatch.setattr("platform.machine", lambda: "vax")
    with pytest.raises(ConfigurationError, match="x86_64, aarch64"):
        compile_component(b"(component)", portable=True)


def test_slots_need_wasmtime_and_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many addresses, a wasmtime that has no slots, and other systems are a plain no."""
    assert can_have_slots(1)
    assert not can_have_slots(1 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        assert not can_have_slots(1)
    monkeypatch.delattr("toolexec.runtime.wasm.ffi._c.wasmtime_pooling_allocation_config_total_memories_set")
    assert not can_have_slots(1)


def test_the_fingerprint_names_the_version_and_is_stable() -> None:
    """The fingerprint is a part of a cache's key, so it fits a file name."""
    assert engine_fingerprint() == engine_fingerprint()
    assert engine_fingerprint().startswith("wasmtime-")
    assert set(engine_fingerprint()) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")


def test_the_fingerprint_changes_with_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of another configuration is never loaded."""
    before = engine_fingerprint()
    monkeypatch.setattr("toolexec.runtime.wasm.engine.STACK_BYTES", 1)
    assert engine_fingerprint() != before


def test_a_budget_of_cpu_time_is_fuel() -> None:
    """In proportion, within what wasmtime counts, and never nothing."""
    assert fuel_for_cpu_ms(2) == 2 * FUEL_PER_CPU_MS
    assert fuel_for_cpu_ms(0.5) == FUEL_PER_CPU_MS // 2
    assert fuel_for_cpu_ms(1e300) < 2**63


@pytest.mark.parametrize("budget", [0, -1, float("nan")])
def test_a_budget_of_nothing_is_refused(budget: float) -> None:
    """Refuses zero, which does not mean "no bound"."""
    with pytest.raises(ConfigurationError, match="above 0 ms"):
        fuel_for_cpu_ms(budget)

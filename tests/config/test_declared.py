"""Every setting is declared once: in the dataclass that has it, or in its block, where files alone have it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest

from toolexec.config.blocks import BLOCKS, KEYS
from toolexec.config.declared import Block, From, entry, of, read, values_for
from toolexec.config.load import load_settings
from toolexec.config.parts import exec_options, sandbox_settings, serve_settings
from toolexec.exec.options import Options
from toolexec.model.declared import FileName, Seconds, about, declared, same_as, setting
from toolexec.run.audit import AuditLog
from toolexec.run.layers.approval import Approval
from toolexec.run.layers.breaker import Breaker
from toolexec.run.layers.bulkhead import Bulkhead
from toolexec.run.layers.cache import Cache
from toolexec.run.layers.retry import Retry
from toolexec.run.layers.telemetry import Telemetry
from toolexec.run.pinning import Pins
from toolexec.run.policy import Policy
from toolexec.run.results import ResultStore
from toolexec.run.settings import (
    ApprovalSettings,
    AuditSettings,
    BreakerSettings,
    BulkheadSettings,
    CacheSettings,
    PinningSettings,
    PolicySettings,
    ResultSettings,
    RetrySettings,
    TelemetrySettings,
)
from toolexec.runtime.sandbox_settings import SandboxSettings
from toolexec.server.settings import ServeSettings

DERIVED = [name for name, block in BLOCKS.items() if block.derived_from]


@pytest.mark.parametrize("name", DERIVED)
def test_a_derived_block_repeats_no_setting_of_its_dataclass(name: str) -> None:
    """A derived block has written in it what files alone have, and the blocks within it."""
    own = {each for each in BLOCKS[name].__annotations__ if f"{name}.{each}" not in BLOCKS}
    for each in BLOCKS[name].derived_from:
        assert own & {part.name for part in fields(each.source)} == set()


@pytest.mark.parametrize("name", DERIVED)
def test_a_key_of_a_derived_block_says_what_its_dataclass_says(name: str) -> None:
    """The help is the same, and whether it is secret."""
    for each in BLOCKS[name].derived_from:
        for own, called in each.names().items():
            key, says = KEYS[f"{name}.{called}"], declared(each.source)[own]
            assert (key.help, key.secret) == (says.help, says.secret)


def test_no_secret_setting_is_in_a_repr() -> None:
    """Logs have what a dataclass shows of itself."""
    sources = {each.source for name in DERIVED for each in BLOCKS[name].derived_from}
    shown = [
        f"{source.__name__}.{part.name}"
        for source in sources
        for part in fields(source)
        if part.repr and part.name in declared(source) and declared(source)[part.name].secret
    ]
    assert shown == []


@dataclass(frozen=True, kw_only=True)
class Door:
    name: str = field(metadata=about("What it is called."))
    wait: Seconds = setting(1.0, "How long it stays open.", above=0, file_least=0.5)
    lock: FileName = setting("", "The file of its lock.")
    level: int = 0


PARTS: dict[Callable[..., object], type] = {
    Approval: ApprovalSettings,
    AuditLog.open: AuditSettings,
    Breaker: BreakerSettings,
    Bulkhead: BulkheadSettings,
    Cache: CacheSettings,
    Pins: PinningSettings,
    Policy: PolicySettings,
    ResultStore: ResultSettings,
    Retry: RetrySettings,
    Telemetry: TelemetrySettings,
}


@pytest.mark.parametrize(("part", "settings"), PARTS.items(), ids=lambda each: each.__qualname__)
def test_a_part_of_a_gate_takes_what_is_declared(part: Callable[..., object], settings: type) -> None:
    """A setting is an argument of that name, with that default."""
    parameters = inspect.signature(part).parameters
    assert {name: parameters[name].default for name in declared(settings)} == {
        each.name: each.default for each in fields(settings)
    }


@of(From(Door, renamed={"name": "title"}), defaults={"name": "front"}, after={"colour": "title"})
class DoorBlock(Block):
    """A door."""

    colour: str = entry("red", "Its colour.")


def test_a_block_has_what_its_dataclass_declares() -> None:
    """A block has the names, defaults and order of files; what is not declared is not in files."""
    assert DoorBlock.names() == ["title", "colour", "wait", "lock"]
    block = DoorBlock.model_validate({"wait": "2m", "lock": "a.lock"}, context=Path("/etc"))
    assert values_for(Door, block) == {"name": "front", "wait": 120.0, "lock": "/etc/a.lock"}
    with pytest.raises(ValueError, match=r"greater than or equal to 0\.5"):
        DoorBlock.model_validate({"wait": 0.2})
    with pytest.raises(ValueError, match="Extra inputs"):
        DoorBlock.model_validate({"level": 2})


@dataclass(frozen=True, kw_only=True)
class Window:
    wait: float | None = setting(None, "How long it stays open; 0: always.", file_least=0)
    glass: str = setting("", "What it is made of.")


@of(Window, kinds={"wait": float}, defaults={"wait": 0.0})
class WindowBlock(Block):
    """A window."""


def test_a_block_is_read_as_its_dataclass() -> None:
    """A value that files write where the library has None is None; one that may not be None stays."""
    assert read(Window, WindowBlock()) == Window()
    assert read(Window, WindowBlock.model_validate({"wait": 2.0, "glass": ""})) == Window(wait=2.0)
    assert read(Door, DoorBlock(), level=2) == Door(name="front", level=2)


def test_a_setting_of_another_dataclass_is_not_declared_again() -> None:
    """The field has the default, the help and the bounds that it has there."""

    @dataclass(frozen=True, kw_only=True)
    class Gate:
        open_for: Seconds = same_as(Door, "wait")

    assert Gate() == Gate(open_for=1.0)
    assert declared(Gate)["open_for"] is declared(Door)["wait"]


def test_a_setting_without_a_default_needs_one_for_files() -> None:
    """The error comes when the block is made."""
    with pytest.raises(TypeError, match=r"Door\.name has no default that files could have"):
        of(Door)(DoorBlock)


def test_a_file_and_the_library_have_the_same_defaults() -> None:
    """A file without settings describes what the library has."""
    loaded = load_settings([])
    assert serve_settings(loaded) == ServeSettings(expose="auto")
    assert sandbox_settings(loaded) == SandboxSettings()
    made = exec_options(loaded, Options(gate=None))
    assert made == Options(gate=None)

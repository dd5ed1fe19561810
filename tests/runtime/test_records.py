"""Records of checks: what they are bound to, what later ones change, and which are not believed."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from toolexec.code.limits import Limits
from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.egress.policy import Egress
from toolexec.runtime.kinds import plugin_of
from toolexec.runtime.measured import Experiment, recorded_kinds, records_directory
from toolexec.runtime.plugin import SandboxPlugin
from toolexec.runtime.sandboxes import SandboxSettings, make_runtime, settings_of
from toolexec.runtime.wasm import WasmBackend

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not hasattr(os, "geteuid"), reason="records are kept where files have owners"),
]
BACKEND = WasmBackend()
"""A sandbox without images."""


class Imaged(WasmBackend):
    """A sandbox with an image of this digest."""

    def __init__(self, digest: str) -> None:
        super().__init__()
        self.digest = digest

    async def image_digest(self) -> str:
        return self.digest


def experiment(directory: Path, **settings: Any) -> Experiment:
    """Firecracker under *settings*, with its records in *directory*."""
    given = SandboxSettings(**settings)
    return Experiment(plugin_of("firecracker"), settings_of("firecracker", given), given, directory=directory)


async def checked(
    directory: Path, weaker: tuple[str, ...] = (), backend: SandboxBackend = BACKEND, *, language: str = "python"
) -> Experiment:
    """Firecracker after a full check of version 1."""
    found = experiment(directory)
    facts = await found.facts(backend, "1")
    found.note(facts, "hardened", language, weaker, complete=True)
    return experiment(directory)


async def test_a_full_check_holds_until_something_changes(tmp_path: Path) -> None:
    """Serves the profile that was checked and no other one, in the version that was."""
    assert not experiment(tmp_path / "none").may_serve("hardened")
    found = await checked(tmp_path)
    assert found.may_serve("hardened")
    assert found.standing("hardened").checked.startswith("20")
    assert found.standing("dev").why == "it does not serve dev"
    assert not found.may_serve("dev")
    assert await found.lapsed(BACKEND, "hardened", "1") == ""
    assert await found.lapsed(BACKEND, "hardened", "2") == "its engine is of another version: 2, and was 1"
    assert await found.lapsed(Imaged("sha256:1"), "hardened", "1") == "its image is another one"
    assert "has no digest" in await found.lapsed(Imaged(""), "hardened", "1")


@pytest.mark.parametrize(
    "changed", [{"image": "other"}, {"warm": 1}, {"egress": Egress(hosts=("a.example",))}, {"vm_memory_reserve": 300}]
)
async def test_other_settings_were_never_checked(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Equal settings have the same record in another process, and any other value has none."""
    await checked(tmp_path)
    assert experiment(tmp_path).may_serve("hardened")
    assert experiment(tmp_path, **changed).standing("hardened").why == "its configuration is another one"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("__version__", "0.0.1", "toolexec is another release: 0.0.1, and was "),
        ("PROMISES", (), "the promises are other ones"),
    ],
)
async def test_another_release_was_never_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, why: str
) -> None:
    """A release with other code or other promises asks for another check."""
    found = await checked(tmp_path)
    monkeypatch.setattr(f"toolexec.runtime.measured.{name}", value)
    assert found.standing("hardened").why.startswith(why)


async def test_a_later_check_that_finds_it_weaker_counts(tmp_path: Path) -> None:
    """A part of a check may take the right away, and only a full one in that language gives it back."""
    found = await checked(tmp_path)
    facts = await found.facts(BACKEND, "1")
    found.note(facts, "hardened", "javascript", ["vsock"], complete=False)
    assert found.standing("hardened").why == "it was found weaker than it promises: vsock"
    found.note(facts, "hardened", "javascript", [], complete=False)
    found.note(facts, "hardened", "python", [], complete=True)
    assert not found.standing("hardened").holds
    found.note(facts, "hardened", "javascript", [], complete=True)
    assert found.standing("hardened").holds


async def test_only_python_in_full_lifts_it(tmp_path: Path) -> None:
    """The battery in another language says nothing of most promises."""
    found = await checked(tmp_path, language="javascript")
    assert found.standing("hardened").why == "not all was checked"
    assert not found.may_serve("hardened")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "languages": {"python": {"weaker": 0, "complete": 1}}}']
)
async def test_what_is_not_a_record_lifts_nothing(tmp_path: Path, text: str) -> None:
    """Refuses one that the directory itself takes for whole, too."""
    found = await checked(tmp_path)
    with found._opened() as directory, directory.locked():
        directory.store(found._name("hardened"), text.encode(), {})
    assert "is damaged, or others could have written to it" in found.standing("hardened").why
    facts = await found.facts(BACKEND, "1")
    found.note(facts, "hardened", "python", [], complete=True)
    assert found.standing("hardened").holds


async def test_a_record_of_another_kind_lifts_nothing(tmp_path: Path) -> None:
    """A file that was copied to the name of another one is not taken."""
    found = await checked(tmp_path)
    name = found._name("hardened")
    with found._opened() as directory, directory.locked():
        kept = directory.open(name)
        assert kept is not None
        with kept:
            directory.store(name, kept.read().replace(b'"firecracker"', b'"kata"'), {})
    assert "is damaged" in found.standing("hardened").why


def test_settings_without_a_value_of_their_own_are_not_bound(tmp_path: Path) -> None:
    """A function may do something else tomorrow, so that nothing is kept of a check with one."""
    plugin = plugin_of("firecracker")
    own = {"when": lambda: 1, "limits": Limits(pids=3), "names": frozenset({"b", "a"}), "at": Path("/x")}
    found = Experiment(plugin, own, SandboxSettings(), directory=tmp_path)
    assert found.standing("hardened").why == "it was never checked on this machine"
    with pytest.raises(ConfigurationError, match="values that cannot be compared"):
        raise_from(found)


def raise_from(found: Experiment) -> JSONDict:
    """Ask for the facts of a check, which are known before anything is awaited where there are none."""
    coroutine = found.facts(BACKEND, "1")
    try:
        coroutine.send(None)
    finally:
        coroutine.close()
    raise AssertionError


async def test_a_runtime_has_what_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of toolexec takes its place in the order of its profile, and loses it when its engine is another one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert recorded_kinds() == frozenset()
    found = await checked(records_directory())
    assert recorded_kinds() == {"firecracker"}
    assert found.may_serve("hardened")
    async with make_runtime() as runtime:
        (backend,) = [each for each in runtime.candidates("hardened") if each.kind == "firecracker"]
        assert (await runtime.lapsed(backend, "hardened")).startswith("firecracker is experimental again: ")
        assert not any(each.kind == "firecracker" for each in runtime.candidates("standard"))
    async with make_runtime(SandboxSettings(warm=1)) as runtime:
        assert not any(each.kind == "firecracker" for each in runtime.backends)
        assert runtime.experiments["firecracker"].standing("hardened").why == "its configuration is another one"


def test_kinds_that_are_gone_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of a plugin that is not installed any more is not an error, and files of other names do not count."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    records_directory().mkdir(parents=True)
    for name in (f"gone.standard.{'0' * 16}", "notes.txt", "x.standard.00"):
        (records_directory() / name).write_text("")
    assert recorded_kinds() == {"gone"}
    assert "gone" not in {backend.kind for backend in make_runtime().backends}


def test_without_a_home_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Exec is set up as ever, and the directory of records is an error that says what to set."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setattr(Path, "home", homeless)
    assert recorded_kinds() == frozenset()
    with pytest.raises(ConfigurationError, match="set XDG_STATE_HOME"):
        records_directory()


async def test_settings_of_pydantic_are_compared(tmp_path: Path) -> None:
    """A plugin may have a model for its settings: equal ones have one record."""
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("CellSettings", level=(int, 1))
    plugin: SandboxPlugin = dataclasses.replace(plugin_of("firecracker"), settings=model)
    first, same, other = (
        Experiment(plugin, model(level=level), SandboxSettings(), directory=tmp_path)._configuration
        for level in (1, 1, 2)
    )
    assert first == same != other

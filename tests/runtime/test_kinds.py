"""The kinds of sandbox: one object for each, and everything else comes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.workspace import usable

import toolexec
from toolexec.config.build import build
from toolexec.config.load import load_settings
from toolexec.errors import ConfigurationError
from toolexec.run.run_request import PROFILES
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.contract import ISOLATIONS
from toolexec.runtime.doctor import examine
from toolexec.runtime.kinds import ELSEWHERE, KINDS, RELAYED, SANDBOXES, candidates, isolations, lent_kinds, plugin_of
from toolexec.runtime.plugin import PLUGIN_API, SandboxContext, SandboxPlugin
from toolexec.runtime.router import Runtime
from toolexec.runtime.sandboxes import SandboxSettings, make_runtime, make_sandbox, settings_of


def _make(settings: object, context: SandboxContext) -> SandboxBackend:
    return context.make("wasm")


PLAIN = SandboxPlugin(kind="cell", api=1, settings=dict, make=_make, profiles={})


@pytest.mark.parametrize("kind", usable(KINDS))
def test_every_kind_has_its_object(kind: str) -> None:
    """Each has the name that it is found by, this version, and a class of settings."""
    plugin = plugin_of(kind)
    assert (plugin.kind, plugin.api) == (kind, PLUGIN_API)
    assert isinstance(plugin.settings_class(), type)


@pytest.mark.parametrize("kind", [kind for kind in usable(SANDBOXES) if kind not in ELSEWHERE])
def test_the_object_makes_the_sandbox(kind: str) -> None:
    """Its settings are of the class that it names, and it gives the isolation that its sandbox has."""
    settings = SandboxSettings()
    backend = make_sandbox(kind, settings)
    assert (backend.kind, backend.isolation) == (kind, plugin_of(kind).isolation)
    assert isinstance(settings_of(kind, settings), plugin_of(kind).settings_class())


@pytest.mark.parametrize("profile", PROFILES)
def test_no_two_kinds_have_one_position(profile: str) -> None:
    """The order of candidates is that of the positions, and of nothing else."""
    positions = [plugin.profiles[profile] for plugin in map(plugin_of, usable(SANDBOXES)) if profile in plugin.profiles]
    assert len({*positions}) == len(positions) == len(candidates()[profile])


def test_what_was_never_measured_runs_only_where_it_is_named() -> None:
    """An experimental kind is none of the sandboxes that an Exec has by itself; named, it keeps its position."""
    experimental = {kind for kind in usable(SANDBOXES) if plugin_of(kind).experimental}
    assert experimental == {*usable(("firecracker", "kata"))}
    assert not experimental & {backend.kind for backend in make_runtime().backends}
    use = usable(("kata", "wasm", "gvisor"))
    named = make_runtime(SandboxSettings(use=tuple(use)))
    assert [backend.kind for backend in named.candidates("hardened")] == use
    given = Runtime([make_sandbox(kind, SandboxSettings()) for kind in usable(("wasm", "kata"))])
    assert [backend.kind for backend in given.candidates("hardened")] == usable(("kata", "wasm"))


@pytest.mark.parametrize("kind", usable(("firecracker", "kata")))
async def test_the_doctor_says_how_to_use_an_experimental_kind(kind: str) -> None:
    """Shows it as not set up, with the setting that names it."""
    found = {
        finding.kind: finding for finding in await examine(make_runtime(SandboxSettings(use=("wasm",))), measure=False)
    }
    assert found[kind].state == "not_set_up"
    assert "experimental" in found[kind].reason
    assert "name it in use of [sandboxes]" in str(found[kind])


def test_a_kind_that_was_taken_out_has_a_hint(tmp_path: Path) -> None:
    """Settings and files say what to use instead of libkrun."""
    file = tmp_path / "toolexec.toml"
    file.write_text('[sandboxes]\nuse = ["libkrun"]\n')
    for make in (
        lambda: SandboxSettings(use=("libkrun",)),
        lambda: build(load_settings([file], environment={})),
    ):
        with pytest.raises(ConfigurationError, match=r"libkrun was taken out.*; use qemu, or firecracker"):
            make()


def test_only_what_isolates_serves_a_profile() -> None:
    """`standard` and `hardened` have no kind without isolation among their candidates."""
    for profile in ("standard", "hardened"):
        assert {isolations().get(kind) for kind in candidates()[profile]} & {"none", "process"} == set()
    assert isolations()["unsafe_host"] == "none"
    assert {*isolations().values()} <= {*ISOLATIONS["dev"]}


@pytest.mark.parametrize("kind", ["", "Cell", "my cell", "9cell", "a-b"])
def test_a_kind_is_one_plain_word(kind: str) -> None:
    """Files, commands and labels of containers have it as it is."""
    with pytest.raises(ConfigurationError, match="lower case"):
        replace(PLAIN, kind=kind)


def test_a_profile_that_is_not_there_is_refused() -> None:
    """The error has the nearest one."""
    with pytest.raises(ConfigurationError, match="did you mean hardened"):
        replace(PLAIN, profiles={"hardend": 1})


def test_no_module_but_its_own_lists_the_kinds() -> None:
    """A list of several kinds is a second owner: all others ask the registry, which asks the table of packages."""
    root = Path(toolexec.__file__).parent
    rows = ('"bubblewrap",\n', '"bubblewrap", "docker"', '"gvisor", "kata"', '"containerd": "')
    owners = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.name != "plugin.py" and any(row in path.read_text(encoding="utf-8") for row in rows)
    }
    assert owners == {"backend/plugins.py", "runtime/kinds.py"}


def test_what_has_workers_elsewhere_is_used_only_where_it_is_named() -> None:
    """An Exec has no such kind by itself, and no remote runtime lends one."""
    assert {*RELAYED} <= {*KINDS} - {*SANDBOXES}
    assert not {*RELAYED} & {backend.kind for backend in make_runtime().backends}
    assert not {*RELAYED} & {*isolations()}
    assert not any({*RELAYED} & {*kinds} for kinds in candidates().values())


def test_the_kinds_that_run_code_are_known_without_their_packages() -> None:
    """Count the kind of a package, whether that is installed or not."""
    assert [*lent_kinds()] == [*isolations()]
    there = {plugin.kind: plugin.isolation for plugin in map(plugin_of, usable(SANDBOXES))}
    assert {**there, **isolations()} == {**isolations(), **there}

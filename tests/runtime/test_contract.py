"""The promises of the profiles: each is measured, each probe belongs to one, and engines are given what is declared."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from tests.promises import BEGIN, DOCUMENT, KNOWN_GAPS, merged, read_record, table
from tests.runtime.containers.test_bpf import AUDIT, interpret

from toolexec.code.limits import Limits
from toolexec.run.run_request import PROFILES
from toolexec.runtime.containers.bubblewrap.args import bwrap_args, file_bounds, masked_files
from toolexec.runtime.containers.builder import spec_for
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.seccomp import Condition, default_profile, syscall_numbers
from toolexec.runtime.containers.spec import ContainerSpec
from toolexec.runtime.contract import (
    CORE_BYTES,
    HOSTNAME,
    ISOLATIONS,
    MASKED,
    NAMESPACES,
    NEW_NAMESPACES,
    NOBODY,
    OPEN_FILES,
    PROMISES,
    SOCKETS,
    Promise,
    promise_of,
    promises_of,
)
from toolexec.runtime.guest.box import drop
from toolexec.testing.escapes import ESCAPES

GUARDED = ("standard", "hardened")
DENIED, OWN_SOCKETS, ARGUMENTS = (vars(drop)[name] for name in ("_DENIED", "_SOCKETS", "_ARGUMENTS"))
"""What the guest's own filter refuses."""


def spec(profile: str = "standard") -> ContainerSpec:
    """A container as the backend makes it."""
    return spec_for(
        image="image", command=("true",), limits=Limits(), profile=profile, config=ContainerConfig(), kind="test"
    )


def test_each_promise_has_a_probe_and_each_probe_one_promise() -> None:
    """No promise is only a sentence, and no program of the battery measures what is promised nowhere, or twice."""
    names = [escape.name for escape in ESCAPES]
    for promise in PROMISES:
        assert promise.probes
        for probe in promise.probes:
            assert any(fnmatchcase(name, probe) for name in names), f"{promise.name}: there is no program {probe}"
    owners = {
        name: [promise.name for promise in PROMISES if any(fnmatchcase(name, probe) for probe in promise.probes)]
        for name in names
    }
    assert {name: found for name, found in owners.items() if len(found) != 1} == {}
    assert promise_of("no such program") is None
    assert max(Counter(promise.name for promise in PROMISES).values()) == 1


def test_profiles_promise_what_their_isolation_can_keep() -> None:
    """`dev` promises nothing; what `standard` promises, `hardened` does, where fewer kinds of walls are enough."""
    assert promises_of("dev") == ()
    assert promises_of("standard") == promises_of("hardened") == PROMISES
    assert {*ISOLATIONS} == {*PROFILES}
    assert all(profile in PROFILES for promise in PROMISES for profile in promise.profiles)


@pytest.mark.parametrize("promise", [promise for promise in PROMISES if promise.calls], ids=lambda each: each.name)
def test_refused_calls_are_in_no_filter(promise: Promise) -> None:
    """Neither the filter of containers nor the one that a guest makes for itself lets them pass, on any machine."""
    calls = {*promise.calls}
    assert not calls & {name for rule in default_profile().rules for name in rule.names}
    assert calls <= {*syscall_numbers("x86_64")}
    denied = {row.split()[0]: row.split()[1:] for row in DENIED.split(",")}
    assert calls <= {*denied}
    for column, machine in enumerate(("x86_64", "aarch64")):
        numbers = syscall_numbers(machine)
        for name in calls & {*numbers}:
            assert denied[name][column] == str(numbers[name])


def test_sockets_and_namespaces_are_the_same_in_both_filters() -> None:
    """The guest has no toolexec, and so a text of its own; it says the same."""
    assert OWN_SOCKETS == SOCKETS
    assert ARGUMENTS["clone"][2] == NEW_NAMESPACES
    rules = [rule for rule in default_profile().rules if "socket" in rule.names]
    assert [rule.when[0].value for rule in rules] == [family for family, _ in SOCKETS]
    [clone] = [rule for rule in default_profile().rules if "clone" in rule.names]
    assert clone.when == (Condition(0, "masked", 0, NEW_NAMESPACES),)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_of_a_guest_lets_these_sockets_pass_only(machine: str) -> None:
    """Whatever the protocol is, but for the family that has just one."""
    program = vars(drop)["_filter"](*vars(drop)["_MACHINES"][machine])
    number = syscall_numbers(machine)["socket"]
    for family in range(64):
        for protocol in (0, 9, 12):
            passes = (family, None) in SOCKETS or (family, protocol) in SOCKETS
            verdict = interpret(program, number, (family, 2, protocol), AUDIT[machine])
            assert (verdict == 0x7FFF0000) is passes, (family, protocol)


@pytest.mark.parametrize("profile", GUARDED)
def test_a_specification_is_made_from_it(profile: str) -> None:
    """The user, no rights, a read-only root and no network."""
    security, resources = spec(profile).security, spec(profile).resources
    assert (security.user, security.keep_capabilities, security.privileged) == (NOBODY, (), False)
    assert security.no_new_privileges
    assert security.read_only_root
    assert (security.network, security.seccomp) == ("none", "default")
    assert resources.open_files == OPEN_FILES


def test_the_command_of_bubblewrap_is_made_from_it(tmp_path: Path) -> None:
    """Every namespace has its option, or is one that bubblewrap makes in any case."""
    for name in ("work", "tmp", "dev", "proc"):
        (tmp_path / name).mkdir()
    args = bwrap_args(spec(), str(tmp_path), ())
    apart = {word.removeprefix("--unshare-").removesuffix("-try") for word in args if word.startswith("--unshare-")}
    assert apart == {"user", *({*NAMESPACES} - {"network", "mount"}), "net"}
    assert args[args.index("--hostname") + 1] == HOSTNAME
    assert args[args.index("--cap-drop") + 1] == "ALL"
    assert args[args.index("--uid") + 1] == NOBODY.partition(":")[0]
    proc = tmp_path / "kernel"
    for name in (*MASKED, "uptime"):
        (proc / name).mkdir(parents=True)
    assert masked_files(proc) == tuple(sorted(f"/proc/{name}/" for name in MASKED))
    assert file_bounds(spec().resources).startswith(f"ulimit -c {CORE_BYTES}")


def test_the_table_of_the_document_is_up_to_date() -> None:
    """The table is what `python -m tests.promises` writes: a promise that is new is never measured here until it is."""
    assert f"{BEGIN}\n\n{table(read_record())}\n" in DOCUMENT.read_text("utf-8"), "run: python -m tests.promises"


def test_what_is_recorded_as_weaker_has_a_reason() -> None:
    """The record is what the tests of engines expect: all that gets out is known by name, with the reason."""
    for kind, runs in read_record().items():
        for who, run in runs.items():
            assert {*run["weaker"]} == {*KNOWN_GAPS.get(kind if who == "root" else f"{kind}:{who}", {})}, (kind, who)


def test_nothing_is_recorded_that_was_not_measured() -> None:
    """A sandbox without outcomes leaves the record as it is, and one without a record has no verdict."""
    column = {"kind": "docker", "isolation": "container", "profile": "standard", "image": "", "version": ""}
    run = {"language": "python", "user": 0, "sandboxes": [{**column, "outcomes": []}]}
    assert merged({}, run) == {}
    assert "kept" not in table({})
    run["sandboxes"] = [{**column, "outcomes": [{"name": "vsock", "held": False}, {"name": "bpf", "held": True}]}]
    [row] = [line for line in table(merged({}, run)).splitlines() if "hypervisor" in line]
    assert "| weaker: `vsock` | never measured here |" in row
    assert "| kept" not in table(merged({}, run))


def test_root_and_users_are_recorded_apart() -> None:
    """The table names who it was only where they differ; a sandbox can be recorded under another name."""
    column = {"kind": "docker", "isolation": "container", "profile": "standard", "image": "", "version": ""}
    outcome: dict[str, Any] = {"name": "io_uring", "held": True}
    run = {"language": "python", "user": 0, "sandboxes": [{**column, "outcomes": [outcome]}]}
    record = merged(merged({}, run, "podman"), {**run, "user": 65534}, "podman")
    assert [*record] == ["podman"]
    [row] = [line for line in table(record).splitlines() if "behind the filter" in line]
    assert "| kept (1) |" in row
    outcome["held"] = False
    [row] = [line for line in table(merged(record, run, "podman")).splitlines() if "behind the filter" in line]
    assert "| weaker: `io_uring` (root); kept (1) (a user without rights) |" in row

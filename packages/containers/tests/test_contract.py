"""What each container is promised is what its engine is asked for."""

from __future__ import annotations

from toolexec.containers import (
    CORE_BYTES,
    COVERED,
    DEVICES,
    HOSTNAME,
    MASKED,
    NAMESPACES,
    NEW_NAMESPACES,
    NOBODY,
    READ_ONLY,
    spec_for,
)
from toolexec.sandbox import ContainerConfig, ContainerSpec, Limits
from toolexec_containers.docker.checks import drops_of
from toolexec_containers.docker.spec import create_body
from toolexec_containers.gvisor.runsc import bundle_config
from toolexec_containers.oci import oci_config


def spec() -> ContainerSpec:
    """A container as the backend makes it."""
    return spec_for(
        image="image", command=("true",), limits=Limits(), profile="standard", config=ContainerConfig(), kind="test"
    )


def test_an_oci_bundle_is_made_from_it() -> None:
    """For containerd and Kata as it is, and for gVisor, whose kernel has no control groups."""
    linux = oci_config(spec(), "/r")["linux"]
    assert [space["type"] for space in linux["namespaces"]] == [*NAMESPACES]
    assert linux["maskedPaths"] == [f"/proc/{name}" for name in MASKED]
    assert linux["readonlyPaths"] == [f"/proc/{name}" for name in READ_ONLY]
    devices = {(each["major"], each["minor"]) for each in linux["resources"]["devices"] if "minor" in each}
    assert devices == {*DEVICES.values()}
    assert linux["resources"]["devices"][0] == {"allow": False, "access": "rwm"}
    process = oci_config(spec(), "/r")["process"]
    assert {tuple(kept) for kept in process["capabilities"].values()} == {()}
    assert process["noNewPrivileges"]
    assert {each["type"]: each["hard"] for each in process["rlimits"]} == {
        "RLIMIT_CORE": CORE_BYTES,
        "RLIMIT_NOFILE": spec().resources.open_files,
    }
    gvisor = bundle_config(spec(), "/r")["linux"]
    assert [space["type"] for space in gvisor["namespaces"]] == [name for name in NAMESPACES if name != "cgroup"]
    flags = [rule["args"][0]["value"] for rule in gvisor["seccomp"]["syscalls"] if rule["names"] == ["clone"]]
    assert sum(flags) == NEW_NAMESPACES


def test_the_request_to_docker_is_made_from_it() -> None:
    """Hidden and barred paths are in the request; Podman takes hidden ones as an option, and always bars the rest."""
    body = create_body("image", spec())
    assert (body["User"], body["Hostname"]) == (NOBODY, HOSTNAME)
    host = body["HostConfig"]
    assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], [], False)
    assert host["ReadonlyRootfs"]
    assert "no-new-privileges" in host["SecurityOpt"]
    assert (host["NetworkMode"], host["IpcMode"]) == ("none", "private")
    assert {each["Name"]: each["Hard"] for each in host["Ulimits"]} == {
        "core": CORE_BYTES,
        "nofile": spec().resources.open_files,
    }
    assert "Devices" not in host
    hidden = [*(f"/proc/{name}" for name in MASKED), *COVERED]
    assert host["MaskedPaths"] == hidden
    assert host["ReadonlyPaths"] == [f"/proc/{name}" for name in READ_ONLY]
    podman = create_body("image", spec(), podman=True)["HostConfig"]
    assert f"mask={':'.join(hidden)}" in podman["SecurityOpt"]
    assert not {"MaskedPaths", "ReadonlyPaths"} & {*podman}


def test_a_guest_filters_by_itself_where_a_daemon_takes_no_filter() -> None:
    """A Podman on another machine has only its own, which knows nothing of these promises."""
    filters = {"SecurityOptions": ["name=seccomp,profile=default"]}
    assert drops_of(filters, "") == ()
    assert drops_of(filters, "", filtered=False) == ("seccomp",)
    assert drops_of({}, "") == ("landlock", "seccomp")
    assert drops_of({}, "runsc", filtered=False) == ()

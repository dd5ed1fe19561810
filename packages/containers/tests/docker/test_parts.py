"""What is told to a daemon about a container, and what it tells about itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolexec.containers import (
    COVERED,
    MASKED,
    OWNER_LABEL,
    READ_ONLY,
    Mount,
    cgroup_cpu_seconds,
    parse_reference,
    spec_for,
    this_owner,
)
from toolexec.errors import SandboxDeniedError, SandboxUnavailableError
from toolexec.machines import Resources
from toolexec.sandbox import ContainerConfig, ContainerSpec, Exit, Limits, LimitsEnforced
from toolexec_containers.docker.api import DockerAPI
from toolexec_containers.docker.checks import enforced, not_started, problem
from toolexec_containers.docker.container import DockerContainer
from toolexec_containers.docker.host import DockerHost
from toolexec_containers.docker.images import login_for
from toolexec_containers.docker.spec import create_body

HOST = DockerHost(address="unix:///s", path="/s")


@pytest.fixture
def spec() -> ContainerSpec:
    return spec_for(
        image="py",
        command=("python3", "-c", "1"),
        limits=Limits(memory_bytes=100 << 20, cpus=1.5, pids=30, disk_bytes=64 << 20),
        profile="standard",
        config=ContainerConfig(),
        kind="docker",
    )


def test_the_whole_request(spec: ContainerSpec) -> None:
    body = create_body("sha256:1", spec)
    host = body.pop("HostConfig")
    assert body == {
        "Image": "sha256:1",
        "Entrypoint": ["python3"],
        "Cmd": ["-c", "1"],
        "Env": ["HOME=/work"],
        "User": "65534:65534",
        "WorkingDir": "/work",
        "Hostname": "sandbox",
        "Labels": {OWNER_LABEL: this_owner(), "runtime.profile": "standard", "runtime.backend": "docker"},
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "NetworkDisabled": True,
        "Healthcheck": {"Test": ["NONE"]},
    }
    sizes = {mount.target: mount.size_bytes for mount in spec.mounts}
    assert host == {
        "ReadonlyRootfs": True,
        "Tmpfs": {
            "/work": f"rw,nosuid,nodev,exec,size={sizes['/work']},mode=0700,uid=65534,gid=65534",
            "/tmp": f"rw,nosuid,nodev,exec,size={sizes['/tmp']},mode=1777",
        },
        "Mounts": [],
        "ShmSize": sizes["/dev/shm"],
        "CapDrop": ["ALL"],
        "CapAdd": [],
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": False,
        "NetworkMode": "none",
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},
        "OomScoreAdj": 500,
        "MaskedPaths": [*(f"/proc/{name}" for name in MASKED), *COVERED],
        "ReadonlyPaths": [f"/proc/{name}" for name in READ_ONLY],
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}, {"Name": "nofile", "Soft": 1024, "Hard": 1024}],
        "Memory": 100 << 20,
        "MemorySwap": 100 << 20,
        "CpuPeriod": 100_000,
        "CpuQuota": 150_000,
        "PidsLimit": 30,
    }


def test_what_differs_by_runtime_profile_and_daemon(spec: ContainerSpec) -> None:
    gvisor = create_body("i", spec, runtime="runsc", seccomp="{}", volumes=["/data", "/work"])["HostConfig"]
    assert gvisor["Runtime"] == "runsc"
    assert gvisor["PidsLimit"] == 30 + 128
    assert gvisor["SecurityOpt"] == ["no-new-privileges", "seccomp={}"]
    assert [mount["Target"] for mount in gvisor["Mounts"]] == ["/data"]
    assert all(mount["ReadOnly"] for mount in gvisor["Mounts"])
    podman = create_body("i", spec, runtime="runsc", podman=True)["HostConfig"]
    assert "Runtime" not in podman
    assert "Ulimits" not in podman
    assert podman["Tmpfs"]["/work"].endswith("mode=0700,U")
    assert podman["Tmpfs"]["/run"].startswith("ro,")
    assert podman["Tmpfs"]["/var/tmp"].startswith("ro,")
    free = replace(
        spec,
        mounts=(Mount(type="tmpfs", target="/work", read_only=True),),
        resources=Resources(open_files=0),
        security=replace(
            spec.security, user="nobody:nogroup", read_only_root=False, network="bridge", no_new_privileges=False
        ),
    )
    loose = create_body("i", free)["HostConfig"]
    assert loose["Tmpfs"] == {"/work": "ro,nosuid,nodev,exec,mode=1777"}
    assert loose["SecurityOpt"] == []
    assert loose["NetworkMode"] == "bridge"
    assert loose["Ulimits"] == [{"Name": "core", "Soft": 0, "Hard": 0}]
    assert not {"Memory", "CpuQuota", "PidsLimit", "Runtime"} & loose.keys()
    assert "/run" not in create_body("i", free, podman=True)["HostConfig"]["Tmpfs"]
    group = replace(spec, security=replace(spec.security, user="1000"))
    assert create_body("i", group)["HostConfig"]["Tmpfs"]["/work"].endswith("uid=1000,gid=1000")


def test_what_would_let_code_out_is_refused_again(spec: ContainerSpec) -> None:
    for changed in (
        replace(spec, security=replace(spec.security, privileged=True)),
        replace(spec, security=replace(spec.security, network="host")),
        replace(spec, mounts=(Mount(type="bind", source="/", target="/host"),)),
        replace(spec, mounts=(Mount(type="volume", source="v", target="/v"),)),
    ):
        with pytest.raises(SandboxDeniedError):
            create_body("i", changed)


INFO: dict[str, Any] = {
    "OSType": "linux",
    "Runtimes": {"runc": {"path": "runc"}, "runsc": {"path": "/x"}},
    "DefaultRuntime": "runc",
    "MemoryLimit": True,
    "CpuCfsQuota": True,
    "PidsLimit": True,
}


def test_a_daemon_that_will_do() -> None:
    for runtime in ("", "runc", "runsc", "io.containerd.kata.v2"):
        assert problem(INFO, runtime, version="1.41", podman=False) is None
    assert problem(INFO, "runc", version="1.50", podman=True) is None


@pytest.mark.parametrize(
    ("info", "runtime", "version", "podman", "reason"),
    [
        (INFO, "", "1.40", False, "version 1.40 of Docker's API; 1.41 is needed"),
        (INFO | {"OSType": "windows"}, "", "1.41", False, "runs windows containers"),
        (INFO, "kata", "1.41", False, "no runtime 'kata', only runc, runsc"),
        (INFO, "runsc", "1.41", True, "runs containers with runc only"),
        ({}, "runsc", "1.41", True, "its own runtime only"),
    ],
)
def test_a_daemon_that_will_not_do(info: dict[str, Any], runtime: str, version: str, podman: bool, reason: str) -> None:
    found = problem(info, runtime, version=version, podman=podman)
    assert found is not None
    assert not found.ok
    assert reason in found.reason
    assert found.remedy


def test_what_holds_is_what_the_daemon_can_do() -> None:
    assert enforced(INFO, "") == LimitsEnforced(memory=True, cpu=True, cpus=True, pids=True, disk=True)
    assert not enforced(INFO, "runsc").pids
    assert not enforced(INFO | {"DefaultRuntime": "runsc"}, "").pids
    assert enforced({}, "") == LimitsEnforced(cpu=True, disk=True)  # rootless, with nothing delegated


_CREATE = "failed to create shim task: OCI runtime create failed: "
_EXEC = "unable to start container process: exec: "
_SILENT = "unable to retrieve OCI runtime error (open /x/log.json: no such file or directory)"
_NO_PROGRAM = "executable file not found in $PATH"
_NO_FILE = "no such file or directory"


class _Said(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (_Said("No such image: sha256:12"), "is not there any more"),
        (_Said("container create: sha256:12: image not known"), "is not there any more"),
        (_Said(f'{_CREATE}runc create failed: {_EXEC}"python3": {_NO_PROGRAM}'), "lacks what a sandbox needs"),
        (_Said(f'{_CREATE}runc create failed: {_EXEC}"/x": stat /x: {_NO_FILE}'), "lacks what a sandbox needs"),
        (_Said(f'{_CREATE}{_SILENT}: exec: "kata": {_NO_PROGRAM}: unknown'), "has no runtime 'kata' that runs"),
        (_Said(f"{_CREATE}{_SILENT}: fork/exec /kata: {_NO_FILE}: unknown"), "has no runtime 'kata' that runs"),
        (_Said("Unknown runtime specified kata"), "has no runtime 'kata' that runs"),
        (_Said("unknown or invalid runtime name: kata"), "has no runtime 'kata' that runs"),
        (_Said(f'failed to start shim: exec: "containerd-shim-kata-v2": {_NO_PROGRAM}'), "has no runtime 'kata'"),
        (_Said("disk on fire"), "can be started: disk on fire"),
        (ConnectionRefusedError(), "nothing listens at /s"),
        (SandboxUnavailableError("as it is"), "as it is"),
    ],
)
def test_why_a_container_cannot_be_started(error: Exception, text: str) -> None:
    assert text in not_started(error, HOST, "py", "kata").message


def test_cpu_time_is_read_where_the_kernel_keeps_it(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "7").mkdir(parents=True)
    lines = proc / "7/cgroup"
    assert cgroup_cpu_seconds(8, "abc", proc, cgroups) is None
    lines.write_text("5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n")
    assert cgroup_cpu_seconds(7, "abc", proc, cgroups) is None
    old = cgroups / "cpu,cpuacct/docker/abc"
    old.mkdir(parents=True)
    (old / "cpuacct.usage").write_text("1500000000\n")
    assert cgroup_cpu_seconds(7, "abc", proc, cgroups) == 1.5
    assert cgroup_cpu_seconds(7, "another", proc, cgroups) is None
    (old / "cpuacct.usage").write_text("what?")
    assert cgroup_cpu_seconds(7, "abc", proc, cgroups) is None
    lines.write_text("0::/system.slice/docker-abc.scope\n")
    new = cgroups / "system.slice/docker-abc.scope"
    new.mkdir(parents=True)
    assert cgroup_cpu_seconds(7, "abc", proc, cgroups) is None
    (new / "cpu.stat").write_text("user_usec 1\n")
    assert cgroup_cpu_seconds(7, "abc", proc, cgroups) is None
    (new / "cpu.stat").write_text("user_usec 1\nusage_usec 2500000\n")
    assert cgroup_cpu_seconds(7, "abc", proc, cgroups) == 2.5


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"auths": {"r.io": {}}}', '{"auths": {"r.io": {"auth": ""}}}'])
def test_no_login_is_found_where_there_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / ".docker").mkdir()
    assert login_for(parse_reference("r.io/py"), tmp_path) is None
    (tmp_path / ".docker/config.json").write_text(text)
    assert login_for(parse_reference("r.io/py"), tmp_path) is None


def test_the_login_of_the_hub_has_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    text = '{"auths": {"https://index.docker.io/v1/": {"auth": "hub"}, "r.io": {"auth": "own"}}}'
    (tmp_path / ".docker/config.json").write_text(text)
    assert login_for(parse_reference("py"), tmp_path) == {"auth": "hub"}
    assert login_for(parse_reference("r.io/py"), tmp_path) == {"auth": "own"}
    assert login_for(parse_reference("other.io/py"), tmp_path) is None


class _LateDaemon(DockerAPI):
    """A daemon that says from the third time on, when it is asked, that a container had no memory left."""

    asked = 0

    def __init__(self, code: int) -> None:
        self.code = code

    async def wait(self, name: str) -> int:
        """Return how the container has ended."""
        return self.code

    async def inspect(self, name: str) -> Any:
        """Return the state of the container."""
        self.asked += 1
        return {"State": {"OOMKilled": self.asked > 2}}


@pytest.mark.anyio
async def test_a_daemon_that_learns_late_why_a_container_was_killed() -> None:
    """A container that was killed is asked about again, one that has ended by itself is not."""
    for code, asked in ((137, 3), (1, 1)):
        daemon = _LateDaemon(code)
        assert await DockerContainer(daemon, set()).wait() == Exit(code=code, oom=code == 137)
        assert daemon.asked == asked

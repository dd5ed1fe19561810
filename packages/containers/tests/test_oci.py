"""A container as config.json: what is in it, and what runc and runsc make of it for real."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.images import test_image
from tests.tiers import missing

from toolexec.containers import DEFAULT_PATH, Mount, Security, spec_for
from toolexec.errors import ConfigurationError, InvalidRequestError
from toolexec.machines import Resources
from toolexec.sandbox import ContainerConfig, ContainerSpec, Limits
from toolexec_containers.oci import oci_config

SPEC = ContainerSpec(image="a", command=("python3", "-c", "1"))
LIMITS = Limits(memory_bytes=128 << 20, pids=40, disk_bytes=32 << 20, cpus=1)
_numbers = itertools.count(1)


def by_target(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["destination"]: mount for mount in config["mounts"]}


class TestTheConfiguration:
    """What a runtime reads."""

    def test_no_rights(self) -> None:
        """No capability in any set, none to gain, no terminal, and the user in numbers."""
        config = oci_config(SPEC, "/roots/py")
        process = config["process"]
        assert process["capabilities"] == {
            kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
        }
        assert process["noNewPrivileges"]
        assert not process["terminal"]
        assert (process["user"]["uid"], process["user"]["gid"]) == (65534, 65534)
        assert config["root"] == {"path": "/roots/py", "readonly": True}
        assert {"type": "RLIMIT_CORE", "soft": 0, "hard": 0} in process["rlimits"]
        assert {"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 1024} in process["rlimits"]
        kinds = {space["type"] for space in config["linux"]["namespaces"]}
        assert kinds == {"pid", "network", "ipc", "uts", "mount", "cgroup"}
        assert config["linux"]["seccomp"]["defaultAction"] == "SCMP_ACT_ERRNO"
        assert {"allow": False, "access": "rwm"} == config["linux"]["resources"]["devices"][0]
        assert json.loads(json.dumps(config)) == config

    def test_the_program(self) -> None:
        """Words, directory and variables; the path has a default that the container can replace."""
        spec = replace(SPEC, env={"A": "b=c"}, working_dir="/tmp", labels={"x": "y"})
        config = oci_config(spec, "/r", hostname="h", annotations={"z": "1"}, cgroups_path="/toolexec/1")
        assert config["process"]["args"] == ["python3", "-c", "1"]
        assert config["process"]["cwd"] == "/tmp"
        assert config["process"]["env"] == [f"PATH={DEFAULT_PATH}", "A=b=c"]
        assert (config["hostname"], config["annotations"]) == ("h", {"x": "y", "z": "1"})
        assert config["linux"]["cgroupsPath"] == "/toolexec/1"
        assert "cgroupsPath" not in oci_config(SPEC, "/r")["linux"]
        assert oci_config(replace(SPEC, env={"PATH": "/x"}), "/r")["process"]["env"] == ["PATH=/x"]

    def test_limits(self) -> None:
        """Memory and swap have one bound together; what has no bound is not mentioned."""
        spec = replace(SPEC, resources=Resources(memory_bytes=5, pids=6, cpus=0.5, open_files=0))
        config = oci_config(spec, "/r")
        resources = config["linux"]["resources"]
        assert resources["memory"] == {"limit": 5, "swap": 5}
        assert resources["pids"] == {"limit": 6}
        assert resources["cpu"] == {"quota": 50_000, "period": 100_000}
        assert [limit["type"] for limit in config["process"]["rlimits"]] == ["RLIMIT_CORE"]
        assert oci_config(SPEC, "/r")["linux"]["resources"].keys() == {"devices"}

    def test_mounts(self) -> None:
        """Sizes and owners of each tmpfs, read-only binds; `/dev/shm` is bounded in any case, and `/sys` is not there."""
        mounts = (
            Mount(type="tmpfs", target="/work", size_bytes=4096),
            Mount(type="bind", source="/srv", target="/data", read_only=True),
        )
        found = by_target(oci_config(replace(SPEC, mounts=mounts, security=Security(user="7:8")), "/r"))
        assert set(found["/work"]["options"]) >= {"nosuid", "nodev", "rw", "uid=7", "gid=8", "size=4096"}
        assert "noexec" not in found["/work"]["options"]
        assert (found["/data"]["source"], found["/data"]["type"]) == ("/srv", "bind")
        assert set(found["/data"]["options"]) >= {"rbind", "ro", "nosuid", "nodev"}
        assert f"size={64 << 20}" in found["/dev/shm"]["options"]
        assert found.keys() == {"/proc", "/dev", "/dev/pts", "/work", "/data", "/dev/shm"}
        own = oci_config(replace(SPEC, mounts=(Mount(type="tmpfs", target="/dev/shm", size_bytes=8192),)), "/r")
        assert [mount["destination"] for mount in own["mounts"]].count("/dev/shm") == 1

    def test_user_namespaces(self) -> None:
        """User namespaces come with mappings only."""
        config = oci_config(SPEC, "/r", uid_mappings=[(0, 100_000, 65_536)], gid_mappings=[(0, 200_000, 65_536)])
        assert {"type": "user"} in config["linux"]["namespaces"]
        assert config["linux"]["uidMappings"] == [{"containerID": 0, "hostID": 100_000, "size": 65_536}]
        assert config["linux"]["gidMappings"] == [{"containerID": 0, "hostID": 200_000, "size": 65_536}]
        assert "uidMappings" not in oci_config(SPEC, "/r")["linux"]

    def test_seccomp(self, tmp_path: Path) -> None:
        """The filter of a file, or none for development; one that cannot be read is refused."""
        path = tmp_path / "profile.json"
        path.write_text('{"defaultAction": "SCMP_ACT_LOG", "syscalls": []}')
        config = oci_config(replace(SPEC, security=Security(seccomp=str(path))), "/r", machine="aarch64")
        assert config["linux"]["seccomp"] == {
            "defaultAction": "SCMP_ACT_LOG",
            "architectures": ["SCMP_ARCH_AARCH64"],
            "syscalls": [],
        }
        assert "seccomp" not in oci_config(replace(SPEC, security=Security(seccomp="unconfined")), "/r")["linux"]
        with pytest.raises(ConfigurationError):
            oci_config(replace(SPEC, security=Security(seccomp=str(tmp_path / "none"))), "/r")

    @pytest.mark.parametrize(
        "changes",
        [
            {"security": Security(user="nobody")},
            {"security": Security(user="65534:nogroup")},
            {"security": Security(network="bridge")},
            {"mounts": (Mount(type="volume", source="a", target="/a"),)},
        ],
        ids=str,
    )
    def test_what_a_bundle_cannot_have(self, changes: dict[str, Any]) -> None:
        """Names of users, networks and volumes are refused, not left out."""
        with pytest.raises(InvalidRequestError):
            oci_config(replace(SPEC, **changes), "/r")

    def test_a_user_without_a_group(self) -> None:
        """The group has the same number."""
        user = oci_config(replace(SPEC, security=Security(user="1000")), "/r")["process"]["user"]
        assert (user["uid"], user["gid"]) == (1000, 1000)


def run(
    engine: str, directory: Path, code: str, limits: Limits = LIMITS, *, profile: str = "standard", **changes: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a container that a real runtime makes of our configuration, and remove it."""
    found = shutil.which(engine) or shutil.which(engine, path="/usr/sbin:/sbin")
    if found is None:
        missing(f"{engine} is not installed", "bash .ci/run")
    if os.geteuid() != 0:
        missing("only root can run it here", "sudo -E bash .ci/run")
    root = os.environ.get("TOOLEXEC_TEST_ROOTFS") or str(test_image().root)
    command = ("python3", "-I", "-c", textwrap.dedent(code))
    spec = spec_for(image="x", command=command, limits=limits, profile=profile, config=ContainerConfig(), kind=engine)
    name = f"toolexec-test-{os.getpid()}-{next(_numbers)}"
    config = oci_config(replace(spec, **changes), root, cgroups_path=f"/{name}")
    (directory / "config.json").write_text(json.dumps(config))
    options = ["--platform=systrap", "--network=none"] if engine == "runsc" else []
    runtime = [found, "--root", str(directory / "state"), *options]
    kept: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": False}
    try:
        return subprocess.run([*runtime, "run", "--bundle", str(directory), name], timeout=80, **kept)
    finally:
        subprocess.run([*runtime, "delete", "--force", name], timeout=60, **kept)
        assert not [*Path("/sys/fs/cgroup").glob(f"*/{name}"), *Path("/sys/fs/cgroup").glob(name)]


ENGINES = pytest.mark.parametrize("engine", ["runc", "runsc"])


@pytest.mark.full
class TestForReal:
    """What holds in a container of runc, which uses this kernel, and of runsc, which has its own."""

    @ENGINES
    def test_rights(self, engine: str, tmp_path: Path) -> None:
        """The process is an unprivileged user with one group, no capability and a filter."""
        done = run(engine, tmp_path, "print(open('/proc/self/status').read())")
        assert done.returncode == 0, done.stderr
        status = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd"):
            assert int(status[name], 16) == 0
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"65534"}
        assert status["Groups"].split() in ([], ["65534"])
        if engine == "runc":  # the kernel of runsc reports neither
            assert (status["Seccomp"].strip(), status["NoNewPrivs"].strip()) == ("2", "1")

    @ENGINES
    def test_what_can_be_written(self, engine: str, tmp_path: Path) -> None:
        """The directories that are there for it, where programs can be run, and nothing else."""
        done = run(
            engine,
            tmp_path,
            """
            import os, subprocess
            for directory in ('/work', '/tmp', '/dev/shm', '/', '/usr', '/etc', '/dev', '/proc/sys/kernel', '/root'):
                try:
                    with open(directory + '/x', 'w') as file: file.write('#!/bin/sh\\necho ran')
                    os.chmod(directory + '/x', 0o755)
                    print(directory, subprocess.run([directory + '/x'], capture_output=True, text=True).stdout.strip())
                except OSError: print(directory, 'no')
            print(os.getcwd(), os.environ['HOME'])
            """,
        )
        lines = done.stdout.splitlines()
        assert lines[:3] == ["/work ran", "/tmp ran", "/dev/shm ran"], done.stderr
        assert [line.split()[1] for line in lines[3:-1]] == ["no"] * 6
        assert lines[-1] == "/work /work"

    @ENGINES
    def test_the_disk(self, engine: str, tmp_path: Path) -> None:
        """The disk is full at its size, and a file of two thirds of the bound fits."""
        done = run(
            engine,
            tmp_path,
            """
            import os
            for directory in ('/work', '/tmp', '/dev/shm'):
                size = 0
                try:
                    with open(directory + '/a', 'wb', buffering=0) as file:
                        while True: size += file.write(bytes(65536))
                except OSError as error: print(error.errno, size)
            """,
            replace(LIMITS, memory_bytes=256 << 20),
        )
        found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
        assert [error for error, _ in found] == [28] * 3, done.stderr
        assert found[0][1] >= 0.66 * (32 << 20)
        assert sum(size for _, size in found) <= 32 << 20

    @ENGINES
    def test_memory(self, engine: str, tmp_path: Path) -> None:
        """A program that takes more than the bound is killed."""
        done = run(engine, tmp_path, "a = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): a[i] = 1\nprint('all')")
        assert (done.returncode, done.stdout) == (137, "")

    def test_processes(self, tmp_path: Path) -> None:
        """No more than the bound, with the first one; the next is refused."""
        done = run(
            "runc",
            tmp_path,
            """
            import os, signal
            children = []
            try:
                while True:
                    pid = os.fork()
                    if pid == 0: signal.pause()
                    children.append(pid)
            except OSError as error: print(error.errno, len(children))
            for pid in children: os.kill(pid, 9)
            """,
        )
        assert done.stdout.split() == ["11", str(LIMITS.pids - 1)], done.stderr

    @ENGINES
    def test_the_network(self, engine: str, tmp_path: Path) -> None:
        """There is none: a loopback interface, and no way out; nor raw packets."""
        done = run(
            engine,
            tmp_path,
            """
            import socket
            print([line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line])
            for address in ('1.1.1.1', '10.0.0.1', '169.254.169.254'):
                try: socket.create_connection((address, 80), 3); print('connected')
                except OSError: print('no')
            try: socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('raw')
            except OSError: print('no')
            """,
        )
        assert done.stdout.splitlines() == ["['lo']", *["no"] * 4], done.stderr

    def test_the_filter(self, tmp_path: Path) -> None:
        """Namespaces cannot be made; without the filter they can, so that it is the filter that refuses."""
        code = """
            import ctypes
            call = ctypes.CDLL(None, use_errno=True).unshare
            print(call(0x10000000), ctypes.get_errno())
        """
        assert run("runc", tmp_path, code).stdout.split() == ["-1", "1"]
        free = run("runc", tmp_path, code, profile="dev", security=Security(seccomp="unconfined"))
        assert free.stdout.split() == ["0", "0"], free.stderr

    def test_development(self, tmp_path: Path) -> None:
        """The root is not read-only, and the unprivileged user owns nothing there all the same."""
        done = run("runc", tmp_path, "print(open('/proc/mounts').readline())", profile="dev")
        assert done.stdout.split()[3].startswith("rw"), done.stderr

"""From limits and a profile to a container, and the builder for containers by hand."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.code.limits import Limits
from toolexec.errors import InvalidRequestError, SandboxDeniedError
from toolexec.process.cgroup import cpu_quota
from toolexec.process.owner import is_orphan, this_owner
from toolexec.runtime.containers.builder import ContainerSpecBuilder, spec_for, tmpfs_mounts
from toolexec.runtime.containers.config import DEFAULT_LIMITS, ContainerConfig
from toolexec.runtime.containers.spec import ContainerSpec, Mount, Resources, Security
from toolexec.runtime.contract import NOBODY


def made(limits: Limits | None = None, **changes: Any) -> ContainerSpec:
    given: dict[str, Any] = {
        "image": "local/py:1",
        "command": ("python3",),
        "limits": limits or Limits(),
        "profile": "standard",
        "config": ContainerConfig(),
        "kind": "docker",
    }
    return spec_for(**{**given, **changes})


class TestSpecFor:
    """What a guest's container is."""

    @pytest.mark.parametrize("profile", ["dev", "standard", "hardened"])
    def test_rights(self, profile: str) -> None:
        """Nobody, without a network, rights and ways to get some; the root can be written for development only."""
        security = made(profile=profile).security
        assert security == Security(user="65534:65534", read_only_root=profile != "dev", network="none")
        assert security.no_new_privileges
        assert security.keep_capabilities == ()
        assert not security.privileged

    @pytest.mark.parametrize("profile", ["", "wasm", "Standard", "none"])
    def test_an_unknown_profile(self, profile: str) -> None:
        """Refuses an unknown profile, instead of taking it for one with more rights."""
        with pytest.raises(InvalidRequestError, match="unknown security profile"):
            made(profile=profile)

    def test_limits_of_the_configuration(self) -> None:
        """Limits of the configuration count where the request has none."""
        assert made().resources == Resources(
            memory_bytes=DEFAULT_LIMITS.memory_bytes, pids=DEFAULT_LIMITS.pids, disk_bytes=DEFAULT_LIMITS.disk_bytes
        )
        config = ContainerConfig(limits=Limits(memory_bytes=1 << 20, cpus=0.5, pids=9, disk_bytes=1 << 19))
        assert made(config=config).resources == Resources(memory_bytes=1 << 20, cpus=0.5, pids=9, disk_bytes=1 << 19)

    def test_limits_of_the_request(self) -> None:
        """Limits of the request count before those of the configuration, larger ones too; tmpfs comes out of memory,
        and adds none.
        """
        asked = Limits(memory_bytes=256 << 20, cpus=2, pids=100, disk_bytes=1 << 30)
        assert made(asked).resources == Resources(memory_bytes=256 << 20, cpus=2, pids=100, disk_bytes=1 << 30)
        assert made(Limits(pids=5)).resources.memory_bytes == DEFAULT_LIMITS.memory_bytes

    def test_a_disk_without_bound(self) -> None:
        """There is none: it is memory, which has a bound, or the default one."""
        config = ContainerConfig(limits=Limits())
        assert made(config=config).resources.disk_bytes == DEFAULT_LIMITS.disk_bytes
        assert made(Limits(memory_bytes=64 << 20), config=config).resources.disk_bytes == 64 << 20

    def test_names_and_labels(self) -> None:
        """Image, command, runtime and seccomp are as given; the labels say whose it is, and the environment is small."""
        config = ContainerConfig(seccomp="/srv/profile.json")
        spec = made(profile="hardened", kind="gvisor", runtime="runsc", env={"A": "b"}, config=config)
        assert (spec.image, spec.command, spec.runtime) == ("local/py:1", ("python3",), "runsc")
        assert (spec.profile, spec.security.seccomp, spec.working_dir) == ("hardened", "/srv/profile.json", "/work")
        assert spec.env == {"HOME": "/work", "A": "b"}
        assert spec.labels == {
            "runtime.profile": "hardened",
            "runtime.backend": "gvisor",
            "toolexec.owner": this_owner(),
        }
        assert not is_orphan(spec.labels["toolexec.owner"])

    def test_it_is_checked(self) -> None:
        """Refuses an invalid spec here already."""
        with pytest.raises(InvalidRequestError, match="image"):
            made(image="--privileged")


class TestTmpfs:
    """What can be written, and how much."""

    @pytest.mark.parametrize("size", [1 << 20, 10_000_000, 256 << 20, 1 << 30, 64 << 30])
    def test_all_together(self, size: int) -> None:
        """Not more than the bound, and a file of two thirds of it fits where programs work."""
        work, tmp, shared = tmpfs_mounts(size)
        assert [work.target, tmp.target, shared.target] == ["/work", "/tmp", "/dev/shm"]
        sizes = [mount.size_bytes for mount in (work, tmp, shared)]
        assert all(each % 4096 == 0 for each in sizes)
        assert size - 3 * 4096 <= sum(sizes) <= size
        assert work.size_bytes >= 0.66 * size
        assert max(tmp.size_bytes, shared.size_bytes) <= 64 << 20

    @pytest.mark.parametrize("size", [1, 100, 4096, 20_000])
    def test_hardly_any(self, size: int) -> None:
        """Each has a page at least: a tmpfs of size 0 would have no bound at all."""
        assert all(mount.size_bytes >= 4096 for mount in tmpfs_mounts(size))


@pytest.mark.parametrize(
    ("cpus", "quota"), [(0, 0), (1.0, 100_000), (1, 100_000), (0.5, 50_000), (2.25, 225_000), (0.00001, 1000)]
)
def test_cpu_quota(cpus: float, quota: int) -> None:
    """Microseconds for each tenth of a second; nothing is no bound, and the kernel has a smallest one."""
    assert cpu_quota(cpus) == quota


class TestBuilder:
    """A container part by part."""

    def test_every_part(self) -> None:
        """Each method sets its part, and gives back the builder."""
        builder = ContainerSpecBuilder("local/py:1")
        spec = (
            builder.command("python3", "-c", "1")
            .working_dir("/tmp")
            .env("A", "b")
            .env_list(["C=d=e", "F="])
            .mount(Mount(type="volume", source="cache", target="/cache"))
            .bind_mount("/srv/data", "/data")
            .tmpfs("/work", 1 << 20)
            .resources(Resources(disk_bytes=5))
            .memory(1 << 30)
            .cpus(1.5)
            .pids(64)
            .security(Security(seccomp="/a.json"))
            .user("1000:1000")
            .read_only_root()
            .network("none")
            .no_network()
            .seccomp("/b.json")
            .label("a", "b")
            .labels({"c": "d"})
            .runtime("runsc")
            .profile("hardened")
            .build()
        )
        assert spec == ContainerSpec(
            image="local/py:1",
            command=("python3", "-c", "1"),
            env={"A": "b", "C": "d=e", "F": ""},
            working_dir="/tmp",
            mounts=(
                Mount(type="volume", source="cache", target="/cache"),
                Mount(type="bind", source="/srv/data", target="/data", read_only=True),
                Mount(type="tmpfs", target="/work", size_bytes=1 << 20),
            ),
            resources=Resources(memory_bytes=1 << 30, cpus=1.5, pids=64, disk_bytes=5),
            security=Security(user="1000:1000", seccomp="/b.json"),
            labels={"a": "b", "c": "d"},
            runtime="runsc",
            profile="hardened",
        )

    def test_the_least(self) -> None:
        """Image and command are enough, and give no rights."""
        spec = ContainerSpecBuilder("a").command("b").build()
        assert spec.security == Security(user=NOBODY)

    def test_what_was_built_stays(self) -> None:
        """The builder can go on; containers that were built before do not change."""
        builder = ContainerSpecBuilder("a").command("b").label("x", "1")
        first = builder.build()
        assert builder.label("x", "2").build().labels == {"x": "2"}
        assert first.labels == {"x": "1"}

    @pytest.mark.parametrize(
        ("builder", "kind"),
        [
            (ContainerSpecBuilder("").command("a"), InvalidRequestError),
            (ContainerSpecBuilder("a"), InvalidRequestError),
            (ContainerSpecBuilder("a").command("b").security(Security(privileged=True)), SandboxDeniedError),
            (ContainerSpecBuilder("a").command("b").network("host"), SandboxDeniedError),
            (ContainerSpecBuilder("a").command("b").user("root"), SandboxDeniedError),
            (ContainerSpecBuilder("a").command("b").read_only_root(False), SandboxDeniedError),
            (ContainerSpecBuilder("a").command("b").bind_mount("/run/docker.sock", "/s"), SandboxDeniedError),
        ],
    )
    def test_what_is_refused(self, builder: ContainerSpecBuilder, kind: type[Exception]) -> None:
        """`build` checks."""
        with pytest.raises(kind):
            builder.build()

    def test_a_variable_without_a_value(self) -> None:
        """Refuses such a variable at once."""
        with pytest.raises(InvalidRequestError, match="NAME=value"):
            ContainerSpecBuilder("a").env_list(["A"])

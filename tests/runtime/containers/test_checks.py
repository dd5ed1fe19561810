"""What containers may be: each rule on its own, and all that is wrong at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from toolexec.errors import InvalidRequestError, SandboxDeniedError, SandboxError
from toolexec.runtime.containers.checks import check_spec
from toolexec.runtime.containers.spec import ContainerSpec, Mount, Resources, Security

GOOD = ContainerSpec(
    image="local/py:1",
    command=("python3", "-c", "print(1)"),
    env={"HOME": "/work", "EMPTY": ""},
    mounts=(
        Mount(type="tmpfs", target="/work", size_bytes=1 << 20),
        Mount(type="tmpfs", target="/dev/shm", size_bytes=1 << 20),
        Mount(type="bind", source="/srv/data", target="/data", read_only=True),
        Mount(type="bind", source="/home/me/data", target="/more"),
        Mount(type="volume", source="cache-1", target="/cache"),
    ),
    resources=Resources(memory_bytes=1 << 30, cpus=1.5, pids=64, disk_bytes=1 << 20),
    labels={"toolexec.owner": "a-1-2"},
    runtime="io.containerd.runsc.v1",
)


@pytest.fixture
def harmless() -> Iterator[Path]:
    """Make a directory on the disk: those of tests may be in `/dev/shm`, and nothing of `/dev` is mounted."""
    with TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


def problems(**changes: Any) -> tuple[type[SandboxError] | None, list[str]]:
    """The class of the error for the good container with changes, and all that it lists."""
    try:
        check_spec(replace(GOOD, **changes))
    except SandboxError as error:
        return type(error), error.details["problems"]
    return None, []


def test_what_makes_sense_passes() -> None:
    """The good container, and the barest one."""
    check_spec(GOOD)
    check_spec(ContainerSpec(image="a", command=("b",)))
    check_spec(replace(GOOD, image="/var/lib/roots/py", runtime="", security=Security(seccomp="/etc/profile.json")))


class TestTheProgram:
    """Image, command, directory, runtime and profile."""

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"image": ""}, "an image is required"),
            ({"image": "--privileged"}, "not a name of an image"),
            ({"image": "a b"}, "not a name of an image"),
            ({"image": "a\nb"}, "not a name of an image"),
            ({"image": "a" * 5000}, "not a name of an image"),
            ({"command": ()}, "a command is required"),
            ({"command": ("",)}, "a command is required"),
            ({"command": ("a", "b\0")}, "command[1] contains NUL"),
            ({"command": ("a", "b" * (128 << 10))}, "command[1] has more than 131071 bytes"),
            ({"working_dir": "work"}, "working directory"),
            ({"working_dir": ""}, "working directory"),
            ({"working_dir": "/a/../b"}, "working directory"),
            ({"runtime": "-x"}, "not a name of a runtime"),
            ({"runtime": "a b"}, "not a name of a runtime"),
            ({"profile": "soft"}, "unknown security profile 'soft'"),
            ({"profile": ""}, "unknown security profile"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_what_makes_no_sense(self, changes: dict[str, Any], text: str) -> None:
        """An invalid program is an InvalidRequestError with the reason."""
        kind, strings = problems(**changes)
        assert kind is InvalidRequestError
        assert len(strings) == 1
        assert text in strings[0]

    def test_the_longest_argument(self) -> None:
        """The longest argument of the kernel is accepted."""
        check_spec(replace(GOOD, command=("a", "b" * ((128 << 10) - 1))))


class TestEnvironmentAndLabels:
    """What programs and engines get as names and values."""

    @pytest.mark.parametrize(
        ("env", "text"),
        [
            ({"": "a"}, "'' is not a name"),
            ({"A=B": "a"}, "'A=B' is not a name"),
            ({"A\0": "a"}, "is not a name"),
            ({"A": "a\0b"}, "the value of 'A' contains NUL"),
            ({"A": "a" * (128 << 10)}, "'A' has more than"),
            ({f"A{number}": "a" * 100_000 for number in range(11)}, "all together"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_variables(self, env: dict[str, str], text: str) -> None:
        """Names without `=`, nothing with NUL, and not more than a kernel takes."""
        kind, strings = problems(env=env)
        assert kind is InvalidRequestError
        assert len(strings) == 1
        assert strings[0].startswith("env: ")
        assert text in strings[0]

    @pytest.mark.parametrize(
        "labels",
        [
            {"": "a"},
            {"a=b": "c"},
            {"a": "b\n"},
            {"a": "b" * 1024},
            {"a" * 1025: ""},
            {str(number): "" for number in range(65)},
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_labels(self, labels: dict[str, str]) -> None:
        """Labels are few, short and plain."""
        kind, strings = problems(labels=labels)
        assert kind is InvalidRequestError
        assert [text.partition(":")[0] for text in strings] == ["labels"]


class TestSecurity:
    """What a container may do."""

    @pytest.mark.parametrize("profile", ["dev", "standard", "hardened"])
    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"privileged": True}, "privileged"),
            ({"network": "host"}, "the host's network is not allowed"),
            ({"user": "0"}, "root as the user"),
            ({"user": "00:65534"}, "root as the user"),
            ({"user": "root"}, "root as the user"),
            ({"user": "root:nogroup"}, "root as the user"),
            ({"user": "65534:0"}, "root as the group"),
            ({"user": "65534:root"}, "root as the group"),
        ],
        ids=str,
    )
    def test_what_nobody_may(self, profile: str, changes: dict[str, Any], text: str) -> None:
        """Refuses it under all profiles."""
        kind, strings = problems(profile=profile, security=Security(**changes))
        assert kind is SandboxDeniedError
        assert len(strings) == 1
        assert strings[0].startswith("security: ")
        assert text in strings[0]

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"network": "bridge"}, "'bridge' is for the profile dev only"),
            ({"seccomp": "unconfined"}, "seccomp filter"),
            ({"read_only_root": False}, "root that can be written"),
            ({"no_new_privileges": False}, "no_new_privileges"),
            ({"keep_capabilities": ("CAP_SYS_ADMIN",)}, "CAP_SYS_ADMIN"),
        ],
        ids=str,
    )
    def test_what_is_for_development(self, changes: dict[str, Any], text: str) -> None:
        """Refuses it under each profile but `dev`; an unknown one is not `dev`."""
        for profile in ("standard", "hardened", "other"):
            kind, strings = problems(profile=profile, security=Security(**changes))
            assert kind is SandboxDeniedError
            assert sum(text in each for each in strings) == 1
        assert problems(profile="dev", security=Security(**changes)) == (None, [])

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"network": "container:abc"}, "unknown network"),
            ({"network": ""}, "unknown network"),
            ({"user": ""}, "no user"),
            ({"user": "-1"}, "no user"),
            ({"user": "65534:65534:1"}, "no user"),
            ({"user": "a b"}, "no user"),
            ({"user": "4294967295"}, "not a number of a user"),
            ({"seccomp": ""}, "seccomp must be"),
            ({"seccomp": "a\0"}, "seccomp must be"),
            ({"keep_capabilities": ("ALL",)}, "unknown capabilities 'ALL'"),
        ],
        ids=str,
    )
    def test_what_makes_no_sense(self, changes: dict[str, Any], text: str) -> None:
        """Invalid settings are an InvalidRequestError, even for development."""
        kind, strings = problems(profile="dev", security=Security(**changes))
        assert kind is InvalidRequestError
        assert len(strings) == 1
        assert text in strings[0]


@pytest.mark.parametrize("name", ["memory_bytes", "pids", "disk_bytes", "open_files", "cpus"])
@pytest.mark.parametrize("value", [-1, True, "5", None])
def test_resources(name: str, value: Any) -> None:
    """Bounds are numbers that are not negative."""
    kind, strings = problems(resources=Resources(**{name: value}))
    assert kind is InvalidRequestError
    assert len(strings) == 1
    assert strings[0].startswith(f"resources: {name} must be")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5])
def test_a_rate_is_finite(value: float) -> None:
    """Neither infinity nor no number is a number of processors."""
    assert problems(resources=Resources(cpus=value))[0] is InvalidRequestError
    assert problems(resources=Resources(memory_bytes=1.5))[0] is InvalidRequestError  # type: ignore[arg-type]


class TestMounts:
    """What of the host a container may see, and where."""

    @pytest.mark.parametrize(
        "source",
        [
            "/",
            "/proc",
            "/proc/1/root",
            "/sys",
            "/dev",
            "/dev/sda",
            "/etc",
            "/etc/shadow",
            "/root",
            str(Path("/root", ".ssh")),
            "/home",
            "/home/me",
            "/run",
            "/run/user/1000",
            "/var",
            "/var/run",
            "/var/run/docker.sock",
            "/var/lib",
            "/var/lib/docker/volumes",
            "/boot",
            "/run/docker.sock",
            "/srv/docker.sock",
            "/srv/podman.sock",
            "/srv/containerd.sock.ttrpc",
            "/srv/docker.sock/x",
        ],
    )
    @pytest.mark.parametrize("profile", ["dev", "standard"])
    def test_sources_that_give_the_host_away(self, source: str, profile: str) -> None:
        """Directories of the system, whatever is in or around them, homes, and the sockets of engines; read-only or not."""
        mount = Mount(type="bind", source=source, target="/data", read_only=True)
        kind, strings = problems(profile=profile, mounts=(mount,))
        assert kind is SandboxDeniedError
        assert len(strings) == 1
        assert strings[0].startswith("mount[0]: ")
        assert source in strings[0]

    def test_a_link_to_them(self, harmless: Path) -> None:
        """A symbolic link is what it points to."""
        link = harmless / "link"
        os.symlink("/etc", link)
        good = Mount(type="bind", source=str(harmless), target="/data")
        assert problems(mounts=(good,)) == (None, [])
        bad = Mount(type="bind", source=str(link), target="/data")
        assert problems(mounts=(bad,))[0] is SandboxDeniedError

    def test_a_link_that_leads_nowhere(self, harmless: Path) -> None:
        """A circle of links is what it is called: the engine will find nothing there."""
        os.symlink("loop", harmless / "loop")
        mount = Mount(type="bind", source=str(harmless / "loop"), target="/data")
        assert problems(mounts=(mount,)) == (None, [])

    @pytest.mark.parametrize("source", ["/etcetera", "/srv/my-docker.sock.txt", "/home/me/project", "/procfs"])
    def test_names_that_only_look_like_them(self, source: str) -> None:
        """Lookalikes are fine."""
        assert problems(mounts=(Mount(type="bind", source=source, target="/data"),)) == (None, [])

    @pytest.mark.parametrize("target", ["/proc", "/proc/self", "/sys/fs/cgroup", "/dev", "/dev/null", "/dev/shm/x"])
    def test_targets_of_the_engine(self, target: str) -> None:
        """Mounts of the engine itself cannot be covered; `/dev/shm` can, with a tmpfs only."""
        mount = Mount(type="tmpfs", target=target, size_bytes=1)
        assert problems(mounts=(mount,))[0] is SandboxDeniedError
        shared = Mount(type="bind", source="/srv", target="/dev/shm")
        assert problems(mounts=(shared,))[0] is SandboxDeniedError

    @pytest.mark.parametrize(
        ("mount", "text"),
        [
            (Mount(type="tmpfs", target="", size_bytes=1), "a target is required"),
            (Mount(type="tmpfs", target="work", size_bytes=1), "plain absolute path"),
            (Mount(type="tmpfs", target="/", size_bytes=1), "plain absolute path"),
            (Mount(type="tmpfs", target="/a/../b", size_bytes=1), "plain absolute path"),
            (Mount(type="tmpfs", target="/a/", size_bytes=1), "plain absolute path"),
            (Mount(type="tmpfs", target="//a", size_bytes=1), "plain absolute path"),
            (Mount(type="tmpfs", target="/a:rw", size_bytes=1), "plain absolute path"),
            (Mount(type="tmpfs", target="/a,size=1", size_bytes=1), "plain absolute path"),
            (Mount(type="tmpfs", target="/a\n", size_bytes=1), "plain absolute path"),
            (Mount(type="tmpfs", target="/a"), "needs a size"),
            (Mount(type="tmpfs", target="/a", size_bytes=-1), "needs a size"),
            (Mount(type="tmpfs", target="/a", size_bytes=1, source="/b"), "has no source"),
            (Mount(type="bind", target="/a"), "a source is required for a bind"),
            (Mount(type="bind", target="/a", source="b"), "plain absolute path"),
            (Mount(type="bind", target="/a", source="/b/../etc"), "plain absolute path"),
            (Mount(type="bind", target="/a", source="/b", size_bytes=1), "only a tmpfs has a size"),
            (Mount(type="volume", target="/a"), "a source is required for a volume"),
            (Mount(type="volume", target="/a", source="/etc"), "not a name of a volume"),
            (Mount(type="nfs", target="/a"), "unknown type 'nfs'"),  # type: ignore[arg-type]
        ],
        ids=str,
    )
    def test_what_makes_no_sense(self, mount: Mount, text: str) -> None:
        """An invalid mount is an InvalidRequestError that counts the mounts from 0."""
        kind, strings = problems(mounts=(Mount(type="tmpfs", target="/first", size_bytes=1), mount))
        assert kind is InvalidRequestError
        assert len(strings) == 1
        assert strings[0].startswith("mount[1]: ")
        assert text in strings[0]

    def test_one_place_for_two(self) -> None:
        """Nothing is mounted over something else."""
        mount = Mount(type="tmpfs", target="/a", size_bytes=1)
        assert "something else is mounted" in problems(mounts=(mount, mount))[1][0]


def test_all_that_is_wrong_is_said() -> None:
    """One denial makes a SandboxDeniedError of it; the message has the first of them, the details everything."""
    spec = ContainerSpec(
        image="",
        command=(),
        security=Security(privileged=True, user="root"),
        resources=Resources(pids=-1),
        mounts=(Mount(type="bind", source="/etc", target=""),),
    )
    with pytest.raises(SandboxDeniedError) as found:
        check_spec(spec)
    assert str(found.value) == (
        "this container is refused: security: a privileged container is not a sandbox (and 6 more)"
    )
    assert found.value.details["problems"] == [
        "an image is required",
        "a command is required",
        "security: a privileged container is not a sandbox",
        "security: root as the user is not allowed",
        "resources: pids must be 0 (no bound) or more, not -1",
        "mount[0]: a target is required",
        "mount[0]: /etc belongs to the host, and is not for containers",
    ]

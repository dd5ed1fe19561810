"""Which filter of system calls a daemon is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolexec.containers import default_profile, oci_seccomp, read_profile
from toolexec.errors import SandboxUnavailableError
from toolexec_containers.docker.filters import seccomp_option

INFO: dict[str, Any] = {"Architecture": "x86_64", "SecurityOptions": ["name=seccomp,profile=builtin"]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own."""
    monkeypatch.setenv("TOOLEXEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_docker_gets_the_text_of_our_profile() -> None:
    """For the processor of the daemon, which may be on another machine."""
    text = seccomp_option("default", INFO | {"Architecture": "aarch64"}, podman=False, local=False)
    assert json.loads(text) == oci_seccomp(default_profile(), "aarch64")


def test_podman_gets_the_path_of_our_profile(cache: Path) -> None:
    """The file is written once, and again where it was damaged."""
    info = INFO | {"Architecture": "amd64"}
    path = Path(seccomp_option("default", info, podman=True, local=True))
    assert path.parent == cache / "seccomp"
    assert read_profile(path, "x86_64") == default_profile()
    path.write_text("{}")
    assert seccomp_option("default", info, podman=True, local=True) == str(path)
    assert read_profile(path, "x86_64") == default_profile()


@pytest.mark.parametrize(
    ("info", "podman", "local"),
    [
        ({"Architecture": "x86_64", "SecurityOptions": ["name=apparmor"]}, False, True),
        ({"Architecture": "x86_64", "SecurityOptions": None}, False, True),
        (INFO | {"Architecture": "riscv64"}, False, True),
        (INFO, True, False),
    ],
    ids=["no-filters", "no-options", "other-processor", "podman-elsewhere"],
)
def test_the_filter_of_the_daemon_stays_where_ours_cannot_be_used(
    info: dict[str, Any], podman: bool, local: bool
) -> None:
    """A container without a filter would be worse, and one that cannot start of no use."""
    assert seccomp_option("default", info, podman=podman, local=local) == ""


def test_the_profile_of_a_user(tmp_path: Path) -> None:
    """Docker gets its text, and Podman its path."""
    file = tmp_path / "own.json"
    file.write_text('{ "defaultAction": "SCMP_ACT_ALLOW" }')
    assert seccomp_option(str(file), INFO, podman=False, local=True) == '{"defaultAction":"SCMP_ACT_ALLOW"}'
    assert seccomp_option(str(file), INFO, podman=True, local=True) == str(file)
    assert seccomp_option("unconfined", INFO, podman=False, local=True) == "unconfined"
    file.write_text("{")
    with pytest.raises(SandboxUnavailableError, match=r"own\.json cannot be read"):
        seccomp_option(str(file), INFO, podman=False, local=True)

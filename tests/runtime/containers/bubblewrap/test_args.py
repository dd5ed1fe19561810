"""What bubblewrap is told and what it says: arguments from specifications, explanations from its words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from tests.engines.bubblewrap import make_spec

from toolexec.runtime.containers.bubblewrap.args import bwrap_args, masked_files, root_args
from toolexec.runtime.containers.bubblewrap.checks import why_not, why_old


@pytest.mark.parametrize(
    ("said", "reason", "remedy"),
    [
        (
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user",
            "user namespaces",
            "allow this user",
        ),
        ("bwrap: Creating new namespace failed: Operation not permitted", "user namespaces", "allow this user"),
        ("bwrap: setting up uid map: Permission denied", "user namespaces", "allow this user"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "user namespaces", "allow this user"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "/proc", "systempaths=unconfined"),
        ("bwrap: Can't find source path /r: Permission denied", "/r of the image host cannot be reached", "readable"),
        ("bwrap: execvp python3: No such file or directory", "no python3 below /usr", "apt-get install python3"),
        ("bwrap: prctl(PR_SET_SECCOMP): Invalid argument", "filter of system calls", ""),
        ("Traceback: oh", "and ended with 1: Traceback: oh", ""),
    ],
)
def test_what_bubblewrap_says_is_explained(tmp_path: Path, said: str, reason: str, remedy: str) -> None:
    """By the words that it really uses."""
    found = why_not(said, 1, "host", tmp_path)
    assert not found.ok
    assert reason in found.reason
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("file", "remedy"),
    [
        (".dockerenv", "--security-opt seccomp=unconfined"),
        ("run/.containerenv", "--security-opt seccomp=unconfined"),
        ("proc/sys/kernel/unprivileged_userns_clone=0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("proc/sys/kernel/apparmor_restrict_unprivileged_userns=1", "AppArmor"),
        ("proc/sys/user/max_user_namespaces=0", "sysctl -w user.max_user_namespaces"),
    ],
)
def test_what_forbids_user_namespaces_is_found(tmp_path: Path, file: str, remedy: str) -> None:
    """In the settings of the kernel."""
    name, _, value = file.partition("=")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(f"{value}\n")
    found = why_not("bwrap: Creating new namespace failed: Operation not permitted", 1, "host", tmp_path)
    assert remedy in found.remedy


def test_an_old_version_is_refused() -> None:
    """As it cannot keep programs from making namespaces."""
    assert why_old("bubblewrap 0.8.0\n", "bwrap") is None
    assert why_old("bubblewrap 1.0\n", "bwrap") is None
    found = why_old("bubblewrap 0.4.1\n", "/usr/bin/bwrap")
    assert found is not None
    assert (found.version, "older than 0.8" in found.reason) == ("0.4.1", True)
    strange = why_old("what?", "/usr/bin/what")
    assert strange is not None
    assert strange.reason == "/usr/bin/what is no bwrap: what?"


def test_what_is_masked(tmp_path: Path) -> None:
    """Of what is there, what Docker hides; processes and links are not looked at."""
    for name in ("keys", "version", "1"):
        (tmp_path / name).write_text("")
    (tmp_path / "acpi").mkdir()
    (tmp_path / "self").symlink_to("1")
    assert masked_files(tmp_path) == ("/proc/acpi/", "/proc/keys")


def test_a_root_is_bound_as_it_is_or_entry_by_entry(tmp_path: Path) -> None:
    """The latter when something is missing; and a system that is not merged into /usr has directories, not links."""
    for name in ("proc", "dev", "usr", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "file").write_text("")
    spec = make_spec("1")
    work = [mount for mount in spec.mounts if mount.target == "/work"]
    args = bwrap_args(replace(spec, mounts=(*work,)), str(tmp_path), ())
    assert " ".join(args).count(f"--ro-bind {tmp_path} /") == 1
    (tmp_path / "work").rmdir()
    args = root_args(str(tmp_path), [PurePosixPath(work[0].target)])
    assert args == [
        "--symlink",
        "usr/bin",
        "/bin",
        "--ro-bind",
        f"{tmp_path}/file",
        "/file",
        "--ro-bind",
        f"{tmp_path}/usr",
        "/usr",
    ]

"""Jails of virtual machine monitors: users, files, commands, and what is removed of them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from packages.microvms.tests.engines.firecracker import what_is_left

from toolexec.containers import this_owner
from toolexec.errors import SandboxUnavailableError
from toolexec_microvms.jail import Jail, Jails, adopt_file, exit_code, open_inside

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="only root gives jails users of their own")


@pytest.fixture
def jails(tmp_path: Path) -> Jails:
    """Jails below a directory of the test."""
    return Jails(tmp_path / "jails")


def run(jail: Jail, *command: str) -> subprocess.CompletedProcess[str]:
    """Return what *command* does in *jail*, once it has become the user of it, as a jailed program does."""
    user = [f"--reuid={jail.uid}", f"--regid={jail.uid}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
    return as_root(jail, "setpriv", *user, "--no-new-privs", "--", *command)


def as_root(jail: Jail, *command: str) -> subprocess.CompletedProcess[str]:
    """Return what *command* does in *jail* as it is started."""
    environment = {"PATH": os.environ["PATH"]}
    return subprocess.run(jail.command(command), capture_output=True, text=True, env=environment, cwd=jail.directory)


@needs_root
class TestJails:
    def test_users_and_directories(self, jails: Jails) -> None:
        """Each jail has a user of its own, who alone may enter its directory."""
        one, other = jails.create(), jails.create()
        assert one.uid != other.uid
        assert all(uid in jails.users for uid in (one.uid, other.uid))
        for jail in (one, other):
            status = jail.directory.stat()
            assert (status.st_uid, status.st_mode & 0o777) == (jail.uid, 0o700)
        mine = run(one, "sh", "-c", f"id -u; ls -a .; ls ../{other.id} || echo no; ls .. || echo no")
        assert mine.stdout.splitlines() == [str(one.uid), ".", "..", "no", "no"]
        one.remove()
        other.remove()
        assert what_is_left(jails) == set()

    def test_all_users_are_taken(self, tmp_path: Path) -> None:
        """With no user left the error says that a retry may succeed, and one that is free again is used again."""
        jails = Jails(tmp_path / "jails", users=range(1_900_000_000, 1_900_000_002))
        taken = [jails.create(), jails.create()]
        with pytest.raises(SandboxUnavailableError, match="all 2 users are taken") as caught:
            jails.create()
        assert caught.value.retryable
        taken[0].remove()
        taken[0] = jails.create()
        for jail in taken:
            jail.remove()
        assert what_is_left(jails) == set()

    def test_rights(self, jails: Jails) -> None:
        """Programs in a jail have no right, no network and no other process in sight, and can gain none."""
        jail = jails.create()
        code = (
            "grep -E '^(CapEff|CapBnd|CapInh|NoNewPrivs|Groups)' /proc/self/status; tail -n +3 /proc/self/net/dev | wc -l;"
            "kill -0 1 2>&1 || echo refused"
        )
        done = run(jail, "sh", "-c", code)
        lines = [line.replace("\t", " ").strip() for line in done.stdout.splitlines()]
        none = "0" * 16
        assert lines[:5] == ["Groups:", f"CapInh: {none}", f"CapEff: {none}", f"CapBnd: {none}", "NoNewPrivs: 1"]
        assert lines[5] == "1"
        assert lines[-1] == "refused"
        jail.remove()

    def test_bounds(self, jails: Jails) -> None:
        """The control group bounds the processes of a jail."""
        jail = jails.create(pids=8)
        if jail.group is None:
            pytest.skip("no control groups can be made here")
        done = run(jail, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 5 & done; echo made")
        assert "made" not in done.stdout
        jail.remove()
        assert what_is_left(jails) == set()

    def test_files(self, jails: Jails, tmp_path: Path) -> None:
        """Files are readable in a jail, whatever their modes and file systems are, and nothing there can change them."""
        open_file, private = tmp_path / "open", tmp_path / "private"
        open_file.write_text("open")
        private.write_text("private")
        private.chmod(0o600)
        with Path("/dev/shm/toolexec-test-jail").open("w") as file:  # another file system
            file.write("elsewhere")
        elsewhere = Path(file.name)
        try:
            elsewhere.chmod(0o644)
            jail = jails.create()
            names = [path.name for path in (open_file, private, elsewhere)]
            for path in (open_file, private, elsewhere):
                jail.put(path.name, path)
            assert run(jail, "cat", *names).stdout == "openprivateelsewhere"
            for name in names:
                assert run(jail, "sh", "-c", f"echo x >> {name}").returncode != 0
            assert as_root(jail, "sh", "-c", f"echo x >> {names[2]}").returncode != 0
            jail.remove()
            assert (open_file.read_text(), elsewhere.read_text()) == ("open", "elsewhere")
        finally:
            elsewhere.unlink()
        assert what_is_left(jails) == set()

    def test_missing_file(self, jails: Jails, tmp_path: Path) -> None:
        """A file that is not there is named."""
        jail = jails.create()
        with pytest.raises(SandboxUnavailableError, match="nothing cannot be put into it"):
            jail.put("x", tmp_path / "nothing")
        jail.remove()

    def test_sweep(self, jails: Jails) -> None:
        """Everything that a dead owner has left is removed, complete or not; what belongs to the living stays."""
        jail = jails.create()
        with subprocess.Popen(["sleep", "1000"]) as dead:
            name = this_owner().replace(f"-{os.getpid()}-", f"-{dead.pid}-")
            orphan = f"{name.rpartition('-')[0]}-1-7"  # of the same number, started at another time
            dead.kill()
        left = jails.base / orphan
        left.mkdir()
        (left / "file").touch()
        (jails.base / "users" / "1").write_text(orphan)
        (jails.base / "users" / f".{orphan}").write_text(orphan)
        other = jails.base / "not-ours"
        other.mkdir()
        jails.sweep()
        assert not left.exists()
        assert {path.name for path in (jails.base / "users").iterdir()} == {str(jail.uid)}
        assert other.exists()
        assert jail.directory.exists()
        jail.remove()


class TestFiles:
    def test_links_are_not_followed(self, tmp_path: Path) -> None:
        """A link that a jail has put in the place of a socket or a file does not lead anywhere else."""
        secret = tmp_path / "secret"
        secret.write_text("secret")
        jail = tmp_path / "jail"
        jail.mkdir()
        (jail / "socket").symlink_to(secret)
        (jail / "file").symlink_to(secret)
        (jail / "pipe").touch()
        (jail / "two").write_text("x")
        (jail / "names").hardlink_to(jail / "two")
        for name in ("socket", "pipe"):
            with pytest.raises(OSError, match=r"[Ll]evels|should be"):
                open_inside(jail, name, stat.S_IFSOCK)
        for name in ("file", "two"):
            with pytest.raises(OSError, match=r"[Ll]evels|another name"):
                adopt_file(jail, name, tmp_path / "taken")
        assert not (tmp_path / "taken").exists()

    def test_taking_a_file(self, tmp_path: Path) -> None:
        """A file that is taken out of a jail is ours, and not to be written to."""
        (tmp_path / "file").write_text("content")
        adopt_file(tmp_path, "file", tmp_path / "taken")
        status = (tmp_path / "taken").stat()
        assert (status.st_uid, status.st_mode & 0o777) == (os.geteuid(), 0o444)
        assert not (tmp_path / "file").exists()


def test_exit_codes() -> None:
    """Both forms in which a kill shows are one; other codes stay."""
    assert exit_code(137, "") == -signal.SIGKILL
    assert exit_code(1, "unshare: sigprocmask unblock failed: Invalid argument") == -signal.SIGKILL
    assert [exit_code(code, "") for code in (0, 1, 148, -15)] == [0, 1, 148, -15]

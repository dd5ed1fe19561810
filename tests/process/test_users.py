"""Users that nothing else runs as, claimed by real processes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fcntl", reason="file locks are of Unix")

from toolexec.process import users
from toolexec.process.lock import try_lock
from toolexec.process.owner import this_owner
from toolexec.process.users import UserClaims

NUMBERS = range(1_900_000_000, 1_900_000_040)
TAKE = """
import sys
from pathlib import Path
from toolexec.process.users import UserClaims
claims = UserClaims(Path(sys.argv[1]), numbers=range(1_900_000_000, 1_900_000_040))
print(*[claims.take().number for _ in range(int(sys.argv[2]))], flush=True)
sys.stdin.read()
"""


def start(directory: Path, count: int) -> subprocess.Popen[str]:
    """A process that takes so many users and keeps them until its input ends."""
    command = [sys.executable, "-c", TAKE, str(directory), str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def taken(process: subprocess.Popen[str]) -> list[int]:
    """The users that a process has taken."""
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]


def test_processes_never_share_a_user(tmp_path: Path) -> None:
    """Four processes that take all the numbers at the same time get each of them once."""
    processes = [start(tmp_path / "users", 10) for _ in range(4)]
    try:
        numbers = [number for process in processes for number in taken(process)]
        assert sorted(numbers) == [*NUMBERS]
        with pytest.raises(OSError, match="all 40 users are taken") as caught:
            UserClaims(tmp_path / "users", numbers=NUMBERS).take()
        assert caught.value.errno == errno.EUSERS
    finally:
        for process in processes:
            process.communicate()


def test_the_users_of_a_killed_process_are_free_again(tmp_path: Path) -> None:
    """A claim outlives a killed owner only until numbers are scarce, or claims are swept."""
    with start(tmp_path / "users", 40) as process:
        assert len(taken(process)) == 40
        process.kill()
    claims = UserClaims(tmp_path / "users", numbers=NUMBERS)
    claim = claims.take()
    assert claim.number in NUMBERS
    assert [path.name for path in (tmp_path / "users").iterdir()] == [str(claim.number)]
    claim.release()
    claim.release()
    assert not any((tmp_path / "users").iterdir())


def dead_owner() -> str:
    """The name of a claim whose owner has ended."""
    return f"{this_owner().rpartition('-')[0]}-1-7"  # our number, started at another time


def test_what_a_claim_protects_keeps_its_user(tmp_path: Path) -> None:
    """While the files of a user are there, no other one becomes it."""
    kept = tmp_path / "files"
    kept.mkdir()
    claims = UserClaims(tmp_path / "users", numbers=NUMBERS)
    claim = claims.take(name=dead_owner(), protects=kept)
    claims.sweep()
    assert claim.path.exists()
    kept.rmdir()
    claims.sweep()
    assert not claim.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_that_something_runs_as_is_kept(tmp_path: Path) -> None:
    """A process that has outlived the owner of its claim keeps others from its user."""
    claims = UserClaims(tmp_path / "users", numbers=NUMBERS)
    claim = claims.take(name=dead_owner())
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=claim.number, group=claim.number) as left:
        claims.sweep()
        assert claim.path.exists()
        left.communicate()
    claims.sweep()
    assert not claim.path.exists()


def test_half_written_claims_are_removed(tmp_path: Path) -> None:
    """A claim without an owner is of a process that was killed while it made it."""
    claims = UserClaims(tmp_path / "users", numbers=NUMBERS)
    mine = claims.take()
    (tmp_path / "users" / "1900000050").touch()
    claims.sweep()
    assert [path.name for path in (tmp_path / "users").iterdir()] == [str(mine.number)]
    mine.release()


def test_nothing_is_made_by_a_sweep(tmp_path: Path) -> None:
    """A directory that is not there has no claims."""
    UserClaims(tmp_path / "users").sweep()
    assert not (tmp_path / "users").exists()


def test_claims_that_stay_locked_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped while it held them does not hold up all others for ever."""
    monkeypatch.setattr(users, "_PATIENCE", 0.0)
    claims = UserClaims(tmp_path, numbers=NUMBERS)
    held = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert try_lock(held)
        with pytest.raises(OSError, match="another process has kept it locked") as caught:
            claims.take()
    finally:
        os.close(held)
    assert caught.value.errno == errno.EAGAIN
    claims.take().release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
def test_claims_are_not_kept_where_others_could_take_them_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of another user is left as it is, and without a better one no number is given out."""
    monkeypatch.setenv("TOOLEXEC_CACHE", str(tmp_path / "cache"))
    planted = tmp_path / "users"
    planted.mkdir()
    os.chown(planted, 65534, 65534)
    claim = UserClaims(planted, numbers=NUMBERS).take()
    assert claim.path.parent == tmp_path / "cache" / "users"
    assert [*planted.iterdir()] == []
    os.chown(tmp_path / "cache" / "users", 65534, 65534)
    with pytest.raises(OSError, match="no directory for the claims") as caught:
        UserClaims(planted, numbers=NUMBERS).take()
    assert caught.value.errno == errno.EACCES

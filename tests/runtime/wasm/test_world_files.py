"""The guest's disk as Python sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toolexec.runtime.wasm.guest import InstanceSettings

Make = Callable[..., Any]


@pytest.mark.full
def test_files_go_in_are_changed_and_come_out(sandbox: Make) -> None:
    """With `csv`, `pathlib` and `zipfile` as programs use them."""
    one = sandbox(files={"in/data.csv": b"a,b\n1,2\n3,4\n"})
    code = """
        import csv, pathlib, zipfile
        rows = list(csv.DictReader(open('in/data.csv')))
        pathlib.Path('out').mkdir()
        pathlib.Path('out/sum.txt').write_text(str(sum(int(row['a']) for row in rows)))
        with zipfile.ZipFile('out/all.zip', 'w', zipfile.ZIP_DEFLATED) as archive:
            archive.write('in/data.csv')
        zipfile.ZipFile('out/all.zip').extractall('unpacked')
        pathlib.Path('out/all.zip').unlink()
        value = sorted(str(path) for path in pathlib.Path('.').rglob('*'))
    """
    assert one.run(code) == [
        "in", "in/data.csv", "out", "out/sum.txt", "unpacked", "unpacked/in", "unpacked/in/data.csv"
    ]  # fmt: skip
    assert one.instance.files.changed() == {"out/sum.txt": b"4", "unpacked/in/data.csv": b"a,b\n1,2\n3,4\n"}


def test_reading_and_writing_in_every_mode(sandbox: Make) -> None:
    """Append, update, seek, truncate, and content larger than one call carries."""
    code = """
        with open('a', 'w+b') as file:
            file.write(b'0123456789'); file.seek(2); file.write(b'ab'); file.truncate(6); file.seek(0)
            value = [file.read().decode()]
            file.seek(0, 2); file.write(b'zz')
        with open('a', 'a') as file: file.write('end')
        with open('a', 'r+') as file: file.seek(1); file.write('Q')
        value.append(open('a').read())
        open('a', 'w').close()
        value.append(os.path.getsize('a'))
        big = bytes(range(256)) * 2000
        with open('big', 'wb') as file: file.write(big)
        value.append(open('big', 'rb').read() == big)
        file = os.open('big', os.O_RDWR)
        os.pwrite(file, b'XY', 5)
        value += [os.pread(file, 4, 4).hex(), len(os.read(file, 300_000)) > 0]
        os.fsync(file)
    """
    assert sandbox().run(code) == ["01ab45", "0Qab45zzend", 0, True, "04585907", True]


def test_stat_and_listings(sandbox: Make) -> None:
    """Types, sizes, times, and directories as `os` tells them."""
    code = """
        import stat
        os.makedirs('d/e'); os.utime('f', (5, 7)); info = os.stat('f')
        value = [
            stat.S_ISREG(info.st_mode), info.st_size, info.st_mtime, os.path.isdir('d/e'), os.path.samefile('f', './f'),
            os.path.samefile('f', 'd'), sorted((e.name, e.is_dir()) for e in os.scandir('.')), os.listdir('d/e'),
            os.fstat(os.open('f', os.O_RDONLY)).st_size, list(os.walk('d')),
        ]
        os.utime('f'); value.append(os.stat('f').st_mtime > 1e9)
        file = open('f'); os.utime(file.fileno(), (1, 2)); value.append(os.stat('f').st_mtime)
    """
    assert sandbox(files={"f": b"abc"}).run(code) == [
        True, 3, 7, True, True, False, [["d", True], ["f", False]], [], 3, [["d", ["e"], []], ["d/e", [], []]], True, 2
    ]  # fmt: skip


def test_moving_and_deleting(sandbox: Make) -> None:
    """Rename, replace, remove, and whole trees; an open file outlives its name."""
    code = """
        import shutil, tempfile
        os.rename('a', 'b'); os.replace('b', 'c'); shutil.copytree('d', 'x'); shutil.rmtree('d')
        file = open('x/f', 'r+'); os.remove('x/f'); file.write('still'); file.seek(0)
        with tempfile.NamedTemporaryFile('w+') as temporary: temporary.write('t')
        with tempfile.TemporaryDirectory() as folder: open(f'{folder}/t', 'w').close()
        value = [file.read(), sorted(os.listdir('.')), os.listdir('x')]
    """
    one = sandbox(files={"a": b"1", "c": b"2", "d/f": b""})
    assert one.run(code) == ["still", ["c", "x"], []]
    assert one.instance.files.to_mapping() == {"c": b"1"}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("open('/etc/passwd')", "ENOENT"),
        ("open('../../etc/passwd')", "EPERM"),
        ("os.listdir('/')", "ENOENT"),
        ("os.listdir('/proc')", "ENOENT"),
        ("open('none')", "ENOENT"),
        ("open('f/x')", "ENOTDIR"),
        ("open('d', 'w')", "EISDIR"),
        ("os.listdir('f')", "ENOTDIR"),
        ("os.mkdir('d')", "EEXIST"),
        ("os.open('f', os.O_CREAT | os.O_EXCL | os.O_WRONLY)", "EEXIST"),
        ("os.rmdir('d')", "ENOTEMPTY"),
        ("os.rmdir('/workspace')", "EBUSY"),
        ("os.rename('f', '../f')", "EPERM"),
        ("os.symlink('f', 'l')", "EPERM"),
        ("os.link('f', 'l')", "EPERM"),
        ("os.readlink('f')", "EINVAL"),
        ("os.write(os.open('f', os.O_RDONLY), b'x')", "EBADF"),
        ("os.read(os.open('f', os.O_WRONLY), 1)", "EBADF"),
        ("os.read(os.open('d', os.O_RDONLY), 1)", "EISDIR"),
        ("os.truncate('f', 1 << 50)", "ENOSPC"),
        ("os.pwrite(os.open('f', os.O_WRONLY), b'x', 1 << 50)", "ENOSPC"),
        ("open('f', 'a', buffering=1).write('x' * 2000 + '\\n')", "ENOSPC"),
        ("os.write(os.open('f', os.O_WRONLY), b'x' * 2000)", "ENOSPC"),
        ("open('x' * 300, 'w')", "ENAMETOOLONG"),
        ("[open('f') for _ in range(5000)]", "EDQUOT"),
    ],
)
def test_what_cannot_be_is_an_oserror(sandbox: Make, code: str, error: str) -> None:
    """The program gets the errno that it would get elsewhere, and goes on."""
    one = sandbox(files={"f": b"abc", "d/g": b""}, disk_bytes=1000)
    guarded = f"""
        try: value = repr({code})
        except OSError as error: value = errno.errorcode.get(error.errno)
    """
    assert one.run(guarded) == error
    assert one.instance.files.to_mapping() == {"f": b"abc", "d/g": b""}


def test_the_number_of_files_is_bounded(sandbox: Make) -> None:
    """Many empty files are a way to fill a disk, too."""
    code = """
        try:
            for value in range(10_000): open(str(value), 'w').close()
        except OSError as error: value = [value, errno.errorcode[error.errno]]
    """
    assert sandbox().run(code) == [4096, "ENOSPC"]


def test_a_later_grant_brings_other_files(sandbox: Make) -> None:
    """The guest was used before: it sees the new files, and writes to them; an open file of before stays its own."""
    one = sandbox(files={"old": b"1"})
    one.run("kept = open('old', 'a'); sys.kept = kept")
    one.instance.prepare(InstanceSettings(files={"new": b"2"}), one.host, one.host.on_output)
    assert one.run("sys.kept.write('x'); sys.kept.flush(); value = os.listdir(); open('more', 'w').close()") == ["new"]
    assert one.instance.files.changed() == {"more": b""}

"""What a guest gives up by itself, and that it is really gone: for the program and for what that starts."""

from __future__ import annotations

import platform
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec.runtime.guest.box import drop as module

ALL = ("no_new_privileges", "landlock", "seccomp")
HEADERS = {
    1: (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), r"#define __NR_(\w+)\s+(\d+)"),
    2: (Path("/usr/include/asm-generic/unistd.h"), r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
}
known = pytest.mark.skipif(
    platform.machine() not in module._MACHINES, reason="no system call filter is known for this machine; use x86_64"
)

PROBES = """
import ctypes, os, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
found = {}
def probe(name, work):
    try:
        found[name] = work()
    except OSError as error:
        found[name] = error.errno
def call(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *map(ctypes.c_long, arguments))
    return ctypes.get_errno()
def write(path):
    with open(path, "a") as file:
        return file.write("x")
def tcp(name, port):
    with socket.socket() as one:
        getattr(one, name)(("127.0.0.1", port))
    return 0
status = open("/proc/self/status").read()
found["status"] = [line.split()[1] for line in status.splitlines() if line.startswith(("NoNewPrivs", "Seccomp:"))]
for path in ("a", "/tmp/a", "/dev/null", "/other/a"):
    probe(path, lambda: write(path))
os.mkdir("/tmp/d")
probe("move", lambda: os.rename("/tmp/a", "/tmp/d/a"))
probe("read", lambda: len(os.listdir("/usr")) > 0)
probe("run", lambda: os.system("echo hi > /dev/stderr"))
probe("shell", lambda: os.system("echo hi 2>/dev/null > /other/c"))
probe("bind", lambda: tcp("bind", 0))
probe("connect", lambda: tcp("connect", 9))
probe("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(("127.0.0.1", 0)))
probe("vsock", lambda: socket.socket(40) and 0)
probe("audit", lambda: socket.socket(16, socket.SOCK_RAW, 9) and 0)
probe("addresses", lambda: socket.socket(16, socket.SOCK_RAW, 0) and 0)
if os.uname().machine == "x86_64":
    found["unshare"] = call(272, 0x10000000)
    found["ptrace"] = call(101, 16, 99999, 0, 0)
    found["keyctl"] = call(250, 0, -3, 0)
    found["x32"] = call(0x40000000 + 39)
    found["clone3"] = call(435, 0, 0)
    found["ioctl"] = call(16, 0, 0x5412, 0)
    found["namespace"] = call(56, 0x10000000 | 0x20000, 0, 0, 0, 0)
found["limits"] = [resource.getrlimit(resource.RLIMIT_CORE)[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0]]
found["umask"] = os.umask(0)
found
"""


async def test_all_of_it_holds(box: Callable[..., Any]) -> None:
    """In a container that has none of it."""
    guest = await box("bwrap", drop=ALL)
    assert guest.talk.hello["undropped"] == []
    found = await guest.value(PROBES)
    assert found["status"] == ["1", "2"]
    assert [found[path] for path in ("a", "/tmp/a", "/dev/null", "/other/a")] == [1, 1, 1, 13]
    assert (found["move"], found["read"], found["run"], found["shell"]) == (None, True, 0, 512)
    assert guest.output.text("stderr") == "hi\n"
    assert (found["bind"], found["connect"], found["udp"], found["vsock"]) == (13, 13, None, 1)
    assert (found["audit"], found["addresses"]) == (1, 0)
    assert (found["limits"], found["umask"]) == ([0, 1024], 0o77)
    for name in ("unshare", "ptrace", "keyctl", "x32", "ioctl", "namespace"):
        assert found.get(name, 1) == 1, name
    assert found.get("clone3", 38) == 38
    assert await guest.value("echo x > /other/d || tool return 13", "bash") == 13
    code = "require('fs').writeFileSync('/tmp/ok', 'x'); try { require('fs').writeFileSync('/other/e', 'x') } catch (e) { e.code }"
    assert (
        await guest.value(f"let found = ''; {code.replace('{ e.code }', '{ found = e.code }')}; found", "javascript")
        == "EACCES"
    )


async def test_nothing_is_given_up_unless_asked_for(box: Callable[..., Any]) -> None:
    """Unrestricted runs keep their rights, so that the test above proves something."""
    guest = await box("bwrap")
    found = await guest.value(PROBES.split("if os.uname")[0] + "\nfound")
    assert (found["/other/a"], found["shell"], found["bind"], found["connect"]) == (1, 0, 0, 111)
    assert found["status"][1] == "0"


@pytest.mark.parametrize("name", ALL)
async def test_each_of_it_alone(box: Callable[..., Any], name: str) -> None:
    """In a process that had more rights before."""
    guest = await box("loose", drop=(name,))
    assert guest.talk.hello["undropped"] == []
    code = "[l.split()[1] for l in open('/proc/self/status') if l.startswith(('NoNewPrivs', 'Seccomp:'))]"
    assert await guest.value(code) == ["1", "2" if name == "seccomp" else "0"]
    code = "import tempfile\nwith tempfile.TemporaryFile(dir='/var/tmp'): pass"
    ending = await guest.run(code)
    assert ("error" in ending.result) == (name == "landlock")


async def test_the_port_of_the_proxy_stays_open(box: Callable[..., Any]) -> None:
    """The port of the proxy stays open, and no other one; a guest without it has none."""
    guest = await box("bwrap", drop=("landlock",), proxy_port=3128)
    assert "proxy" in guest.talk.capabilities
    code = """
import socket
found = []
for port in (3128, 3129):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        found.append(0)
    except OSError as error:
        found.append(error.errno)
found
"""
    assert await guest.value(code) == [0, 13]


class Libc:
    """A system that refuses some things, or that does not do what it says."""

    def __init__(self, prctl: Callable[..., int], syscall: Callable[..., int]) -> None:
        self.prctl = prctl
        self.syscall = syscall


@pytest.mark.parametrize(
    ("prctl", "left"),
    [
        (lambda *_: -1, ["no_new_privileges", "landlock", "seccomp"]),
        (lambda *_: 0, ["no_new_privileges", "landlock", "seccomp"]),
        (lambda number, *_: 1 if number.value in (38, 39) else 0, ["landlock", "seccomp"]),
    ],
)
def test_what_cannot_be_given_up_is_told(monkeypatch: pytest.MonkeyPatch, prctl: Any, left: list[str]) -> None:
    """Each with its reason."""
    monkeypatch.setattr(module.ctypes, "CDLL", lambda *_, **__: Libc(prctl, lambda *_: -1))
    undropped = module.drop(["seccomp", "landlock", "no_new_privileges"], "/", 0)
    assert [text.partition(":")[0] for text in undropped] == left


def test_an_architecture_that_is_not_known_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter for another one would let everything through."""
    monkeypatch.setattr(module.ctypes, "CDLL", lambda *_, **__: Libc(lambda *_: 1, lambda *_: -1))
    monkeypatch.setattr(module.os, "uname", lambda: type("Names", (), {"machine": "riscv64"}))
    assert module.drop(["seccomp"], "/", 0) == ["seccomp: no filter is known for riscv64"]


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_landlock_asks_for_what_each_version_has(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """More would be refused."""
    asked: list[Any] = []

    def syscall(*arguments: Any) -> int:
        asked.append(arguments)
        if arguments[0].value != 444:
            return 0
        return version if arguments[3].value == 1 else module.os.open("/", 0)

    monkeypatch.setattr(module.ctypes, "CDLL", lambda *_, **__: Libc(lambda *_: 1, syscall))
    assert module.drop(["landlock"], "/", 5) == []
    fields = struct.unpack(f"={len(asked[1][1]) // 8}Q", asked[1][1])
    assert len(fields) == 1 + (version >= 4) + (version >= 6)
    assert bool(fields[0] & 1 << 14) == (version >= 3)
    assert any(arguments[0].value == 445 and arguments[2].value == 2 for arguments in asked) == (version >= 4)
    assert asked[-1][0].value == 446


@pytest.mark.parametrize("column", [1, 2])
def test_the_numbers_of_system_calls_are_right(column: int) -> None:
    """As the headers of this system have them, where it has any."""
    path, pattern = HEADERS[column]
    if not path.exists():
        pytest.skip(f"{path} is not here; `apt-get install linux-libc-dev` installs it")
    real = {found[1]: int(found[2]) for found in re.finditer(pattern, path.read_text())}
    rows = [row.split() for row in module._DENIED.split(",")]
    calls = next(calls for place, _, calls in module._MACHINES.values() if place == column)
    ours = {row[0]: int(row[column]) for row in rows if row[column] != "-"} | calls | {"clone3": module._CLONE3}
    assert {name: number for name, number in ours.items() if real.get(name, number) != number} == {}
    assert not [row[0] for row in rows if row[column] == "-" and row[0] in real]

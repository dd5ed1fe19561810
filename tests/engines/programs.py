"""Programs that tests start: what they need, their ports, their processes, and what they leave behind."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
from tests.tiers import missing


def require_program(name: str, package: str) -> str:
    """The path of a program that a test needs."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
    if found is None:
        missing(f"{name} is not installed", f"sudo apt-get install -y --no-install-recommends {package}")
    return found


def wait_until(happened: Any, seconds: float, what: str) -> None:
    """Wait for *happened* to be true."""
    ends = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > ends:
            raise TimeoutError(f"{what} in {seconds:g} s")
        time.sleep(0.05)


def unused_network() -> str:
    """Return the first three numbers of addresses that no interface of this machine has."""
    used = Path("/proc/net/fib_trie").read_text()
    numbers = [number for number in range(1, 255) if f"10.231.{number}." not in used]
    return f"10.231.{secrets.choice(numbers)}"


_FIRST_PORT: Final = 20_000
_PORTS: Final = 1_500
"""How many ports each worker chooses from: all are below those that the kernel gives to any program that asks."""


def free_port() -> int:
    """Return a port of the loopback without a listener, which no other program of these tests gets meanwhile."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
    first = _FIRST_PORT + worker * _PORTS
    for _ in range(_PORTS):
        port = first + secrets.randbelow(_PORTS)  # not `random`, which tests seed
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


def processes_of(directory: Path) -> list[psutil.Process]:
    """Those whose command line names something in *directory*."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if (
                process.pid != os.getpid()
                and any(f"{directory}/" in word for word in words)
                and not has_ended(process.pid)
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def has_ended(pid: int) -> bool:
    """Return whether it has ended; not every init notices that quickly."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def mounts_below(directory: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    return [target for line in lines if (target := line.split()[4]).startswith(f"{directory}/")]


def remove_cgroup(directory: Path) -> None:
    if directory.is_dir():
        for inner in [each for each in directory.iterdir() if each.is_dir()]:
            remove_cgroup(inner)
        try:
            directory.rmdir()
        except OSError as error:
            print(f"the control group {directory} cannot be removed: {error}")

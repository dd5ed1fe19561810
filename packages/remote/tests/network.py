"""A second network namespace, joined to this one by a wire that can delay packets, lose them, or be cut.

The wire is two TUN devices and a thread that carries packets from one to the other: what happens to them is real to the
TCP on both sides, and no kernel module is needed for it.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from contextlib import suppress
from itertools import count
from typing import Self

from tests.tiers import missing

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_MTU = 1500
_numbers = count(1)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _open_tun(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def _enter(namespace: str) -> None:
    """Move this thread into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    entry = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(entry, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(entry)


class Network:
    """The namespace and its wire; `with` makes and removes them. `there` is the address of the other side, and `here`
    that of this one as the other sees it.

    `delay` is in seconds, each way; `loss` the share of packets that are lost; `is_cut` loses all of them, without a
    word to either side.
    """

    def __init__(self) -> None:
        number = next(_numbers)
        self.name = f"tx{os.getpid()}n{number}"
        third = 64 + (os.getpid() * 7 + number) % 190
        self.here = f"10.213.{third}.1"
        self.there = f"10.213.{third}.2"
        self.delay = 0.0
        self.loss = 0.0
        self.is_cut = False
        self.carried = 0
        self._devices: list[int] = []
        self._thread: threading.Thread | None = None
        self._stop, self._stopping = os.pipe()

    def __enter__(self) -> Self:
        if os.geteuid() or not os.access("/dev/net/tun", os.W_OK):
            missing("network namespaces and TUN devices need root", "run the tests as root")
        _run("ip", "netns", "add", self.name)
        try:
            self._join()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _join(self) -> None:
        ours, theirs = f"{self.name}a"[-15:], f"{self.name}b"[-15:]
        self._devices.append(_open_tun(ours))

        def open_there() -> None:
            _enter(self.name)
            self._devices.append(_open_tun(theirs))

        opener = threading.Thread(target=open_there)
        opener.start()
        opener.join()
        _run("ip", "addr", "add", self.here, "peer", self.there, "dev", ours)
        _run("ip", "link", "set", ours, "up", "mtu", str(_MTU))
        inside = ("ip", "netns", "exec", self.name, "ip")
        _run(*inside, "addr", "add", self.there, "peer", self.here, "dev", theirs)
        _run(*inside, "link", "set", theirs, "up", "mtu", str(_MTU))
        _run(*inside, "link", "set", "lo", "up")
        self._thread = threading.Thread(target=self._carry, name="wire")
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        os.write(self._stopping, b"x")
        if self._thread is not None:
            self._thread.join()
        for device in (*self._devices, self._stop, self._stopping):
            os.close(device)
        _run("ip", "netns", "del", self.name)

    def inside(self, *command: str) -> list[str]:
        """Return a command line that runs *command* in the namespace."""
        return ["ip", "netns", "exec", self.name, *command]

    def _carry(self) -> None:
        """Carry packets until the end."""
        dice = random.Random(7)
        on_the_way: list[tuple[float, int, int, bytes]] = []
        order = count()
        first, second = self._devices
        while True:
            pause = max(0.0, on_the_way[0][0] - time.monotonic()) if on_the_way else None
            ready, _, _ = select.select([first, second, self._stop], [], [], pause)
            if self._stop in ready:
                return
            for device in ready:
                packet = os.read(device, _MTU + 64)
                if not self.is_cut and dice.random() >= self.loss:
                    target = second if device == first else first
                    heapq.heappush(on_the_way, (time.monotonic() + self.delay, next(order), target, packet))
            while on_the_way and on_the_way[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(on_the_way)
                if not self.is_cut:
                    self.carried += 1
                    with suppress(OSError):  # the queue of the device is full, or it is down: a loss like any other
                        os.write(target, packet)

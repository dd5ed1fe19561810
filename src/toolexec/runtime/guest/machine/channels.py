"""The two byte channels to the host: ports of a virtio console, or else connections over vsock."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

_PORTS = "/sys/class/virtio-ports"
_BUS = "/sys/bus/virtio/devices"
_CONSOLE = 0x0003
_NAMES = ("toolexec.control", "toolexec.stdio")
_VSOCK_PORTS = (1024, 1025)
_PATIENCE = 20.0
_PAUSE = 0.01


class Channels:
    """The channels of this machine.

    Ports are open from the beginning to the end. Over vsock the host connects, and connects again after a restore,
    which no connection survives: `listening` are the sockets for that.
    """

    def __init__(self, ports: tuple[int, int] | None, listening: tuple[Any, Any] | None) -> None:
        self.ports = ports
        self.listening = listening
        self._accepted: list[Any] = [None, None]

    def control(self) -> int | None:
        """Return the descriptor of the control channel; None until the host has connected."""
        return self._descriptor(0)

    def stdio(self, seconds: float) -> int | None:
        """Return the descriptor of the other channel; None if the host does not connect for that long."""
        if self.listening is not None:
            self.accept(1, seconds)
        return self._descriptor(1)

    def accept(self, which: int, seconds: float) -> None:
        """Take the host's latest connection, if there is one within *seconds*."""
        if self.listening is None:
            return
        listener = self.listening[which]
        while True:
            listener.settimeout(seconds if self._accepted[which] is None else 0.0)
            try:
                connection, _ = listener.accept()
            except OSError:  # there is none, or it is gone again
                return
            self.drop(which)
            connection.setblocking(True)
            self._accepted[which] = connection

    def drop(self, which: int) -> None:
        """Close a connection that is over; a port stays."""
        if self._accepted[which] is not None:
            self._accepted[which].close()
            self._accepted[which] = None

    def _descriptor(self, which: int) -> int | None:
        if self.ports is not None:
            return self.ports[which]
        return self._accepted[which].fileno() if self._accepted[which] is not None else None


def find_channels() -> Channels:
    """Return the channels of this machine; raises OSError when it has none."""
    if _has_console():
        return Channels(_open_ports(), None)
    listening: list[Any] = []
    for port in _VSOCK_PORTS:
        listener = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
        listener.bind((socket.VMADDR_CID_ANY, port))
        listener.listen(4)
        listening.append(listener)
    return Channels(None, (listening[0], listening[1]))


def _has_console() -> bool:
    for name in os.listdir(_BUS):
        with open(f"{_BUS}/{name}/device") as file:
            if int(file.read(), 16) == _CONSOLE:
                return True
    return False


def _open_ports() -> tuple[int, int]:
    """The ports; the kernel names them a moment after it has found the device."""
    ends = time.monotonic() + _PATIENCE
    while True:
        found: dict[str, str] = {}
        for name in os.listdir(_PORTS) if os.path.isdir(_PORTS) else ():
            try:
                with open(f"{_PORTS}/{name}/name") as file:
                    found[file.read().strip()] = name
            except OSError:  # it has no name, or none yet
                continue
        if all(name in found for name in _NAMES):
            control, stdio = (os.open(f"/dev/{found[name]}", os.O_RDWR | os.O_CLOEXEC) for name in _NAMES)
            return control, stdio
        if time.monotonic() > ends:
            raise OSError(f"the virtio console has no ports named {' and '.join(_NAMES)}")
        time.sleep(_PAUSE)

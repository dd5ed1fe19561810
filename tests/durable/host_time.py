"""A clock of the host that tests move: short pauses pass at once, long ones never end."""

from __future__ import annotations

import asyncio

import pytest

import toolexec.durable.clock as host_clock

LONG = 1000.0
"""Pauses of so many seconds or more do not end by themselves."""


class HostTime:
    """Stands for the time of the host in durable runs."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.paused: list[float] = []
        self.jumps: list[float] = []
        """By how many seconds the clock is set during each of the next pauses."""

    def time(self) -> float:
        """Return the time in seconds since 1970."""
        return self.now

    async def pause(self, seconds: float) -> None:
        """Let the time pass."""
        self.paused.append(seconds)
        if seconds >= LONG:
            await asyncio.get_running_loop().create_future()
        self.now += seconds + (self.jumps.pop(0) if self.jumps else 0.0)
        await asyncio.sleep(0)


def install(monkeypatch: pytest.MonkeyPatch) -> HostTime:
    """Return the time that durable runs have from now on."""
    made = HostTime()
    monkeypatch.setattr(host_clock, "now", made.time)
    monkeypatch.setattr(host_clock, "pause", made.pause)
    return made

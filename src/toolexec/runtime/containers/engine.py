"""What starts containers: the seam that each backend fills, and what it gives back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.process.stream import Stream
from toolexec.runtime.base import Availability
from toolexec.runtime.containers.spec import ContainerSpec

PROCESSES: Final = "processes"
"""What a guest gives up by itself (see `ContainerEngine.drops`) where its user is its own: more processes than the
limit says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a container ended.

    `code` is the exit code of its first process as the engine reports it (137, or -9, for a kill), None if unknown.
    `oom` says that the kernel killed something in it for its memory, `pids` that a process was refused for their
    number, where the engine can report it; with `oom_told` it can, so that a kill without `oom` was not for memory.
    `lost` is why the engine itself cannot be asked any more, or has taken the container away; `reason` is then a word
    for it, where the engine has one, and `retryable` says whether the same run may succeed later.
    """

    code: int | None = None
    oom: bool = False
    oom_told: bool = field(default=False, compare=False)
    pids: bool = False
    lost: str = ""
    reason: str = ""
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that is there: what the engine calls it, and the digest of its content ("" for one without)."""

    name: str
    reference: str
    digest: str = ""


class Container(Protocol):
    """A container that runs. Belongs to the event loop that it was started on."""

    @property
    def id(self) -> str:
        """What its engine calls it."""
        ...

    @property
    def stream(self) -> Stream:
        """Stdin and stdout of its first process."""
        ...

    def said(self) -> str:
        """Return the end (some thousand characters at most) of what it, and the runtime that made it, wrote to
        stderr.
        """
        ...

    async def wait(self) -> Exit:
        """Return how it ended, once it has; for any number of waiters. Never raises: a lost engine is in the answer."""
        ...

    async def cpu_seconds(self) -> float | None:
        """Return the CPU time that everything in it has used until now; None if that cannot be measured."""
        ...

    async def aclose(self) -> None:
        """Kill it, and remove everything that was made for it. Twice is fine; a cancellation waits until it is done.

        Does not raise: what cannot be removed, as the engine is gone perhaps, is logged, and left to `sweep`.
        """
        ...


@runtime_checkable
class Killable(Protocol):
    """A container that can be killed without asking an engine, and so whatever the event loop does."""

    def kill(self) -> None:
        """Kill what runs in it, at once; `aclose` is needed all the same. From any thread, and not after `aclose`."""
        ...


@runtime_checkable
class Booted(Protocol):
    """A container that has had the guest in it since before it was started, and does not read `boot_bytes`."""

    @property
    def booted(self) -> bool:
        """Whether it is so."""
        ...


class ContainerEngine(Protocol):
    """Starts containers. Safe for many at once; used by one event loop."""

    async def check(self) -> Availability:
        """Return whether it could start one here and now; asks the real thing. Never raises."""
        ...

    def enforces(self, limits: Limits) -> LimitsEnforced:
        """Return which of memory, cpu, cpus, pids and disk would hold, according to the last `check`."""
        ...

    @property
    def drops(self) -> tuple[str, ...]:
        """What a guest has to give up by itself, as nothing around it does (see `GuestSettings.drop`, and
        `PROCESSES`), according to the last `check`."""
        ...

    @property
    def left(self) -> Collection[str]:
        """The IDs of containers that were closed and could not be removed yet; `sweep` tries again."""
        ...

    async def resolve(self, image: str) -> Image:
        """Return the image of that name, fetched if the engine is configured to do so.

        Raises SandboxUnavailableError, with what to do about it, for one that cannot be had.
        """
        ...

    async def start(self, image: Image, spec: ContainerSpec) -> Container:
        """Return a running container, whose stdio is connected before its first process starts.

        Raises SandboxUnavailableError when it cannot be started. Cancelling leaves nothing behind.
        """
        ...

    async def sweep(self) -> None:
        """Remove what hosts that are dead have left behind (see `owner`), and what is in `left`.

        Logs what cannot be removed; never raises.
        """
        ...

    async def aclose(self) -> None:
        """Release the engine; its containers have been closed before."""
        ...

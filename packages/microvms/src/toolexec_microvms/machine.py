"""A virtual machine, and what runs it: the seam that QEMU and Firecracker fill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from toolexec.machines import Stream, VmFiles
from toolexec.sandbox import Availability

VmmName: TypeAlias = Literal["firecracker", "qemu"]
"""A virtual machine monitor: the program that a machine is a process of."""
OVERHEAD_BYTES: Final[Mapping[VmmName, int]] = {"firecracker": 128 << 20, "qemu": 320 << 20}
"""What a VMM may use beside the memory of its machine; QEMU's translated code and page tables are included."""
Accelerator: TypeAlias = Literal["kvm", "tcg"]
"""What runs the guest's instructions: the processor (`kvm`), or a translator in user space (`tcg`), which is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a machine is: `memory_mib` of RAM in all, and `cpus` virtual processors."""

    memory_mib: int
    cpus: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEnd:
    """How the process of a VMM ended: its exit code (negative for a signal; None if unknown), and whether the kernel of
    the host killed it for memory. A code of 0 does not mean that the guest did well.
    """

    code: int | None = None
    oom: bool = False


class Machine(Protocol):
    """A virtual machine that runs. Belongs to the event loop that it was started on."""

    @property
    def id(self) -> str:
        """What it is called on this host."""
        ...

    @property
    def control(self) -> Stream:
        """The channel to the first process of the guest, see `MachineControl`."""
        ...

    @property
    def stdio(self) -> Stream:
        """The channel that becomes stdin and stdout of the program in it."""
        ...

    def said(self) -> str:
        """Return the end (some thousand characters at most) of the guest's console, and of what its VMM wrote."""
        ...

    async def wait(self) -> MachineEnd:
        """Return how its VMM ended, once it has; for any number of waiters. Never raises."""
        ...

    async def cpu_seconds(self) -> float | None:
        """Return the CPU time of the host that it has used; None if that cannot be measured."""
        ...

    def kill(self) -> None:
        """Kill its VMM at once; from any thread, and not after `aclose`."""
        ...

    async def aclose(self) -> None:
        """Kill it and remove all that was made for it on the host. Twice is fine. Does not raise."""
        ...


class Vmm(Protocol):
    """Starts virtual machines. Safe for many at once; used by one event loop."""

    name: VmmName

    @property
    def version(self) -> str:
        """That of its program, after a `check`; snapshots of another one are not restored."""
        ...

    @property
    def accelerator(self) -> Accelerator:
        """What runs its guests here, after a `check`."""
        ...

    @property
    def snapshots(self) -> bool:
        """Whether it can save machines, and restore them."""
        ...

    async def check(self) -> Availability:
        """Return whether it could start a machine here; asks the real program. Never raises."""
        ...

    async def boot(self, files: VmFiles, shape: Shape, *, template: Path | None = None) -> Machine:
        """Return a machine that begins to boot; its guest says when it is ready.

        With *template*, a private empty directory, it is one to be saved there. Raises SandboxUnavailableError when it
        cannot be started. Cancelling leaves nothing behind.
        """
        ...

    async def save(self, machine: Machine, directory: Path) -> None:
        """Save a machine that was booted with the template *directory* into it; the machine is to be closed then.

        Raises SandboxUnavailableError, also for a full disk.
        """
        ...

    async def restore(self, files: VmFiles, shape: Shape, directory: Path) -> Machine:
        """Return a machine that goes on from what is in *directory*, which is not changed.

        Raises SandboxUnavailableError; with `corrupt` in its details when the saved state is of no use.
        """
        ...

    async def sweep(self) -> None:
        """Remove what dead processes have left behind; logs what cannot be removed; never raises."""
        ...

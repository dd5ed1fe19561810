"""A virtual machine as a container: the program in it, and what is known of its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from toolexec.containers import JSONDict
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import Stream
from toolexec.sandbox import BaseContainer, Exit
from toolexec_microvms.guest import MachineControl
from toolexec_microvms.machine import Accelerator, Machine, VmmName

_ANSWER_SECONDS = 1.0
_LAST_WORDS = 0.2


class MachineContainer(BaseContainer):
    """A machine whose program has begun; see `Container`, `Killable` and `Booted`.

    *restored_seconds* is how long its restore took, None if it has booted. *booted* says that the guest waits in it.
    """

    def __init__(
        self,
        machine: Machine,
        control: MachineControl,
        *,
        vmm: VmmName,
        accelerator: Accelerator,
        restored_seconds: float | None,
        booted: bool = True,
    ) -> None:
        super().__init__(machine.id)
        self.booted = booted
        self.machine = machine
        self._control = control
        self._vmm = vmm
        self._accelerator = accelerator
        self._restored = restored_seconds
        self._cpu: float | None = None
        self._ended = asyncio.create_task(self._end())

    @property
    def stream(self) -> Stream:
        """Stdin and stdout of its program."""
        return self.machine.stdio

    def details(self) -> JSONDict:
        """Return what a result says of it."""
        found: JSONDict = {
            "vmm": self._vmm,
            "accelerator": self._accelerator,
            "restored": self._restored is not None,
        }
        return found if self._restored is None else {**found, "restore_ms": round(self._restored * 1000, 1)}

    def said(self) -> str:
        """Implement `Container.said`: what the program said last; the console, where it said nothing."""
        end = self._control.end
        return end.said if end is not None and end.said.strip() else self.machine.said()

    async def wait(self) -> Exit:
        """Implement `Container.wait`."""
        return await asyncio.shield(self._ended)

    async def cpu_seconds(self) -> float | None:
        """Implement `Container.cpu_seconds`: what the kernel in the machine has counted, and where that does not
        answer, what the VMM has used."""
        if self._ended.done():
            return self._cpu
        found: float | None = None
        with suppress(SandboxUnavailableError, TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                found = await self._control.cpu_seconds()
        if found is None:
            found = await self.machine.cpu_seconds()
        self._cpu = found if found is not None else self._cpu
        return self._cpu

    def kill(self) -> None:
        """Implement `Killable.kill`."""
        self.machine.kill()

    async def _end(self) -> Exit:
        """Wait for the end of the program, of the machine, or of its good manners; the machine is dead after it."""
        control = self._control
        gone = asyncio.create_task(self.machine.wait())
        await asyncio.wait({gone, control.over}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and not control.over.done():  # its last message may still be read
            await asyncio.wait({control.over}, timeout=_LAST_WORDS)
        if control.end is None and not control.broken and not gone.done():
            # a closed channel is not yet an end; but that is near
            await asyncio.wait({gone}, timeout=_LAST_WORDS)
        self.machine.kill()
        host = await gone
        end, known = control.end, Exit(code=host.code, oom=host.oom, oom_told=True)
        if end is not None:
            code = end.code if end.signal is None else -end.signal
            return replace(known, code=code, oom=end.oom or host.oom, pids=end.pids)
        if host.oom:
            return known
        if control.broken:
            lost = f"the guest broke the protocol of its machine: {control.broken}"
            return replace(known, lost=lost, reason="hostile_guest")
        how = "" if host.code is None else f" (exit code {host.code})"
        return replace(known, lost=f"its virtual machine ended{how}", reason="machine_ended", retryable=True)

    async def _close(self) -> None:
        self.machine.kill()
        await self._ended
        await self._control.aclose()
        await self.machine.aclose()

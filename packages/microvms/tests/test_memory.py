"""How much memory of the host a machine asks for, and how much it leaves."""

from __future__ import annotations

import pytest

from toolexec.errors import ConfigurationError
from toolexec.machines import Resources, SandboxSettings, SizedEngine
from toolexec.sandbox import ContainerSpec
from toolexec_microvms import MicrovmBackend, MicrovmConfig
from toolexec_microvms.plugin import QEMU

MIB = 1 << 20


async def test_the_reserve_can_be_set() -> None:
    """The settings have it in MiB, for all machines."""
    read = QEMU.read
    assert read is not None
    settings = SandboxSettings(use=("qemu",), vm_memory_reserve=2048)
    engine = MicrovmBackend(read(settings)).engine
    assert isinstance(engine, SizedEngine)
    assert engine.memory_reserve == 2048 * MIB
    with pytest.raises(ConfigurationError, match="memory_reserve must be 0 or more"):
        MicrovmConfig(memory_reserve=-1)


async def test_machines_ask_for_all_that_they_may_take() -> None:
    """The program's memory, that of the system in the machine, and that of its VMM."""
    backend = MicrovmBackend(MicrovmConfig(vmm="qemu"))
    spec = ContainerSpec(image="x", command=(), resources=Resources(memory_bytes=512 * MIB))
    assert isinstance(backend.engine, SizedEngine)
    assert backend.engine.host_memory(spec) == (512 + 128 + 320) * MIB
    await backend.aclose()

"""The command line of QEMU: a machine with as little in it as there can be, and no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolexec.machines import VmFiles
from toolexec_microvms.machine import Accelerator, Shape

KERNEL_COMMAND: Final = "console=ttyS0 quiet loglevel=4 reboot=t panic=-1 random.trust_cpu=on"
"""The command line of the kernel: an end of the machine is an end of QEMU, whatever it came from."""
_MACHINE: Final = "q35,memory-backend=ram,sata=off,smbus=off,usb=off,vmport=off,graphics=off"
"""Not `microvm`: translated on a busy host, 9 of 12 of its boots waited for a first timer interrupt that never came."""
_TRANSLATED: Final = 128
"""How many MiB of translated code TCG keeps; without a bound it is up to a quarter of the host's memory."""
_PROCESSOR: Final = {"kvm": "host", "tcg": "max,pku=off,la57=off"}
"""Protection keys and a fifth level of page tables are much work for a translator, and of no use here."""
_TRANSLATED_KERNEL: Final = "mitigations=off rcupdate.rcu_expedited=1 init_on_alloc=0 no5lvl audit=0 lsm=landlock,yama"
"""Nothing speculates in software: without what keeps processors from it a machine boots in half the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptors:
    """What QEMU inherits, by number: its memory, the root file system, a socket for each channel, and one for the
    monitor (-1: none)."""

    ram: int
    root: int
    control: int
    stdio: int
    monitor: int = -1

    def all(self) -> tuple[int, ...]:
        """Return those that are there."""
        each = (self.ram, self.root, self.control, self.stdio, self.monitor)
        return tuple(number for number in each if number >= 0)


def qemu_command(
    program: str,
    files: VmFiles,
    shape: Shape,
    fds: Descriptors,
    *,
    accelerator: Accelerator,
    template: bool,
    restore: bool = False,
    confine: Sequence[str] = (),
) -> list[str]:
    """Return the command of a machine of *shape* that boots *files*, or goes on from a saved state with *restore*.

    A *template* shares its memory with us, so that it can be saved; others have a private copy, made page by page as
    they write. *confine* are options that take rights away. The console goes to stderr.
    """
    share = "on" if template else "off"
    accel = f"tcg,tb-size={_TRANSLATED}" + (",thread=multi" if shape.cpus > 1 else "")
    append = f"{KERNEL_COMMAND} {_TRANSLATED_KERNEL}" if accelerator == "tcg" else KERNEL_COMMAND
    return [
        program,
        *("-nodefaults", "-no-user-config", "-nographic", "-no-reboot"),
        *("-machine", _MACHINE),
        *("-accel", accel if accelerator == "tcg" else "kvm"),
        *("-cpu", _PROCESSOR[accelerator]),
        *("-smp", str(shape.cpus)),
        *("-m", f"{shape.memory_mib}M"),
        *(
            "-object",
            f"memory-backend-file,id=ram,size={shape.memory_mib}M,mem-path=/proc/self/fd/{fds.ram},share={share}",
        ),
        *("-kernel", str(files.kernel), "-initrd", str(files.initrd), "-append", append),
        *("-add-fd", f"fd={fds.root},set=1"),
        *("-blockdev", "driver=file,node-name=root,filename=/dev/fdset/1,read-only=on,locking=off"),
        *("-device", "virtio-blk-pci,drive=root"),
        *("-device", "virtio-rng-pci"),
        *("-device", "virtio-serial-pci,max_ports=3"),
        *("-chardev", f"socket,id=control,fd={fds.control}"),
        *("-device", "virtserialport,nr=1,chardev=control,name=toolexec.control"),
        *("-chardev", f"socket,id=stdio,fd={fds.stdio}"),
        *("-device", "virtserialport,nr=2,chardev=stdio,name=toolexec.stdio"),
        *("-chardev", "file,id=console,path=/dev/stderr"),
        *("-serial", "chardev:console"),
        *(("-chardev", f"socket,id=monitor,fd={fds.monitor}") if fds.monitor >= 0 else ()),
        *(("-mon", "chardev=monitor,mode=control") if fds.monitor >= 0 else ()),
        *(("-incoming", "defer") if restore else ()),
        *confine,
    ]

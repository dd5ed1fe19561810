"""What QEMU is started in: nothing of the host but what it runs from, no network and no other process.

Root has it become a user of its own in an empty directory, see `vmm`. Another user cannot: bubblewrap shows it `/usr`
and the files that it boots, read-only, and none of that user's own.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from toolexec.containers import HOSTNAME
from toolexec.machines import HOST, HOST_PATHS, VMM_NAMESPACES, VmFiles, root_args

logger: logging.Logger = logging.getLogger(__name__)
PROGRAMS: Final = "/usr/local/bin:/usr/bin:/bin"
_SCRIPT: Final = '"$@"; exit $?'
_KVM: Final = "/dev/kvm"

WallKind = Literal["user", "bubblewrap", "namespaces", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """What is around each QEMU, the program *program*.

    `kind` is `user` for root, which has it become one without files; `bubblewrap` for other users; `namespaces` where
    there is no bubblewrap: no network and no processes, but the files of who starts it; or `none`.
    """

    kind: WallKind
    program: str
    bwrap: str = ""

    def command(self, files: VmFiles | None = None) -> list[str]:
        """Return the words before a command that start it in these walls, with *files* to boot from."""
        match self.kind:
            case "bubblewrap":
                return self._bubblewrap(files)
            case "none":
                return []
            case "user" | "namespaces":
                return _namespaces(root=self.kind == "user")

    def _bubblewrap(self, files: VmFiles | None) -> list[str]:
        apart = [f"--unshare-{name}" for name in ("user", *VMM_NAMESPACES) if name != "mount"]  # it has one in any case
        words = [self.bwrap, *apart, "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        words += ["--hostname", HOSTNAME, *root_args(HOST, []), "--proc", "/proc", "--dev", "/dev"]
        words += ["--dev-bind-try", _KVM, _KVM]
        for path in [*_beside(Path(self.program)), *((files.kernel, files.initrd) if files is not None else ())]:
            words += ["--ro-bind-try", str(path), str(path)]
        return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"]


async def find_walls(program: str, ask: Callable[[list[str]], Awaitable[tuple[int, str]]]) -> Walls:
    """Return the best walls that this user can have around *program*. *ask* runs a command, and returns its exit code
    and what it said. Where they are less than those of bubblewrap, the log says why."""
    if os.geteuid() == 0:
        return Walls(kind="user", program=program)
    why = "bwrap is not on the PATH: apt-get install bubblewrap"
    bwrap = shutil.which("bwrap") or shutil.which("bwrap", path=PROGRAMS)
    if bwrap is not None:
        walls = Walls(kind="bubblewrap", program=program, bwrap=bwrap)
        code, said = await ask([*walls.command(), program, "--version"])
        if code == 0:
            return walls
        why = f"bwrap does not work: {said.strip()[-200:] or f'exit code {code}'}"
    walls = Walls(kind="namespaces", program=program)
    if (await ask([*walls.command(), "true"]))[0] == 0:
        logger.warning("machines of QEMU see the files of this user: %s", why)
        return walls
    logger.warning("machines of QEMU get no namespaces, as this user can make none, and see its files: %s", why)
    return Walls(kind="none", program=program)


def _beside(program: Path) -> Sequence[Path]:
    """Return what a program that is not below /usr needs: itself, and its libraries and firmware beside it."""
    found = program.resolve()
    if any(program.is_relative_to(shown) for shown in HOST_PATHS) and found.is_relative_to("/usr"):
        return ()
    prefix = found.parent.parent
    return (program, found, prefix / "lib", prefix / "share/qemu", prefix / "share/seabios")


def _namespaces(*, root: bool) -> list[str]:
    """Return what starts it apart from the host's network, processes and other resources; a shell is the first process
    of its namespace, as in a `Jail`. It sees no process but these: there is another /proc. Who is not *root* needs a
    namespace of users for that."""
    user = () if root else ("--user", "--map-current-user")
    apart = [*(f"--{name}" for name in VMM_NAMESPACES), "--mount-proc", "--fork", "--kill-child"]
    return ["unshare", *user, *apart, "--", "/bin/sh", "-c", _SCRIPT, "sh", "setpriv", "--no-new-privs", "--"]

"""What each machine is promised is what its monitor is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from toolexec.machines import VMM_NAMESPACES, UserClaim, VmFiles
from toolexec_microvms.jail import Jail
from toolexec_microvms.qemu.walls import Walls


def test_the_jail_of_a_machine_is_made_from_it(tmp_path: Path) -> None:
    """The monitor of a virtual machine has each of these namespaces of its own."""
    claim = UserClaim.__new__(UserClaim)
    command = Jail(id="j", directory=tmp_path, uid=1, claim=claim).command(["vmm"])
    assert [word.removeprefix("--") for word in command[1 : len(VMM_NAMESPACES) + 1]] == [*VMM_NAMESPACES]


@pytest.mark.parametrize(("kind", "user"), [("user", []), ("namespaces", ["user", "map-current-user"])])
def test_qemu_is_started_apart_by_it(kind: Literal["user", "namespaces"], user: list[str]) -> None:
    """QEMU has the same namespaces, with another /proc; an ordinary user makes them in one of users."""
    command = Walls(kind=kind, program="/usr/bin/qemu").command()
    apart = [word.removeprefix("--") for word in command[1 : command.index("--fork")]]
    assert apart == [*user, *VMM_NAMESPACES, "mount-proc"]
    assert command[-3:] == ["setpriv", "--no-new-privs", "--"]


def test_bubblewrap_starts_qemu_apart_by_it() -> None:
    """For an ordinary user, bubblewrap makes the same namespaces, shows /usr and what is booted, and nothing more."""
    files = VmFiles.in_directory(Path("/image"), "sha256:0")
    command = Walls(kind="bubblewrap", program="/usr/bin/qemu", bwrap="bwrap").command(files)
    apart = {word.removeprefix("--unshare-") for word in command if word.startswith("--unshare-")}
    assert apart == {"user", *VMM_NAMESPACES} - {"mount"}
    assert {"--disable-userns", "--die-with-parent", "--cap-drop"} < {*command}
    assert not {"--bind", "--bind-try", "--dev-bind"} & {*command}
    shown = {command[at + 1] for at, word in enumerate(command) if word in ("--ro-bind", "--ro-bind-try")}
    booted = {str(files.kernel), str(files.initrd)}
    assert booted < shown
    assert all(path.startswith(("/usr", "/lib", "/bin", "/sbin", "/etc/")) for path in shown - booted)
    own = Walls(kind="bubblewrap", program="/opt/q/bin/qemu", bwrap="bwrap").command()
    assert {"/opt/q/bin/qemu", "/opt/q/lib", "/opt/q/share/qemu"} < {*own}
    assert "/opt/q" not in own

"""What Proxmox VE has to allow us, and by which commands an administrator does that. Pure: no I/O, no clock.

What is needed is what `PVE/API2/LXC.pm` and `PVE/LXC.pm` of pve-container 5 and 6 (Proxmox VE 8 and 9) check:
VM.Clone on the template, VM.Allocate on the new number or on the pool, Datastore.AllocateSpace on each storage, SDN.Use
on each bridge (`/sdn/zones/localnetwork/BRIDGE`). How it adds up is in `PVE/RPCEnvironment.pm` of libpve-access-control
8: a token with privilege separation has what both the token and its user have; lists of a deeper path take the place of
those above it; those of a pool are added. So each command names the user and the token, and all that is needed there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

from toolexec.remote import ProxmoxSettings
from toolexec_remote.proxmox.failures import ProxmoxError, refusal

CLONE_PRIVILEGES: Final = ("VM.Audit", "VM.PowerMgmt", "VM.Allocate", "VM.Config.Options")
"""What is needed on a clone."""
_SAID: Final = re.compile(r"Permission check failed(?: \((?P<path>/[A-Za-z0-9._/-]*), (?P<names>[A-Za-z.|]+)\))?\s*")
_GUEST: Final = re.compile(r"/vms/(\d+)")


class MissingPrivilegeError(ProxmoxError):
    """The token, or its user, may not do something (403), with the reason `forbidden`.

    `path` is the path in Proxmox's access control where *privileges* are missing: all of them, or one of them where
    Proxmox leaves the choice. `commands` are those of `pveum`, for a shell of a node, that grant what is missing with
    all else that is needed there.
    """

    def __init__(self, message: str, *, path: str, privileges: Sequence[str], commands: Sequence[str]) -> None:
        super().__init__(message, reason="forbidden", status=403)
        self.path = path
        self.privileges = tuple(privileges)
        self.commands = tuple(commands)

    @property
    def more(self) -> dict[str, Any]:
        """What else the `details` of a run's error have: the `path`, the `privileges` and the `commands`."""
        return {"path": self.path, "privileges": [*self.privileges], "commands": [*self.commands]}


def missing(message: str, what: str, settings: ProxmoxSettings) -> ProxmoxError:
    """Return the error for a 403 with *message* to the request *what* (`POST /nodes/...`)."""
    found = _SAID.fullmatch(message)
    if found is None:
        return refusal(403, message, what)
    path, names = found["path"] or "", (found["names"] or "").split("|")
    if not path:
        if not what.endswith("/clone"):
            return refusal(403, message, what)
        path, names = clones_path(settings), ["VM.Allocate"]  # of a number or of a pool: Proxmox names neither
    return lacking(str(refusal(403, message, what)), path, names, settings, " or ")


def lacking(
    said: str, path: str, privileges: Sequence[str], settings: ProxmoxSettings, joined: str = ", "
) -> MissingPrivilegeError:
    """Return the error that *said* what went wrong, with what is missing and how that is granted."""
    who, how = settings.token_id or settings.username, commands(path, privileges, settings)
    both = ", or its user does: a token with privilege separation has only what both have" if settings.token_id else ""
    return MissingPrivilegeError(
        f"{said}; {who} lacks {joined.join(privileges)} on {path}{both}. To grant it: {' && '.join(how)}",
        path=path,
        privileges=privileges,
        commands=how,
    )


def clones_path(settings: ProxmoxSettings) -> str:
    """Return the path where rights on clones are given: that of their pool, or of all containers."""
    return f"/pool/{settings.pool}" if settings.pool else "/vms"


def commands(path: str, privileges: Sequence[str], settings: ProxmoxSettings) -> tuple[str, str]:
    """Return the commands that grant *privileges* on *path*, with all else that these settings need there."""
    guest = _GUEST.fullmatch(path)
    number = int(guest[1]) if guest else 0
    if number and number not in (settings.vmid, settings.template):
        path = clones_path(settings)  # the number of a clone is gone with it
    role, needed = _needed(path, number, settings)
    needed = (*needed, *(each for each in privileges if len(privileges) == 1 and each not in needed))
    user, separator, _ = settings.token_id.partition("!")
    who = f"--users {shlex.quote(user or settings.username)}"
    who += f" --tokens {shlex.quote(settings.token_id)}" if separator else ""
    return (
        f"pveum role add {role} --privs '{' '.join(needed or privileges)}'",
        f"pveum acl modify {shlex.quote(path)} {who} --roles {role}",
    )


def _needed(path: str, number: int, settings: ProxmoxSettings) -> tuple[str, tuple[str, ...]]:
    """Return the name of the role for *path*, and the privileges that these settings need there."""
    if path == clones_path(settings):
        return "ToolexecClones", CLONE_PRIVILEGES
    if number and number == settings.template:
        return "ToolexecTemplate", ("VM.Audit", "VM.Clone")
    if number:
        rollback = ("VM.Snapshot.Rollback",) if settings.rollback else ()
        return "ToolexecContainer", ("VM.Audit", "VM.PowerMgmt", *rollback)
    if path.startswith("/storage/"):
        return "ToolexecStorage", ("Datastore.AllocateSpace",)
    if path.startswith("/sdn/"):
        return "ToolexecNetwork", ("SDN.Use",)
    return "ToolexecMore", ()

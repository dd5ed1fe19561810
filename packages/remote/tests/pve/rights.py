"""Who may do what, as Proxmox VE derives it from users, groups, tokens, roles, pools and access control lists.

The rules are those of libpve-access-control 8.0 (Proxmox VE 8):

- `PVE/AccessControl.pm`, `roles`: the path is walked from `/` on. At each node the roles of the token count, else those
  of the user, else those of all its groups; what a deeper node has replaces what was above. Roles that do not propagate
  count at the end of the path only. NoAccess leaves no other role.
- `PVE/RPCEnvironment.pm`, `compile_acl_path`: a member of a pool has the roles on `/pool/NAME` besides, whether they
  propagate or not, unless NoAccess is on its own path; NoAccess on the pool leaves no other role. A separated token has
  what both its user and itself have.
- the same, `permissions`: `root@pam` has all; a token that is not separated has what its user has.
- the same, `check` and `check_any`, and `PVE/Exception.pm`, `raise_perm_exc`: the messages.
- `PVE/AccessControl.pm`, `remove_vm_access`: a guest that is removed takes its lists and its place in a pool along.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

ROOT: Final = "root@pam"
_NO_ACCESS: Final = "NoAccess"
_VM_ADMIN: Final = (
    "VM.Config.Disk VM.Config.CPU VM.Config.Memory VM.Config.Network VM.Config.HWType VM.Config.Options VM.Allocate "
    "VM.Clone VM.Migrate VM.Monitor VM.Snapshot VM.Snapshot.Rollback"
).split()
_VM_USER: Final = "VM.Config.CDROM VM.Config.Cloudinit VM.Console VM.Backup VM.PowerMgmt VM.Audit".split()
_REST: Final = (
    "Sys.PowerMgmt Sys.Modify Sys.Console Sys.Syslog Sys.Incoming Sys.AccessNetwork Sys.Audit Datastore.Allocate "
    "Datastore.AllocateTemplate Datastore.AllocateSpace Datastore.Audit SDN.Allocate SDN.Audit SDN.Use Realm.Allocate "
    "Realm.AllocateUser User.Modify Group.Allocate Permissions.Modify Pool.Allocate Pool.Audit Mapping.Modify "
    "Mapping.Use Mapping.Audit"
).split()
PRIVILEGES: Final = frozenset((*_VM_ADMIN, *_VM_USER, *_REST))
_ROLES: Final[Mapping[str, frozenset[str]]] = {
    _NO_ACCESS: frozenset(),
    "Administrator": PRIVILEGES,
    "PVEVMAdmin": frozenset((*_VM_ADMIN, *_VM_USER)),
    "PVEVMUser": frozenset(_VM_USER),
    "PVETemplateUser": frozenset(("VM.Clone", "VM.Audit")),
    "PVEDatastoreUser": frozenset(("Datastore.AllocateSpace", "Datastore.Audit")),
    "PVESDNUser": frozenset(("SDN.Use", "SDN.Audit")),
    "PVEAuditor": frozenset(each for each in PRIVILEGES if each.endswith(".Audit")),
}

Roles = dict[str, bool]
"""Roles, or privileges, with whether they propagate."""


class Denied(Exception):
    """A user may not do something; the message is that of Proxmox."""

    def __init__(self, what: str = "") -> None:
        super().__init__(f"Permission check failed ({what})" if what else "Permission check failed")


@dataclass
class Node:
    """The lists of one path: the roles of tokens, users and groups."""

    tokens: dict[str, Roles] = field(default_factory=dict[str, Roles])
    users: dict[str, Roles] = field(default_factory=dict[str, Roles])
    groups: dict[str, Roles] = field(default_factory=dict[str, Roles])


@dataclass
class Pool:
    """The members of a pool."""

    vms: set[int] = field(default_factory=set[int])
    storage: set[str] = field(default_factory=set[str])


class Rights:
    """What `user.cfg` has."""

    def __init__(self) -> None:
        self.users: set[str] = {ROOT}
        self.groups: dict[str, set[str]] = {}
        self.tokens: dict[str, bool] = {}
        """Whether each token is separated from its user."""
        self.roles: dict[str, frozenset[str]] = dict(_ROLES)
        self.pools: dict[str, Pool] = {}
        self.lists: defaultdict[str, Node] = defaultdict(Node)
        self.denied: set[str] = set()
        """Privileges that only root has, whatever the lists say: a switch of tests."""

    # -- questions ----------------------------------------------------------------------------------------------

    def privileges(self, who: str, path: str) -> Roles:
        """Return the privileges that a user or a token has on *path*."""
        if who == ROOT:
            return dict.fromkeys(PRIVILEGES, True)
        user, _, token = who.partition("!")
        if user not in self.users or (token and who not in self.tokens):
            return {}
        if token and not self.tokens[who]:
            return self.privileges(user, path)
        found: Roles = {}
        for role, propagates in self._all_roles(who, path).items():
            for each in self.roles.get(role, ()):
                found[each] = found.get(each, False) or propagates
        if token and user != ROOT:
            own = self.privileges(user, path)
            found = {each: propagates and own[each] for each, propagates in found.items() if each in own}
        return {each: propagates for each, propagates in found.items() if each not in self.denied}

    def has(self, who: str, path: str, *privileges: str) -> bool:
        """Return whether *who* has all of these."""
        held = self.privileges(who, path)
        return all(each in held for each in _known(privileges))

    def check(self, who: str, path: str, *privileges: str) -> None:
        """Raise Denied for the first of these that *who* has not."""
        for each in privileges:
            if not self.has(who, path, each):
                raise Denied(f"{path}, {each}")

    def check_any(self, who: str, path: str, *privileges: str) -> None:
        """Raise Denied unless *who* has one of these."""
        if not any(self.has(who, path, each) for each in privileges):
            raise Denied(f"{path}, {'|'.join(privileges)}")

    def _all_roles(self, who: str, path: str) -> Roles:
        roles = self._roles(who, path)
        for name, pool in self.pools.items():
            members = {f"/vms/{each}" for each in pool.vms} | {f"/storage/{each}" for each in pool.storage}
            if path not in members or _NO_ACCESS in roles:
                continue
            of_pool = self._roles(who, f"/pool/{name}")
            if _NO_ACCESS in of_pool:
                return {_NO_ACCESS: False}
            roles = {**dict.fromkeys(of_pool, False), **roles}
        return roles

    def _roles(self, who: str, path: str) -> Roles:
        roles: Roles = {}
        for at in _nodes(path):
            node = self.lists.get(at)
            if node is None:
                continue
            of_groups: Roles = {}
            for group, given in node.groups.items():
                if who in self.groups.get(group, ()):
                    of_groups |= _counting(given, final=at == path)
            for given in (node.tokens.get(who, {}), node.users.get(who, {}), of_groups):
                counting = _counting(given, final=at == path)
                if counting:
                    roles = counting
                    break
        return {_NO_ACCESS: roles[_NO_ACCESS]} if _NO_ACCESS in roles else roles

    # -- changes ------------------------------------------------------------------------------------------------

    def join(self, vmid: int, pool: str) -> None:
        """Make a guest a member of a pool."""
        self.pools[pool].vms.add(vmid)

    def forget(self, vmid: int) -> None:
        """Remove what is said about a guest that is removed."""
        self.lists.pop(f"/vms/{vmid}", None)
        for pool in self.pools.values():
            pool.vms.discard(vmid)


def _nodes(path: str) -> Iterable[str]:
    parts = [each for each in path.split("/") if each]
    yield "/"
    for end in range(1, len(parts) + 1):
        yield "/" + "/".join(parts[:end])


def _counting(given: Roles, *, final: bool) -> Roles:
    return {role: propagates for role, propagates in given.items() if final or propagates}


def _known(privileges: Iterable[str]) -> Iterable[str]:
    for each in privileges:
        assert each in PRIVILEGES, f"invalid privilege '{each}'"
        yield each

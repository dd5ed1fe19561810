"""The commands of `pveum` that set up who may do what, carried out on `Rights`.

Names, options, defaults and messages are those of libpve-access-control 8: `PVE/CLI/pveum.pm` (the commands and
their arguments), `PVE/API2/ACL.pm` (`update_acl`: a role per user, group and token, which propagates unless
`--propagate 0` is given), `PVE/API2/User.pm` (`generate_token`: tokens are separated unless `--privsep 0` is given),
`PVE/API2/Role.pm`, and of `PVE/API2/Pool.pm` in pve-manager 8. Pools may be nested since 8.0.7.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from packages.remote.tests.pve.rights import PRIVILEGES, Pool, Rights

_NAME: Final = r"[A-Za-z0-9.\-_]+"
_PATHS: Final = re.compile(
    rf"/|/(?:access|nodes|pool|sdn|storage|vms|mapping)|/access/(?:groups|realm)(?:/{_NAME})?|/nodes/{_NAME}"
    rf"|/pool/{_NAME}(?:/{_NAME}){{0,2}}|/sdn/zones(?:/{_NAME}){{0,2}}|/sdn/zones/{_NAME}/{_NAME}/[1-9][0-9]{{0,3}}"
    rf"|/storage/{_NAME}|/vms/[1-9][0-9]{{2,}}"
)
_USER: Final = re.compile(r"[^\s:/]+@[A-Za-z][A-Za-z0-9.\-_]*")
_ALIASES: Final[Mapping[str, str]] = {
    "useradd": "user add",
    "groupadd": "group add",
    "roleadd": "role add",
    "rolemod": "role modify",
    "aclmod": "acl modify",
    "acldel": "acl delete",
}
Options = dict[str, str]


class PveumError(Exception):
    """A command is refused; the message is that of Proxmox, or of its parser of arguments."""


def pveum(rights: Rights, line: str) -> None:
    """Carry out one command, `pveum` and its arguments in the syntax of a shell. Raises PveumError."""
    words = shlex.split(line)
    if not words or words.pop(0) != "pveum":
        raise PveumError(f"not a command of pveum: {line}")
    if words and words[0] in _ALIASES:
        words[:1] = _ALIASES[words[0]].split()
    for name, (arguments, options, run) in _COMMANDS.items():
        parts = name.split()
        if words[: len(parts)] == parts:
            given, rest = _parsed(words[len(parts) :], options)
            if len(rest) != arguments:
                raise PveumError(f"400 wrong number of arguments: {line}")
            run(rights, rest, given)
            return
    raise PveumError(f"ERROR: unknown command '{line}'")


def _parsed(words: Sequence[str], allowed: str) -> tuple[Options, list[str]]:
    given, rest, left = Options(), list[str](), list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            rest.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if name not in allowed.split():
            raise PveumError(f"Unknown option: {name}")
        if not equals and not left:
            raise PveumError(f"Option {name} requires an argument")
        given[name] = value if equals else left.pop(0)
    return given, rest


def _listed(text: str) -> list[str]:
    return [each for each in re.split(r"[,;\s]+", text) if each]


def _there(kind: str, name: str, of: Mapping[str, object] | set[str]) -> str:
    if name not in of:
        raise PveumError(f"{kind} '{name}' does not exist" if kind != "user" else f"no such user ('{name}')")
    return name


def _new(kind: str, name: str, of: Mapping[str, object] | set[str], pattern: str = _NAME) -> str:
    if not re.fullmatch(pattern, name):
        raise PveumError(f"{kind} name '{name}' contains invalid characters")
    if name in of:
        raise PveumError(f"{kind} '{name}' already exists")
    return name


def _privileges(text: str) -> frozenset[str]:
    for each in _listed(text):
        if each not in PRIVILEGES:
            raise PveumError(f"invalid privilege '{each}'")
    return frozenset(_listed(text))


def _user_add(rights: Rights, given: Sequence[str], options: Options) -> None:
    rights.users.add(_new("user", given[0], rights.users, _USER.pattern))
    _user_modify(rights, given, options)


def _user_modify(rights: Rights, given: Sequence[str], options: Options) -> None:
    for group in _listed(options.get("groups", "")):
        rights.groups[_there("group", group, rights.groups)].add(_there("user", given[0], rights.users))


def _token_add(rights: Rights, given: Sequence[str], options: Options) -> None:
    token = f"{_there('user', given[0], rights.users)}!{given[1]}"
    if token in rights.tokens:
        raise PveumError("Token already exists.")
    rights.tokens[token] = options.get("privsep", "1") == "1"


def _token_modify(rights: Rights, given: Sequence[str], options: Options) -> None:
    token = _there("token", f"{given[0]}!{given[1]}", rights.tokens)
    rights.tokens[token] = options.get("privsep", str(int(rights.tokens[token]))) == "1"


def _group_add(rights: Rights, given: Sequence[str], _: Options) -> None:
    rights.groups[_new("group", given[0], rights.groups)] = set()


def _role_add(rights: Rights, given: Sequence[str], options: Options) -> None:
    if given[0].startswith("PVE"):
        raise PveumError("cannot use role ID starting with the (case-insensitive) 'PVE' namespace")
    rights.roles[_new("role", given[0], rights.roles)] = _privileges(options.get("privs", ""))


def _role_modify(rights: Rights, given: Sequence[str], options: Options) -> None:
    before = rights.roles[_there("role", given[0], rights.roles)] if options.get("append") == "1" else frozenset()
    rights.roles[_there("role", given[0], rights.roles)] = before | _privileges(options.get("privs", ""))


def _acl(rights: Rights, given: Sequence[str], options: Options, *, remove: bool = False) -> None:
    path = "/" + "/".join(each for each in given[0].split("/") if each)
    if not remove and not _PATHS.fullmatch(path):
        raise PveumError(f"invalid ACL path '{given[0]}'")
    if "roles" not in options:
        raise PveumError("property is missing and it is not optional: roles")
    if not options.keys() & {"users", "groups", "tokens"}:
        raise PveumError("either 'users', 'groups' or 'tokens' is required.")
    node, propagates = rights.lists[path], options.get("propagate", "1") == "1"
    for role in _listed(options["roles"]):
        _there("role", role, rights.roles)
        for kind, known in (("groups", rights.groups), ("users", rights.users), ("tokens", rights.tokens)):
            for name in _listed(options.get(kind, "")):
                roles = getattr(node, kind).setdefault(_there(kind[:-1], name, known), {})
                if remove:
                    roles.pop(role, None)
                else:
                    roles[role] = propagates


def _acl_delete(rights: Rights, given: Sequence[str], options: Options) -> None:
    _acl(rights, given, options, remove=True)


def _pool_add(rights: Rights, given: Sequence[str], _: Options) -> None:
    rights.pools[_new("pool", given[0], rights.pools)] = Pool()


def _pool_modify(rights: Rights, given: Sequence[str], options: Options) -> None:
    pool = rights.pools[_there("pool", given[0], rights.pools)]
    removes = options.get("delete") == "1"
    for vmid in map(int, _listed(options.get("vms", ""))):
        holder = next((name for name, each in rights.pools.items() if vmid in each.vms), "")
        if not removes and holder:
            raise PveumError(f"VM {vmid} belongs already to pool '{holder}'")
        (pool.vms.discard if removes else pool.vms.add)(vmid)
    for storage in _listed(options.get("storage", "")):
        (pool.storage.discard if removes else pool.storage.add)(storage)


_COMMANDS: Final[Mapping[str, tuple[int, str, Callable[[Rights, Sequence[str], Options], None]]]] = {
    "user token add": (2, "privsep comment expire", _token_add),
    "user token modify": (2, "privsep comment expire", _token_modify),
    "user add": (1, "groups comment enable password", _user_add),
    "user modify": (1, "groups append comment enable", _user_modify),
    "group add": (1, "comment", _group_add),
    "role add": (1, "privs", _role_add),
    "role modify": (1, "privs append", _role_modify),
    "acl modify": (1, "users groups tokens roles propagate", _acl),
    "acl delete": (1, "users groups tokens roles propagate", _acl_delete),
    "pool add": (1, "comment", _pool_add),
    "pool modify": (1, "comment vms storage delete", _pool_modify),
}

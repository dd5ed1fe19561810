"""Which system calls a container may make: our own profile, and those of users in Docker's JSON format.

A profile is data here. `oci_seccomp` says it as an OCI runtime reads it, `bpf.compile_filter` as the kernel does.
"""

from __future__ import annotations

import errno
import json
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.runtime.containers.seccomp_calls import ALLOWED
from toolexec.runtime.contract import NEW_NAMESPACES, SOCKETS

Op: TypeAlias = Literal["eq", "ne", "lt", "le", "gt", "ge", "masked"]

_MAX_FILE: Final = 1 << 20
_MAX_RULES: Final = 2000
_WORD: Final = (1 << 64) - 1
_INT: Final = (1 << 32) - 1  # an `int` argument: the kernel does not look at the upper half of its register
_UNIX: Final = 1
_PERSONALITIES: Final = (0, 8, 0x20000, 0x20008, _INT)  # Linux, with 32 bits, with an old version; what it is now
_MACHINES: Final[Mapping[str, tuple[str, str]]] = {  # as the OCI and as Docker call them
    "x86_64": ("SCMP_ARCH_X86_64", "amd64"),
    "aarch64": ("SCMP_ARCH_AARCH64", "arm64"),
}
_ALIASES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_OPS: Final[Mapping[str, Op]] = {f"SCMP_CMP_{'MASKED_EQ' if op == 'masked' else op.upper()}": op for op in get_args(Op)}
_OP_NAMES: Final = {op: name for name, op in _OPS.items()}


@dataclass(frozen=True, slots=True)
class Action:
    """What becomes of a call. `errno` is the error that it fails with, for the kind `errno`."""

    kind: Literal["allow", "log", "errno", "trap", "kill_thread", "kill_process"]
    errno: int = 0


ALLOW: Final = Action("allow")
_NOT_PERMITTED: Final = Action("errno", errno.EPERM)
_NO_SUCH_CALL: Final = Action("errno", errno.ENOSYS)
_ACTIONS: Final[Mapping[str, Action]] = {
    "SCMP_ACT_ALLOW": ALLOW,
    "SCMP_ACT_LOG": Action("log"),
    "SCMP_ACT_TRAP": Action("trap"),
    "SCMP_ACT_KILL": Action("kill_thread"),
    "SCMP_ACT_KILL_THREAD": Action("kill_thread"),
    "SCMP_ACT_KILL_PROCESS": Action("kill_process"),
}
_ACTION_NAMES: Final = {action: name for name, action in _ACTIONS.items()}


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of the argument *index* (0 to 5) as a number of 64 bits; `masked` compares only the bits in *mask*."""

    index: int
    op: Op
    value: int
    mask: int = _WORD


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of the calls *names* when all conditions hold."""

    names: tuple[str, ...]
    action: Action
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """What becomes of each system call. The first rule that fits counts, and `default` where none does; a rule without
    conditions makes all others for its calls void, as in libseccomp."""

    default: Action
    rules: tuple[Rule, ...]

    def chains(self) -> dict[str, tuple[Rule, ...]]:
        """Return the rules for each call that has any, in order: only the first without conditions, if there is such a
        one.
        """
        found: dict[str, list[Rule]] = {}
        for rule in self.rules:
            for name in rule.names:
                found.setdefault(name, []).append(rule)
        final = {name: next((rule for rule in rules if not rule.when), None) for name, rules in found.items()}
        return {name: tuple(rules) if (rule := final[name]) is None else (rule,) for name, rules in found.items()}


@cache
def default_profile() -> Profile:
    """Return our own profile: what programs need in a container without capabilities, much like Docker's.

    Unlike there, io_uring and ptrace are refused, and sockets are of the Unix, IPv4 and IPv6 families only, or the
    netlink kind that lists addresses. `clone3` does not exist: its flags are out of a filter's sight, and programs
    then use `clone`, which makes no namespaces.
    """
    sockets = [
        *(
            Rule(("socket",), ALLOW, (_is(0, family), *(() if protocol is None else (_is(2, protocol),))))
            for family, protocol in SOCKETS
        ),
        Rule(("socketpair",), ALLOW, (_is(0, _UNIX),)),
    ]
    return Profile(
        _NOT_PERMITTED,
        (
            Rule(ALLOWED, ALLOW),
            *sockets,
            Rule(("clone",), ALLOW, (Condition(0, "masked", 0, NEW_NAMESPACES),)),
            Rule(("clone3",), _NO_SUCH_CALL),
            *(Rule(("personality",), ALLOW, (_is(0, value),)) for value in _PERSONALITIES),
        ),
    )


def seccomp_profile(setting: str, machine: str = "") -> Profile | None:
    """Return the profile that a `Security.seccomp` means: ours for "default", None for "unconfined", else that of a
    file.

    Reads the file. Raises ConfigurationError for one that is not a profile.
    """
    if setting == "unconfined":
        return None
    return default_profile() if setting == "default" else read_profile(Path(setting), machine)


def oci_seccomp(profile: Profile, machine: str = "") -> JSONDict:
    """Return *profile* as `linux.seccomp` of an OCI config.json, for *machine* (by default this one).

    Only its native system calls are named: a program for another architecture of the same processor (i386, x32) is
    killed at its first call. Docker takes it as a profile, too. Raises ConfigurationError for an unknown machine.
    """
    data: JSONDict = {
        **_action_data(profile.default, "defaultAction", "defaultErrnoRet"),
        "architectures": [_MACHINES[machine_name(machine)][0]],
        "syscalls": [],
    }
    for rule in profile.rules:
        item: JSONDict = {"names": [*rule.names], **_action_data(rule.action, "action", "errnoRet")}
        if rule.when:
            item["args"] = [_condition_data(condition) for condition in rule.when]
        data["syscalls"].append(item)
    return data


def machine_name(machine: str = "") -> str:
    """Return the name of *machine*, by default this one, as the kernel has it: `x86_64` or `aarch64`.

    Raises ConfigurationError for any other.
    """
    found = machine or platform.machine()
    found = _ALIASES.get(found, found)
    if found not in _MACHINES:
        raise ConfigurationError(
            f"there is no seccomp filter for the architecture {found}, only for {' and '.join(_MACHINES)}"
        )
    return found


@cache
def syscall_numbers(machine: str = "") -> Mapping[str, int]:
    """Return the system calls of *machine* (by default this one), name to number, as of Linux 6.17.

    Raises ConfigurationError for an unknown machine.
    """
    tables: dict[str, dict[str, int]] = json.loads(Path(__file__).with_name("syscalls.json").read_bytes())
    return tables[machine_name(machine)]


def read_profile(path: Path, machine: str = "") -> Profile:
    """Return the profile in a file of Docker's format, as it is for a container without capabilities on *machine* and
    this kernel. The architectures that it lists do not count: only native calls are allowed.

    Raises ConfigurationError for a file that cannot be read, is larger than 1 MiB or has another form, and for actions
    that need a listener (SCMP_ACT_NOTIFY, SCMP_ACT_TRACE).
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE + 1)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the seccomp profile {path} cannot be read: {error}") from error
    if len(text) > _MAX_FILE:
        raise ConfigurationError(f"the seccomp profile {path} has more than {_MAX_FILE} bytes")
    try:
        return _Reader(machine_name(machine)).profile(json.loads(text))
    except (_FormError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no seccomp profile in Docker's format: {error}") from error


class _FormError(Exception):
    """What is wrong, and where."""


class _Reader:
    """Reads a profile in Docker's format for one machine."""

    def __init__(self, machine: str) -> None:
        self._arch = _MACHINES[machine][1]
        self._kernel = _version(platform.release())

    def profile(self, data: JSONValue) -> Profile:
        data = _object(data, "the file")
        if data.get("listenerPath") or data.get("listenerMetadata"):
            raise _FormError("a listener is not supported")
        default = _action(data, "the file", "defaultAction", "defaultErrnoRet", errno.EPERM)
        items = data.get("syscalls")
        if not isinstance(items, list) or len(items) > _MAX_RULES:
            raise _FormError(f"syscalls must be a list of at most {_MAX_RULES} rules")
        return Profile(default, tuple(rule for number, item in enumerate(items) for rule in self._rules(number, item)))

    def _rules(self, number: int, data: JSONValue) -> Iterator[Rule]:
        """Yield the rules that one entry stands for; none if it is for other machines, kernels or capabilities."""
        where = f"syscalls[{number}]"
        item = _object(data, where)
        names: JSONValue = item.get("names") or [item.get("name")]
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise _FormError(f"{where} must have names, a list of strings")
        action = _action(item, where, "action", "errnoRet", errno.EPERM)
        args = item.get("args") or []
        if not isinstance(args, list) or len(args) > 6:
            raise _FormError(f"{where}.args must be a list of at most 6 conditions")
        when = tuple(_condition(arg, f"{where}.args[{place}]") for place, arg in enumerate(args))
        if not self._applies(item, where):
            return
        if len({condition.index for condition in when}) < len(when):  # then any of them is enough, as in runc
            yield from (Rule(tuple(names), action, (condition,)) for condition in when)
        else:
            yield Rule(tuple(names), action, when)

    def _applies(self, item: JSONObject, where: str) -> bool:
        includes = _object(item.get("includes") or {}, f"{where}.includes")
        excludes = _object(item.get("excludes") or {}, f"{where}.excludes")
        if includes.get("caps"):
            return False
        if includes.get("arches") and self._arch not in _strings(includes["arches"], f"{where}.includes.arches"):
            return False
        if excludes.get("arches") and self._arch in _strings(excludes["arches"], f"{where}.excludes.arches"):
            return False
        least, above = includes.get("minKernel"), excludes.get("minKernel")
        return (not least or self._kernel >= _version(least)) and (not above or self._kernel < _version(above))


def _is(index: int, value: int) -> Condition:
    return Condition(index, "masked", value, _INT)


def _action(data: JSONObject, where: str, name: str, errno_name: str, default_errno: int) -> Action:
    said = data.get(name)
    if said == "SCMP_ACT_ERRNO":
        number = data.get(errno_name)
        number = default_errno if number is None else number
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 4096:
            raise _FormError(f"{where}: {errno_name} must be a number from 0 to 4095")
        return Action("errno", number)
    if not isinstance(said, str) or said not in _ACTIONS:
        raise _FormError(f"{where}: {name} must be SCMP_ACT_ERRNO or one of {', '.join(_ACTIONS)}, not {said!r}")
    return _ACTIONS[said]


def _condition(data: JSONValue, where: str) -> Condition:
    item = _object(data, where)
    index, value, second, op = item.get("index", 0), item.get("value", 0), item.get("valueTwo", 0), item.get("op")
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in (index, value, second)):
        raise _FormError(f"{where}: index, value and valueTwo must be numbers")
    if not 0 <= index <= 5 or not 0 <= value <= _WORD or not 0 <= second <= _WORD:
        raise _FormError(f"{where}: index must be from 0 to 5, value and valueTwo must have at most 64 bits")
    if not isinstance(op, str) or op not in _OPS:
        raise _FormError(f"{where}: op must be one of {', '.join(_OPS)}, not {op!r}")
    if _OPS[op] == "masked":
        return Condition(index, "masked", second & value, value)
    return Condition(index, _OPS[op], value)


def _action_data(action: Action, name: str, errno_name: str) -> JSONDict:
    if action.kind == "errno":
        return {name: "SCMP_ACT_ERRNO", errno_name: action.errno}
    return {name: _ACTION_NAMES[action]}


def _condition_data(condition: Condition) -> JSONDict:
    data: JSONDict = {"index": condition.index, "value": condition.value, "op": _OP_NAMES[condition.op]}
    if condition.op == "masked":
        data |= {"value": condition.mask, "valueTwo": condition.value}
    return data


def _object(data: JSONValue, where: str) -> JSONDict:
    if not isinstance(data, dict):
        raise _FormError(f"{where} must be an object")
    return data


def _strings(data: JSONValue, where: str) -> list[str]:
    if not isinstance(data, list) or not all(isinstance(text, str) for text in data):
        raise _FormError(f"{where} must be a list of strings")
    return data


def _version(text: JSONValue) -> tuple[int, int]:
    """Return the first two numbers of a kernel's version."""
    found = re.match(r"(\d{1,5})\.(\d{1,5})", text) if isinstance(text, str) else None
    if found is None:
        raise _FormError(f"{text!r} is not a version of a kernel")
    return int(found[1]), int(found[2])

"""A seccomp profile as the program that the kernel runs at each system call (classic BPF), for engines that have no
compiler of their own: `bwrap --seccomp FD` reads just these bytes.

The program looks its call up in a tree of ranges of numbers; each leaf is an answer, or a chain of tests of
arguments. It is put together from pieces that end in an answer or run on into the next piece, so that every jump
goes forward over a piece whose length is known.
"""

from __future__ import annotations

import errno
import struct
import sys
from itertools import groupby
from typing import Final, NamedTuple

from toolexec.errors import ConfigurationError
from toolexec.runtime.containers.seccomp import (
    Action,
    Condition,
    Profile,
    Rule,
    machine_name,
    syscall_numbers,
)

MAX_INSTRUCTIONS: Final = 4096
"""The longest program that the kernel takes."""

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06  # a word of the call's data; with a constant; a constant
_JUMP, _IF_EQUAL, _IF_ABOVE, _IF_AT_LEAST = 0x05, 0x15, 0x25, 0x35
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # places in struct seccomp_data
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ANSWERS: Final = {
    "allow": 0x7FFF0000,
    "log": 0x7FFC0000,
    "errno": 0x00050000,
    "trap": 0x00030000,
    "kill_thread": 0x00000000,
    "kill_process": 0x80000000,
}
_FURTHEST: Final = 255


class _Instruction(NamedTuple):
    code: int
    constant: int
    yes: int = 0
    no: int = 0


_Code = list[_Instruction]


def compile_filter(profile: Profile, machine: str = "") -> bytes:
    """Return the program for *profile* on *machine* (by default this one), as an array of `struct sock_filter`.

    Calls that are newer than what is known here fail with ENOSYS, so that programs fall back to older ones; so do
    the calls of the x32 ABI. A call by another architecture (i386) kills the process.

    Raises ConfigurationError for an unknown machine, and for a profile that needs more than 4,096 instructions.
    """
    machine = machine_name(machine)
    numbers = syscall_numbers(machine)
    by_name = profile.chains()
    chains = {number: by_name.get(name, ()) for name, number in numbers.items()}
    first_unknown = max(numbers.values()) + 1
    leaves: list[tuple[int, _Code]] = []
    for chain, calls in groupby(range(first_unknown), key=lambda number: chains.get(number, ())):
        leaves.append((next(calls), _chain(chain, profile.default)))
    leaves.append((first_unknown, [_answer(Action("errno", errno.ENOSYS))]))
    program = [
        _Instruction(_LOAD, _ARCHITECTURE),
        _Instruction(_IF_EQUAL, _ARCHITECTURES[machine], yes=1),
        _answer(Action("kill_process")),
        _Instruction(_LOAD, _NUMBER),
        *_tree(leaves),
    ]
    if len(program) > MAX_INSTRUCTIONS:
        raise ConfigurationError(
            f"the seccomp profile needs {len(program)} instructions, and the kernel takes {MAX_INSTRUCTIONS}: "
            "use fewer conditions"
        )
    return b"".join(struct.pack("=HBBI", step.code, step.yes, step.no, step.constant) for step in program)


def _tree(leaves: list[tuple[int, _Code]]) -> _Code:
    """Go to the leaf whose first number is the last one that is not above the call's."""
    if len(leaves) == 1:
        return leaves[0][1]
    middle = len(leaves) // 2
    lower, upper = _tree(leaves[:middle]), _tree(leaves[middle:])
    first = leaves[middle][0]
    if len(lower) <= _FURTHEST:
        return [_Instruction(_IF_AT_LEAST, first, yes=len(lower)), *lower, *upper]
    return [_Instruction(_IF_AT_LEAST, first, no=1), _Instruction(_JUMP, len(lower)), *lower, *upper]


def _chain(rules: tuple[Rule, ...], default: Action) -> _Code:
    """Return the answer of the first rule that fits, else the default."""
    code: _Code = []
    for rule in rules:
        then = [_answer(rule.action)]
        for condition in reversed(rule.when):
            then = _test(condition, then)
        code += then
        if not rule.when:
            return code
    return [*code, _answer(default)]


def _answer(action: Action) -> _Instruction:
    return _Instruction(_RETURN, _ANSWERS[action.kind] | action.errno)


def _test(condition: Condition, then: _Code) -> _Code:
    """*then* if the condition holds, else on to what comes after it. The program has words of 32 bits only, so that
    both halves of the argument are looked at, the upper one first."""
    low_place = _ARGUMENTS + 8 * condition.index + (0 if sys.byteorder == "little" else 4)
    high_place = low_place + 4 if sys.byteorder == "little" else low_place - 4
    high, low = divmod(condition.value, 1 << 32)
    load_high, load_low = _Instruction(_LOAD, high_place), _Instruction(_LOAD, low_place)
    past = len(then)
    match condition.op:
        case "eq":
            test = [load_high, _Instruction(_IF_EQUAL, high, no=past + 2)]
            test += [load_low, _Instruction(_IF_EQUAL, low, no=past)]
        case "masked":
            high_mask, low_mask = divmod(condition.mask, 1 << 32)
            test = [load_high, _Instruction(_AND, high_mask), _Instruction(_IF_EQUAL, high, no=past + 3)]
            test += [load_low, _Instruction(_AND, low_mask), _Instruction(_IF_EQUAL, low, no=past)]
        case "ne":
            test = [load_high, _Instruction(_IF_EQUAL, high, no=2)]
            test += [load_low, _Instruction(_IF_EQUAL, low, yes=past)]
        case "gt" | "ge":
            last = _IF_ABOVE if condition.op == "gt" else _IF_AT_LEAST
            test = [load_high, _Instruction(_IF_ABOVE, high, yes=3), _Instruction(_IF_EQUAL, high, no=past + 2)]
            test += [load_low, _Instruction(last, low, no=past)]
        case _:
            last = _IF_AT_LEAST if condition.op == "lt" else _IF_ABOVE
            test = [load_high, _Instruction(_IF_ABOVE, high, yes=past + 3), _Instruction(_IF_EQUAL, high, no=2)]
            test += [load_low, _Instruction(last, low, yes=past)]
    return test + then

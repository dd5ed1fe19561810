"""The least that a checked call can cost in Python: a dict lookup, a compiled validator before and after, a result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS, SCHEMA, answer

CHAIN_LENGTH = 10


@dataclass(slots=True)
class Outcome:
    """What the floor returns in place of a Result."""

    tool_id: str
    value: Any
    ok: bool


@dataclass(slots=True)
class Entry:
    """What the floor knows of a tool."""

    handler: Callable[[dict[str, Any]], Awaitable[Any]]
    accepts_input: Callable[[Any], bool]
    accepts_output: Callable[[Any], bool]


_is_valid = jsonschema_rs.Draft202012Validator(SCHEMA).is_valid
_TOOLS = {"bench:echo": Entry(answer, _is_valid, _is_valid)}


async def run_checked(tool_id: str, args: dict[str, Any]) -> Outcome:
    """The floor with checks."""
    entry = _TOOLS[tool_id]
    if not entry.accepts_input(args):
        raise ValueError(tool_id)
    value = await entry.handler(args)
    return Outcome(tool_id, value, entry.accepts_output(value))


async def run_unchecked(tool_id: str, args: dict[str, Any]) -> Outcome:
    """The floor without checks."""
    return Outcome(tool_id, await _TOOLS[tool_id].handler(args), True)


async def run_chain(args: dict[str, Any]) -> list[Outcome]:
    """Ten checked calls, each with the value of the one before."""
    done: list[Outcome] = []
    for _ in range(CHAIN_LENGTH):
        done.append(await run_checked("bench:echo", args))
        args = dict(done[-1].value)
    return done


async def main(meter: Meter) -> None:
    """All of it."""
    await meter.awaited("floor.function", answer, ARGS)
    await meter.awaited("floor.unchecked", run_unchecked, "bench:echo", ARGS)
    await meter.awaited("floor.checked", run_checked, "bench:echo", ARGS)
    await meter.awaited("floor.chain_step", run_chain, ARGS, per=CHAIN_LENGTH)


if __name__ == "__main__":
    run_program(main)

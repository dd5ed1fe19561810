"""What a user would see of the figures of a table, in one line each."""

from __future__ import annotations

import re

from benchmarks.harness import Outcome
from benchmarks.rows import Unit, show

_VALUE = re.compile(r"\{(?:(\d+)\*)?([^}:]+(?::[A-Z]\w*)?)\}")
_LINES = {
    "One call of a local tool": "an agent's turn with 10 calls takes {10*calls.facade_echo} more than the tools "
    "themselves, {10*calls.facade_echo@paused} when the turns are far apart; the model's answer takes seconds.",
    "Chains": "a chain of ten steps takes {10*calls.chain_step} more than its tools.",
    "Import": "a program that uses toolexec starts {imports.toolexec:Exec} later.",
    "Starting a process": "a command with a tool of a Python file answers after {starting.run}.",
    "10,000 calls at once": "the answers to ten thousand calls that wait 10 ms each are there after "
    "{concurrency.calls}.",
    "Code in the embedded sandbox": "a program with one call is answered after {code.pooled_one_call@paused} when the "
    "model has thought before it, after {code.pooled_one_call} when programs follow each other; of 64 at once the last "
    "one is answered after {64*code.pooled_one_call@at_once}.",
    "Code: starting": "the first program of a process is answered after {code.process_start}, on a new machine after "
    "{code.first_use}.",
    "The gate": "10 calls under the whole policy take {10*gate.all} longer.",
    "`toolexec serve` over stdio": "a client's first list of tools is there after {serve.ready}, and a call takes "
    "{serve.run_tool_added} longer than without the server between.",
    "MCP over stdio": "a call of a real server takes {mcp.time}; with the bare SDK {mcp.time_sdk}.",
    "A catalogue of 1,000 tools: search": "a search takes {search.1000.once.mean}, {search.1000.once.mean@paused} "
    "after a pause, and the first one after the start {1000*search.1000.build} more.",
    "A catalogue of 10,000 tools: search": "a search takes {search.10000.once.mean}, "
    "{search.10000.once.mean@paused} after a pause, and the first one after the start {10000*search.10000.build} more, "
    "or {search.10000.opened} with a stored catalogue.",
    "A catalogue of 100,000 tools: search": "a search takes {search.100000.once.mean}, "
    "{search.100000.once.mean@paused} after a pause, and the first one after the start {100000*search.100000.build} "
    "more, or {search.100000.opened} with a stored catalogue.",
    "Memory of a tool": "10,000 tools take {10000*search_memory.10000.all} of memory.",
    **{
        f"Code in containers: {kind}": f"a program with one call is answered after {{sandbox.{kind}.cold}} in a new "
        f"container, after {{sandbox.{kind}.warm}} in one that is kept ready."
        for kind in ("bubblewrap", "docker", "containerd", "gvisor")
    },
}
"""By the beginning of a group's name; `{10*key}` stands for ten times that figure."""
_UNITS: dict[str, Unit] = {"search_memory": "bytes"}


def seen(group: str, outcome: Outcome) -> str:
    """Return the line of a table; empty where there is none, or a figure for it was not measured."""
    line = next((text for name, text in _LINES.items() if group.startswith(name)), "")
    keys = [key for _, key in _VALUE.findall(line)]
    if not line or any(key not in outcome.figures for key in keys):
        return ""

    def value(found: re.Match[str]) -> str:
        key = found[2]
        unit = _UNITS.get(key.partition(".")[0], "time")
        return show(int(found[1] or 1) * outcome.figures[key].median, unit)

    return f"What a user would see: {_VALUE.sub(value, line)}"

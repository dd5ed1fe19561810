"""The processor and the kernel that a saved machine is bound to: on another one, its state may be wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from toolexec.model.json_value import JSONDict, JSONObject

_PROCESSOR: Final = Path("/proc/cpuinfo")
_MODEL: Final = (
    ("vendor_id", "cpu family", "model", "model name", "stepping"),
    ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
)
"""What names a processor: on x86-64, and on ARM."""
_FLAGS: Final = ("flags", "Features")
_MICROCODE: Final = "microcode"
_MOST_FLAGS: Final = 8


def host_facts(processor: Path | None = None, system: os.uname_result | None = None) -> JSONDict:
    """Return what a saved machine is bound to: the `kernel` with its build, the `processor`, its `microcode` and its
    `flags`, each a string; "" for what `/proc/cpuinfo` (*processor*) does not say.

    Processors that differ from one another are all named. *system* is `os.uname()` by default. Blocks for a moment.
    """
    system = system or os.uname()
    try:
        lines = (processor or _PROCESSOR).read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    found: dict[str, dict[str, None]] = {}
    for name, colon, value in (line.partition(":") for line in lines):
        if colon:
            found.setdefault(name.strip(), {})[value.strip()] = None

    def said(name: str) -> str:
        return " | ".join(sorted(found.get(name, ())))

    flags = {flag for name in _FLAGS for value in found.get(name, ()) for flag in value.split()}
    return {
        "kernel": f"{system.release} {system.version} {system.machine}",
        "processor": "; ".join(f"{name}: {said(name)}" for names in _MODEL for name in names if said(name)),
        "microcode": said(_MICROCODE),
        "flags": " ".join(sorted(flags)),
    }


def other_host(saved: JSONObject, here: JSONObject) -> str:
    """Return in which of the facts of `host_facts` the host *saved* differs from the one *here*; "" where in none."""
    found = [
        f"{name} {saved.get(name)!r}, here {here.get(name)!r}"
        for name in ("kernel", "processor", "microcode")
        if saved.get(name) != here.get(name)
    ]
    before, now = ({*str(facts.get("flags", "")).split()} for facts in (saved, here))
    for flags, text in ((before - now, "processor flags that are missing here"), (now - before, "flags only here")):
        if flags:
            more = f" and {len(flags) - _MOST_FLAGS} more" if len(flags) > _MOST_FLAGS else ""
            found.append(f"{text}: {', '.join(sorted(flags)[:_MOST_FLAGS])}{more}")
    return "; ".join(found)

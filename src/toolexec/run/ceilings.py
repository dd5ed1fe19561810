"""Decide what a call or a run of code is granted: what it asks for, the default, and no more than the ceiling.

A default is for a caller who asks for nothing. A ceiling is the most that may be asked for: what is above it is
refused, with the name of its setting and its value, and never lowered without a word.
"""

from __future__ import annotations

from typing import Final

from toolexec.errors import InvalidLimitsError

_SETTINGS: Final = {
    "timeout": ("Exec(max_timeout=...)", "limits.max_timeout"),
    "max_tool_calls": ("Exec(max_tool_calls=...)", "limits.max_tool_calls"),
    "max_chain_steps": ("Exec(code_limits=Limits(max_chain_steps=...))", "limits.max_chain_steps"),
    "cpu_ms": ("Exec(code_limits=Limits(cpu_ms=...))", "limits.cpu_ms"),
    "cpus": ("Exec(code_limits=Limits(cpus=...))", "limits.cpus"),
    "memory_bytes": ("Exec(code_limits=Limits(memory_bytes=...))", "limits.memory"),
    "pids": ("Exec(code_limits=Limits(pids=...))", "limits.pids"),
    "disk_bytes": ("Exec(code_limits=Limits(disk_bytes=...))", "limits.disk"),
}
"""For each limit, what raises its ceiling: in Python, and in a settings file."""


def refuse_above(name: str, asked: float, most: float | None, *, setting: str = "", tool_id: str = "") -> None:
    """Raise InvalidLimitsError if *asked* is above *most* (None and 0: no ceiling); *setting* says what raises it, by
    default that of an `Exec`.
    """
    if not most or asked <= most:
        return
    python, key = _SETTINGS[name]
    raised_by = setting or f"{python}, or {key} in a settings file"
    unit = " s" if name == "timeout" else ""
    raise InvalidLimitsError(
        f"{name} {asked:.15g}{unit} is above the ceiling of {most:.15g}{unit}; ask for {most:.15g} or less, or raise "
        f"the ceiling: {raised_by}",
        tool_id=tool_id or None,
        details={"limit": name, "asked": asked, "ceiling": most, "setting": setting or key},
    )


def default_timeout(default: float | None, most: float | None) -> float | None:
    """Return the time limit in seconds of a call that asks for none: the default, or a ceiling that is lower."""
    if default is None or most is None:
        return most if default is None else default
    return min(default, most)


def granted(asked: float | None, default: float | None, most: float | None, *, setting: str = "") -> float | None:
    """Return the time limit in seconds that holds; raises InvalidLimitsError for one above the ceiling."""
    if asked is None:
        return default_timeout(default, most)
    refuse_above("timeout", asked, most, setting=setting)
    return asked

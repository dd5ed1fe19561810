"""Trials of programs: how they end says what became of the call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toolexec.backend.providers.kinds import provider_backend
from toolexec.errors import Outcome
from toolexec.testing import OutcomeTrial

_WORK = "echo done >> effects; "
_PROGRAMS: Mapping[str, tuple[str, Outcome]] = {
    "exit code 1": ("exit 1", Outcome.REFUSED),
    "exit code 127": ("exit 127", Outcome.REFUSED),
    "an exit code that the settings explain": ("exit 140", Outcome.REFUSED),
    "an exit code that may pass": ("exit 75", Outcome.REFUSED),
    "SIGKILL": (f"{_WORK}kill -9 $$", Outcome.UNKNOWN),
    "SIGTERM": (f"{_WORK}kill -15 $$", Outcome.UNKNOWN),
    "a signal that a shell reports": (f"{_WORK}sh -c 'kill -9 $$'; exit $?", Outcome.UNKNOWN),
    "too much output": (f"{_WORK}yes", Outcome.UNKNOWN),
    "no end": (f"{_WORK}sleep 60", Outcome.UNKNOWN),
    "broken JSON": (f"{_WORK}echo '['", Outcome.DONE),
    "NaN": (f"{_WORK}echo '[NaN]'", Outcome.DONE),
    "no output": (_WORK, Outcome.DONE),
    "no program": ("exit 0", Outcome.NOT_SENT),
}
COMMAND = {name: outcome for name, (_, outcome) in _PROGRAMS.items()}


@asynccontextmanager
async def command_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make a program that writes a line for each effect."""
    with TemporaryDirectory() as directory:
        program, effects = Path(directory) / "pay", Path(directory) / "effects"
        program.write_text(f"#!/bin/sh\n{_PROGRAMS[name][0]}\n")
        program.chmod(0o755)
        codes: dict[str, Any] = {"140": "the account is closed", "75": {"error": "busy", "retryable": True}}
        tool: dict[str, Any] = {"argv": ["./pay", "{amount}"], "output": "json", "exit_codes": codes}
        tool |= {"max_output": 10_000} | ({"timeout": 0.3} if name == "no end" else {})
        backend = provider_backend("command", "odd", {"tools": {"pay": tool}, "cwd": directory})
        await backend.start()
        if name == "no program":
            program.unlink()
        try:
            yield OutcomeTrial(
                backend=backend,
                tool_id="odd:pay",
                args={"amount": "7"},
                effects=lambda: len(effects.read_text().splitlines()) if effects.exists() else 0,
            )
        finally:
            await backend.aclose()

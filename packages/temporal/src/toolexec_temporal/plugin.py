"""The kind of journal `temporal`: an engine of durable runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.journal import JournalPlugin

if TYPE_CHECKING:
    from typer import Typer

    from toolexec.journal import DurableEngine
    from toolexec_temporal.settings import TemporalSettings


def _make(settings: TemporalSettings) -> DurableEngine:
    from toolexec_temporal.engine import TemporalEngine

    return TemporalEngine(settings)


def _commands() -> Typer:
    from toolexec_temporal.commands import commands

    return commands


PLUGIN = JournalPlugin(
    kind="temporal", api=1, settings="toolexec_temporal.settings:TemporalSettings", make=_make, cli=_commands
)

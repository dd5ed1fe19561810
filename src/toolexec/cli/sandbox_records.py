"""What `toolexec sandbox check` keeps of kinds that are experimental, and says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.model.json_value import JSONDict
    from toolexec.runtime.base import SandboxBackend
    from toolexec.runtime.measured import Experiment
    from toolexec.runtime.plugin import SandboxPlugin
    from toolexec.runtime.sandbox_settings import SandboxSettings
    from toolexec.testing.matrix import Column, Matrix


class Records:
    """The records of one check, for the sandboxes of *session* that its settings describe; one that a program brings
    itself is named by that, and has none."""

    def __init__(self, session: Session) -> None:
        from toolexec.runtime.sandbox_settings import SandboxSettings

        self._session = session
        given = session.ex.options.runtime_backends
        self._settings = given if isinstance(given, SandboxSettings) else None if given else SandboxSettings()
        self._facts: dict[str, JSONDict] = {}
        self._problems: dict[str, str] = {}

    def add(self, kind: str) -> None:
        """Have an experimental *kind* among the sandboxes of the session, where no settings name those to use."""
        from toolexec.runtime.sandboxes import make_sandbox

        runtime = self._session.ex.runtime
        settings = self._settings
        if settings is None or settings.use or any(backend.kind == kind for backend in runtime.backends):
            return
        if _experimental(kind) is not None:
            runtime.add(make_sandbox(kind, settings))

    def profile_of(self, kind: str) -> str:
        """Return the profile to check an experimental *kind* under: the usual one ("") if it serves that, else the
        first that it does."""
        plugin = _experimental(kind)
        if plugin is None or self._session.ex.options.security_profile in plugin.profiles:
            return ""
        return next(iter(plugin.profiles), "")

    async def begin(self, backend: SandboxBackend, version: str) -> None:
        """Note what a check of *backend* that begins is bound to."""
        experiment = self._experiment(backend)
        if experiment is None:
            return
        try:
            self._facts[backend.kind] = await experiment.facts(backend, version)
        except ToolExecError as error:
            self._problems[backend.kind] = error.message

    async def end(self, backends: Sequence[SandboxBackend], found: Matrix, *, complete: bool) -> JSONDict:
        """Keep what was *found*, and return what it means for each kind; *complete* says that no program was left
        out."""
        said: JSONDict = {}
        for backend, column in zip(backends, found.columns, strict=True):
            experiment = self._experiment(backend)
            if experiment is not None:
                why = await self._kept(experiment, backend, column, found, complete=complete)
                said[backend.kind] = {"profile": column.profile, "serves": not why, "reason": why}
        return said

    def show(self, said: Mapping[str, object]) -> None:
        """Show what `end` has returned."""
        for kind, each in said.items():
            assert isinstance(each, dict)
            serves = f"serves {each['profile']} by itself on this machine, until something of it changes"
            text = f"{kind} is experimental, and " + (
                serves if each["serves"] else f"runs only where it is named: {each['reason']}"
            )
            self._session.screen.value(Text(visible_line(text, 1000), style="green" if each["serves"] else "yellow"))

    async def _kept(
        self, experiment: Experiment, backend: SandboxBackend, column: Column, found: Matrix, *, complete: bool
    ) -> str:
        """Keep what was found of one sandbox, and return why it may not serve by itself."""
        before = self._facts.get(column.kind)
        if before is None or column.reason:
            return column.reason or self._problems.get(column.kind) or "nothing was measured"
        weaker = [outcome.name for outcome in column.weaker]
        whole = complete and all(column.verdict(each.name) == "kept" for each in found.promises)
        try:
            now = await experiment.facts(backend, column.version)
            if now != before and not weaker:
                return "something of it was changed while it was checked; check it again"
            await asyncio.to_thread(experiment.note, before, column.profile, found.language, weaker, complete=whole)
        except ToolExecError as error:
            return error.message
        return await experiment.lapsed(backend, column.profile, column.version)

    def _experiment(self, backend: SandboxBackend) -> Experiment | None:
        from toolexec.runtime.measured import Experiment
        from toolexec.runtime.sandboxes import settings_of

        settings: SandboxSettings | None = self._settings
        plugin = _experimental(backend.kind)
        if settings is None or plugin is None:
            return None
        try:
            return Experiment(plugin, settings_of(backend.kind, settings), settings)
        except ConfigurationError as error:
            self._session.screen.note(error.message)
            return None


def _experimental(kind: str) -> SandboxPlugin | None:
    """Return the object of a kind that is experimental; None for all others, and where there is no such kind."""
    from toolexec.runtime.kinds import plugin_of

    try:
        plugin = plugin_of(kind)
    except ConfigurationError:
        return None
    return plugin if plugin.experimental else None

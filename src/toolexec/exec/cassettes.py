"""The cassette of an `Exec`: what answers its calls, or keeps them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.cassette.cassette import Cassette
from toolexec.cassette.recording import Recording
from toolexec.cassette.replaying import RecordedBackends, Replayed
from toolexec.model.tool import Tool

if TYPE_CHECKING:
    from toolexec.backend.registry import BackendRegistry
    from toolexec.discovery.index import Index
    from toolexec.exec.options import Options
    from toolexec.model.transform import Transforms
    from toolexec.run.resolve import Find
    from toolexec.run.runner import Runner


def cassette_of(options: Options) -> Cassette | None:
    """Return the cassette that the options name, opened; raises as `Cassette` does."""
    given = options.cassette
    if given is None or isinstance(given, Cassette):
        return given
    return Cassette(Path(given).expanduser(), options.cassette_mode)


class UsedCassette:
    """A cassette with what an `Exec` knows: which tools are skills of its own, and how tools are shown."""

    def __init__(
        self,
        cassette: Cassette,
        others: BackendRegistry,
        transforms: Transforms | None,
        runs_here: Callable[[str], bool],
    ) -> None:
        self.cassette = cassette
        self._others = others
        self._transforms = transforms
        self._runs_here = runs_here

    @property
    def replays(self) -> bool:
        """Whether no backend is to be reached."""
        return self.cassette.mode == "replay"

    @cached_property
    def recorded(self) -> RecordedBackends:
        """What answers from the cassette."""
        return RecordedBackends(self.cassette, self._others, runs_here=self._runs_here, own=self._own)

    def backends(self, others: BackendRegistry) -> BackendRegistry:
        """Return what calls may reach: *others*, or in a replay only what is recorded."""
        return self.recorded if self.replays else others

    def around(self, runner: Runner, find: Find, answering: Runner) -> Runner:
        """Return *runner* with its calls recorded; in mode `auto`, *answering* makes those that are recorded."""
        if self.replays:
            return Replayed(runner)
        return Recording(
            runner,
            self.cassette,
            find,
            replaying=answering if self.cassette.mode == "auto" else None,
            runs_here=self._runs_here,
            own=self._own,
        )

    def fill(self, index: Index) -> set[str]:
        """Register the recorded tools that are not there yet, and return their IDs."""
        filled: set[str] = set()
        for recorded in self.cassette.tools.values():
            if self._transforms is not None and self._transforms.hides(recorded.tool):
                continue
            shown = recorded.tool if self._transforms is None else self._transforms.apply(recorded.tool)
            found = index.find(shown.id)
            if found is None or found.tool.id != shown.id:
                index.register(shown, recorded.binding)
                filled.add(shown.id)
        return filled

    def _own(self, tool: Tool) -> Tool:
        shown = self._transforms.of(tool) if self._transforms is not None else None
        return tool if shown is None else shown.original

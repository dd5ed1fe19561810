"""Who may still have an answer that was kept: one to whom the tools that it came of have not been denied since."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Protocol, runtime_checkable

from toolexec.exec.facade import Exec
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Caller, Origin, acting
from toolexec.server.metering import Job
from toolexec.server.tools.starting import settle

__all__ = ["AnswerRights", "ChecksAnswers", "noting"]


class AnswerRights:
    """Decides on kept answers by what the rules of *ex* show at this moment."""

    def __init__(self, ex: Exec) -> None:
        self._ex = ex

    async def allows(self, caller: Caller, tools: Collection[str]) -> bool:
        """Return whether *caller* may know of all of these, of tools, resources and prompts by their IDs. One that is
        not there, once the backends have started, may have been taken from it."""
        with acting(Origin(caller=caller)):
            missing = self._hidden(tools)
            if not missing:
                return True
            await settle(self._ex)
            for tool_id in self._hidden(missing):
                if not await self._ex.resources.shows(tool_id):
                    return False
            return True

    def _hidden(self, tools: Collection[str]) -> frozenset[str]:
        index, _ = self._ex.visible()
        return frozenset(tool_id for tool_id in tools if index.find(tool_id) is None)


@runtime_checkable
class ChecksAnswers(Protocol):
    """A server of the MCP SDK that says who may have the answers that its clients have missed."""

    answer_rights: AnswerRights


def noting(job: Job, note: Callable[[str], None]) -> Job:
    """Return *job*, of which *note* gets the IDs of the tools that its answer comes of."""

    async def noted(origin: Origin, on_progress: ProgressCallback | None) -> JSONDict:
        with acting(replace(origin, on_admitted=note)) as known:
            return await job(known, on_progress)

    return noted

"""Who may still have an answer that was kept: one to whom the tools that it came of have not been denied since."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from toolexec.errors import PolicyError
from toolexec.exec.facade import Exec
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Caller, Origin, acting
from toolexec.server.tools.starting import settle

if TYPE_CHECKING:
    from toolexec.server.metering import Job

DENIED: Final = (
    "this call is over, but a tool that its answer came of is denied to you now, or is gone; nothing was run again"
)
"""What is said in place of an answer that its caller may not have any more."""

_INTERNAL_ERROR: Final = -32603  # of JSON-RPC
_NOT_READ: Final = "a tool that this result came of is denied to you now, or is gone"


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

    async def check_result(self, tools: Collection[str], origin: Origin) -> None:
        """Raise PolicyError where *origin* may not read a result that came of these tools. Its answer comes of them."""
        if origin.used_tools is not None:
            origin.used_tools.update(tools)
        if tools and not await self.allows(origin.caller, tools):
            raise PolicyError(_NOT_READ, op="policy", details={"outcome": "denied"})

    def _hidden(self, tools: Collection[str]) -> frozenset[str]:
        index, _ = self._ex.visible()
        return frozenset(tool_id for tool_id in tools if index.find(tool_id) is None)


@runtime_checkable
class ChecksAnswers(Protocol):
    """A server of the MCP SDK that says who may have the answers that its clients have missed."""

    answer_rights: AnswerRights


def cut_off(message: str, outcome: str) -> JSONDict:
    """Return the error that a call is answered with whose answer is not given; *outcome* says why."""
    data = {"reason": "cut_off", "outcome": outcome, "retryable": outcome == "not_run"}
    return {"code": _INTERNAL_ERROR, "message": message, "data": data}


def noting(job: Job, tools: set[str]) -> Job:
    """Return *job*, of which *tools* gets the IDs of those that its answer comes of."""

    async def noted(origin: Origin, on_progress: ProgressCallback | None) -> JSONDict:
        with acting(replace(origin, used_tools=tools)) as known:
            return await job(known, on_progress)

    return noted

"""What lists of runs show of one, whether a worker is there or not: its waits in the memo, and search attributes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final, Protocol

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from toolexec_temporal.attributes import TOOLS, WAITS, words
from toolexec_temporal.messages import Rules
from toolexec_temporal.waits import Waits

_SHOW_SECONDS: Final = 0.5


class _Idling(Protocol):
    async def until_idle(self, seconds: float) -> None: ...

    def is_idle(self) -> bool: ...


class Visibility:
    """Keeps the memo and the search attributes of the Temporal workflow of one run."""

    def __init__(self, rules: Rules, waits: Waits) -> None:
        self._rules = rules
        self._waits = waits
        self._tools: list[str] = list(workflow.info().typed_search_attributes.get(TOOLS) or ())

    async def show_waits(self, run: _Idling) -> None:
        """Keep in the memo what the run waits for, once it has waited for some time."""
        linger = max(self._rules.linger, _SHOW_SECONDS)
        while True:
            await run.until_idle(linger)
            waits = [*self._waits.open.values()]
            workflow.upsert_memo({"waits": [asdict(wait) for wait in waits]})
            self._show(WAITS, (wait.name or wait.kind for wait in waits))
            await workflow.wait_condition(lambda: not run.is_idle())
            workflow.upsert_memo({"waits": []})
            self._show(WAITS, ())

    def note_tool(self, tool_id: str) -> None:
        """Have the server find the run by a tool that it calls."""
        if self._rules.attributes and tool_id not in self._tools:
            self._tools.append(tool_id)
            self._show(TOOLS, self._tools)

    def _show(self, key: SearchAttributeKey[Sequence[str]], values: Iterable[str]) -> None:
        """Have the server find the run by these words, if it began with that."""
        if self._rules.attributes:
            workflow.upsert_search_attributes([key.value_set(words(values))])

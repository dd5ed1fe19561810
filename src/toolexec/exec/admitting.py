"""Programs as durable runs are made of them, once the gate has admitted them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toolexec.durable.journal import RunKind, RunRecord
from toolexec.exec.chain import Step, asked_chain, check_ways, steps_of
from toolexec.exec.code import CodeRuns, CodeSettings
from toolexec.exec.program import Program
from toolexec.exec.run_data import settings_from_json, settings_to_json, steps_from_text, steps_to_text
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import current_origin
from toolexec.run.admission import admit_durable
from toolexec.run.run_request import RunRequest
from toolexec.run.steps import check_chain

if TYPE_CHECKING:
    from toolexec.discovery.index import Index
    from toolexec.exec.options import Options
    from toolexec.run.runner import Runner
    from toolexec.run.types import OnError


class Programs:
    """Makes programs for the caller of the moment, by the gate of the options."""

    def __init__(self, options: Options, index: Index, runner: Runner, code: Callable[[], CodeRuns]) -> None:
        self._options = options
        self._index = index
        self._runner = runner
        self._code = code

    async def chain(self, steps: Sequence[Step | JSONObject], *, on_error: OnError, dry_run: bool) -> Program:
        """Return a chain as runs are made of it, once the gate has admitted it."""
        chain = steps_of(steps, self._options.max_timeout)
        check_ways(on_error, dry_run=dry_run)
        settings: JSONDict = {"on_error": on_error, "dry_run": dry_run}
        origin = current_origin().within("chain", "")
        await check_chain(self._runner, self._index, chain, origin)  # of what it raises for nothing is written
        approved = await self.admit(lambda: asked_chain(chain, current_origin()))
        return Program.here("chain", steps_to_text(chain), settings, approved=approved)

    async def code(self, code: str, settings: CodeSettings, *, here: bool = False) -> Program:
        """Return code, or a workflow, as runs are made of it, once the gate has admitted it. *here* says that it begins
        in this process: others may have sandboxes that this one lacks."""
        language = settings.get("language") or self._options.default_language
        kind: RunKind = "workflow" if language in ("workflow", "dsl") else "code"
        runs = self._code()
        request = runs.request(code, settings)  # raises for what makes no sense, before anything is written
        runs.check(request, here=here)
        approved = await self.admit(lambda: runs.asked(request))
        return Program.here(kind, code, settings_to_json(settings), approved=approved)

    async def admit(self, asked: Callable[[], RunRequest]) -> bool:
        """Have the gate decide on a run before it is written down; return whether it was approved. When it goes on
        later, it is decided on again, and that approval counts."""
        gate = self._options.own_gate
        return gate is not None and await admit_durable(gate, asked())

    def asked(self, run: RunRecord) -> RunRequest:
        """Return a run as the gate decides on it."""
        if run.kind == "chain":
            return asked_chain(steps_of(steps_from_text(run.source), self._options.max_timeout), current_origin())
        code = self._code()
        settings: Any = settings_from_json(run.settings.get("given") or {})
        return code.asked(code.request(run.source, settings))

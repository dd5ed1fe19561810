"""Fork a run, and compare two, for `toolexec runs`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolexec.cli.arguments import read_json
from toolexec.cli.exit_codes import FAILED, OK, WAITING, code_of_run

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.exec.diff import CallDiff, CallSide

_SHORT = 60


@dataclass(frozen=True, slots=True)
class ForkWanted:
    """A fork as the command line asks for it; `answer`, `error` and `source` are names of files."""

    run: str
    at: str | None = None
    answer: str | None = None
    error: str | None = None
    source: str | None = None
    new_id: str | None = None
    live: bool = False


async def fork(session: Session, wanted: ForkWanted) -> int:
    """Begin a new run as another one; WAITING where it wants an answer that nothing has."""
    from toolexec.cli.finding import connect
    from toolexec.cli.run_results import show_result

    given: dict[str, Any] = {}
    if wanted.answer is not None:
        given["answer"] = read_json(wanted.answer)
    if wanted.error is not None:
        given["error"] = read_json(wanted.error)
    if wanted.source is not None:
        from toolexec.cli.text_files import read_text

        given["source"] = read_text(wanted.source)
    if wanted.live:
        await connect(session)
    made = await session.ex.runs.fork(wanted.run, at=wanted.at, id=wanted.new_id, live=wanted.live, **given)
    if session.screen.as_json:
        session.screen.document(made.to_dict())
    else:
        where = f"at call {made.call}" if made.call else "at its end"
        session.screen.note(f"{made.run_id}: forked from {made.parent} {where}, with {made.reused} answers of it")
        show_result(session, made.run_id, made.result)
    error = made.result.error
    return WAITING if error is not None and error.code == "run_unanswered" else code_of_run(error)


async def diff(session: Session, run_a: str, run_b: str) -> int:
    """Compare two runs; FAILED where they differ in more than times."""
    from toolexec.cli.tables import plain_table

    found = await session.ex.runs.diff(run_a, run_b)
    if session.screen.as_json:
        session.screen.document(found.to_dict())
        return OK if found.same else FAILED
    table = plain_table(("Step", {}), (run_a, {"overflow": "fold"}), (run_b, {"overflow": "fold"}), ("Differs", {}))
    for call in found.calls:
        table.add_row(call.step, _side(call.a), _side(call.b), _differs(call))
    session.screen.show(table)
    first = found.first
    if found.differs:
        session.screen.note(f"the runs differ in their {', '.join(found.differs)}")
    if first is not None:
        session.screen.note(f"the first call that differs is {_number(first)}: {_differs(first)}")
    elif not found.differs:
        session.screen.note("the runs are the same, except for times")
    return OK if found.same else FAILED


def _differs(call: CallDiff) -> str:
    return ", ".join(call.differs)


def _number(call: CallDiff) -> str:
    side = call.a or call.b
    return f"{side.number} (step {call.step})" if side is not None else f"step {call.step}"


def _side(side: CallSide | None) -> str:
    from toolexec.model.visible import visible_line

    if side is None:
        return ""
    came = side.error.message if side.error is not None else json.dumps(side.value) if side.state == "done" else "open"
    took = f" {side.seconds * 1000:.1f} ms" if side.seconds is not None else ""
    return f"{side.number} {side.tool} → {visible_line(came, _SHORT)}{took}"

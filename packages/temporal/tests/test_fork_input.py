"""Forks as they are sent to workers."""

from __future__ import annotations

import pytest

from toolexec.journal import CallRecord, RunRecord
from toolexec_temporal.messages import VERSION, Rules, RunInput, read_call
from toolexec_temporal.recordings import fork_input, fork_memo, is_held


@pytest.mark.parametrize("held", [True, False])
def test_only_workers_that_can_hold_a_run_get_one_to_hold(held: bool) -> None:
    """An older worker would make its calls at once, so it refuses the version; every other fork it can make."""
    record = RunRecord(id="fork", kind="code", source="return 1", digest="d", settings={"parent": {"id": "run"}})
    calls = [CallRecord(step=step, tool="t:a", definition="", args="", number=int(step)) for step in ("2", "1")]
    given = fork_input(record, Rules(), calls, [("1", "2")], held=held)
    assert (given.version == VERSION, given.held) == (held, held)
    assert RunInput({}, Rules()).version < VERSION
    assert given.carried is not None
    assert [read_call(call).step for call in given.carried.calls] == ["1", "2"]
    assert given.carried.delivered == [["1", "2"]]
    memo = fork_memo(record, held=held)
    assert (is_held(memo), memo["parent"]) == (held, {"id": "run"})

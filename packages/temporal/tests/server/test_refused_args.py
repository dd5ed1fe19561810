"""A call on Temporal that is refused because of the size of its arguments is on record, and never made."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Gate
from toolexec.run import audit, layers
from toolexec_temporal import TemporalEngine, TemporalSettings

WORKFLOW = "\n".join(["a := [1]", *["a = [a, a]"] * 40, 'run("kit:take", {value: a})'])
CODE = "rows = tools.kit.give()\ntools.kit.take(value=[rows] * 20)"


@pytest.mark.parametrize("kind", ["workflow", "code"])
async def test_the_worker_records_it(settings: TemporalSettings, tmp_path: Path, kind: str) -> None:
    """Expect one record without arguments, and the error in the program."""
    log = audit.AuditLog.open(tmp_path / "audit.jsonl", args="redacted", state=tmp_path / "state")
    called: list[Any] = []

    def take(value: Any = None) -> None:
        called.append(value)

    def give() -> list[list[int]]:
        return [[1]] * 6000

    with closing(log):
        ex = Exec(journal=TemporalEngine(settings), gate=Gate(audit=layers.Audit(log)), result_bytes=1000)
        ex.add(take, "kit:take")
        ex.add(give, "kit:give")
        async with ex, ex.worker():
            if kind == "code":
                result = await ex.execute_code(CODE, durable="run")
            else:
                result = await ex.run_workflow(WORKFLOW, durable="run")
    assert "more than" in str(result.error)
    records = audit.read_last(tmp_path / "audit.jsonl", 100)
    [refused] = [each for each in records if each["kind"] == "call" and each["tool"] == "kit:take"]
    assert refused["outcome"] == "validation_input"
    assert "args" not in refused
    assert called == []

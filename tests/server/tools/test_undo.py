"""`on_error` and `dry_run` of run_chain and run_workflow."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec import tool
from toolexec.server.tools.base import MetaTool
from toolexec.server.tools.chaining import RUN_CHAIN
from toolexec.server.tools.coding import RUN_WORKFLOW

from .conftest import Counter, refuses

ASKED: dict[str, tuple[MetaTool, dict[str, Any]]] = {
    "chain": (
        RUN_CHAIN,
        {
            "steps": [
                {"tool_id": "trip:book", "args": {"to": "Bern"}},
                {"tool_id": "trip:mail"},
                {"tool_id": "trip:book"},
            ]
        },
    ),
    "workflow": (
        RUN_WORKFLOW,
        {"workflow": 'run("trip:book", {to: "Bern"})\nrun("trip:mail")\nfail "no"'},
    ),
}
TRIED: dict[str, tuple[MetaTool, dict[str, Any]]] = {
    "chain": (RUN_CHAIN, {"steps": [{"tool_id": "trip:book", "args": {"to": "Bern"}}]}),
    "workflow": (RUN_WORKFLOW, {"workflow": 'return run("trip:book", {to: "Bern"})'}),
}


@pytest.fixture
def done(counter: Counter) -> list[str]:
    """Add tools to the counter, and give what they have done."""
    done: list[str] = []

    @tool("trip:book", meta={"toolexec/undo": "trip:cancel", "toolexec/dry_run": "trip:price"})
    def book(to: str) -> dict[str, int]:
        done.append(f"book {to}")
        return {"booking": 7}

    @tool("trip:cancel")
    def cancel(booking: int) -> None:
        done.append(f"cancel {booking}")

    @tool("trip:price", read_only=True)
    def price(to: str) -> str:
        return f"{to}: 100"

    @tool("trip:mail")
    def mail() -> None:
        done.append("mail")

    for each in (book, cancel, price, mail):
        counter.ex.add(each)
    return done


@pytest.mark.parametrize("kind", ASKED)
async def test_undo(counter: Counter, done: list[str], kind: str) -> None:
    """The reply has the failure, and what became of the effects."""
    meta, args = ASKED[kind]
    reply = await counter.ask(meta, args, on_error="undo")
    assert reply.is_error
    assert done == ["book Bern", "mail", "cancel 7"]
    assert reply.value["undone"] == [
        {"index": 1, "tool_id": "trip:mail", "ok": False, "reason": "trip:mail does not name a tool that undoes it"},
        {"index": 0, "tool_id": "trip:book", "ok": True, "undone_by": "trip:cancel"},
    ]
    stopped = await counter.ask(meta, args)
    assert "undone" not in stopped.value
    assert done[3:] == ["book Bern", "mail"]


@pytest.mark.parametrize("kind", TRIED)
async def test_dry_run(counter: Counter, done: list[str], kind: str) -> None:
    """Nothing is done; what cannot be tried is an error."""
    meta, args = TRIED[kind]
    value = await counter.value(meta, args, dry_run=True)
    assert value["final" if kind == "chain" else "value"] == "Bern: 100"
    error = await counter.error(*ASKED[kind], dry_run=True)
    assert "trip:mail cannot be tried" in error["message"]
    assert done == []


@pytest.mark.parametrize("kind", ASKED)
def test_other_words_are_refused(kind: str) -> None:
    """A rule that there is not is a mistake of the arguments."""
    meta, args = ASKED[kind]
    assert refuses(meta, **args, on_error="rollback")
    assert refuses(meta, **args, dry_run="yes")

"""The table of promises: which sandboxes are measured, and what is said of those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.code.types import ExecuteRequest
from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.base import Availability
from toolexec.testing.escape_battery import PROBES
from toolexec.testing.escapes import ESCAPES, Escape
from toolexec.testing.matrix import measure
from toolexec.testing.scripted_sandbox import ScriptedSandbox

HELD = Escape(name="held", tries="to do nothing", programs={"python": "one"})
LEAKS = Escape(name="leaks", tries="to get out", programs={"python": "two"}, check=lambda attempt: "it got out")
OF_THE_KERNEL = next(escape for escape in ESCAPES if escape.isolated)


def cell(kind: str = "cell", isolation: str = "container", **options: Any) -> ScriptedSandbox:
    """A sandbox whose programs do nothing, and whose ordinary ones run well."""

    async def answer(request: ExecuteRequest) -> Any:
        if request.code not in ("one", "two"):
            assert request.gateway is not None
            request.output.write("clean\n")
            await request.gateway.run_tool("escape:echo", {"text": "probe"})
            return PROBES["python"][1]
        return None

    return ScriptedSandbox(default=answer, kind=kind, isolation=isolation, **options)


async def test_each_promise_of_each_sandbox() -> None:
    """Says of each whether it was kept."""
    found = await measure([cell("one"), cell("two")], promises=[HELD, LEAKS])
    assert found.is_weaker
    assert found.is_measured
    data = found.to_dict()
    assert [(each["name"], each["sandboxes"]) for each in data["promises"]] == [
        ("held", {"one": "kept", "two": "kept"}),
        ("leaks", {"one": "weaker", "two": "weaker"}),
    ]
    assert not data["ok"]
    assert [outcome.evidence for outcome in found.columns[0].weaker] == ["it got out"]


@pytest.mark.parametrize("trouble", [Availability(ok=False, reason="gone"), SandboxUnavailableError("gone")])
async def test_a_sandbox_that_is_not_there(trouble: Any) -> None:
    """Was never measured here, for a reason, and does not stop the others."""

    async def prepare(backend: Any) -> Availability:
        if backend.kind == "there":
            return Availability(ok=True)
        if isinstance(trouble, Exception):
            raise trouble
        return trouble

    found = await measure([cell("away"), cell("there")], promises=[HELD], prepare=prepare)
    assert [column.reason for column in found.columns] == ["gone", ""]
    assert [column.verdict("held") for column in found.columns] == ["unmeasured", "kept"]
    assert (found.is_measured, found.is_weaker) == (False, False)


async def test_a_sandbox_that_runs_nothing_was_not_measured() -> None:
    """A sandbox that holds everything because it runs nothing keeps no promise."""
    found = await measure([ScriptedSandbox(default=ValueError("no"), kind="mute")], promises=[HELD])
    assert found.columns[0].verdict("held") == "unmeasured"
    assert "cannot run an ordinary program" in found.columns[0].reason
    assert found.columns[0].fix == "run toolexec doctor"


async def test_a_language_that_it_does_not_have() -> None:
    """Cannot be measured there."""
    found = await measure([cell()], promises=[Escape(name="x", tries="to", programs={"cobol": ""})], language="cobol")
    assert found.columns[0].reason == "it does not run cobol"
    assert found.columns[0].fix == "use a sandbox or image that does"


@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_nothing_runs_without_isolation_unless_it_is_asked_for(isolation: str) -> None:
    """The unsafe option admits no program that asks the kernel."""
    backend = cell(isolation=isolation)
    found = await measure([backend], promises=[HELD])
    column = found.columns[0]
    assert column.reason == "it has no isolation: the hostile programs would run on this machine, as you"
    assert "--unsafe" in column.fix
    assert column.to_dict()["fix"] == column.fix
    found = await measure([backend], promises=[HELD, OF_THE_KERNEL], unsafe=True)
    assert found.columns[0].verdict("held") == "kept"
    assert found.columns[0].verdict(OF_THE_KERNEL.name) == "unmeasured"


async def test_outcomes_come_at_once() -> None:
    """Calls back with the sandbox and each outcome."""
    seen: list[tuple[str, str]] = []
    await measure(
        [cell()], promises=[HELD], on_outcome=lambda backend, outcome: seen.append((backend.kind, outcome.name))
    )
    assert seen == [("cell", "held")]

"""Signed requests over HTTP, and the turns that their tenants have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from packages.remote.tests.servers import OTHER, runtime_server, signed_get, signed_post

from toolexec.sandbox import ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.server.rounds import Rounds
from toolexec_remote.wire import encode_request


class Watched(Rounds):
    """Rounds that keep whose turns there were."""

    def __init__(self) -> None:
        super().__init__(lambda: True)
        self.asked: list[str] = []

    async def turn(self, account: str) -> None:
        """Wait for it, and keep it."""
        self.asked.append(account)
        await super().turn(account)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Return the rounds in which the server reads."""
    made = Watched()
    given: list[Rounds] = [made]

    def make(is_shared: Callable[[], bool]) -> Rounds:
        return given.pop() if given else Rounds(is_shared)

    monkeypatch.setattr("toolexec_remote.server.shares.Rounds", make)
    return made


@pytest.fixture
async def endpoint(tmp_path: Path, rounds: Watched) -> AsyncIterator[str]:
    async with runtime_server(tmp_path, ScriptedSandbox(default=1)) as found:
        yield found


@pytest.mark.parametrize("path", ["/v1/execute/capacity", "/v1/execute/runs/r1", "/metrics"])
async def test_each_signed_question_has_a_turn_of_its_tenant(endpoint: str, rounds: Watched, path: str) -> None:
    """A tenant that asks for a run, the capacity or the metrics has one answer where another one has one."""
    status, _ = await signed_get(endpoint.removesuffix("/v1/execute") + path, endpoint, OTHER)
    assert (status in (200, 404), rounds.asked) == (True, [OTHER.account])


@pytest.mark.parametrize("what", ["body", "signature"])
async def test_what_is_refused_is_a_turn_for_nothing(endpoint: str, rounds: Watched, what: str) -> None:
    """A tenant whose requests are refused again and again is a wasteful one, over HTTP, too."""
    good = encode_request(ExecuteRequest(code="1"))
    for _ in range(20):
        if what == "body":
            status, _, _ = await signed_post(endpoint, b"{}", key=OTHER)
        else:
            status, _, _ = await signed_post(endpoint, good, key=OTHER, incarnation="0" * 64)
        assert status in (400, 421)
    assert rounds.is_wasteful(OTHER.account)


async def test_what_is_run_is_a_turn_for_something(endpoint: str, rounds: Watched) -> None:
    """A tenant whose programs run, and end, wastes nothing, though it asks before each whether it may."""
    for number in range(20):
        await signed_get(f"{endpoint}/runs/r{number}", endpoint, OTHER)
        await signed_post(endpoint, encode_request(ExecuteRequest(code="1")), key=OTHER)
    assert not rounds.is_wasteful(OTHER.account)

"""Guests begin in turn, and none waits for another one for long."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.waiting import until_blocking

from toolexec import Exec
from toolexec.runtime.wasm import WasmBackend, guest
from toolexec.runtime.wasm.guest import Starts


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing begins for lack of patience."""
    monkeypatch.setattr(guest, "PATIENCE_SECONDS", 60)


@pytest.mark.usefixtures("patient")
def test_in_turn() -> None:
    """One that is too many begins when another one leaves; leaving twice makes room once."""
    turns = Starts(2)
    first, _ = turns.enter(), turns.enter()
    later: list[Callable[[], None]] = []
    threads = [threading.Thread(target=lambda: later.append(turns.enter())) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert not later
    first()
    until_blocking(lambda: len(later) == 1)
    first()
    assert len(later) == 1
    later[0]()
    for thread in threads:
        thread.join(60)
    assert len(later) == 2


def test_not_for_ever() -> None:
    """A guest that computes on and on does not keep the others waiting, and no room is made for it twice."""
    turns = Starts(1)
    turns.enter()
    for _ in range(3):
        turns.enter()()
    assert not turns._free.acquire(blocking=False)


def test_as_many_as_processors() -> None:
    """Without a number there is room for one more than there are processors."""
    assert Starts()._free._value == guest._processors() + 1  # type: ignore[attr-defined]


@pytest.mark.usefixtures("patient")
async def test_room_while_a_guest_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that calls a tool lets the next begin, even one that the tool itself starts; so does one that ends."""
    monkeypatch.setattr(guest, "_processors", lambda: 0)
    async with Exec(runtime_backends=[WasmBackend(pool_size=0)]) as ex:

        async def inner() -> int:
            return (await ex.execute_code("return 20")).value

        ex.add(inner, "code:inner")
        for code in ("return tools.code.inner() + 1", "return await tools.code.inner() + 1"):
            assert (await ex.execute_code(code)).value == 21
        assert (await ex.execute_code("1 / 0")).error is not None
        assert (await ex.execute_code("return 3")).value == 3

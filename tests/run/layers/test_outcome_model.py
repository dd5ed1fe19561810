"""Random calls against a plain reference: how often each is made, by what became of it, behind retries and a ledger."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.run.conftest import Workshop
from tests.run.layers.resilience import Clock, Service, behind

from toolexec.errors import BackendUnavailableError, ExecutionError, Outcome, PolicyError, ToolExecError
from toolexec.model import ToolCall
from toolexec.run.effects import EffectLedger
from toolexec.run.layers.breaker import Breaker
from toolexec.run.layers.ledger import Ledger
from toolexec.run.layers.retry import Retry

ATTEMPTS = 3
REPEATABLE = ("read", "put")
TOOLS = (*REPEATABLE, "post", "delete")


def failure(outcome: Outcome, retryable: bool) -> ToolExecError:
    """Return a failure that states what became of its call."""
    if outcome is Outcome.NOT_SENT:
        return BackendUnavailableError("down", retryable=retryable)
    return ExecutionError(outcome.value, outcome=outcome, retryable=retryable)


class Reference:
    """What may be called, as the documentation has it: nothing but lists and dictionaries."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, int, str], Outcome | None] = {}
        """How each call ended at last: None with an answer, else what its failure stated."""

    def calls(self, tool: str, number: int, key: str, plan: list[tuple[Outcome, bool]]) -> int:
        """Return how often the service is called, when attempts end as *plan* says, and then with an answer."""
        place = (tool, number, key)
        before = self.states.get(place)
        is_lost = before in (Outcome.UNKNOWN, Outcome.DONE)  # it may be done, and its caller has no answer
        if tool not in REPEATABLE and (is_lost or (key and place in self.states and before is None)):
            return 0
        made = 0
        last: Outcome | None = None
        for outcome, retryable in [*plan, (None, False)]:
            made += 1
            last = outcome
            again = retryable and tool != "delete" and (tool in REPEATABLE or outcome is Outcome.NOT_SENT)
            if not again or made == ATTEMPTS:
                break
        self.states[place] = last
        return made


@pytest.mark.parametrize("seed", range(40))
async def test_calls_are_made_as_often_as_they_may_be(workshop: Workshop, tmp_path: Path, seed: int) -> None:
    """Each of 60 calls reaches the service as often as the reference says; with a key, an effect happens once."""
    draw, clock, reference = random.Random(seed), Clock(), Reference()
    service = Service(workshop)
    effects = EffectLedger(tmp_path / "effects.db", clock=clock)
    retry = Retry(attempts=ATTEMPTS, pause=0, burst=10_000, sleep=clock.sleep, clock=clock)
    runner = behind(workshop, retry=retry, ledger=Ledger(effects), breaker=Breaker(failures=10_000))
    done: dict[tuple[str, int, str], int] = {}
    for _ in range(60):
        tool, number = draw.choice(TOOLS), draw.randrange(3)
        key = draw.choice(["", f"{tool}-{number}"])
        plan = [(draw.choice(list(Outcome)), draw.random() < 0.7) for _ in range(draw.randrange(4))]
        expected = reference.calls(tool, number, key, plan)
        ends = [failure(*each) for each in plan]
        service.next = [*ends]
        before = service.count
        try:
            await runner.run(ToolCall(f"hub:{tool}", {"n": number}, idempotency_key=key))
        except (BackendUnavailableError, PolicyError):
            pass
        made = service.count - before
        assert made == expected, (tool, number, key, plan)
        worked = sum(not plan[i][0].is_undone if i < len(plan) else 1 for i in range(made))
        done[tool, number, key] = done.get((tool, number, key), 0) + worked
    effects.close()
    assert all(count <= 1 for (tool, _, key), count in done.items() if key and tool not in REPEATABLE), done

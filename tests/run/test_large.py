"""Work on large values goes in steps, off the event loop, within a budget."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec import Exec, Step
from toolexec.errors import InputValidationError, InvalidChainError
from toolexec.model.declare import declare
from toolexec.process.threads import NoThreadError, WorkerThreads
from toolexec.run import large
from toolexec.run.large import (
    COMPACT,
    Budget,
    BudgetExceededError,
    encode_large,
    is_small,
    json_pieces,
    off_loop,
    search,
    spend_on,
    walked,
)

json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
ROWS = [{"id": number, "name": f"row {number}", "tags": ["a", "b"][: number % 3]} for number in range(25_000)]
BOMB = "[?" + "abs(" * 30 + "id" + ")" * 30 + " > `0`]"


class TestBudget:
    """What a piece of work may take."""

    def test_steps(self) -> None:
        """As many as are given, and not one more."""
        budget = Budget(steps=2500)
        for _ in range(2500):
            budget.spend()
        with pytest.raises(BudgetExceededError, match="too many steps"):
            budget.spend()

    def test_time(self) -> None:
        """The budget checks the time now and then."""
        with pytest.raises(BudgetExceededError, match="too long"):
            spend_on([[]] * 5000, Budget(0.0))

    def test_it_can_be_stopped(self) -> None:
        """By the one who waits for it, and because what it is for is over."""
        budget = Budget()
        budget.spend(10_000)
        budget.stop()
        with pytest.raises(BudgetExceededError, match="stopped"):
            budget.spend()
        with pytest.raises(BudgetExceededError, match="stopped"):
            Budget(is_over=lambda: True).spend()


class TestEncoding:
    """JSON in pieces."""

    @pytest.mark.full
    @given(json_values)
    def test_it_is_what_json_makes(self, value: Any) -> None:
        """Whatever the value, and however small the pieces."""
        expected = json.dumps(value)
        short = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        assert encode_large(value) == expected
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(large, "_SMALL_NODES", 1)
            patch.setattr(large, "_SMALL_CHARS", 2)
            patch.setattr(large, "_BATCH", 2)
            assert encode_large(value) == expected
            assert "".join(json_pieces(value, encode=COMPACT)) == short

    def test_no_piece_is_long(self) -> None:
        """Short pieces keep the interpreter free."""
        value = {"rows": ROWS, "text": "é" * 1_000_000, "deep": [[ROWS[:5000]]]}
        pieces = [*json_pieces(value)]
        assert "".join(pieces) == json.dumps(value)
        assert max(map(len, pieces)) < 500_000

    @pytest.mark.parametrize("value", [[object()], {"a": {1, 2}}, [float("nan")]], ids=["object", "set", "nan"])
    def test_what_is_not_json(self, value: Any) -> None:
        """Refuses it as `json.dumps` does."""
        with pytest.raises((TypeError, ValueError)):
            encode_large([value] * 5000)

    @pytest.mark.parametrize(
        ("value", "small"),
        [
            (5, True),
            ("x" * 65_536, True),
            ("x" * 65_537, False),
            ([0] * 2000, True),
            ([0] * 2001, False),
            ({"a": {"b": {"c": [[0] * 1000, [0] * 1000]}}}, False),
            ({"x" * 70_000: 1}, False),
            (["x" * 40_000, "x" * 40_000], False),
        ],
        ids=lambda value: str(value)[:20],
    )
    def test_what_is_small(self, value: Any, small: bool) -> None:
        """Few parts, little text."""
        assert is_small(value) is small


class TestSelecting:
    """JMESPath within a budget."""

    @pytest.mark.full
    @pytest.mark.parametrize(
        "path",
        [
            "[*].id", "[?id > `24990`].name", "[].tags[]", "sort_by(@, &name)[-1].id", "sort([*].name)[:3]", "[0]",
            "max_by(@, &id).name", "sum([*].id)", "reverse(sort_by(@, &id))[0]", "length(@)", "[:3].{a: id, b: tags}",
            "[?contains(tags, 'b')] | [0:2]", "sort_by(@, &id)[:2].id", "nothing",
        ],
    )  # fmt: skip
    def test_it_is_what_jmespath_selects(self, path: str) -> None:
        """Selects as JMESPath does, even where sorting goes in pieces."""
        assert search(jmespath.compile(path).parsed, ROWS, Budget()) == jmespath.search(path, ROWS)

    @pytest.mark.parametrize(
        "path", [BOMB, "sort_by(@, &name)", "[].tags[]", "|".join(["[@[], @[]]"] * 30), "length(to_string(@))"]
    )
    def test_a_budget_ends_it(self, path: str) -> None:
        """Whatever it is that takes long."""
        with pytest.raises(BudgetExceededError):
            search(jmespath.compile(path).parsed, ROWS, Budget(steps=20_000))

    def test_parts_that_are_there_many_times(self) -> None:
        """Parts that occur many times count each time."""
        with pytest.raises(BudgetExceededError):
            spend_on(search(jmespath.compile("|".join(["[@, @]"] * 60)).parsed, 1, Budget()), Budget(steps=100_000))


class TestOffTheLoop:
    """The event loop goes on meanwhile."""

    async def test_it_is_another_thread(self) -> None:
        """The result comes back, or what was raised."""
        assert await off_loop(lambda _: threading.get_ident(), Budget()) != threading.get_ident()
        with pytest.raises(BudgetExceededError):
            await off_loop(lambda budget: budget.spend(5), Budget(steps=1))

    async def test_cancelling_stops_the_work(self) -> None:
        """The thread is free again."""
        ended = threading.Event()
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def work(budget: Budget) -> None:
            loop.call_soon_threadsafe(begun.set)
            try:
                while True:
                    budget.spend()
            finally:
                ended.set()

        task = asyncio.create_task(off_loop(work, Budget()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, 60)

    async def test_what_was_done_is_walked_though_every_thread_hangs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A large value of a program that ran is read; an error would say that it did not, and it would run again."""
        threads = WorkerThreads(1, spare=0)
        monkeypatch.setattr(large, "_threads", threads)
        begun, ends = threading.Event(), threading.Event()
        hung = asyncio.create_task(off_loop(lambda _: (begun.set(), ends.wait(60)), Budget()))
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            hung.cancel()
            await asyncio.wait([hung])
            with pytest.raises(NoThreadError):
                await off_loop(lambda _: 7, Budget())
            assert await walked(lambda: 7) == 7
            async with Exec() as ex:
                result = await ex.execute_code("return 'x' * 300_000")
            assert result.raise_for_error().value == "x" * 300_000
        finally:
            ends.set()
            threads.close()


class TestChains:
    """References to the values of earlier steps."""

    async def chain(self, reference: str, rows: Any = ROWS) -> Any:
        """Refer to a large value; gives the step's outcome, and in which thread it was selected."""

        def give() -> Any:
            """Give the rows."""
            return rows

        def take(value: Any) -> Any:
            """Take a value."""
            return value

        async with Exec() as ex:
            ex.add(declare(give, "kit:give"))
            ex.add(declare(take, "kit:take"))
            steps = [Step("kit:give", name="rows"), Step("kit:take", {"value": {"$ref": reference}})]
            return (await ex.run_chain(steps)).steps[1]

    async def test_a_large_value(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A large value is searched in another thread; a small one is not."""
        threads: list[int] = []
        original = large.search

        def noted(*args: Any) -> Any:
            threads.append(threading.get_ident())
            return original(*args)

        monkeypatch.setattr("toolexec.run.references.search", noted)
        assert (await self.chain("rows[?id > `24997`].name")).value == ["row 24998", "row 24999"]
        assert (await self.chain("rows[0].name", ROWS[:3])).value == "row 0"
        assert (threads[0] != threading.get_ident(), threads[1] == threading.get_ident()) == (True, True)

    @pytest.mark.full
    @pytest.mark.parametrize(
        "reference", [f"rows{BOMB}", "rows[0].id|" + "|".join(["[@, @]"] * 60)], ids=["slow", "growing"]
    )
    async def test_one_that_takes_too_much(self, reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Such a reference is a failure of its step, and not the end of the process."""
        monkeypatch.setattr("toolexec.run.steps.MAX_STEPS", 50_000)
        done = await self.chain(reference)
        assert isinstance(done.error, InvalidChainError)
        assert "too many steps" in str(done.error)


@pytest.mark.full
def test_a_served_selection_has_a_budget_too() -> None:
    """The same one ends it."""
    from toolexec.run.reading import select

    with pytest.raises(InputValidationError, match="too many steps"):
        select(ROWS, "[?" + "!" * 40 + "id]")

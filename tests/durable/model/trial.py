"""Plays plans on an engine, and shows the smallest one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

from tests.durable.model.plans import Plan, make_plan, smaller
from tests.durable.model.play import Driver, play


class MortalDriver(Driver, Protocol):
    """A driver that leaves nothing behind."""

    async def aclose(self) -> None:
        """End all that it has started."""
        ...


class Trial:
    """Plays plans, each on a driver of its own that *open_driver* makes for it and the ID of its run."""

    def __init__(
        self, open_driver: Callable[[Plan, str], MortalDriver], fitted: Callable[[Plan], Plan] = lambda plan: plan
    ) -> None:
        """*fitted* makes of a plan one that the engine can play."""
        self._open_driver = open_driver
        self._fitted = fitted
        self._numbers = count()

    async def hold(self, seeds: Iterable[int]) -> None:
        """Play the plans of *seeds*; raise AssertionError for one that fails."""
        for seed in seeds:
            await self.play(make_plan(seed))

    async def play(self, plan: Plan) -> None:
        """Play one plan; raise AssertionError if it fails."""
        plan = self._fitted(plan)
        error = await self._failure(plan)
        if error is not None:
            plan, error = await self._least(plan, error)
            raise AssertionError(f"{error}\n{plan.text()}") from error

    async def _failure(self, plan: Plan) -> Exception | None:
        driver = self._open_driver(plan, f"r{next(self._numbers)}")
        try:
            await play(plan, driver)
        except Exception as error:
            return error
        finally:
            await driver.aclose()
        return None

    async def _least(self, plan: Plan, error: Exception) -> tuple[Plan, Exception]:
        """Leave out of a plan that fails whatever it fails without."""
        for less in smaller(plan):
            found = await self._failure(less)
            if found is not None:
                return await self._least(less, found)
        return plan, error

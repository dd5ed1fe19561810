"""The workflow's half of the exchange with its sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from toolexec.journal import JSONDict, JSONValue
from toolexec_temporal.messages import Exchange
from toolexec_temporal.sizes import first_part


class Dispatcher:
    """Answers the sandbox of a workflow, one exchange after the other: the next one ends the wait of the last."""

    def __init__(self) -> None:
        self.attempt: int = 0
        """That of the sandbox that has the run."""
        self.rests: bool = True
        """Whether the code does nothing but wait for answers; that of a sandbox which does not say so always does."""
        self._exchanges = 0
        self._wanted: Sequence[str] = ()

    def check(self, exchange: Exchange) -> None:
        """Raise ApplicationError for a sandbox that has lost the run."""
        if exchange.attempt != self.attempt:
            raise ApplicationError("another worker runs this code by now", type="run_lost")

    async def answers(self, exchange: Exchange, find: Callable[[str], JSONValue]) -> JSONDict:
        """Return the answers that *find* has to what is wanted, once there is one, as many as go into one message; none
        when another exchange comes."""
        self._exchanges += 1
        number = self._exchanges
        self.rests, self._wanted = exchange.rests is not False, exchange.wanted

        def found() -> JSONDict:
            answers = {name: find(name) for name in exchange.wanted}
            return {name: answer for name, answer in answers.items() if answer is not None}

        await workflow.wait_condition(lambda: bool(found()) or number != self._exchanges)
        answers = first_part(found())
        if answers and exchange.rests is not None:
            self.rests = False  # it goes on with them
        return answers

    def has_news(self, find: Callable[[str], JSONValue]) -> bool:
        """Return whether *find* has an answer that the last sandbox still waited for."""
        return any(find(name) is not None for name in self._wanted)

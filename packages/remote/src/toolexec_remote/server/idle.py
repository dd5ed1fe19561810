"""Places that are held and not used: by a caller that does not confirm, a session without a program, and a program that
waits for an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from toolexec.errors import SandboxFailedError, SandboxUnavailableError, ToolExecError

_OTHERS: Final = "while another tenant waited for its place"


class HeldPlace(Protocol):
    """A run that has a place, and what this module needs of it."""

    @property
    def account(self) -> str:
        """The tenant."""
        ...

    @property
    def unconfirmed_since(self) -> float:
        """Since when its caller should confirm it; 0: it need not, or has."""
        ...

    @property
    def waits_since(self) -> float:
        """Since when it does nothing but wait for answers; 0: it does more."""
        ...

    def stop(self, why: ToolExecError) -> None:
        """Stop it."""
        ...


class IdleSession(Protocol):
    """A session that has a place."""

    account: str
    programs: int
    idle_since: float
    give_up: Callable[[], None]


@dataclass(frozen=True, slots=True)
class IdlePlace:
    """A place that is not used `since` a time of `monotonic`; `take_back` ends what holds it."""

    kind: str
    since: float
    take_back: Callable[[], None]


def idle_places(account: str, runs: Iterable[HeldPlace], sessions: Iterable[IdleSession]) -> Iterator[IdlePlace]:
    """Give the places of a tenant that are held and not used. A run that was not confirmed has never started, and may
    be asked for again."""
    for run in runs:
        if run.account != account:
            continue
        if run.unconfirmed_since:
            why: ToolExecError = SandboxUnavailableError(
                f"its start was not confirmed {_OTHERS}", code="queue_full", retryable=True
            )
            yield IdlePlace("unconfirmed", run.unconfirmed_since, partial(run.stop, why))
        elif run.waits_since:
            why = SandboxFailedError(
                f"the program waited for the answer to a call {_OTHERS}, and its tenant had more places than its "
                "share; it was stopped",
            )
            yield IdlePlace("waiting", run.waits_since, partial(run.stop, why))
    for session in sessions:
        if session.account == account and not session.programs:
            yield IdlePlace("session", session.idle_since, session.give_up)

"""The sessions of a server: sandboxes that clients keep open, each with a place among those that run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic

from toolexec.sandbox import Output, SandboxSession
from toolexec_remote.server.admission import Admission, Ticket
from toolexec_remote.server.executing import Execution
from toolexec_remote.server.relay import RelayGateway
from toolexec_remote.wire import RemoteRequest


@dataclass(slots=True)
class OpenSession:
    """A session of a client, with its place among those that run. `programs` are under way in it; `give_up` closes it,
    and says so."""

    account: str
    guest: SandboxSession
    ticket: Ticket
    give_up: Callable[[], None]
    idle_since: float
    programs: int = 0


class Sessions:
    """The open sessions, by their tenant and ID."""

    def __init__(self, admission: Admission, execution: Execution) -> None:
        self._admission = admission
        self._execution = execution
        self._open: dict[tuple[str, str], OpenSession] = {}

    def __iter__(self) -> Iterator[OpenSession]:
        return iter(self._open.values())

    def find(self, account: str, session_id: str) -> OpenSession | None:
        """Return an open session."""
        return self._open.get((account, session_id))

    async def open(
        self,
        account: str,
        session_id: str,
        request: RemoteRequest,
        gateway: RelayGateway,
        give_up: Callable[[], None],
    ) -> None:
        """Open a session once there is a place. Raises as `RunService.open_session` does."""
        ticket = self._admission.enter(account)
        try:
            await ticket.turn
            wanted = request.made(gateway, Output())
            guest = await self._execution.runtime_for(request.sandbox, wanted.profile).open_session(wanted)
        except BaseException:
            ticket.leave()
            raise
        self._open[account, session_id] = OpenSession(account, guest, ticket, give_up, monotonic())

    def close(self, account: str, session_id: str) -> asyncio.Task[None] | None:
        """Close a session, as `RunService.close_session` does."""
        session = self._open.pop((account, session_id), None)
        return asyncio.create_task(_close(session)) if session is not None else None

    async def close_all(self) -> None:
        """Close all of them, and wait until they are."""
        closing = [self.close(*name) for name in [*self._open]]
        await asyncio.gather(*(task for task in closing if task is not None), return_exceptions=True)


async def _close(session: OpenSession) -> None:
    try:
        await session.guest.aclose()
    finally:
        session.ticket.leave()

"""The logins of one server: one for all of its calls, or one of each caller, which no other caller's call gets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from toolexec.net.oauth.reach import Reach
from toolexec.net.oauth.session import OAuthSession

_MOST: Final = 1000
"""How many callers' logins are held at once; the others are in their store, and come back at the next call."""


class CallerLogins:
    """Gives the session of each caller, which *make* makes from what the caller is called (empty: the one for all).

    There are at most *most* of callers; those that were not used for the longest time give way. They lose nothing by
    it: what is kept of them is in the store, where each is under its own key.
    """

    def __init__(self, make: Callable[[str], OAuthSession], *, most: int = _MOST) -> None:
        self._make = make
        self._reach: Reach | None = None
        self._most = most
        self._sessions: OrderedDict[str, OAuthSession] = OrderedDict()
        self.of_all: OAuthSession = make("")
        """The session that belongs to no caller; its settings are those of all."""

    @property
    def is_shared(self) -> bool:
        """Whether all calls are made with the one login."""
        return self.of_all.settings.per == "server"

    def __len__(self) -> int:
        """Return how many callers' logins are held."""
        return len(self._sessions)

    def of(self, caller: str) -> OAuthSession:
        """Return the session of *caller*, as operators name it; that of all for an empty one."""
        if not caller:
            return self.of_all
        session = self._sessions.get(caller)
        if session is None:
            session = self._sessions[caller] = self._make(caller)
            session.reach = self._reach or session.reach
            if len(self._sessions) > self._most:
                _, last = self._sessions.popitem(last=False)
                last.forget()
        self._sessions.move_to_end(caller)
        return session

    def use(self, reach: Reach) -> None:
        """Have all requests of logins sent over *reach* from now on."""
        self._reach = reach
        for session in (self.of_all, *self._sessions.values()):
            session.reach = reach

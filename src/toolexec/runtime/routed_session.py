"""A session of a runtime: its programs are held to the language and the limits that it was opened with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from toolexec.code.limits import counted
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import InvalidRequestError
from toolexec.model.languages import ALIASES
from toolexec.runtime.base import SandboxSession

_COUNTED: Final = ("max_tool_calls", "max_chain_steps")
"""What is counted for each program on its own, in a session too."""


class RoutedSession:
    """A session whose programs are held to the same limits as any other."""

    def __init__(
        self,
        session: SandboxSession,
        opened: ExecuteRequest,
        run: Callable[[Coroutine[Any, Any, CodeResult], ExecuteRequest], Awaitable[CodeResult]],
    ) -> None:
        """*run* does the work of a request, and completes its result."""
        self._session = session
        self._opened = opened
        self._run = run

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Implement `SandboxSession.execute`."""
        request.validate()
        opened = self._opened
        asked = ALIASES.get(request.language, request.language) or "python"
        spoken = opened.language or "python"
        if asked != spoken:
            raise InvalidRequestError(f"this session speaks {spoken}; open another one for {asked}")
        limits = request.limits
        if limits != opened.limits:
            counts = {name: getattr(limits, name) or getattr(opened.limits, name) for name in _COUNTED}
            own = replace(limits, **dict.fromkeys(_COUNTED, 0))  # the sandbox has them since it was opened
            limits = replace(opened.limits.grant(own, of="the session"), **counts)
        assert request.gateway is not None
        gateway = counted(request.gateway, limits)
        theirs = request.profile, request.language, request.limits, request.gateway
        if theirs != (opened.profile, opened.language, limits, gateway):
            request = request.given(profile=opened.profile, language=opened.language, limits=limits, gateway=gateway)
        return await self._run(self._session.execute(request), request)

    async def aclose(self) -> None:
        """Implement `SandboxSession.aclose`."""
        await self._session.aclose()

"""How much room there is, and which sandboxes: what clients choose a server by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final

from toolexec.remote import ISOLATIONS, JSONDict, Runtime, claims_interrupt, judged_kind
from toolexec.sandbox import ExecuteRequest, SandboxBackend, SessionBackend
from toolexec_remote.server.runs import RunService

_FRESH: Final = 5.0
_PATIENCE: Final = 20.0


class Capacity:
    """Reports on a service, as JSON-able data."""

    def __init__(self, service: RunService) -> None:
        self._service = service
        self._known: list[JSONDict] = []
        self._looked = -_FRESH
        self._turn = asyncio.Lock()

    def counts(self, account: str) -> JSONDict:
        """Return how many run and wait, and how many of a tenant could begin at once."""
        admission, draining = self._service.admission, self._service.draining
        return {
            "free": 0 if draining else admission.free_for(account),
            "running": admission.running,
            "queued": admission.queued,
            "max_running": admission.max_running,
            "max_queued": admission.max_queued,
            "draining": draining,
        }

    async def backends(self) -> list[JSONDict]:
        """Return the sandboxes, with the profiles that clients may use them for; looked for at most every 5 s."""
        async with self._turn:
            if monotonic() - self._looked > _FRESH:
                runtime, profiles = self._service.runtime, self._service.settings.profiles
                found = await asyncio.gather(*(report_sandbox(runtime, profiles, each) for each in runtime.backends))
                self._known = [each for each in found if each["profiles"]]
                self._looked = monotonic()
            return self._known

    async def whole(self, account: str) -> JSONDict:
        """Return all of it, as a tenant has it."""
        return {
            "incarnation": self._service.incarnation.id,
            "capacity": self.counts(account),
            "backends": await self.backends(),
        }


async def report_sandbox(runtime: Runtime, profiles: Sequence[str], backend: SandboxBackend) -> JSONDict:
    """Return what *backend* is, whether it is available, and for which of *profiles* clients may use it."""
    try:
        async with asyncio.timeout(_PATIENCE):
            state = await backend.check()
        ok, reason = state.ok, state.reason
    except TimeoutError:
        ok, reason = False, f"it did not answer within {_PATIENCE:g} s"
    languages = sorted(backend.languages)
    return {
        "kind": judged_kind(backend),
        "isolation": backend.isolation,
        "languages": languages,
        "replays": sorted(getattr(backend, "replays", ())),
        "sessions": isinstance(backend, SessionBackend),
        "interrupts": claims_interrupt(backend),
        "profiles": [
            profile
            for profile in profiles
            if backend in runtime.candidates(profile) and backend.isolation in ISOLATIONS[profile]
        ],
        "enforces": {
            language: backend.enforces(ExecuteRequest(code="0", language=language)).to_dict() for language in languages
        },
        "readiness": runtime.readiness_of(backend, languages[0] if languages else ""),
        "available": ok,
        "reason": reason,
    }

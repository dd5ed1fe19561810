"""Whether a sandbox may take a program: it is there, it has what the program needs, and it holds the limits."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from toolexec.code.repair.lacks import PackageSource
from toolexec.code.types import ExecuteRequest
from toolexec.errors import LimitNotEnforceableError, SandboxDeniedError
from toolexec.runtime.base import Availability, SandboxBackend
from toolexec.runtime.kinds import KINDS
from toolexec.runtime.needs import Needs

logger: logging.Logger = logging.getLogger(__name__)
_BY_ENGINES: Final = frozenset({"container", "gvisor", "vm"})
_ENFORCED_BY: Final = {
    "max_tool_calls": "tool_calls",
    "max_chain_steps": "chain_steps",
    "memory_bytes": "memory",
    "cpu_ms": "cpu",
    "cpus": "cpus",
    "pids": "pids",
    "disk_bytes": "disk",
}


async def checked_in_time(backend: SandboxBackend, seconds: float) -> Availability:
    """Return what *backend* says of itself; one that depends on an engine, or is a plugin's, gets no longer for that
    than the run may take. What a check raises, which it must not, is a reason, too."""
    ours = backend.kind in KINDS
    try:
        async with asyncio.timeout(None if ours and backend.isolation not in _BY_ENGINES else seconds):
            return await backend.check()
    except TimeoutError:
        what = "engine" if ours else "check"
        return Availability(
            ok=False,
            reason=f"its {what} did not answer within {seconds:g} s",
            remedy="see whether the engine runs, and is not stopped",
        )
    except Exception as error:
        logger.exception("the check of the sandbox %s failed", backend.kind)
        return Availability(ok=False, reason=f"its check failed: {type(error).__name__}: {error}")


def without_opt_in(backend: SandboxBackend, request: ExecuteRequest) -> SandboxDeniedError | None:
    """Return the error of a sandbox of a plugin that isolates nothing, for a request without the opt-in; ours has its
    own."""
    if backend.isolation not in ("none", "process") or backend.kind in KINDS:
        return None
    if request.metadata.get("unsafeOptIn") is True:
        return None
    return SandboxDeniedError(
        f"{backend.kind} runs code without any isolation and needs an opt-in for it: pass unsafe_opt_in=True, "
        'or metadata={"unsafeOptIn": True}',
        backend=backend.kind,
    )


async def languages_with(needs: Needs, backend: SandboxBackend) -> list[str]:
    """Return the languages of *backend* in which a Python program has what it needs; `python` comes first."""
    if needs.processes and backend.isolation == "wasm":
        return []
    if not needs.packages:
        return [language for language in ("python",) if language in backend.languages]
    if not isinstance(backend, PackageSource):
        return []
    packages = await asyncio.to_thread(backend.packages)
    return sorted(language for language in packages if needs.packages <= packages[language])


def enforceable(backend: SandboxBackend, request: ExecuteRequest) -> ExecuteRequest:
    """Return *request*; raises LimitNotEnforceableError for a limit that the sandbox would only pretend to hold."""
    enforced = backend.enforces(request)
    missing = [name for name in request.limits.set_names() if not getattr(enforced, _ENFORCED_BY[name])]
    if missing and not request.best_effort:
        raise LimitNotEnforceableError(
            f"{backend.kind} cannot enforce {', '.join(missing)}; drop it, or pass best_effort=True",
            backend=backend.kind,
            details={"limits": missing},
        )
    return request

"""Code as a child process of the host: for development, for those who ask for it by name, and for nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Literal

from toolexec.code.limits import LimitsEnforced
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import (
    ConfigurationError,
    InvalidRequestError,
    SandboxDeniedError,
    SandboxUnavailableError,
)
from toolexec.model.json_value import JSONDict
from toolexec.model.settings import checked
from toolexec.runtime.base import LANGUAGES, Availability, SandboxSession, located
from toolexec.runtime.claims import claim_limits
from toolexec.runtime.runs import OwnRuns, language_of, result_of
from toolexec.runtime.sessions import GuestSession, Stop
from toolexec.runtime.unsafe_host.guest import Guest, Run
from toolexec.runtime.unsafe_host.languages import Launcher

logger: logging.Logger = logging.getLogger(__name__)
_KNOWN_MODES: Final = ("subprocess", "interpreter")


@checked("UnsafeConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeConfig:
    """How the unsafe backend behaves.

    With `require_opt_in` a request must have `unsafeOptIn` set to True in its metadata. `mode` is `subprocess`;
    `interpreter` is accepted and is the same, as results say. `python` is the interpreter for Python code, by default
    the one that runs the host. Raises ConfigurationError for another mode.
    """

    require_opt_in: bool = True
    mode: Literal["subprocess", "interpreter"] = "subprocess"
    python: str = ""

    def __post_init__(self) -> None:
        if self.mode not in _KNOWN_MODES:
            raise ConfigurationError(f"unknown mode {self.mode!r} of unsafe_host; use {' or '.join(_KNOWN_MODES)}")


@checked("UnsafeHostBackend")
class UnsafeHostBackend:
    """Runs code with the rights of this very process: it can read and change whatever the user can.

    What holds: the time limit, after which the process ends with all that it started; a private working directory; no
    environment variables, descriptors or input of the host. Nothing else does. With `best_effort` memory, CPU time and
    processes are watched (Linux, every 50 ms), and a disk limit bounds each file; processes that live for less can pass
    unseen, so none of these is reported as enforced.
    """

    kind: str = "unsafe_host"
    isolation: str = "none"
    languages: frozenset[str] = LANGUAGES
    interrupts: bool = True
    """Whether a run in a session can be stopped with the session kept; see `claims_interrupt`."""

    def __init__(self, config: UnsafeConfig | None = None) -> None:
        self.config: UnsafeConfig = config or UnsafeConfig()
        self._launcher = Launcher(self.config.python)
        self._runs = OwnRuns()
        self._sessions: set[GuestSession] = set()
        self._closed = False

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """Implement `SandboxBackend.enforces`."""
        return claim_limits(
            timeout=True,
            tool_calls=True,
            chain_steps=True,
            memory=False,
            cpu=False,
            cpus=False,
            pids=False,
            disk=False,
        )

    async def check(self) -> Availability:
        """Return whether Python can be run; the reason lists the languages, and what is missing for the others."""
        if os.name != "posix":
            return Availability(ok=False, reason="it needs a POSIX system", remedy="use the wasm sandbox")
        found: dict[str, str] = {}
        missing: dict[str, str] = {}
        for language in sorted(LANGUAGES):
            try:
                found[language] = (await self._launcher.toolchain(language)).version
            except SandboxUnavailableError as error:
                missing[language] = error.message
        there = ", ".join(f"{language} {version}" for language, version in found.items())
        return Availability(
            ok="python" in found,
            reason=f"runs {there}" if there else "nothing that runs code is here",
            remedy="; ".join(missing.values()),
            version=found.get("python", ""),
        )

    async def check_language(self, language: str) -> Availability:
        """Return whether one language can be run here, and what to install if not."""
        if language not in LANGUAGES:
            return Availability(ok=False, reason=f"unsafe_host does not run {language}")
        try:
            return Availability(ok=True, version=(await self._launcher.toolchain(language)).version)
        except SandboxUnavailableError as error:
            return Availability(ok=False, reason=error.message)

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Implement `SandboxBackend.execute`; raises SandboxDeniedError without the opt-in."""
        return await self._runs.run(self._execute(request))

    async def _execute(self, request: ExecuteRequest) -> CodeResult:
        language = self._admit(request)
        began = perf_counter()
        toolchain = await self._launcher.toolchain(language)
        self.warn(request, language)
        guest = Guest(self._launcher, language)
        try:
            run = await guest.execute(request, last=True)
        except OSError as error:
            raise self._unavailable(language, error) from error
        finally:
            await guest.aclose()
        return self.result(request, language, toolchain.version, run, began)

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """Implement `SessionBackend.open_session`; for Python only, and with the opt-in."""
        language = self._admit(request)
        if language != "python":
            raise InvalidRequestError(f"unsafe_host has sessions for python only, not for {language}")
        toolchain = await self._launcher.toolchain(language)
        guest = Guest(self._launcher, language)
        try:
            await guest.open(request)
        except BaseException as error:
            await guest.aclose()
            if isinstance(error, OSError):
                raise self._unavailable(language, error) from error
            raise

        async def run(request: ExecuteRequest, stop: Stop) -> tuple[CodeResult, bool]:
            began = perf_counter()
            self.warn(request, language)
            done = await guest.execute(request, last=False, stop=stop)
            result = self.result(request, language, toolchain.version, done, began)
            return result, not done.spent

        async def close(session: GuestSession) -> None:
            self._sessions.discard(session)
            await guest.aclose()

        session = GuestSession(self, run, close)
        self._sessions.add(session)
        return session

    async def aclose(self) -> None:
        """Kill everything that runs and refuse what comes after."""
        self._closed = True
        await asyncio.gather(self._runs.aclose(), *(session.aclose() for session in [*self._sessions]))

    def _admit(self, request: ExecuteRequest) -> str:
        """Return the language of a request that may run here."""
        if self._closed:
            raise located(SandboxUnavailableError("this backend is closed; make a new one"), self)
        if self.config.require_opt_in and request.metadata.get("unsafeOptIn") is not True:
            raise located(
                SandboxDeniedError(
                    "unsafe_host runs code without any isolation and needs an opt-in for it: pass unsafe_opt_in=True, "
                    'or metadata={"unsafeOptIn": True}'
                ),
                self,
            )
        return language_of(self, request)

    def warn(self, request: ExecuteRequest, language: str) -> None:
        """Emit the warning that each execution gets."""
        mode, size = self.config.mode, len(request.code)
        logger.warning("UNSAFE: %s code of %d characters runs on the host (mode %s)", language, size, mode)

    def _unavailable(self, language: str, error: OSError) -> SandboxUnavailableError:
        return SandboxUnavailableError(
            f"a process for {language} cannot be started: {error.strerror or error}", backend=self.kind
        )

    def result(self, request: ExecuteRequest, language: str, version: str, run: Run, began: float) -> CodeResult:
        """Return what came of a run, as the caller gets it; *began* is the `perf_counter()` at its start."""
        details: JSONDict = {"mode": self.config.mode, "language": language, "version": version}
        if self.config.mode == "interpreter":
            details["note"] = "interpreter is the same as subprocess: code never runs inside of the host's own process"
        if run.left_out:
            details["files_left_out"] = [*run.left_out[:20]]
        return result_of(self, request, run.ending, began, details, run.files)

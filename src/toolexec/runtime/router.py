"""Which sandbox runs a program: by security profile, fail-closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from toolexec.code.limits import Limits, counted
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest, Readiness
from toolexec.errors import (
    ConfigurationError,
    InvalidRequestError,
    LimitNotEnforceableError,
    SandboxDeniedError,
    SandboxError,
    SandboxUnavailableError,
)
from toolexec.errors.hints import did_you_mean
from toolexec.model.languages import ALIASES
from toolexec.model.settings import checked
from toolexec.process.caller_runs import CallerRuns
from toolexec.run.run_request import PROFILES
from toolexec.runtime.base import SandboxBackend, SandboxSession, SessionBackend, judged_kind
from toolexec.runtime.completing import completed
from toolexec.runtime.contract import ISOLATIONS
from toolexec.runtime.fitness import checked_in_time, enforceable, languages_with, without_opt_in
from toolexec.runtime.kinds import candidates
from toolexec.runtime.measured import Experiment
from toolexec.runtime.needs import Needs, needs_of
from toolexec.runtime.roster import Roster
from toolexec.runtime.routed_session import RoutedSession
from toolexec.runtime.runs import OwnRuns

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)
CANDIDATES: Final[Mapping[str, Sequence[str]]] = candidates()
"""The kinds of sandbox that may serve a profile, the preferred one first."""

_SHORT_FOR: Final = {"wasm": "standard"}
_CLOSED: Final = "this runtime is closed; make a new one"


@checked("Runtime")
class Runtime:
    """Sends each program to a sandbox that its security profile allows.

    *backends* are sandboxes; a profile is served by the first of its candidates (see `CANDIDATES`, or *order* for a
    profile of your own choosing) that is there, speaks the language and is available. A mapping of profile →
    backend(s) fixes which ones serve it. There is no way from one profile to another, and none to a sandbox without
    isolation but through `dev`, which *deny_unsafe* can close too: it lists profiles that refuse such a sandbox.
    *limits* are the operator's: a request with more is refused. With *route_by_needs* a Python program whose text
    imports a package, or starts processes, goes to the first candidate that has them, if one does. The kinds of
    *experiments* serve a profile only while the record of a check on this machine holds for it.

    Raises ConfigurationError for unknown profiles or two sandboxes of one kind. A runtime is also the engine of an
    `Executor`: it stops code at the deadline by itself.

    >>> from toolexec.runtime.wasm import WasmBackend
    >>> runtime = Runtime([WasmBackend()])
    >>> [backend.kind for backend in runtime.backends]
    ['wasm']
    """

    keeps_deadline = True

    def __init__(
        self,
        backends: Iterable[SandboxBackend] | Mapping[str, SandboxBackend | Sequence[SandboxBackend]] = (),
        *,
        default_profile: str = "standard",
        deny_unsafe: Sequence[str] = ("standard", "hardened"),
        order: Mapping[str, Sequence[str]] | None = None,
        limits: Limits | None = None,
        route_by_needs: bool = False,
        experiments: Mapping[str, Experiment] | None = None,
    ) -> None:
        _check_profiles([default_profile.replace("wasm", "standard"), *deny_unsafe, *(order or {})])
        self.default_profile = default_profile
        self.limits: Limits = limits or Limits()
        self.route_by_needs = route_by_needs
        self._deny_unsafe = frozenset(deny_unsafe)
        self.experiments: Mapping[str, Experiment] = experiments or {}
        self._order = {**CANDIDATES, **(order or {})}
        self._roster = Roster()
        self._by_profile: dict[str, list[SandboxBackend]] = {}
        self._rated: dict[tuple[int, str], tuple[SandboxBackend, Readiness]] = {}
        self._runs = OwnRuns()
        self._in_callers = CallerRuns()
        self._closed = False
        if isinstance(backends, Mapping):
            served: Any = backends
            for profile, fixed in served.items():
                self.register(profile, *(fixed if isinstance(fixed, Sequence) else [fixed]))
        else:
            for backend in backends:
                self.add(backend)

    def add(self, backend: SandboxBackend) -> None:
        """Add a sandbox for every profile that it may serve; raises ConfigurationError for a kind that is there."""
        self._roster.add(backend)

    def add_later(self, kind: str, make: Callable[[], SandboxBackend]) -> None:
        """Add the sandbox of *kind* that *make* returns; it is made when it is the next candidate for a program, or all
        sandboxes are asked for. It must run code by itself; UnsupportedPlatformError of *make* leaves it out, and what
        else it raises is raised then.

        Raises ConfigurationError for a kind that is there.
        """
        self._roster.add_later(kind, make)

    def register(self, profile: str, *backends: SandboxBackend) -> None:
        """Have just these sandboxes serve *profile*, in this order; replaces what served it.

        Raises ConfigurationError for an unknown profile.
        """
        _check_profiles([profile])
        self._by_profile[profile] = [*backends]

    def unregister(self, profile: str) -> None:
        """Undo `register`; the candidates of the profile serve it again."""
        self._by_profile.pop(profile, None)

    @property
    def backends(self) -> list[SandboxBackend]:
        """All sandboxes, in order of their addition."""
        fixed = [backend for group in self._by_profile.values() for backend in group]
        return [*dict.fromkeys([*self._roster, *fixed])]

    def candidates(self, profile: str) -> list[SandboxBackend]:
        """Return the sandboxes that may serve *profile* here, the preferred one first."""
        return [*self.offered(profile)]

    def offered(self, profile: str, only: str = "") -> Iterator[SandboxBackend]:
        """Give the candidates for *profile*, of the kind *only* ("": any), one after the other: each is made when it is
        its turn."""
        for backend in self._by_profile.get(profile, self._present(profile)):
            if not only or judged_kind(backend) == only:
                yield backend

    def _present(self, profile: str) -> Iterator[SandboxBackend]:
        given: set[str] = set()
        for kind in self._order[profile]:
            for name in self._roster.serving(kind):
                if name in given or (name in self.experiments and not self.experiments[name].may_serve(profile)):
                    continue
                backend = self._roster.get(name)
                # what one with others beneath it runs code in, it may learn after it was added
                if backend is not None and (not hasattr(backend, "inner") or _may_serve(backend, kind, profile)):
                    given.add(name)
                    yield backend

    async def lapsed(self, backend: SandboxBackend, profile: str) -> str:
        """Return why *backend* may not serve *profile* by itself now, though it may have when it was added; "" where it
        may: one that is not experimental always does, where it is a candidate."""
        experiment = self.experiments.get(backend.kind)
        if experiment is None:
            return ""
        why = await experiment.lapsed(backend, profile, (await backend.check()).version)
        return f"{backend.kind} is experimental again: {why}" if why else ""

    def rate(self, backend: SandboxBackend, language: str, readiness: Readiness) -> None:
        """Keep how ready *backend* was measured to be for *language*; results report it from now on."""
        self._rated[id(backend), language] = backend, readiness

    def readiness_of(self, backend: SandboxBackend, language: str) -> Readiness:
        """Return how ready *backend* was last measured to be for *language*; `beta` where nothing was measured."""
        return self._rated.get((id(backend), language or "python"), (backend, "beta"))[1]

    @property
    def languages(self) -> frozenset[str]:
        """Return all that any of the sandboxes runs."""
        return frozenset().union(*(backend.languages for backend in self.backends))

    async def execute(self, request: ExecuteRequest, tools: Tools | None = None) -> CodeResult:
        """Run a program; *tools*, if given, are its gateway and take its output.

        What became of it is in the result, its failure too. Raises when nothing was run: InvalidRequestError,
        SandboxUnavailableError, SandboxDeniedError, LimitNotEnforceableError. Raises ClosedError when the runtime is
        closed meanwhile. Cancelling stops the program.
        """
        if tools is not None:
            request = request.given(gateway=tools, output=tools.output)
        return await self._owned(self._execute(request))

    async def _execute(self, request: ExecuteRequest) -> CodeResult:
        backend, request = await self._choose(request)
        logger.info("running %s code in %s (%s)", request.language or "default", backend.kind, request.profile)
        result = await backend.execute(request)
        return await self._finished(result, request, backend)

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """Return a guest for several programs, chosen as for `execute`; raises as it does, and InvalidRequestError
        where the sandbox has no sessions.
        """
        backend, request = await self._choose(replace(request, code=request.code or "None"))
        if not isinstance(backend, SessionBackend):
            raise InvalidRequestError(f"{backend.kind} has no sessions", backend=backend.kind)
        guest = await backend.open_session(request)

        async def run(work: Coroutine[Any, Any, CodeResult], request: ExecuteRequest) -> CodeResult:
            return await self._finished(await self._owned(work, backend), request, backend)

        return RoutedSession(guest, request, run)

    async def _finished(self, result: CodeResult, request: ExecuteRequest, backend: SandboxBackend) -> CodeResult:
        """Return the result of *backend* with what the runtime knows."""
        result = await completed(result, request, backend, partial(self._fitting, request=request))
        readiness = self.readiness_of(backend, request.language)
        if readiness != "beta" and result.backend is not None:
            result.backend = replace(result.backend, readiness=readiness)
        return result

    async def _fitting(self, needs: Needs, *, request: ExecuteRequest) -> list[tuple[str, str]]:
        """Return the sandboxes for the request's profile that have what a program needs, and are there: the kind of
        each, and the language to ask for."""
        found: list[tuple[str, str]] = []
        for backend in self.candidates(request.profile) if needs else ():
            if self._denial(backend, request.profile) is None:
                languages = await languages_with(needs, backend)
                if languages and (await backend.check()).ok and not await self.lapsed(backend, request.profile):
                    found += [(backend.kind, language) for language in languages]
        return found

    async def _ranked(
        self, backends: Iterator[SandboxBackend], request: ExecuteRequest
    ) -> Iterable[tuple[SandboxBackend, str]]:
        """Return the candidates with the language to ask each for: those first that have what the program needs."""
        usual = ((backend, request.language) for backend in backends)
        routes = self.route_by_needs and request.language in ("", "python")
        needs = needs_of(request.code, request.files) if routes else None
        if not needs:
            return usual
        places = [*usual]
        ranked: list[tuple[SandboxBackend, str]] = []
        for backend, _ in places:
            languages = await languages_with(needs, backend)
            ranked += [(backend, request.language if name == "python" else name) for name in languages[:1]]
        return dict.fromkeys([*ranked, *places])

    def can_repeat(self, code: str, language: str = "", profile: str = "") -> bool:
        """Return whether the sandbox that such code would get can make its run again, as durable runs need it. Raises
        InvalidRequestError for an unknown profile."""
        profile, only = effective_profile(profile, self.default_profile)
        language = ALIASES.get(language, language)
        if self.route_by_needs and language in ("", "python") and needs_of(code):
            return False  # it would get one with the packages that it imports
        for backend in self.offered(profile, only):
            if not language or language in backend.languages:
                return (language or "python") in getattr(backend, "replays", ())
        return False

    def check_repeatable(self, request: ExecuteRequest) -> None:
        """Refuse a durable run that no sandbox for its profile would take, available or not. Without any, nothing is
        known.

        Raises InvalidRequestError for an unknown profile or language, SandboxUnavailableError for a language that none
        of them runs again.
        """
        profile, only = effective_profile(request.profile, self.default_profile)
        language = ALIASES.get(request.language, request.language)
        refused: list[str] = []
        for backend in self.offered(profile, only):
            if not language or language in backend.languages:
                if (why := _not_again(backend, language)) is None:
                    return
                refused.append(why)
        if refused or self._unknown(profile, language):
            raise self._nothing(profile, request.given(language=language), refused, ())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop every run, close every sandbox; then an ExceptionGroup names what failed to close, if anything."""
        self._closed = True
        self._roster.close()
        runs = self._runs.aclose(), self._in_callers.aclose()
        closing = [*runs, *(backend.aclose() for backend in self.backends)]
        outcomes = await asyncio.gather(*closing, return_exceptions=True)
        errors = [error for error in outcomes if isinstance(error, Exception)]
        if errors:
            raise ExceptionGroup("some sandboxes failed to close", errors)

    async def _owned(self, work: Coroutine[Any, Any, T], backend: SandboxBackend | None = None) -> T:
        """Do *work* in a task of this runtime's own, or in that of the caller where it is for a *backend* that never
        cancels the task of a run by itself; see `OwnRuns.run` and `CallerRuns.run`.

        Raises SandboxUnavailableError when the runtime is closed already.
        """
        if self._closed:
            work.close()
            raise SandboxUnavailableError(_CLOSED)
        in_caller = getattr(backend, "cancels_tasks", True) is False
        return await (self._in_callers.run(work) if in_caller else self._runs.run(work))

    async def _choose(self, request: ExecuteRequest) -> tuple[SandboxBackend, ExecuteRequest]:
        """Return the sandbox for *request*, and the request as that one gets it: with what really holds."""
        request.validate()
        if self._closed:
            raise SandboxUnavailableError(_CLOSED)
        profile, only = effective_profile(request.profile, self.default_profile)
        limits = self.limits.grant(request.limits, of="the Runtime")
        assert request.gateway is not None
        gateway, language = counted(request.gateway, limits), ALIASES.get(request.language, request.language)
        request = request.given(profile=profile, limits=limits, gateway=gateway, language=language)
        refused: list[str] = []
        errors: list[SandboxError] = []
        waiting: tuple[SandboxBackend, str] | None = None
        denied: SandboxError | None = None
        is_durable = isinstance(gateway, Tools) and gateway.is_durable
        for backend, spoken in await self._ranked(self.offered(profile, only), request):
            if spoken and spoken not in backend.languages:
                refused.append(f"{backend.kind} does not run {spoken}")
                continue
            if is_durable and (why := _not_again(backend, spoken)):
                refused.append(why)
                continue
            denied = self._denial(backend, profile) or without_opt_in(backend, request)
            if denied is not None:
                refused.append(denied.message)
                continue
            state = await checked_in_time(backend, request.seconds)
            if not state.ok:
                refused.append(f"{backend.kind}: {state.reason}" + (f" ({state.remedy})" if state.remedy else ""))
                if state.is_fault:  # another sandbox in its place would hide it
                    raise SandboxUnavailableError(refused[-1], backend=backend.kind)
                if state.error is not None and backend.kind not in self.experiments:
                    errors.append(state.error)
                    waiting = waiting or ((backend, spoken) if state.error.retryable else None)
                continue
            if lapsed := await self.lapsed(backend, profile):
                refused.append(lapsed)
                continue
            if spoken != language:
                request = request.given(language=spoken)
            return backend, enforceable(backend, request)
        if denied is not None and len([*self.offered(profile, only)]) == 1:
            raise denied
        if waiting is not None:  # it may be there in a moment, and waits for that itself
            with suppress(LimitNotEnforceableError):  # what it does not know to hold before it was reached
                return waiting[0], enforceable(waiting[0], request.given(language=waiting[1]))
        raise self._nothing(profile, request, refused, errors)

    def _denial(self, backend: SandboxBackend, profile: str) -> SandboxError | None:
        unsafe = backend.isolation in ("none", "process")
        if (unsafe and profile in self._deny_unsafe) or (not unsafe and backend.isolation not in ISOLATIONS[profile]):
            return SandboxDeniedError(
                f"{backend.kind} gives the isolation {backend.isolation!r}, which is denied for profile {profile!r}",
                backend=backend.kind,
            )
        return None

    def _nothing(
        self, profile: str, request: ExecuteRequest, refused: Sequence[str], errors: Sequence[SandboxError]
    ) -> SandboxError:
        if unknown := self._unknown(profile, request.language):
            return unknown
        if refused:
            error = SandboxUnavailableError(
                f"no backend for profile {profile!r} can run this: {'; '.join(refused)}",
                retryable=any(each.retryable for each in errors),
            )
            for each in errors:
                error.details.update(each.details)
            if len(errors) == 1:
                error.__cause__ = errors[0]
            return error
        wanted = ", ".join(self._order[profile])
        if not wanted:
            there = ", ".join(backend.kind for backend in self.backends) or "none"
            return SandboxUnavailableError(
                f"no sandbox that is configured serves profile {profile!r}; there is: {there}"
            )
        hint = "; allow it with unsafe_opt_in=True" if profile == "dev" else ""
        return SandboxUnavailableError(
            f"no backend for profile {profile!r}; it is served by {wanted}, and none of them is set up{hint}"
        )

    def _unknown(self, profile: str, language: str) -> InvalidRequestError | None:
        """Return the error of a language that none of the sandboxes for *profile* runs."""
        languages = {spoken for backend in self.candidates(profile) for spoken in backend.languages}
        if not language or not languages or language in languages:
            return None
        hint = did_you_mean(language, sorted(languages), otherwise=f"they run {', '.join(sorted(languages))}")
        return InvalidRequestError(f"no sandbox for profile {profile!r} runs {language!r}; {hint}")


def _not_again(backend: SandboxBackend, language: str) -> str | None:
    """Return why a sandbox takes no durable run; None where it does."""
    if (language or "python") in getattr(backend, "replays", ()):
        return None
    return f"{backend.kind} cannot make a run of {language or 'python'} again, as a durable one must"


def _may_serve(backend: SandboxBackend, kind: str, profile: str) -> bool:
    """Return whether a sandbox that serves *profile* by its *kind* may: none does where the code runs on the host."""
    return profile == "dev" or kind == "unsafe_host" or judged_kind(backend) != "unsafe_host"


def effective_profile(asked: str, default: str) -> tuple[str, str]:
    """Return the profile that holds, and the only kind of sandbox that may serve it ("" for any): `wasm` is short for
    `standard` on the wasm sandbox.

    Raises InvalidRequestError for an unknown profile.
    """
    profile = asked or default
    only = profile if profile in _SHORT_FOR else ""
    profile = _SHORT_FOR.get(profile, profile)
    if profile not in PROFILES:
        hint = did_you_mean(profile, (*PROFILES, *_SHORT_FOR), otherwise=f"use {', '.join(PROFILES)} or wasm")
        raise InvalidRequestError(f"unknown security profile {profile!r}; {hint}")
    return profile, only


def _check_profiles(profiles: Iterable[str]) -> None:
    unknown = sorted(set(profiles) - set(PROFILES))
    if unknown:
        hint = did_you_mean(unknown[0], PROFILES, otherwise=f"use {', '.join(PROFILES)}")
        raise ConfigurationError(f"unknown security profile {unknown[0]!r}; {hint}")

"""What can run code here, found out by trying it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from toolexec.backend.plugins import SANDBOXES as GROUP
from toolexec.backend.plugins import owners_of
from toolexec.backend.registry import BackendRegistry
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.discovery.facade import Discovery
from toolexec.errors import ConfigurationError, MissingExtraError, SandboxUnavailableError, ToolExecError
from toolexec.errors.extras import unix_needed
from toolexec.model.json_value import JSONDict
from toolexec.run.run_request import PROFILES
from toolexec.run.runner import DefaultRunner
from toolexec.runtime.base import Availability, SandboxBackend
from toolexec.runtime.contract import ISOLATIONS
from toolexec.runtime.kinds import KINDS, PACKAGED, SANDBOXES, candidates, installed_kinds, plugin_of
from toolexec.runtime.plugin import DoctorPackage, SandboxPlugin
from toolexec.runtime.readiness import Measurement, Probe, measure_limits
from toolexec.runtime.router import Runtime

State: TypeAlias = Literal["ready", "unavailable", "failed", "not_set_up"]
_MCP: Final = DoctorPackage(name="mcp", purpose="MCP servers", install="toolexec[mcp]")
_SURROUNDING: Final = frozenset({"container", "gvisor", "vm"})
"""Isolations that need something of this machine, without which no language runs."""
_TIMEOUT: Final = 300.0  # what is used for the first time may have to be compiled
_ANSWER: Final = 42
_PROGRAMS: Final = {
    "python": "return 6 * 7",
    "python-science": "import numpy\nreturn int(numpy.full(6, 7).sum())",
    "javascript": "return 6 * 7",
    "wasm": '(module (func (export "_start") (result i32) (i32.mul (i32.const 6) (i32.const 7))))',
    "bash": "tool return $((6 * 7))",
    "go": "return 6 * 7",
}
"""By language: a program whose value is 42."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How one language of one kind of sandbox is here; `language` is "" for a kind that is not here at all.

    `ready` is available, and has given the right answer if it was asked to; `unavailable` says of itself that it lacks
    something; `failed` said that it is there and could not run a program; `not_set_up` is part of toolexec and not of
    this runtime. `reason` and `remedy` say what is missing and what fixes it. `first_seconds` is how long the first
    program took, from nothing, and `again_seconds` the one after it; None when nothing was measured. `profiles` are
    those that may be served by it. `measurement` is how ready for production it is, judged by programs that were run
    here; None when none was to be run. `experimental` is, for a kind that is
    experimental and was checked on this machine, the day of the check that lets it serve profiles by itself, or `again`
    where none does any more ("" for all others).
    """

    kind: str
    state: State
    language: str = ""
    isolation: str = ""
    profiles: Sequence[str] = ()
    reason: str = ""
    remedy: str = ""
    version: str = ""
    first_seconds: float | None = None
    again_seconds: float | None = None
    measurement: Measurement | None = None
    experimental: str = ""

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        data: JSONDict = {"kind": self.kind, "language": self.language, "state": self.state}
        strings = {"isolation": self.isolation, "reason": self.reason, "remedy": self.remedy, "version": self.version}
        strings["experimental"] = self.experimental
        data |= {"profiles": list(self.profiles), **{name: text for name, text in strings.items() if text}}
        if self.first_seconds is not None and self.again_seconds is not None:
            data |= {"firstMs": round(self.first_seconds * 1000, 3), "againMs": round(self.again_seconds * 1000, 3)}
        return data | (self.measurement.to_dict() if self.measurement is not None else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedProfile:
    """What serves a security profile here: the `kind` of sandbox for each language, empty if nothing does."""

    profile: str
    kinds: dict[str, str]

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        return {"profile": self.profile, "languages": self.kinds}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheState:
    """The directory of built sandboxes: whether it `exists`, whose it is, whether only they can get in (`private`),
    whether we can write, and what it takes in bytes. `problem` says why it cannot be used, if so."""

    directory: str
    exists: bool = False
    owner: str = ""
    private: bool = False
    writable: bool = False
    bytes: int = 0
    sandboxes: int = 0
    problem: str = ""

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        names = ("directory", "exists", "owner", "private", "writable", "bytes", "sandboxes", "problem")
        return {name: getattr(self, name) for name in names}


@runtime_checkable
class _ByLanguage(Protocol):
    """A backend that knows of each language whether it can run it."""

    async def check_language(self, language: str) -> Availability: ...


async def examine(
    runtime: Runtime, *, measure: bool = True, tell: Callable[[str, str], None] | None = None
) -> list[Finding]:
    """Return every kind of sandbox, language by language: first those of *runtime*, then those that are not there.

    With *measure* each language that says it is available runs two small programs (also in a sandbox without
    isolation: the programs are ours, and harmless), which builds what has to be built first. In sandboxes that isolate,
    further programs go over each limit, to see whether it holds. The readiness that comes of it is in the findings, and
    in the results of *runtime* from then on. What a backend raises is in its finding.
    """
    backends = runtime.backends
    findings: list[Finding] = []
    for backend in backends:
        serving, lapsed, checked = await _serving(runtime, backend)
        if lapsed and not serving:
            findings.append(_again(backend.kind, lapsed))
            continue
        lack = await _lack(backend)
        if lack is not None:
            findings.append(_measured(runtime, lack, backend) if measure else lack)
            continue
        limits: tuple[dict[str, bool], list[str]] | None = None
        for language in sorted(backend.languages, key=lambda name: (name != "python", name)):
            if tell is not None:
                tell(backend.kind, language)
            found = await _examine(backend, language, measure=measure)
            if checked:
                found = replace(found, profiles=serving, experimental=checked)
            if measure and limits is None and found.state == "ready" and backend.isolation not in ("none", "process"):
                limits = await measure_limits(backend, _probe(backend)) if "python" in backend.languages else ({}, [])
            findings.append(_measured(runtime, found, backend, *(limits or ({}, []))) if measure else found)
    known = {backend.kind for backend in backends}
    ours = (kind for kinds in (*candidates().values(), PACKAGED) for kind in kinds)
    others = dict.fromkeys(kind for kind in ours if kind not in known)
    plugins = [kind for kind in installed_kinds() if kind in KINDS or kind not in known]
    absent = [_absent(runtime, kind) for kind in others]
    return [*findings, *absent, *(_installed(runtime, kind) for kind in plugins)]


def wanted_packages(runtime: Runtime) -> dict[str, DoctorPackage]:
    """Return the packages that toolexec and the sandboxes of *runtime* need or can use, by name."""
    plugins = (_plugin(kind) for kind in dict.fromkeys([*SANDBOXES, *(each.kind for each in runtime.backends)]))
    found = {each.name: each for plugin in plugins if plugin is not None for each in plugin.doctor.packages}
    return {**found, _MCP.name: _MCP}


def _measured(
    runtime: Runtime,
    finding: Finding,
    backend: SandboxBackend,
    limits: Mapping[str, bool] | None = None,
    problems: Sequence[str] = (),
) -> Finding:
    """*finding* with the readiness that it means, which is recorded, too."""
    runs = finding.state == "ready" and finding.again_seconds is not None
    measurement = Measurement(
        runs=runs, isolation=backend.isolation, limits=limits or {} if runs else {}, problems=problems if runs else ()
    )
    for language in (finding.language,) if finding.language else backend.languages:
        runtime.rate(backend, language, measurement.readiness)
    return replace(finding, measurement=measurement)


def _probe(backend: SandboxBackend) -> Probe:
    async def run(code: str, limits: Limits, seconds: float) -> tuple[ExecuteRequest, CodeResult]:
        request = replace(_request(backend, "python", code, seconds), limits=limits, best_effort=True)
        return request, await backend.execute(request.validate())

    return run


async def _serving(runtime: Runtime, backend: SandboxBackend) -> tuple[list[str], dict[str, str], str]:
    """Return which profiles an experimental kind serves by itself now, why it does not serve others, and the day of its
    check; nothing for one that is not experimental, or named."""
    experiment = runtime.experiments.get(backend.kind)
    if experiment is None:
        return [], {}, ""
    lapsed = {profile: await runtime.lapsed(backend, profile) for profile in experiment.profiles}
    serving = [profile for profile, why in lapsed.items() if not why]
    checked = max((experiment.standing(profile).checked for profile in serving), default="")
    return serving, {profile: why for profile, why in lapsed.items() if why}, checked


def _again(kind: str, why: Mapping[str, str]) -> Finding:
    """Return how an experimental kind is that no profile chooses by itself; *why* says it for each."""
    reasons = [f"{profile}: {each}" for profile, each in why.items()]
    reason = "; ".join(("it is experimental, and used only where it is named", *reasons))
    fix = f"name it in use of [sandboxes], add it to runtime_backends, or: toolexec sandbox check --backend {kind}"
    return replace(_unfit(kind, "not_set_up", reason, fix), experimental="again" if reasons else "")


def _absent(runtime: Runtime, kind: str, usual: str = "add it to runtime_backends") -> Finding:
    """Return how a kind is that no sandbox of the runtime is of: one that could be set up, or why it cannot."""
    try:
        plugin = plugin_of(kind)
    except MissingExtraError as error:
        fix = f"pip install 'toolexec[{error.extra}]'"
        return _unfit(kind, "not_set_up", "its package is not installed", fix)
    except ConfigurationError as error:
        return _unfit(kind, "failed", error.message, "update it, or uninstall it")
    if plugin.experimental:
        experiment = runtime.experiments.get(kind)
        why = {} if experiment is None else {each: experiment.standing(each).why for each in experiment.profiles}
        return _again(kind, why)
    return _unfit(kind, "not_set_up", "this Exec was set up without it", plugin.doctor.set_up or usual)


def _installed(runtime: Runtime, kind: str) -> Finding:
    """Return how a plugin is that no sandbox of the runtime is from."""
    if kind not in KINDS:
        return _absent(runtime, kind, "name it in use of [sandboxes]")
    owners = owners_of(GROUP, kind)
    return _unfit(kind, "failed", f"{owners} has a plugin for it, which is not used: it is one of ours", "uninstall it")


def _unfit(kind: str, state: State, reason: str, fix: str) -> Finding:
    return Finding(kind=kind, state=state, profiles=_profiles(kind), reason=reason, remedy=fix)


def served_profiles(runtime: Runtime, findings: Sequence[Finding]) -> list[ServedProfile]:
    """Return what would serve each profile, for each language, according to *findings*."""
    ready = {(finding.kind, finding.language): finding for finding in findings if finding.state == "ready"}
    served: list[ServedProfile] = []
    for profile in PROFILES:
        kinds: dict[str, str] = {}
        for backend in runtime.candidates(profile):
            if backend.isolation in ISOLATIONS[profile]:
                for language in sorted(backend.languages):
                    found = ready.get((backend.kind, language))
                    if found is not None and (not found.experimental or profile in found.profiles):
                        kinds.setdefault(language, backend.kind)
        served.append(ServedProfile(profile=profile, kinds=kinds))
    return served


def cache_state(directory: Path | None = None) -> CacheState:
    """Return how the directory of built sandboxes is (default: the one that holds); looks, and makes nothing.
    Blocks.
    """
    try:
        with unix_needed("the sandbox wasm"):
            from toolexec.runtime.wasm.cache import ComponentCache, default_directory

        directory = directory or default_directory()
    except ConfigurationError as error:
        return CacheState(directory="", problem=str(error))
    try:
        status = directory.lstat()
    except FileNotFoundError:
        near = next((parent for parent in directory.parents if parent.exists()), directory)
        problem = "" if os.access(near, os.W_OK) else f"it is not there, and {near} cannot be written to"
        return CacheState(directory=str(directory), writable=not problem, problem=problem)
    except OSError as error:
        return CacheState(directory=str(directory), problem=f"cannot be looked at: {error.strerror}")
    facts: JSONDict = {
        "directory": str(directory),
        "exists": True,
        "owner": _user_name(status.st_uid),
        "private": not stat.S_IMODE(status.st_mode) & 0o077,
        "writable": os.access(directory, os.W_OK),
    }
    try:
        entries = ComponentCache(directory).list()
    except ToolExecError as error:
        return CacheState(**facts, problem=str(error))
    return CacheState(**facts, bytes=sum(entry.size for entry in entries), sandboxes=len(entries))


async def _lack(backend: SandboxBackend) -> Finding | None:
    """Return what a sandbox that runs nothing at all here lacks: once, and not for each of its languages."""
    if backend.isolation not in _SURROUNDING:
        return None
    state = await _checked(backend, backend.check())
    if state.ok:
        return None
    return Finding(
        kind=backend.kind,
        state="unavailable",
        isolation=backend.isolation,
        profiles=_profiles(backend.kind),
        reason=state.reason,
        remedy=state.remedy,
        version=state.version,
    )


async def _examine(backend: SandboxBackend, language: str, *, measure: bool) -> Finding:
    by_language = isinstance(backend, _ByLanguage)
    state = await _checked(backend, backend.check_language(language) if by_language else backend.check())
    found = Finding(
        kind=backend.kind,
        language=language,
        isolation=backend.isolation,
        profiles=_profiles(backend.kind),
        state="ready" if state.ok else "unavailable",
        reason=state.reason,
        remedy=state.remedy,
        version=state.version,
    )
    if not state.ok or not measure or language not in _PROGRAMS:
        return found
    try:
        first, again = await _run(backend, language), await _run(backend, language)
    except SandboxUnavailableError as error:
        return replace(found, state="unavailable", reason=_reason(error))
    except Exception as error:
        return replace(found, state="failed", reason=_reason(error))
    return replace(found, reason="", first_seconds=first, again_seconds=again)


async def _run(backend: SandboxBackend, language: str) -> float:
    """Return how many seconds one program takes; raises what it ends with, and RuntimeError for a wrong answer."""
    request = _request(backend, language, _PROGRAMS[language], _TIMEOUT)
    began = perf_counter()
    result = await backend.execute(request.validate())
    took = perf_counter() - began
    result.raise_for_error()
    if result.value != _ANSWER:
        raise RuntimeError(f"its answer to 6 * 7 is {result.value!r}")
    return took


def _request(backend: SandboxBackend, language: str, code: str, seconds: float) -> ExecuteRequest:
    discovery = Discovery()
    runner = DefaultRunner(discovery.index, BackendRegistry())
    strict = (*PROFILES[1:], *PROFILES[:1])  # dev would do for all of them, and may be refused
    profile = next((profile for profile in strict if backend.isolation in ISOLATIONS[profile]), "standard")
    return ExecuteRequest(
        code=code,
        gateway=Tools(discovery.index, discovery.docs, runner),
        language=language,
        timeout=seconds,
        profile=profile,
        metadata={"unsafeOptIn": True},
    )


def _profiles(kind: str) -> list[str]:
    plugin = _plugin(kind)
    return [profile for profile in PROFILES if plugin is not None and profile in plugin.profiles]


def _plugin(kind: str) -> SandboxPlugin | None:
    """Return the object of a kind; None for one that no distribution has."""
    if kind not in SANDBOXES and kind not in installed_kinds():
        return None
    try:
        return plugin_of(kind)
    except ConfigurationError:
        return None


async def _checked(backend: SandboxBackend, check: Awaitable[Availability]) -> Availability:
    """Return what a check finds; one that raises, or that does not end in time, is a finding, too."""
    plugin = None if backend.kind in KINDS else _plugin(backend.kind)
    patience = _TIMEOUT if plugin is None else plugin.doctor.patience
    try:
        async with asyncio.timeout(patience):
            return await check
    except TimeoutError:
        return Availability(ok=False, reason=f"its check did not end within {patience:g} s")
    except Exception as error:
        return Availability(ok=False, reason=_reason(error))


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _user_name(number: int) -> str:
    try:
        import pwd
    except ImportError:  # not on this system
        return str(number)
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)

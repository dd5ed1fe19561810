"""What the configured sandboxes promise, measured from inside: one row for each promise, one column for each sandbox.

A promise is one of `toolexec.runtime.contract`, kept where none of the programs of the escape battery that try it gets
what it tries. `await measure(backends)` gives a `Matrix`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.runtime.base import Availability, SandboxBackend
from toolexec.runtime.contract import ISOLATIONS, PROMISES, Promise, promise_of
from toolexec.testing.escape_battery import Outcome, may_run, run_battery
from toolexec.testing.escapes import ESCAPES, ISOLATING, Escape

Verdict: TypeAlias = Literal["kept", "weaker", "unmeasured"]
"""What came of a promise in a sandbox; `unmeasured` is one that was never measured here."""

_NO_ISOLATION: Final = "it has no isolation: the hostile programs would run on this machine, as you"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One sandbox as it is configured here, and what came of each program.

    `reason` says why nothing was measured ("" where something was), and `fix` what changes that. `image` is what it
    runs programs in ("" where it has none), `profile` the security profile that it was measured under, and `inner` the
    kind of sandbox that it has programs run in on another machine ("" for its own): what was measured is kept by that.
    """

    kind: str
    isolation: str
    profile: str
    inner: str = ""
    image: str = ""
    version: str = ""
    reason: str = ""
    fix: str = ""
    outcomes: Sequence[Outcome] = field(default_factory=tuple[Outcome, ...])

    @property
    def weaker(self) -> list[Outcome]:
        """The promises that it does not keep."""
        return [outcome for outcome in self.outcomes if not outcome.held]

    def verdict(self, name: str) -> Verdict:
        """Return what came of the program *name*."""
        for outcome in self.outcomes:
            if outcome.name == name:
                return "kept" if outcome.held else "weaker"
        return "unmeasured"

    def kept(self, probes: Sequence[str]) -> Verdict:
        """Return what came of a promise that *probes* measure: weaker if one is, and kept only if all are."""
        verdicts = {self.verdict(name) for name in probes}
        if "weaker" in verdicts:
            return "weaker"
        return "kept" if verdicts == {"kept"} else "unmeasured"

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        names = ("kind", "isolation", "profile", "inner", "image", "version", "reason", "fix")
        outcomes = [outcome.to_dict() for outcome in self.outcomes]
        return {**{name: getattr(self, name) for name in names}, "outcomes": outcomes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Each promise, and each program that tries in vain what it is about, in each of the sandboxes; `promises` are the
    programs, and `user` is the number of the one that measured (None on a system without them)."""

    language: str
    user: int | None
    promises: Sequence[Escape]
    columns: Sequence[Column]

    @property
    def is_weaker(self) -> bool:
        """Whether a sandbox does not keep a promise."""
        return any(column.weaker for column in self.columns)

    @property
    def is_measured(self) -> bool:
        """Whether each promise was measured in each sandbox."""
        return all(column.verdict(each.name) != "unmeasured" for column in self.columns for each in self.promises)

    @property
    def contract(self) -> list[tuple[Promise, list[str]]]:
        """The promises that were measured, each with its programs among those that were chosen."""
        names: dict[str, list[str]] = {}
        for each in self.promises:
            if (promise := promise_of(each.name)) is not None:
                names.setdefault(promise.name, []).append(each.name)
        return [(promise, names[promise.name]) for promise in PROMISES if promise.name in names]

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        return {
            "ok": self.is_measured and not self.is_weaker,
            "language": self.language,
            "user": self.user,
            "sandboxes": [column.to_dict() for column in self.columns],
            "contract": [
                {
                    "name": promise.name,
                    "says": promise.says,
                    "probes": names,
                    "sandboxes": {column.kind: column.kept(names) for column in self.columns},
                }
                for promise, names in self.contract
            ],
            "promises": [
                {
                    "name": each.name,
                    "tries": each.tries,
                    "sandboxes": {column.kind: column.verdict(each.name) for column in self.columns},
                }
                for each in self.promises
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Why a sandbox cannot be measured ("" if it can), what changes that, and its version."""

    reason: str = ""
    fix: str = ""
    version: str = ""


async def measure(
    backends: Sequence[SandboxBackend],
    *,
    language: str = "python",
    promises: Sequence[Escape] = ESCAPES,
    profile: str = "standard",
    unsafe: bool = False,
    prepare: Callable[[SandboxBackend], Awaitable[Availability]] | None = None,
    on_outcome: Callable[[SandboxBackend, Outcome], None] | None = None,
) -> Matrix:
    """Run *promises*, those that have a program in *language*, in each of *backends*, and return what came of them.

    A sandbox that is not available, or cannot run an ordinary program, is reported as never measured, with the reason:
    no other one takes its place. So is one without isolation unless *unsafe* is set; then it still runs no program
    that is `isolated`. *profile* holds for those whose isolation it allows. *prepare* makes a sandbox ready (default:
    its own `check`); *on_outcome* receives each outcome at once.
    """
    chosen = [each for each in promises if language in each.programs]
    columns = [
        await _column(
            backend,
            language,
            [each for each in chosen if may_run(each, backend)],
            profile if backend.isolation in ISOLATIONS.get(profile, ()) else "",
            unsafe=unsafe,
            prepare=prepare or _check,
            on_outcome=on_outcome,
        )
        for backend in backends
    ]
    user = os.geteuid() if hasattr(os, "geteuid") else None
    return Matrix(language=language, user=user, promises=chosen, columns=columns)


async def _column(
    backend: SandboxBackend,
    language: str,
    promises: Sequence[Escape],
    profile: str,
    *,
    unsafe: bool,
    prepare: Callable[[SandboxBackend], Awaitable[Availability]],
    on_outcome: Callable[[SandboxBackend, Outcome], None] | None,
) -> Column:
    state = await _state(backend, language, prepare, unsafe=unsafe)
    outcomes: Sequence[Outcome] = ()
    if not state.reason and promises:
        try:
            report = await run_battery(
                backend,
                language=language,
                escapes=promises,
                profile=profile,
                on_outcome=None if on_outcome is None else lambda outcome: on_outcome(backend, outcome),
            )
            outcomes = report.outcomes
        except (ToolExecError, RuntimeError) as error:  # it says that it is there, and runs nothing
            state = _State(reason=str(error), fix="run toolexec doctor")
    return Column(
        kind=backend.kind,
        isolation=backend.isolation,
        profile=profile or ("standard" if backend.isolation in ISOLATING else "dev"),
        inner=str(getattr(backend, "inner", "") or ""),
        image=str(getattr(getattr(backend, "config", None), "image", "") or ""),
        version=state.version,
        reason=state.reason,
        fix=state.fix,
        outcomes=outcomes,
    )


async def _state(
    backend: SandboxBackend,
    language: str,
    prepare: Callable[[SandboxBackend], Awaitable[Availability]],
    *,
    unsafe: bool,
) -> _State:
    """Return whether *backend* can be measured."""
    if backend.isolation not in ISOLATING and not unsafe:
        fix = "in a container of its own that is fine: set unsafe, or say --unsafe"
        return _State(reason=_NO_ISOLATION, fix=fix)
    if language not in backend.languages:
        return _State(reason=f"it does not run {language}", fix="use a sandbox or image that does")
    try:
        found = await prepare(backend)
    except ToolExecError as error:
        return _State(reason=str(error))
    if found.ok:
        return _State(version=found.version)
    return _State(version=found.version, reason=found.reason or "it does not say why", fix=found.remedy)


async def _check(backend: SandboxBackend) -> Availability:
    return await backend.check()

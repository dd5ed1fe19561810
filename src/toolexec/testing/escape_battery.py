"""The escape battery: hostile programs that every sandbox must hold, each judged by what the host saw.

`await run_battery(backend)` gives a `BatteryReport`; `raise_for_gaps` makes a test of it. The programs are in
`toolexec.testing.escapes`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from toolexec.code.types import CodeResult, ExecuteRequest, Output
from toolexec.errors import CodeTimeoutError
from toolexec.runtime.base import SandboxBackend
from toolexec.testing.escapes import ESCAPES, ISOLATING, Attempt, Escape, Site
from toolexec.testing.escapes.base import code_of
from toolexec.testing.escapes.watch import Watch

__all__ = ["BatteryReport", "Outcome", "may_run", "run_battery"]

_GRACE_SECONDS = 5.0
_CAP_SECONDS = 20.0
_FIRST_SECONDS = 600.0
"""What the first run may take: it may have to build the sandbox, or to wait for another process that does."""
_QUIET_SECONDS = 0.02
_MAX_OUTPUT = 1 << 18

PROBES: Final[Mapping[str, tuple[str, Any]]] = {
    "python": (
        """
import builtins, json, os, sys
print("clean")
left = [name for name in ("poison", "late") if hasattr(builtins, name) or name in globals() or name in sys.modules]
left += [os.environ.get("POISON"), sorted(os.listdir(".")), hasattr(type(tools), "poison")]
[tools.escape.echo(text="probe"), left, json.dumps([len("abc")]), sys.getrecursionlimit() > 100]
""",
        ["probe", [None, [], False], "[3]", True],
    ),
    "javascript": (
        """
console.log("clean");
return [await tools.run("escape:echo", {text: "probe"}), typeof globalThis.poison, typeof ({}).poison,
  [1].map(x => x + 1)];
""",
        ["probe", "undefined", "undefined", [2]],
    ),
    "bash": ('echo clean; echo "$POISON" >&2; ls >&2', None),
}
"""By language: a program that is run after each escape, and the value that it gives in a clean sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one hostile program: whether the sandbox `held`, and if not, the `evidence`.

    `ending` is the code of the error that the run ended with ("" for none), `seconds` how long it took, and
    `known_gap` the reason why it is known not to hold, if it is.
    """

    name: str
    tries: str
    held: bool
    evidence: str = ""
    ending: str = ""
    seconds: float = 0.0
    known_gap: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON-able data."""
        return {
            "name": self.name,
            "tries": self.tries,
            "held": self.held,
            "evidence": self.evidence,
            "ending": self.ending,
            "seconds": round(self.seconds, 3),
            "knownGap": self.known_gap,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatteryReport:
    """The outcomes of all programs of one language in one sandbox."""

    kind: str
    language: str
    outcomes: Sequence[Outcome] = field(default_factory=tuple[Outcome, ...])

    @property
    def escaped(self) -> list[Outcome]:
        """What got out though no known gap says so: this sandbox is not to be trusted."""
        return [outcome for outcome in self.outcomes if not outcome.held and not outcome.known_gap]

    @property
    def gaps(self) -> list[Outcome]:
        """What got out as it was known to."""
        return [outcome for outcome in self.outcomes if not outcome.held and outcome.known_gap]

    @property
    def closed(self) -> list[Outcome]:
        """Known gaps that now hold: news, and to be taken off the list.

        A program that its time limit ended, as on a busy machine, shows nothing about its gap.
        """
        return [each for each in self.outcomes if each.held and each.known_gap and each.ending != CodeTimeoutError.code]

    @property
    def ok(self) -> bool:
        """Whether nothing got out but what was known to."""
        return not self.escaped

    def raise_for_gaps(self) -> None:
        """Raise an ExceptionGroup with everything that is not as it was known to be: what got out, and known gaps that
        now hold, so that the list of them stays true."""
        where = f"{self.kind}, {self.language}"
        failures = [
            *(
                AssertionError(f"{each.name} ({where}): {each.evidence}; it tries {each.tries}")
                for each in self.escaped
            ),
            *(AssertionError(f"{each.name} ({where}) is a known gap, but it holds") for each in self.closed),
        ]
        if failures:
            raise ExceptionGroup(f"{self.kind} does not hold hostile {self.language} programs", failures)

    def table(self) -> str:
        """Return one line for each program: held, escaped (with the evidence) or known gap (with the reason)."""
        width = max((len(outcome.name) for outcome in self.outcomes), default=0)
        lines = [
            f"{self.kind}, {self.language}: {sum(each.held for each in self.outcomes)} of {len(self.outcomes)} held"
        ]
        for each in self.outcomes:
            word = "held" if each.held else "known gap" if each.known_gap else "ESCAPED"
            note = each.evidence + (f" ({each.known_gap})" if each.known_gap else "")
            lines.append(f"{word:<9}  {each.name:<{width}}  {note or each.ending or 'ended well'}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON-able data."""
        return {
            "kind": self.kind,
            "language": self.language,
            "ok": self.ok,
            "outcomes": [each.to_dict() for each in self.outcomes],
        }


async def run_battery(
    backend: SandboxBackend,
    *,
    language: str = "python",
    known_gaps: Mapping[str, str] | None = None,
    escapes: Sequence[Escape] | None = None,
    profile: str = "",
    metadata: Mapping[str, Any] | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> BatteryReport:
    """Run every hostile program that there is for *language* in *backend*, one after the other, under tight limits.

    After each one the host must be unharmed, and the next, ordinary run clean. *known_gaps* maps the names of programs
    that are known to get out to the reason. *escapes* are the programs to run (None: all that may run under this
    isolation). *profile* defaults to the one that fits the backend's isolation, where
    the opt-in to an unsafe one is given. *on_outcome* receives each outcome at once.

    The programs are really hostile. A backend without isolation runs them on this machine, where they are bounded
    (200 processes that end by themselves, some gigabytes of memory): do that in a container of your own.

    Raises ValueError for a language without programs, for a gap that is none of their names, and for programs in
    *escapes* that are `isolated` where the backend isolates nothing.
    """
    gaps = dict(known_gaps or {})
    if escapes is None:
        escapes = [escape for escape in ESCAPES if may_run(escape, backend)]
    refused = [escape.name for escape in escapes if not may_run(escape, backend)]
    if refused:
        raise ValueError(f"{backend.kind} isolates nothing, and {', '.join(refused)} may not run on the host itself")
    chosen = [escape for escape in escapes if language in escape.programs]
    unknown = sorted(gaps.keys() - {escape.name for escape in chosen})
    if not chosen or unknown:
        raise ValueError(f"there are no {language} programs" + (f" {', '.join(unknown)}" if chosen else ""))
    unsafe = backend.isolation in ("none", "process")
    settings: dict[str, Any] = {
        "language": language,
        "profile": profile or ("dev" if unsafe else "standard"),
        "metadata": {"unsafeOptIn": True, **(metadata or {})} if unsafe else dict(metadata or {}),
    }
    outcomes: list[Outcome] = []
    async with Site() as site:
        battery = _Battery(backend, site, language, settings)
        await battery.warm_up()
        for escape in chosen:
            outcome = await battery.outcome(escape, gaps.get(escape.name, ""))
            outcomes.append(outcome)
            if on_outcome is not None:
                on_outcome(outcome)
    return BatteryReport(kind=backend.kind, language=language, outcomes=tuple(outcomes))


def may_run(escape: Escape, backend: SandboxBackend) -> bool:
    """Return whether a program may run in *backend* at all: those that are `isolated` do so only in a sandbox."""
    return not escape.isolated or backend.isolation in ISOLATING


class _Battery:
    """One sandbox under attack."""

    def __init__(self, backend: SandboxBackend, site: Site, language: str, settings: Mapping[str, Any]) -> None:
        self._backend = backend
        self._site = site
        self._language = language
        self._settings = settings

    async def warm_up(self) -> None:
        """Run an ordinary program, so that what a first run costs is not taken for the work of a hostile one.

        Raises RuntimeError for a sandbox that cannot even do that.
        """
        trouble = await self._probe(_FIRST_SECONDS)
        if trouble:
            raise RuntimeError(f"{self._backend.kind} cannot run an ordinary program: {trouble}")

    async def outcome(self, escape: Escape, known_gap: str) -> Outcome:
        """Run one hostile program, then look at the host and at the next run."""
        tools = self._site.tools(escape.limits, escape.allowed)
        attempt = Attempt(result=None, raised=None, tools=tools, isolation=self._backend.isolation)
        started = monotonic()
        async with Watch() as watch:
            try:
                async with asyncio.timeout(escape.timeout + _CAP_SECONDS):
                    attempt.result = await self._run(escape, attempt)
            except Exception as error:
                attempt.raised = error
        seconds = monotonic() - started
        calls = self._site.calls
        attempt.seen += watch.seen()
        if seconds > escape.timeout + _GRACE_SECONDS:
            attempt.seen.append(f"it ran for {seconds:.1f} s instead of {escape.timeout:g}")
        await asyncio.sleep(_QUIET_SECONDS)
        if self._site.calls > calls:
            attempt.seen.append("it called a tool after its end")
        tools.close()
        attempt.seen += await self._site.left_running()
        attempt.seen += await self._site.inspect()
        attempt.seen += self._site.betrayed(attempt.said)
        evidence = [*attempt.seen, escape.check(attempt), self._malformed(attempt), await self._probe()]
        found = "; ".join(filter(None, evidence))
        return Outcome(
            name=escape.name,
            tries=escape.tries,
            held=not found,
            evidence=found,
            ending=code_of(attempt),
            seconds=seconds,
            known_gap=known_gap,
        )

    async def _run(self, escape: Escape, attempt: Attempt) -> CodeResult:
        if not may_run(escape, self._backend):  # a second lock
            raise ValueError(f"{escape.name} may not run on the host itself")
        request = ExecuteRequest(
            code=self._site.fill_in(escape.programs[self._language]),
            gateway=attempt.tools,
            timeout=escape.timeout,
            limits=escape.limits,
            output=Output(_MAX_OUTPUT),
            files=escape.files,
            best_effort=True,
            **self._settings,
        )
        return await self._backend.execute(request.validate())

    def _malformed(self, attempt: Attempt) -> str:
        """Return what is wrong with a result of the sandbox, whatever the program did."""
        result = attempt.result
        if result is None:
            return f"the sandbox itself failed: {type(attempt.raised).__name__}: {str(attempt.raised)[:200]}"
        named = result.backend.kind if result.backend is not None else ""
        if named != self._backend.kind:
            return f"the result names the sandbox {named}"
        if len(result.stdout) + len(result.stderr) > 2 * _MAX_OUTPUT + 1000:
            return f"{len(result.stdout) + len(result.stderr)} characters of output were kept"
        try:
            json.dumps(result.value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            return f"the value is not JSON: {error}"
        return ""

    async def _probe(self, seconds: float = 2 * _CAP_SECONDS) -> str:
        """Return the complaints of an ordinary program that is run right after a hostile one, within *seconds*."""
        code, expected = PROBES[self._language]
        tools = self._site.tools(ESCAPES[0].limits, None)
        limit = seconds / 2  # of the run itself, the first of which may load an image into a daemon
        request = ExecuteRequest(code=code, gateway=tools, timeout=limit, best_effort=True, **self._settings)
        try:
            async with asyncio.timeout(seconds):
                result = await self._backend.execute(request.validate())
        except Exception as error:
            return f"the next run failed: {type(error).__name__}: {str(error)[:200]}"
        if result.error is not None:
            return f"the next run failed: {str(result.error)[:200]}"
        got = (result.value, result.stdout, result.stderr.strip(), result.files)
        if got != (expected, "clean\n", "", {}):
            return f"the next run was not clean: {str(got)[:200]}"
        return ""

"""`toolexec sandbox check`: what the configured sandboxes promise, measured from inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from toolexec.cli.building import announce_builds, serving_sandbox, watch_build
from toolexec.cli.exit_codes import FAILED, NOT_RUN, OK
from toolexec.cli.progress import watch
from toolexec.cli.session import Session
from toolexec.cli.tables import plain_table
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.call import Progress
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from toolexec.runtime.base import Availability, SandboxBackend
    from toolexec.testing.escape_battery import Outcome
    from toolexec.testing.escapes import Escape
    from toolexec.testing.matrix import Column, Matrix

_SHOWN: Final = {
    "kept": ("✓ kept", "green"),
    "weaker": ("✗ weaker", "bold red"),
    "unmeasured": ("○ never measured here", "yellow"),
}
_MOST_EVIDENCE: Final = 300


async def check(
    session: Session, kind: str, language: str, only: Sequence[str], *, profile: str = "", unsafe: bool = False
) -> int:
    """Run hostile programs in the configured sandboxes and show what each keeps: all of the escape battery, or *only*.

    That is the sandbox *kind*; without one all that `sandboxes.use` names, or else the one that would run the code of
    *profile* (default: that of the settings). The exit code is 1 if a sandbox is weaker than it promises, 3 if one was
    not measured. What is found of a kind that is experimental is kept for this machine (see `Experiment`). Raises
    ConfigurationError for an unknown kind, language or program, and for a *kind* without isolation unless *unsafe* is
    set.
    """
    from toolexec.cli.sandbox_records import Records
    from toolexec.runtime.router import effective_profile
    from toolexec.testing.matrix import measure

    promises = _promises(language, only)
    records = Records(session)
    if kind:
        records.add(kind)
        profile = profile or records.profile_of(kind)
    profile, _ = effective_profile(profile, session.ex.options.security_profile)
    backends = await _backends(session, kind, language, profile, unsafe=unsafe)
    with watch_build(session.screen) as view:
        announce_builds(session.ex.runtime, view)

        async def prepare(backend: SandboxBackend) -> Availability:
            state = await view.during(_prepare(backend, language))
            if state.ok:
                await records.begin(backend, state.version)
            return state

        done = 0
        with watch(session.screen, "hostile programs") as report:

            def show(backend: SandboxBackend, outcome: Outcome) -> None:
                nonlocal done
                done += 1
                if report is not None:
                    message = f"{backend.kind} {outcome.name}"
                    report(Progress(done=done, total=len(promises) * len(backends), message=message))

            found = await measure(
                backends,
                language=language,
                promises=promises,
                profile=profile,
                unsafe=unsafe,
                prepare=prepare,
                on_outcome=show,
            )
    said = await records.end(backends, found, complete=not only)
    if session.screen.as_json:
        session.screen.document({**found.to_dict(), "experimental": said})
    else:
        _show(session, found)
        records.show(said)
    if found.is_weaker:
        return FAILED
    return OK if found.is_measured else NOT_RUN


def _promises(language: str, only: Sequence[str]) -> list[Escape]:
    """Return the programs that are meant."""
    from toolexec.testing.escapes import ESCAPES

    known = [escape for escape in ESCAPES if language in escape.programs]
    chosen = [escape for escape in known if not only or escape.name in only]
    unknown = sorted({*only} - {escape.name for escape in known})
    if unknown or not chosen:
        names = [escape.name for escape in known]
        hint = did_you_mean("".join(unknown[:1]), names, otherwise=f"there are: {', '.join(names) or 'none'}")
        raise ConfigurationError(f"no {language} programs {', '.join(unknown)}; {hint}")
    return chosen


async def _backends(
    session: Session, kind: str, language: str, profile: str, *, unsafe: bool
) -> Sequence[SandboxBackend]:
    """Return the sandboxes to measure, as they are configured."""
    from toolexec.runtime.sandboxes import SandboxSettings
    from toolexec.testing.escapes import ISOLATING

    runtime, settings = session.ex.runtime, session.ex.options.runtime_backends
    if kind:
        backend = _named(session, kind)
        if backend.isolation not in ISOLATING and not unsafe:
            raise ConfigurationError(
                f"{kind} has no isolation: the hostile programs would run on this machine, as you; in a container of "
                "their own that is fine, then say --unsafe"
            )
        return [backend]
    if isinstance(settings, SandboxSettings) and settings.use:
        return runtime.backends
    serving = await serving_sandbox(session.ex, language=language, profile=profile)
    candidates = [serving] if serving is not None else runtime.candidates(profile)[:1]
    if not candidates:
        raise ConfigurationError(f"no sandbox is configured for the profile {profile}; name one in sandboxes.use")
    return candidates


def _named(session: Session, kind: str) -> SandboxBackend:
    from toolexec.runtime.kinds import PACKAGED, plugin_of

    backends = session.ex.runtime.backends
    for backend in backends:
        if backend.kind == kind:
            return backend
    if kind in PACKAGED:
        plugin_of(kind)  # an absent package has the line that installs it
    names = [backend.kind for backend in backends]
    hint = did_you_mean(kind, names, otherwise=f"there is: {', '.join(names)}")
    raise ConfigurationError(f"there is no sandbox {kind!r} here to check; {hint}")


async def _prepare(backend: SandboxBackend, language: str) -> Availability:
    """Build the embedded sandbox, if it is that one, and return whether the sandbox can run the language."""
    from toolexec.runtime.wasm.backend import WasmBackend

    if not isinstance(backend, WasmBackend):
        return await backend.check()
    state = await backend.check_language(language)
    if state.ok and language == "python":
        await backend.start()
    return state


def _show(session: Session, found: Matrix) -> None:
    screen = session.screen
    screen.show(_table(found))
    for column in found.columns:
        for outcome in column.weaker:
            line = f"{column.kind}: {outcome.name}, {outcome.tries}: {outcome.evidence}"
            screen.value(Text(visible_line(line, _MOST_EVIDENCE), style="red"))
        screen.value(_summary(column, found))


def _table(found: Matrix) -> Table:
    columns = [(visible_line(column.kind), {"overflow": "fold"}) for column in found.columns]
    table = plain_table(("Promise: no program", {"overflow": "fold"}), *columns)
    for promise, names in found.contract:
        verdicts = [_SHOWN[column.kept(names)] for column in found.columns]
        words = (Text(f"{word} ({len(names)})", style=style) for word, style in verdicts)
        table.add_row(Text(promise.says, style="cyan"), *words)
    return table


def _summary(column: Column, found: Matrix) -> Text:
    """Return one line: what was measured, and how it is configured."""
    facts = [f"{column.inner} behind it"] if column.inner else []
    facts += [f"profile {column.profile}", *([f"image {column.image}"] if column.image else [])]
    facts += ["root" if found.user == 0 else f"user {found.user}"] if found.user is not None else []
    about = visible_line(f"{column.kind} ({', '.join(facts)})")
    if column.reason:
        line = f"{about}: never measured here: {column.reason}" + (f"; {column.fix}" if column.fix else "")
        return Text(visible_line(line, 1000), style="yellow")
    held = sum(outcome.held for outcome in column.outcomes)
    line = f"{held} of {len(found.promises)} hostile {found.language} programs were held by {about}"
    return Text(line, style="bold red" if column.weaker else "green")

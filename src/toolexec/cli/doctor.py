"""`toolexec doctor`: what can run code on this machine, and what is missing."""

from __future__ import annotations

import asyncio
import logging
import platform
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from toolexec.cli.building import announce_builds, watch_build
from toolexec.cli.exit_codes import FAILED, OK
from toolexec.cli.session import Session
from toolexec.cli.tables import duration_text, plain_table
from toolexec.model.visible import visible_line
from toolexec.version import __version__

if TYPE_CHECKING:
    from toolexec.model.json_value import JSONDict
    from toolexec.runtime.doctor import CacheState, Finding, ServedProfile
    from toolexec.runtime.plugin import DoctorPackage

_DEFAULT_PROFILE: Final = "standard"
_STATES: Final = {
    "ready": ("● ready", "green"),
    "unavailable": ("● unavailable", "yellow"),
    "failed": ("✗ failed", "bold red"),
    "not_set_up": ("○ not set up", "dim"),
}
_MOST_REASON: Final = 300


async def doctor(session: Session, *, quick: bool) -> int:
    """Show how every sandbox is here, what serves each profile, versions, and the cache directory.

    Unless *quick*, each sandbox runs small programs, and others that go over its limits: how ready for production it is
    comes from that. MCP servers with a sandbox of their own are shown with what keeps them from it. The exit code is 1
    when nothing serves the profile `standard`.
    """
    from toolexec.runtime.doctor import cache_state, examine, served_profiles, wanted_packages

    screen = session.screen
    runtime = session.ex.runtime

    def tell(kind: str, language: str) -> None:
        if not quick and screen.err.is_terminal and not screen.as_json:
            screen.note(f"trying {kind} {language} ...")

    with watch_build(screen) as view, _without_warnings():
        announce_builds(runtime, view)
        findings = await view.during(examine(runtime, measure=not quick, tell=tell))
    served = served_profiles(runtime, findings)
    cache = await asyncio.to_thread(cache_state)
    wanted = wanted_packages(runtime)
    packages = {name: _version(name) for name in wanted}
    boxed = await _boxed_servers(session)
    sound = any(entry.kinds for entry in served if entry.profile == _DEFAULT_PROFILE)
    if screen.as_json:
        screen.document(
            {
                "ok": sound,
                "toolexec": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "packages": packages,
                "sandboxes": [finding.to_dict() for finding in findings],
                "profiles": [entry.to_dict() for entry in served],
                "servers": boxed,
                "cache": cache.to_dict(),
            }
        )
    else:
        _show(session, findings, served, cache, [(each, packages[name]) for name, each in wanted.items()])
        if boxed:
            screen.show(Text(), _heading("MCP servers in sandboxes"), _servers(boxed))
    return OK if sound else FAILED


async def _boxed_servers(session: Session) -> list[JSONDict]:
    """Return whether each MCP server that has a sandbox can be started in it, by its name; none is started."""
    from toolexec.backend.mcp import MCPServer
    from toolexec.exec.servers import sandbox_problem

    found: list[JSONDict] = []
    for backend in session.ex.backends.list():
        server = getattr(backend, "server", None)
        if isinstance(server, MCPServer) and server.boxed is not None:
            problem = await sandbox_problem(server, session.ex.options.runtime_backends)
            found.append({"name": server.name, "sandbox": server.boxed.engine, "ready": not problem, "reason": problem})
    return found


@contextmanager
def _without_warnings() -> Generator[None, None, None]:
    """Sandboxes without isolation warn of each program; here the programs are ours."""
    logger = logging.getLogger("toolexec.runtime")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _show(
    session: Session,
    findings: Sequence[Finding],
    served: Sequence[ServedProfile],
    cache: CacheState,
    packages: Sequence[tuple[DoctorPackage, str | None]],
) -> None:
    here = [finding for finding in findings if finding.language or finding.state in ("unavailable", "failed")]
    others = [finding for finding in findings if finding not in here]
    title = Text.assemble(("toolexec ", "bold"), (__version__, "bold"))
    title.append(f" · Python {platform.python_version()} · {platform.platform(terse=True)} · {sys.executable}", "dim")
    session.screen.show(title, Text(), _heading("Sandboxes"), _sandboxes(here), Text())
    session.screen.show(_wants(here), _reasons(here), _checked(findings), _elsewhere(others), Text())
    session.screen.show(_heading("Security profiles"), _profiles(served), Text())
    session.screen.show(_heading("Packages"), _packages(packages), Text())
    session.screen.show(_heading("Cache"), _cache(cache))


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _sandboxes(findings: Sequence[Finding]) -> Table:
    timed = any(finding.first_seconds is not None for finding in findings)
    names = ("Language", "Isolation", "Status", *(("Readiness",) if timed else ()))
    longest = max((len(finding.kind) for finding in findings), default=0)
    table = plain_table(
        ("Sandbox", {"no_wrap": True, "min_width": longest}),  # on a narrow screen the others give way
        *((name, {"no_wrap": True}) for name in names),
        *((name, {"justify": "right", "no_wrap": True}) for name in (("First", "Again") if timed else ())),
        ("Version", {"overflow": "fold"}),
    )
    for finding in findings:
        word, style = _STATES[finding.state]
        took = (finding.first_seconds, finding.again_seconds) if timed else ()
        table.add_row(
            Text(visible_line(finding.kind), style="cyan"),
            Text(visible_line(finding.language)),
            Text(visible_line(finding.isolation), style="bold red" if finding.isolation == "none" else ""),
            Text(word, style=style),
            *((_readiness(finding),) if timed else ()),
            *(duration_text(seconds) if seconds is not None else "" for seconds in took),
            Text(visible_line(finding.version, _MOST_REASON)),
        )
    return table


def _readiness(finding: Finding) -> Text:
    if finding.measurement is None:
        return Text("")
    word = finding.measurement.readiness
    return Text(word, style={"prod": "green", "beta": "yellow"}.get(word, "dim"))


def _reasons(findings: Sequence[Finding]) -> Text:
    """Return what keeps sandboxes that run from being ready for production: once for all languages with the same
    reasons."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for finding in findings:
        if finding.measurement is not None and finding.measurement.readiness == "beta":
            groups.setdefault((finding.kind, finding.measurement.reasons), []).append(finding.language)
    text = Text()
    for (kind, reasons), languages in groups.items():
        text.append(f"{visible_line(kind)} ({', '.join(languages)}) is beta: ", style="cyan")
        text.append(f"{visible_line('; '.join(reasons), _MOST_REASON)}\n")
    return text


def _checked(findings: Sequence[Finding]) -> Text:
    """Return which experimental kinds serve profiles by themselves, and why others that were checked do not."""
    lines: set[str] = set()
    for finding in (each for each in findings if each.experimental):
        serves = f"it serves {', '.join(finding.profiles)} by itself, as it was checked here on {finding.experimental}"
        why = serves if finding.state == "ready" else finding.reason
        lines.add(f"{finding.kind}: {why}")
    return Text("".join(f"{visible_line(line, _MOST_REASON)}\n" for line in sorted(lines)), style="dim")


def _wants(findings: Sequence[Finding]) -> Text:
    """Return what keeps sandboxes from being ready, and how to fix it."""
    text = Text()
    for finding in findings:
        if finding.state == "ready":
            continue
        name = " ".join(filter(None, (finding.kind, finding.language)))
        text.append(f"{visible_line(name)}: ", style="cyan")
        text.append(f"{visible_line(finding.reason, _MOST_REASON)}\n")
        if finding.remedy and finding.remedy not in finding.reason:
            text.append(f"  {visible_line(finding.remedy, _MOST_REASON)}\n", style="green")
    return text


def _elsewhere(findings: Sequence[Finding]) -> Text:
    """Return the kinds that are not here, one line for each reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        groups.setdefault((finding.state, finding.remedy), []).append(finding.kind)
    lines: list[str] = []
    for (state, remedy), kinds in groups.items():
        lines.append(visible_line(f"{_STATES[state][0]}: {', '.join(kinds)}{f'; {remedy}' if remedy else ''}"))
    return Text("\n".join(lines), style="dim")


def _profiles(served: Sequence[ServedProfile]) -> Table:
    table = plain_table(("Profile", {}), ("Served by", {"overflow": "fold"}))
    for entry in served:
        kinds: dict[str, list[str]] = {}
        for language, kind in entry.kinds.items():
            kinds.setdefault(kind, []).append(language)
        text = "; ".join(f"{kind} ({', '.join(languages)})" for kind, languages in kinds.items())
        shown = Text(visible_line(text)) if text else Text("nothing here: such code is refused", style="yellow")
        if "unsafe_host" in kinds:
            shown.append("  no isolation; needs --unsafe or unsafe_opt_in=True", style="red")
        table.add_row(Text(entry.profile, style="cyan"), shown)
    return table


def _packages(packages: Sequence[tuple[DoctorPackage, str | None]]) -> Table:
    table = plain_table(("Package", {}), ("Version", {}), ("For", {"overflow": "fold"}))
    for package, found in packages:
        purpose = Text(visible_line(package.purpose), style="dim")
        if found is None:
            purpose.append(f"  pip install '{visible_line(package.install or package.name)}'", style="green")
        state = Text(found) if found is not None else Text("not installed", style="yellow")
        table.add_row(Text(visible_line(package.name), style="cyan"), state, purpose)
    return table


def _servers(boxed: Sequence[JSONDict]) -> Table:
    table = plain_table(("Server", {}), ("Sandbox", {}), ("Status", {"overflow": "fold"}))
    for each in boxed:
        word, style = _STATES["ready" if each["ready"] else "unavailable"]
        status = Text(word, style=style)
        if each["reason"]:
            status.append(f": {visible_line(str(each['reason']), _MOST_REASON)}")
        name, engine = (Text(visible_line(str(each[key]))) for key in ("name", "sandbox"))
        table.add_row(name, engine, status)
    return table


def _cache(cache: CacheState) -> Text:
    text = Text(visible_line(cache.directory))
    if cache.exists:
        facts = [f"owner {cache.owner}", "private" if cache.private else "others can get in"]
        facts += ["writable" if cache.writable else "not writable"]
        facts += [f"{cache.sandboxes} sandboxes, {cache.bytes / 1_000_000:.1f} MB"]
        text.append(f"\n{visible_line(' · '.join(facts))}", style="dim")
    elif not cache.problem:
        text.append("\nnot there yet; it is made at the first use", style="dim")
    if cache.problem:
        text.append(f"\n{visible_line(cache.problem)}", style="red")
    return text


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

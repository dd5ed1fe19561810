"""`toolexec sandbox`: build, list and remove the sandboxes that code runs in."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from time import perf_counter

from rich.table import Table
from rich.text import Text

from toolexec.cli.building import watch_build
from toolexec.cli.exit_codes import OK
from toolexec.cli.session import Session
from toolexec.cli.tables import duration_text, plain_table
from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict
from toolexec.model.visible import visible_line
from toolexec.runtime.requirements import normal_requirements
from toolexec.runtime.wasm.cache import CachedComponent, ComponentCache


async def build(session: Session, packages: Sequence[str]) -> int:
    """Build the sandbox with *packages*, unless it is there, and load it once.

    Raises SandboxUnavailableError when it cannot be built, ConfigurationError for what is not a package.
    """
    from toolexec.runtime.wasm.backend import WasmBackend

    wanted = normal_requirements(packages)
    cache = ComponentCache()
    known = _find(await asyncio.to_thread(cache.list), wanted)
    was_ready = known is not None and known.compiled > 0
    began = perf_counter()
    with watch_build(session.screen, keep=True) as view:
        backend = WasmBackend(packages=wanted, on_build_step=view, quick_start=False)
        try:
            await view.during(backend.start())
        finally:
            await backend.aclose()
    took = perf_counter() - began
    made = _find(await asyncio.to_thread(cache.list), wanted)
    if made is None:
        raise SandboxUnavailableError(
            f"the sandbox was built, and is not in {cache.directory} any more; build it again"
        )
    screen = session.screen
    if screen.as_json:
        facts = {"directory": str(cache.directory), "built": not was_ready, "durationMs": round(took * 1000, 3)}
        screen.document({"sandbox": _data(made), **facts})
        return OK
    done = "is ready, it was built before" if was_ready else f"is ready, after {duration_text(took)}"
    screen.value(Text.assemble((_name(made), "cyan"), f" {done}: Python {made.python}, {size_text(made.size)}"))
    _tell_packages(session, made)
    screen.value(Text(f"in {cache.directory}", style="dim"))
    return OK


def _tell_packages(session: Session, made: CachedComponent) -> None:
    if made.requirements:
        names = ", ".join(f"{name} {version}" for name, version in made.packages.items())
        session.screen.value(Text(f"packages: {visible_line(names)}"))
        words = shlex.join(word for name in made.requirements for word in ("--with", name))
        session.screen.value(Text(f"used by: toolexec code {words} FILE", style="dim"))


async def list_sandboxes(session: Session) -> int:
    """Show every sandbox that was built: its packages, Python, size, and when it was last used."""
    cache = ComponentCache()
    found = await asyncio.to_thread(cache.list)
    screen = session.screen
    if screen.as_json:
        screen.document({"directory": str(cache.directory), "sandboxes": [_data(entry) for entry in found]})
    elif found:
        screen.show(_table(found))
        screen.note(f"{size_text(sum(entry.size for entry in found))} in {cache.directory}")
    else:
        screen.note("no sandbox has been built yet; toolexec sandbox build does it, and the first toolexec code")
    return OK


async def remove(session: Session, packages: Sequence[str], *, everything: bool) -> int:
    """Remove the sandbox with *packages* (the plain one for none), or all of them.

    Raises ConfigurationError for packages together with *everything*, and for a sandbox that is not there.
    """
    if packages and everything:
        raise ConfigurationError("--all removes every sandbox; leave out --with")
    cache = ComponentCache()
    wanted = normal_requirements(packages)
    if not everything:
        found = await asyncio.to_thread(cache.list)
        if not any(entry.requirements == wanted and entry.size for entry in found):
            names = list(dict.fromkeys(_name(entry) for entry in found if entry.size))
            hint = did_you_mean(_name_of(wanted), names, otherwise=f"there is: {', '.join(names) or 'none'}")
            raise ConfigurationError(f"there is no sandbox {_name_of(wanted)} to remove; {hint}")
    freed = await asyncio.to_thread(cache.remove, None if everything else wanted)
    if session.screen.as_json:
        session.screen.document({"directory": str(cache.directory), "freedBytes": freed})
    else:
        session.screen.value(Text(f"{size_text(freed)} set free in {cache.directory}"))
    return OK


def _find(found: Sequence[CachedComponent], wanted: tuple[str, ...]) -> CachedComponent | None:
    return next((entry for entry in found if entry.current and entry.requirements == wanted), None)


def _name(entry: CachedComponent) -> str:
    return _name_of(entry.requirements)


def _name_of(requirements: Sequence[str]) -> str:
    return " + ".join(requirements) if requirements else "plain"


def _table(found: Sequence[CachedComponent]) -> Table:
    table = plain_table(
        ("Sandbox", {"overflow": "fold"}),
        ("Packages in it", {"overflow": "fold", "ratio": 1}),
        ("Python", {"no_wrap": True}),
        ("Size", {"justify": "right", "no_wrap": True}),
        ("Last used", {"no_wrap": True}),
        ("State", {"no_wrap": True}),
    )
    table.expand = True
    for entry in found:
        packages = ", ".join(f"{name} {version}" for name, version in entry.packages.items())
        table.add_row(
            Text(visible_line(_name(entry)), style="cyan"),
            Text(visible_line(packages), style="dim"),
            Text(visible_line(entry.python)),
            size_text(entry.size),
            _ago(entry.used),
            _state(entry),
        )
    return table


def _state(entry: CachedComponent) -> Text:
    if not entry.current:
        return Text("outdated", style="yellow")
    if not entry.compiled:
        return Text("not compiled yet", style="dim")
    return Text("ready, with the wheel" if entry.shipped else "ready", style="green")


def _ago(moment: datetime | None) -> str:
    if moment is None:
        return "never"
    seconds = (datetime.now(UTC) - moment).total_seconds()
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count > 0:
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def size_text(count: int) -> str:
    """Bytes as megabytes."""
    return f"{count / 1_000_000:.1f} MB"


def _data(entry: CachedComponent) -> JSONDict:
    return {
        "requirements": list(entry.requirements),
        "packages": dict(entry.packages),
        "python": entry.python,
        "sha256": entry.sha256,
        "shipped": entry.shipped,
        "current": entry.current,
        "compiled": entry.compiled,
        "bytes": entry.size,
        "used": entry.used.isoformat() if entry.used is not None else None,
    }

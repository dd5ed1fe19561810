"""Which tools there were the last time that a command had them all: for completion and the overview, which connect to
nothing.

IDs come from servers, and shells evaluate what they complete: only IDs of plain characters are kept, and no
description.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.cli.session import Session

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}")
_MOST: Final = 100_000
_MOST_REASON: Final = 200


@dataclass(frozen=True, slots=True)
class KnownTools:
    """The IDs, the servers that could not be reached, each with the reason, the commands that log in to those which
    want it, and when that was (seconds since 1970)."""

    ids: tuple[str, ...]
    unavailable: tuple[tuple[str, str], ...]
    logins: tuple[str, ...]
    at: float


def remember_tools(session: Session) -> None:
    """Keep which tools there are, once all backends were started; a cache that cannot be written is left as it is."""
    from toolexec.process.atomic import replace_files

    found = [entry.tool.id for entry in session.ex.index.tools()]
    ids = [each for each in found if _PLAIN.fullmatch(each)][:_MOST]
    down = [each for each in session.ex.backend_statuses() if each.enabled and not each.available]
    unavailable = [[each.name, (each.reason or "")[:_MOST_REASON]] for each in down]
    logins = [str(command) for each in down if (command := each.info.get("login_command"))]
    data = {"ids": sorted(ids), "unavailable": unavailable, "logins": logins, "at": time.time()}
    with suppress(OSError, ConfigurationError):
        file = _file(session.files)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_files({file: json.dumps(data)}, mode=0o600)


def known_tools(files: Sequence[Path]) -> KnownTools | None:
    """Return what was kept for these files; None for nothing, and for files that have changed since."""
    try:
        file = _file(files)
        data: Any = json.loads(file.read_text("utf-8"))
        newest = max((each.stat().st_mtime for each in files if each.is_file()), default=0.0)
        down = tuple((n, why) for n, why in data["unavailable"])
        known = KnownTools(tuple(data["ids"]), down, tuple(data["logins"]), float(data["at"]))
    except (OSError, ValueError, TypeError, KeyError, ConfigurationError):
        return None
    return known if known.at >= newest else None


def complete_tool(context: Any, incomplete: str) -> list[str]:
    """Return the IDs that begin with what was typed, for the files of the command line or of the directory."""
    from toolexec.cli.sources import find_sources

    given = [Path(each) for level in (context.parent, context) if level for each in level.params.get("config") or ()]
    try:
        known = known_tools(find_sources(given).files)
    except ConfigurationError:
        return []
    return [each for each in known.ids if each.startswith(incomplete)] if known is not None else []


def _file(files: Sequence[Path]) -> Path:
    from toolexec.process.caches import cache_directory

    key = hashlib.sha256("\n".join(str(each.absolute()) for each in files).encode()).hexdigest()[:16]
    return cache_directory("cli") / f"tools-{key}.json"

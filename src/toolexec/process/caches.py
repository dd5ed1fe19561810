"""Where the user's caches and state are; on every system, also where no directory can be kept private."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from toolexec.errors import ConfigurationError


def cache_directory(name: str) -> Path:
    """Return `$TOOLEXEC_CACHE/`*name*, else `$XDG_CACHE_HOME/toolexec/`*name*, else `~/.cache/toolexec/`*name*.

    Raises ConfigurationError when none of them is known.
    """
    own, shared = os.environ.get("TOOLEXEC_CACHE", ""), os.environ.get("XDG_CACHE_HOME", "")
    try:
        if own:
            return Path(own).expanduser().absolute() / name
        base = Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise ConfigurationError(f"there is no directory for the sandbox: {error}; set TOOLEXEC_CACHE=/path") from error
    return base / "toolexec" / name


def state_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where is kept what must not be lost, unless settings name another place: `$XDG_STATE_HOME/toolexec`, else
    `~/.local/state/toolexec`. Raises RuntimeError where there is no home.
    """
    base = environment.get("XDG_STATE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "toolexec"

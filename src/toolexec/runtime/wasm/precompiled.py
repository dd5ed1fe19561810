"""The machine's code of the sandbox, from a wheel of its own: with it, a first use compiles nothing.

Such code runs with all rights of this process. So it is taken only if it is, byte for byte, what the description of
the component names, which this installation's own wheel brought; and only for the wasmtime that it was made with.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGE: Final = "toolexec_sandbox"
"""The package that holds the code, in one file for each kind of machine."""

logger: logging.Logger = logging.getLogger(__name__)


def machine() -> str:
    """Return the kind of machine that this is, such as `linux-x86_64`."""
    return f"{sys.platform}-{platform.machine().lower()}"


def precompiled_code(description: Path, fingerprint: str) -> bytes | None:
    """Return the code that the file *description* of the component names for this machine, if it is installed.

    None where there is none, it was made with another *fingerprint* (see `engine_fingerprint`), or it is not the one
    that is named, which is logged.
    """
    try:
        named = json.loads(description.read_text("utf-8"))["compiled"][machine()]
        if named["fingerprint"] != fingerprint:
            return None
        digest = named["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    spec = find_spec(PACKAGE)
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(directory, f"{machine()}.cwasm")
        try:
            code = path.read_bytes()
        except OSError:
            continue
        if hashlib.sha256(code).hexdigest() == digest:
            return code
        logger.warning("%s is not the code that this toolexec was made with: it is not used, and compiled here", path)
    return None

"""From a module that is not here to what to do about it: the extra that has it, or the system that it is part of."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from toolexec.errors.base import MissingExtraError, ToolExecError, UnsupportedPlatformError

_EXTRAS: Final[Mapping[str, str]] = {
    "aiodocker": "docker",
    "aiohttp": "docker",
    "anyio": "mcp",
    "componentize_py": "sandbox-build",
    "cronsim": "schedules",
    "cryptography": "egress",
    "debian": "images",
    "google": "containerd",
    "grpc": "containerd",
    "h11": "egress",
    "httpcore2": "http",
    "httpx2": "mcp",
    "jwt": "serve",
    "keyring": "keyring",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "numpy": "semantic",
    "opentelemetry": "otel",
    "prometheus_client": "serve",
    "psycopg": "postgres",
    "quickjs_rs": "javascript",
    "socksio": "socks",
    "starlette": "serve",
    "tree_sitter": "javascript",
    "tree_sitter_typescript": "javascript",
    "uvicorn": "serve",
    "yaml": "serve",
}
"""The modules of optional dependencies, and the extra that brings each along."""


_UNIX: Final = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
_UNIX_PARTS: Final = ("os", "select", "signal", "socket")


def explained(error: BaseException) -> ToolExecError | None:
    """Return the error to show to the user when *error* says that a module is missing, else None."""
    return missing_extra(error) or _unsupported(error, "what was asked for")


def _unsupported(error: BaseException, what: str) -> UnsupportedPlatformError | None:
    """Return the error for a module, or a part of one, that only Unix has; None for any other error."""
    lacking = ""
    if isinstance(error, ModuleNotFoundError) and error.name in _UNIX:
        lacking = error.name or ""
    elif isinstance(error, AttributeError) and getattr(error.obj, "__name__", "") in _UNIX_PARTS:
        lacking = f"{getattr(error.obj, '__name__', '')}.{error.name}"
    if not lacking:
        return None
    import platform

    system = {"Darwin": "macOS", "Java": "this system"}.get(name := platform.system(), name or "this system")
    made = UnsupportedPlatformError(
        f"{what} works on Linux, and {system} lacks what it needs ({lacking}); on Windows, WSL is a Linux",
        details={"platform": system, "lacking": lacking},
    )
    made.__cause__ = error
    return made


@contextmanager
def unix_needed(what: str) -> Generator[None, None, None]:
    """Raise UnsupportedPlatformError where the block imports or uses what only Unix has; *what* is its subject."""
    try:
        yield
    except (ModuleNotFoundError, AttributeError) as error:
        unsupported = _unsupported(error, what)
        if unsupported is None:
            raise
        raise unsupported from error


def missing_extra(error: BaseException, *, needed_for: str = "", extra: str = "") -> MissingExtraError | None:
    """Return the error to show to the user when *error* says that an optional dependency is not installed, else None.

    *extra* is for a part that needs more than the one missing module.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    root = error.name.partition(".")[0]
    known = _EXTRAS.get(root)
    if known is None:
        return None
    made = MissingExtraError(extra or known, needed_for=needed_for or f"what was asked for (it imports {root})")
    made.__cause__ = error
    return made


@contextmanager
def extra_needed(extra: str, needed_for: str) -> Generator[None, None, None]:
    """Raise MissingExtraError in place of the ModuleNotFoundError of an optional dependency in the block."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_extra(error, needed_for=needed_for, extra=extra)
        if missing is None:
            raise
        raise missing from error

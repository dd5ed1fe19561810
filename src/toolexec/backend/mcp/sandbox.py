"""A sandbox around an MCP server that is a command: its settings, and what the layer above that has sandboxes gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast

from toolexec.errors import ConfigurationError
from toolexec.model.declared import setting
from toolexec.model.settings import checked, unknown_setting
from toolexec.model.units import size

_OVER_HOST: Final = "bubblewrap"
"""The engine whose containers are made of this machine's own files; those of the others are made of an image."""
_OF_HOST: Final = ("read", "write", "hosts")
_PATHS: Final = ("read", "write")
_SIZES: Final = ("memory_bytes", "disk_bytes")


@checked("sandbox")
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSandboxSettings:
    """What an MCP server has in its sandbox: everything that is not named here is out of its reach.

    With the engine `bubblewrap` it has this machine's `/usr`, read-only (or the root file system `image`), what `read`
    and `write` name, at the same paths, and the `hosts` that it may reach over HTTP and HTTPS, through a proxy which
    its variables name. With any other it has its `image` and no network. In each it has an empty `/work`, which is its
    HOME, `/tmp`, no process but its own, and the variables of its `env`. What is written goes away with it, but for
    that in `write`.

    Sizes are in bytes, in a file also `"512M"`. Raises ConfigurationError for settings that cannot work together, and
    for what cannot be.

    >>> ServerSandboxSettings(read=["/opt/tools"]).engine
    'bubblewrap'
    """

    engine: str = setting(_OVER_HOST, "The kind of sandbox that starts it.")
    image: str = setting("", "The image that it runs in; bubblewrap has this machine's own /usr without one.")
    read: Sequence[str | Path] = setting((), "Directories and files of this machine that it can read. Bubblewrap only.")
    write: Sequence[str | Path] = setting((), "Directories of this machine that it can change. Bubblewrap only.")
    hosts: Sequence[str] = setting(
        (), "Hosts that it may reach over HTTP and HTTPS, such as api.example.com; none without. Bubblewrap only."
    )
    memory_bytes: int = setting(512 << 20, "How much memory it has, with all that it starts.", least=1 << 20)
    cpus: float = setting(0.0, "How many cores it may keep busy; 0 is any number.", least=0)
    pids: int = setting(128, "How many processes and threads it may have.", least=1)
    disk_bytes: int = setting(256 << 20, "How much it may write to /work and /tmp, which is memory.", least=1 << 20)

    def __post_init__(self) -> None:
        if not self.is_over_host:
            given = [name for name in _OF_HOST if getattr(self, name)]
            if given:
                raise ConfigurationError(
                    f"sandbox: {given[0]} is for {_OVER_HOST} only; what a server in {self.engine} has comes from its "
                    "image"
                )
        for name in _PATHS:
            for path in getattr(self, name):
                if not str(path) or not Path(path).expanduser().is_absolute():
                    raise ConfigurationError(f"sandbox: {name} must have absolute paths, not {str(path)!r}")

    @property
    def is_over_host(self) -> bool:
        """Whether what it has comes from this machine, and not from an image alone."""
        return self.engine == _OVER_HOST

    @property
    def readable(self) -> tuple[Path, ...]:
        """What `read` names."""
        return tuple(Path(path).expanduser() for path in self.read)

    @property
    def writable(self) -> tuple[Path, ...]:
        """What `write` names."""
        return tuple(Path(path).expanduser() for path in self.write)


def read_server_sandbox(value: object, directory: Path | None = None) -> ServerSandboxSettings | None:
    """Return the settings in an entry of a server: the name of an engine, or a mapping; None for no sandbox.

    Relative paths count from *directory*, or are refused without it. Raises ConfigurationError for an unknown or
    invalid setting.
    """
    if value is None or isinstance(value, ServerSandboxSettings):
        return value
    if isinstance(value, str):
        return ServerSandboxSettings(engine=value)
    if not isinstance(value, Mapping):
        raise ConfigurationError("sandbox must be the name of an engine, such as bubblewrap, or a table of settings")
    data: dict[str, Any] = dict(cast("Mapping[str, Any]", value))
    known = [each.name for each in fields(ServerSandboxSettings)]
    for name in data:
        if name not in known:
            raise unknown_setting("sandbox", name, known)
    for name in data.keys() & {*_SIZES}:
        try:
            data[name] = size(data[name])
        except ValueError:
            raise ConfigurationError(f'sandbox: {name} must be bytes, or a text such as "512M"') from None
    for name in data.keys() & {*_PATHS} if directory is not None else ():
        if isinstance(data[name], list | tuple) and all(isinstance(each, str | Path) for each in data[name]):
            data[name] = _located(cast("Path", directory), data[name])
    return ServerSandboxSettings(**data)


def _located(directory: Path, paths: Sequence[str | Path]) -> tuple[str, ...]:
    return tuple(str((directory / Path(path).expanduser()).absolute()) for path in paths)


class ServerStream(Protocol):
    """Stdout and stdin of a server; see `Pipes`."""

    async def read(self) -> bytes:
        """Return the next bytes; b"" at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send all of *data*. Raises OSError when the server is gone."""
        ...

    def write_now(self, data: bytes) -> int:
        """Send as much as is taken at once, and return how much that was. Raises OSError when the server is gone."""
        ...

    def end_reading(self) -> None:
        """Have `read` return b"" from now on, also to a task that waits in it."""
        ...

    def close_writing(self) -> None:
        """Let the server find its input at its end."""
        ...


class ServerProcess(Protocol):
    """A server that runs, with all that it starts."""

    @property
    def stream(self) -> ServerStream:
        """Its stdout and stdin."""
        ...

    @property
    def pid(self) -> int:
        """The number of its process on this machine; 0 where that is not known."""
        ...

    @property
    def exit_code(self) -> int | None:
        """How it ended, a negative code is a signal; None while it runs."""
        ...

    def stderr_tail(self) -> bytes:
        """Return the last of what it has written to stderr until now."""
        ...

    async def wait(self) -> int:
        """Return the exit code, once it has ended."""
        ...

    def terminate(self) -> None:
        """Ask it to end, or begin to end it."""
        ...

    async def aclose(self) -> None:
        """Kill it with all that it has started; twice is fine."""
        ...


class SandboxedServer(ServerProcess, Protocol):
    """A server in its sandbox."""

    def explain(self) -> str:
        """Return what the sandbox knows of its end, or of what it lacks: a limit, a host; "" for nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProgram:
    """What to run: `argv` with the variables `env`, and no others of this process, in `cwd`, if there is one."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | None = None


class ServerSandbox(Protocol):
    """Starts servers, each apart from everything else; used by one event loop."""

    async def check(self, program: ServerProgram | None = None) -> None:
        """Raise ConfigurationError, MissingExtraError or SandboxUnavailableError, which says what to install or change,
        where it can start none, or not *program*; FileNotFoundError for a command that is nowhere."""
        ...

    async def start(self, program: ServerProgram) -> SandboxedServer:
        """Start a server in a sandbox of its own; raises as `check` does."""
        ...

    async def aclose(self) -> None:
        """Free what it has made; the servers were closed before."""
        ...


MakeServerSandbox: TypeAlias = Callable[[ServerSandboxSettings], ServerSandbox]
"""Makes a sandbox; nothing is started. Raises ConfigurationError for what no server gets and for an engine that runs
none, and MissingExtraError for one whose package is not installed."""

"""Change the servers of a configuration, whether it is being served or not: one at a time, whole or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolexec.backend.mcp.files import read_mcp_server
from toolexec.config.backend_files import FileChange, check_version, plan_add, plan_remove, version_of
from toolexec.errors import BackendUnavailableError, ConfigurationError
from toolexec.model.json_value import JSONDict, JSONObject

if TYPE_CHECKING:
    from toolexec.config.loaded import LoadedConfig
    from toolexec.config.reload import Reload
    from toolexec.exec import Exec

_LOCK: Final = "settings.lock"
_PATIENCE: Final = 60.0  # seconds for the change of another admin


class FileAdmin:
    """Changes *files* of settings that nothing serves; *load* reads them, *state* is the state directory.

    Of several admins, in whatever processes, each waits for those before it and sees what they have done; one that
    names a version of the settings is refused where they have another one by then.
    """

    def __init__(self, files: Sequence[Path], load: Callable[[], LoadedConfig], state: Path) -> None:
        self._given = tuple(files)
        self._load = load
        self._state = state

    @property
    def files(self) -> Sequence[Path]:
        """The files of the settings."""
        return self._given

    async def add(
        self, name: str, entry: JSONObject, *, version: str = "", replace: bool = False, check: bool = True
    ) -> JSONDict:
        """Add an MCP server to a file, once it has answered; without *check* it is not asked.

        Raises ConfigurationError for what cannot be such a server, and as `plan_add` and `check_version` do, and
        BackendUnavailableError for one that does not answer. Nothing has changed then.
        """
        async with self._alone():
            check_version(self.files, version)
            change = plan_add(self.files, name, entry, replace=replace)
            if check:
                await self._ask(name, entry, change.file)
            return {**await self._apply(change), **await self._started(name)}

    async def remove(self, name: str, *, version: str = "") -> JSONDict:
        """Take a server or provider out of the file that has it; raises as `plan_remove` and `check_version` do."""
        async with self._alone():
            check_version(self.files, version)
            return await self._apply(plan_remove(self.files, name, self._origin(name)))

    async def _apply(self, change: FileChange) -> JSONDict:
        """Write the change, if the settings are right with it; returns what became of it."""
        change.apply()
        try:
            await self._take_over()
        except BaseException:
            change.undo()
            raise
        return {"file": str(change.file), "version": version_of(self.files)}

    async def _take_over(self) -> None:
        await asyncio.to_thread(self._load)

    async def _started(self, name: str) -> JSONDict:
        return {}

    def _origin(self, name: str) -> str:
        return _origin_in(self._load(), name)

    async def _ask(self, name: str, entry: JSONObject, file: Path) -> None:
        """Raise BackendUnavailableError unless the server answers, or needs a login."""
        from toolexec.config.build import server_backend
        from toolexec.config.load import secret_resolver

        loaded = await asyncio.to_thread(self._load)
        resolver = secret_resolver(loaded.settings)
        server = read_mcp_server(name, entry, where=str(file), directory=file.parent, secrets=resolver)
        backend = server_backend(server, loaded)
        try:
            await backend.start()
            status = backend.status()
        finally:
            await backend.aclose()
        if status.enabled and not status.available and "login_command" not in status.info:
            raise BackendUnavailableError(
                f"{name} does not answer, and was not added: {status.reason or 'no reason is known'}", backend=name
            )

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Wait until no other admin of this user changes settings; raises ConfigurationError where that takes long."""
        from toolexec.process.lock import lock  # which not every platform has, unlike serving

        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(self._state / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not await asyncio.to_thread(lock, number, within=_PATIENCE):
                raise ConfigurationError(
                    f"another admin has been changing the settings for {_PATIENCE:g} s; nothing was changed, look at "
                    "what became of that (toolexec backend list) and try again"
                )
            yield
        finally:
            os.close(number)


class Admin(FileAdmin):
    """Changes what a running server serves, through its files: by its *reload*, for the backends of *ex*."""

    def __init__(self, ex: Exec, reload: Reload, load: Callable[[], LoadedConfig], state: Path) -> None:
        super().__init__((), load, state)
        self._ex = ex
        self._reload = reload

    @property
    def files(self) -> Sequence[Path]:
        """The files of the settings that were named, without those that they include."""
        return self._reload.named

    async def perform(self, request: JSONObject) -> JSONDict:
        """Do what a request says: `{"do": "add", "name": ..., "entry": ...}`, `remove`, `restart`, `list` or `reload`,
        with the arguments of the method of that name. Raises as these do, and ConfigurationError for any other."""
        given: dict[str, Any] = dict(request)
        method = {
            "add": self.add,
            "remove": self.remove,
            "restart": self.restart,
            "list": self.list,
            "reload": self.reload,
        }.get(given.pop("do", ""))
        if method is None:
            raise ConfigurationError("the request does not say what to do: add, remove, restart, list or reload")
        try:
            work = method(**given)
        except TypeError as error:
            raise ConfigurationError(f"the request does not fit: {error}") from None
        return await work

    async def list(self) -> JSONDict:
        """Return how every backend is, the files, and the version of the settings."""
        statuses = [status.to_dict() for status in self._ex.backend_statuses()]
        return {"backends": statuses, **await asyncio.to_thread(self._about)}

    async def restart(self, name: str) -> JSONDict:
        """Replace a server or provider by a new one of the same settings, and return how it is; see
        `Reload.restart`."""
        await self._reload.restart(name)
        return {**await asyncio.to_thread(self._about), **await self._started(name)}

    async def reload(self) -> JSONDict:
        """Read the files again, and return what has changed; raises ConfigurationError where they cannot be used."""
        changes = await self._reload()
        if changes is None:
            raise ConfigurationError(self._reload.problem)
        return {"changes": changes.to_dict(), "text": str(changes), **await asyncio.to_thread(self._about)}

    def _about(self) -> JSONDict:
        return {"files": [str(file.resolve()) for file in self.files], "version": version_of(self.files)}

    async def _take_over(self) -> None:
        if await self._reload() is None:
            raise ConfigurationError(f"nothing was changed: {self._reload.problem}")

    async def _started(self, name: str) -> JSONDict:
        await self._ex.start()
        found = next((status for status in self._ex.backend_statuses() if status.name == name), None)
        return {} if found is None else {"backend": found.to_dict()}

    def _origin(self, name: str) -> str:
        return _origin_in(self._reload.loaded, name)


def _origin_in(loaded: LoadedConfig, name: str) -> str:
    provider = loaded.providers.get(name)
    return provider.origin if provider is not None else loaded.server_origins.get(name, "")

"""The requests to a Docker daemon that sandboxes need: few, each with a time limit, each failure one of two kinds.

OSError says that the daemon cannot be talked to, DockerError (with the HTTP status) that it says no.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar

import aiohttp
from aiodocker import Docker, DockerError

from toolexec.containers import OWNER_LABEL, JSONDict, JSONObject, cgroup_cpu_seconds, is_orphan
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import pauses
from toolexec_containers.docker.attach import AttachedStream, RefusedError
from toolexec_containers.docker.host import DockerHost, unreachable

logger: logging.Logger = logging.getLogger(__name__)
_T = TypeVar("_T")
REMOVAL: Final = 10.0
"""How many seconds a daemon that answers may take to remove a container."""
_QUICK: Final = 10.0
_START: Final = 60.0
_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
_FETCH: Final = 1800.0
_GONE: Final = 900
_PIECE: Final = 1 << 20
_NOBODY: Final = (ConnectionRefusedError, FileNotFoundError)


class DockerAPI:
    """One daemon, or what answers like one. Made by `connect`; belongs to the event loop that it was made on."""

    def __init__(self, host: DockerHost, version: str, docker: Docker, connector: aiohttp.BaseConnector) -> None:
        self.host = host
        self.version = version
        self.podman = False
        self.system = ""
        self._docker = docker
        self._connector = connector
        self._processes: dict[str, tuple[int, str]] = {}

    @classmethod
    async def connect(cls, host: DockerHost) -> DockerAPI:
        """Talk to the daemon at *host*, in the newest version of the API that it has. Raises OSError."""
        # A container that runs holds two connections: a bound would be one on containers.
        connector: aiohttp.BaseConnector
        if host.path:
            connector = aiohttp.UnixConnector(host.path, limit=0)
        else:
            connector = aiohttp.TCPConnector(limit=0, ssl=host.tls if host.tls is not None else True)
        docker = Docker(url=host.url, connector=connector, api_version="v1.41")
        api = cls(host, "", docker, connector)
        try:
            await api._call(api._greet(), _QUICK)
        except BaseException:
            await api.aclose()
            raise
        docker.api_version = f"v{api.version}"
        return api

    async def _greet(self) -> None:
        async with self._docker.session.get(f"{self.host.url}/_ping") as answer:
            version = answer.headers.get("Api-Version", "")
            if answer.status != 200 or not version.replace(".", "").isdecimal():
                raise ConnectionError("what answers there is no Docker daemon")
            self.version: str = version
            self.podman: bool = "Libpod-Api-Version" in answer.headers
            self.system: str = answer.headers.get("Ostype", "linux")

    async def info(self) -> JSONDict:
        """Return what the daemon says about itself; raises SandboxUnavailableError when it says nothing."""
        try:
            return dict(await self._call(self._docker.system.info()))
        except DockerError as error:
            raise SandboxUnavailableError(f"the Docker daemon does not say what it is: {error}") from error
        except OSError as error:
            raise unreachable(self.host, error) from error

    async def create(self, name: str, body: JSONObject) -> str:
        """Make the container *name*; gives its ID."""
        return str((await self._call(self._docker.containers.create(dict(body), name=name), _START)).id)

    async def attach(self, name: str) -> AttachedStream:
        """Return the streams of a container that has not been started yet."""
        stream = await self.host.connect(AttachedStream)
        try:
            async with asyncio.timeout(_QUICK):
                await stream.attach(
                    f"/v{self.version}/containers/{name}/attach?stream=1&stdin=1&stdout=1&stderr=1",
                )
        except BaseException as error:
            await stream.aclose()
            if isinstance(error, RefusedError):
                raise DockerError(error.status, _message(error.text)) from error
            raise
        return stream

    async def start(self, name: str) -> None:
        """Start the container *name*."""
        await self._call(self._docker.containers.container(name).start(), _START)

    async def wait(self, name: str) -> int:
        """Return the exit code of a container, once it has ended."""
        answer = await self._call(self._docker.containers.container(name).wait(), None)
        return int(answer["StatusCode"])

    async def inspect(self, name: str) -> JSONDict:
        """Return what is known about a container."""
        return await self._call(self._docker.containers.container(name).show(), _QUICK)

    async def remove(self, name: str, seconds: float = REMOVAL) -> bool:
        """Kill a container and remove it, with its volumes; all is gone when this returns True. False, after some
        *seconds*, or at once where no daemon listens, and a line in the log, if that cannot be done. Never raises an
        error of the daemon.
        """
        self._processes.pop(name, None)
        ends = monotonic() + seconds
        waits = pauses(_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                async with asyncio.timeout(max(_PAUSE, ends - monotonic())):
                    await self._call(self._docker.containers.container(name).delete(force=True, v=True))
                return True
            except DockerError as error:
                if error.status == 404:
                    return True
                problem: Exception = error  # 409: it is being removed; 500: it has ended meanwhile
            except OSError as error:
                problem = error
            pause = next(waits)
            if monotonic() + pause > ends or isinstance(problem, _NOBODY):
                logger.warning("the container %s is not removed: %s", name, problem or type(problem).__name__)
                return False
            await asyncio.sleep(pause)

    async def cpu_seconds(self, name: str) -> float:
        """Return the CPU time that a container has used: by its control group, where the daemon is on this machine,
        else by what the daemon counts, which takes up to two seconds in some releases.
        """
        if self.host.path:
            if name not in self._processes:
                known = await self.inspect(name)
                self._processes[name] = int(known["State"]["Pid"]), str(known["Id"])
            used = cgroup_cpu_seconds(*self._processes[name])
            if used is not None:
                return used
        data: Any = await self._call(self._get_json(f"containers/{name}/stats", stream="false", **{"one-shot": "true"}))
        return int(data["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9

    async def orphans(self) -> set[str]:
        """Return the IDs of the containers, whatever their state, whose label names a dead process of ours."""
        filters = json.dumps({"label": [OWNER_LABEL]})
        data: Any = await self._call(self._get_json("containers/json", all="true", filters=filters))
        return {str(each["Id"]) for each in data if is_orphan(str(each["Labels"][OWNER_LABEL]))}

    async def image(self, name: str) -> JSONDict | None:
        """Return what is known about an image that the daemon has; None if it has none of that name."""
        try:
            return await self._call(self._docker.images.inspect(name), _QUICK)
        except DockerError as error:
            if error.status != 404:
                raise
            return None

    async def load(self, archive: Path) -> None:
        """Have the daemon load the images of an archive."""
        await self._call(self._load(archive), _FETCH)

    async def pull(self, name: str, platform: str, login: Mapping[str, str] | None) -> None:
        """Have the daemon fetch an image; *name* is in full."""
        kept = None if login is None else dict(login)
        await self._call(self._docker.images.pull(name, platform=platform or None, auth=kept), _FETCH)

    async def aclose(self) -> None:
        """Close all connections but those that were handed over."""
        await self._docker.close()
        await self._connector.close()

    async def _load(self, archive: Path) -> None:
        loaded: Any = self._docker.images.import_image(_pieces(archive))
        await loaded

    async def _get_json(self, path: str, **query: str) -> Any:
        url = f"{self.host.url}/v{self.version}/{path}"
        async with self._docker.session.get(url, params=query) as answer:
            data: Any = await answer.json(content_type=None)
            if answer.status != 200:
                raise DockerError(answer.status, str(data["message"]))
            return data

    async def _call(self, request: Coroutine[Any, Any, _T], seconds: float | None = _QUICK) -> _T:
        try:
            async with asyncio.timeout(seconds):
                return await request
        except DockerError as error:
            if error.status != _GONE:
                raise
            raise _cause(error.__context__) from error
        except aiohttp.ClientError as error:
            raise _cause(error) from error
        except (LookupError, TypeError, ValueError) as error:
            raise ConnectionError("it gave an answer that is none of a Docker daemon's") from error


def _cause(error: BaseException | None) -> OSError:
    """Return what the system said, where aiohttp has wrapped it."""
    inner = getattr(error, "os_error", error)
    return inner if isinstance(inner, OSError) else ConnectionResetError(f"it has hung up: {inner}")


def _message(text: str) -> str:
    """Return what the daemon says in the body of a refusal."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, LookupError, TypeError):
        return text


async def _pieces(archive: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(archive.open, "rb")
    try:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece
    finally:
        file.close()

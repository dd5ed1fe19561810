"""The requests to an API server that sandboxes need: plain JSON, each with a time limit, each failure a `KubeError`.

`kubernetes_asyncio` finds the cluster and the credentials; its models are left alone, as they take milliseconds for
each pod.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

import aiohttp
from kubernetes_asyncio import config as kube_config
from kubernetes_asyncio.client import Configuration

from toolexec.containers import JSONDict, JSONObject
from toolexec.errors import ConfigurationError
from toolexec_kubernetes.config import KubernetesConfig
from toolexec_kubernetes.failures import KubeError

logger: logging.Logger = logging.getLogger(__name__)

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""How the streams of a container share one connection; the preferred one first."""

_QUICK: Final = 15.0
_PATIENCE: Final = 30.0
"""How long a request is repeated that the server is too busy for."""
_TRIES: Final = 3
_PAUSE: Final = 0.1
_PING: Final = 30.0
_KEPT: Final = 60.0
_LARGEST: Final = 16 << 20
_BUSY: Final = (500, 502, 503, 504)
_LOST: Final = (0, *_BUSY)
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeClient:
    """One API server, seen from one namespace. Made by `connect`; belongs to the event loop that it was made on."""

    def __init__(self, configuration: Configuration, namespace: str, settings: KubernetesConfig) -> None:
        self.namespace = namespace
        self._configuration: Any = configuration
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._ahead = 0.0

    @classmethod
    async def connect(cls, settings: KubernetesConfig) -> KubeClient:
        """Find the cluster of *settings*; it is not asked anything yet. Raises ConfigurationError for none."""
        configuration, namespace = await _load(settings)
        client = cls(configuration, settings.namespace or namespace or "default", settings)
        await client._open()
        return client

    async def _open(self) -> None:
        made = self._configuration
        try:
            context = await asyncio.to_thread(_tls, made)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"the certificates of the cluster cannot be used: {error}") from error
        # Each container that runs holds a connection: a bound would be one on containers.
        connector = aiohttp.TCPConnector(limit=0, ssl=context, keepalive_timeout=_KEPT)
        self._session = aiohttp.ClientSession(connector=connector, trust_env=not made.proxy, auto_decompress=True)

    @property
    def host(self) -> str:
        """The address of the API server."""
        return str(self._configuration.host)

    def path(self, group: str, kind: str, name: str = "") -> str:
        """Return the path of objects of *kind* in the namespace: *group* is `v1`, or `apps/v1` and the like."""
        start = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        return f"{start}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def now(self) -> float:
        """Return the time (as of `time.time`) as the server has it, which all its clients can agree on."""
        return time() + self._ahead

    async def get(self, path: str, **query: str) -> JSONDict:
        """Return what is there. Raises KubeError."""
        return await self._json("GET", path, query=query)

    async def create(self, path: str, body: JSONObject) -> JSONDict:
        """Make something under a name of our own: one that is there already came of an earlier try of ours.

        Raises KubeError.
        """
        return await self._json("POST", path, body=body, own=True)

    async def ask(self, path: str, body: JSONObject) -> JSONDict:
        """Return the answer to a question that is sent as an object. Raises KubeError."""
        return await self._json("POST", path, body=body)

    async def merge(self, path: str, body: JSONObject) -> JSONDict:
        """Change parts of what is there. Raises KubeError."""
        return await self._json("PATCH", path, body=body, media="application/merge-patch+json")

    async def delete(self, path: str, *, grace: int | None = None, version: str = "") -> bool:
        """Have something removed; False where there is none. *grace* is how many seconds a pod gets to end; 0 forgets
        it at once, whatever its node says. With the *version* of an object only that one is removed: one that has been
        changed is a KubeError with the status 409. Raises KubeError."""
        options: JSONDict = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if version:
            options["preconditions"] = {"resourceVersion": version}
        try:
            await self._json("DELETE", path, body=options)
        except KubeError as error:
            if error.status != 404:
                raise
            return False
        return True

    async def text(self, path: str, **query: str) -> str:
        """Return what is there as text. Raises KubeError."""
        return (await self._send("GET", path, query=query)).decode("utf-8", "replace")

    async def events(self, path: str, seconds: int, **query: str) -> AsyncIterator[JSONDict]:
        """Give the events of a watch until the server ends it, after *seconds* at most. Raises KubeError."""
        asked = {**query, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_QUICK, sock_read=seconds + _QUICK)
        with _Translated():
            async with self._live.get(self._url(path), params=asked, timeout=timeout, **await self._extras()) as answer:
                if answer.status != 200:
                    raise _refused(answer, await answer.read())
                rest = b""
                async for piece in answer.content.iter_any():
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield _parsed(line)

    async def stream(self, path: str, query: Sequence[tuple[str, str]]) -> aiohttp.ClientWebSocketResponse:
        """Return a connection to the streams of a container. Raises KubeError."""
        url = self._url(path).replace("http", "ws", 1)
        with _Translated():
            async with asyncio.timeout(_QUICK):
                return await self._live.ws_connect(
                    url,
                    params=query,
                    protocols=PROTOCOLS,
                    heartbeat=_PING,
                    compress=0,
                    max_msg_size=_LARGEST,
                    autoclose=True,
                    **await self._extras(),
                )

    async def aclose(self) -> None:
        """Close all connections but those that were handed over."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @property
    def _live(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise KubeError(0, "the client is closed")
        return self._session

    def _url(self, path: str) -> str:
        return f"{self.host.rstrip('/')}{path}"

    async def _extras(self) -> dict[str, Any]:
        """Return what each request needs besides: who we are, and the way there."""
        made = self._configuration
        token = made.get_api_key_with_prefix("BearerToken")
        if inspect.isawaitable(token):
            token = await token
        extras: dict[str, Any] = {"headers": {"Authorization": token} if token else {}}
        if made.proxy:
            extras["proxy"] = made.proxy
        if getattr(made, "tls_server_name", None):
            extras["server_hostname"] = made.tls_server_name
        return extras

    async def _json(self, method: str, path: str, *, own: bool = False, **parts: Any) -> JSONDict:
        return _parsed(await self._send(method, path, own=own, **parts) or b"{}")

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: JSONObject | None = None,
        query: Mapping[str, str] | None = None,
        media: str = "application/json",
        own: bool = False,
    ) -> bytes:
        """Make a request, again where that can do no harm: the server says that it was too busy, or nothing was done
        twice by it."""
        ends, tries, renewed, pause = monotonic() + _PATIENCE, 0, False, _PAUSE
        data = None if body is None else json.dumps(body).encode()
        while True:
            tries += 1
            try:
                return await self._once(method, path, data, query or {}, media)
            except KubeError as error:
                if own and error.reason == "AlreadyExists" and tries > 1:
                    return b"{}"
                if error.status == 401 and not renewed:
                    renewed = True
                    await self._renew()
                    continue
                wait = _wait(error, pause) if own or method != "POST" or error.status == 429 else None
                asked = error.retry_after is not None or error.status == 409
                if wait is None or (tries >= _TRIES and not asked) or monotonic() + wait > ends:
                    raise
                logger.debug("%s %s is repeated in %g s: %s", method, path, wait, error)
            await asyncio.sleep(wait)
            pause *= 2

    async def _once(self, method: str, path: str, data: bytes | None, query: Mapping[str, str], media: str) -> bytes:
        extras = await self._extras()
        extras["headers"] = {**extras["headers"], "Accept": "application/json"}
        if data is not None:
            extras["headers"]["Content-Type"] = media
        timeout = aiohttp.ClientTimeout(total=_QUICK)
        with _Translated():
            async with self._live.request(
                method, self._url(path), data=data, params=query, timeout=timeout, **extras
            ) as answer:
                content = await answer.read()
                self._note_time(answer.headers.get("Date", ""))
                if answer.status >= 300:
                    raise _refused(answer, content)
                return content

    def _note_time(self, date: str) -> None:
        with suppress(ValueError, TypeError):
            self._ahead: float = parsedate_to_datetime(date).timestamp() - time()

    async def _renew(self) -> None:
        """Read the credentials again: what gives them may have newer ones."""
        with suppress(ConfigurationError):
            self._configuration, _ = await _load(self._settings)


class _Translated:
    """Turns what aiohttp raises into KubeErrors."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, aiohttp.WSServerHandshakeError):
            headers = error.headers or {}
            raise KubeError(error.status, error.message, retry_after=_retry_after(headers)) from error
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
            raise KubeError(0, f"its certificate is not trusted: {error}") from error
        if isinstance(error, aiohttp.ClientError | OSError):
            raise KubeError(0, str(error) or type(error).__name__) from error


async def _load(settings: KubernetesConfig) -> tuple[Configuration, str]:
    """Return what is known of the cluster, and the namespace of the context. Raises ConfigurationError."""
    made = Configuration()
    given = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    path = _expanded(given)
    try:
        if not settings.context and not _has_kubeconfig(path) and _ACCOUNT.is_dir():
            kube_config.load_incluster_config(client_configuration=made)  # type: ignore[no-untyped-call]
            return made, _own_namespace()
        if not _has_kubeconfig(path):
            raise FileNotFoundError("there is no kubeconfig")
        await kube_config.load_kube_config(
            config_file=path or None,
            context=settings.context or None,
            client_configuration=made,
        )
        contexts, active = kube_config.list_kube_config_contexts(path or None)
    except Exception as error:
        where = path or "where kubectl looks (KUBECONFIG, ~/.kube/config)"
        raise ConfigurationError(
            f"no cluster is known: {error}; give the path of a kubeconfig, or make one {where}",
        ) from error
    chosen = next((each for each in contexts if each["name"] == settings.context), active)
    return made, str((chosen or {}).get("context", {}).get("namespace") or "")


def _expanded(given: str) -> str:
    """Return the paths in *given*, each with the home directory for `~`."""
    return os.pathsep.join(str(Path(each).expanduser()) for each in given.split(os.pathsep) if each)


def _has_kubeconfig(given: str) -> bool:
    paths = [Path(each) for each in given.split(os.pathsep) if each] or [Path.home() / ".kube/config"]
    return any(path.is_file() for path in paths)


def _own_namespace() -> str:
    try:
        return (_ACCOUNT / "namespace").read_text("utf-8").strip()
    except OSError:
        return ""


def _tls(made: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=made.ssl_ca_cert or None)
    if made.cert_file:
        context.load_cert_chain(made.cert_file, made.key_file or None)
    if not made.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _refused(answer: aiohttp.ClientResponse, content: bytes) -> KubeError:
    """Return the error of an answer: of its Status object, or of whatever it says."""
    wait = _retry_after(answer.headers)
    try:
        status = json.loads(content)
        return KubeError(
            answer.status, str(status["message"]), reason=str(status.get("reason") or ""), retry_after=wait
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        said = content[:500].decode("utf-8", "replace").strip() or str(answer.reason)
        return KubeError(answer.status, said, retry_after=wait)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    given = headers.get("Retry-After", "")
    return float(given) if given.isdecimal() else None


def _wait(error: KubeError, pause: float) -> float | None:
    """Return how long to wait before another try; None for an answer that will not change."""
    if error.status == 429:
        return error.retry_after if error.retry_after is not None else 1.0
    if error.status in _LOST:
        return error.retry_after if error.retry_after is not None else pause
    if error.status == 409 and "resourcequotas" in error.message:  # two pods at once: the count has changed
        return pause
    return None


def _parsed(data: bytes) -> JSONDict:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise KubeError(0, f"what answers is not an API server: {data[:100]!r}") from error
    if not isinstance(found, dict):
        raise KubeError(0, f"what answers is not an API server: {data[:100]!r}")
    return found

"""An HTTP client for tools: it reaches the hosts that it may, follows redirects there, and bounds what comes back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from toolexec.errors import (
    BackendBusyError,
    BackendUnavailableError,
    ConnectionLostError,
    InputValidationError,
    Outcome,
    RemoteToolError,
    ToolExecError,
    ToolTimeoutError,
    Violation,
)
from toolexec.errors.extras import extra_needed
from toolexec.model.bound import Bound
from toolexec.model.settings import check_ranges, checked
from toolexec.net.address import LookUp, NotAllowedAddressError, look_up, refusal
from toolexec.net.auth import RequestAuth
from toolexec.net.connections import Connections
from toolexec.net.decode import ENCODINGS, Body, BodyError
from toolexec.net.hosts import DEFAULT_PORTS, is_address, is_local_name, read_authority, read_rule, written_authority
from toolexec.net.outcomes import outcome_of_status
from toolexec.version import __version__

if TYPE_CHECKING:
    import httpcore2

    from toolexec.net.pool import Attempt

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_UNSAFE: Final = re.compile(r"[\x00-\x20\x7f\\]")
_PRINTABLE: Final = "".join(map(chr, range(33, 127)))
_REDIRECTS: Final = frozenset([301, 302, 303, 307, 308])
_OURS: Final = frozenset(
    ["connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"]
)
_HARMLESS: Final = frozenset(["accept", "accept-encoding", "accept-language", "user-agent"])
"""Headers that another host may have: keys are sent in headers of any name."""
_DEFAULTS: Final = {"accept": "*/*", "accept-encoding": ENCODINGS, "user-agent": f"toolexec/{__version__}"}
_WITH_BODY: Final = frozenset(["POST", "PUT", "PATCH"])

_Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class HTTPRequest:
    """A request to an absolute `url`, with `headers` in the order in which they are sent, and what `auth` adds to them;
    that stays with the origin of `url`."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    auth: RequestAuth | None = None


@dataclass(frozen=True, slots=True)
class HTTPResponse:
    """A complete response: `headers` by lower-case name (repeated ones joined by ", "), the decoded `body`, the `url`
    that it came from, after redirects, and what the `auth` of the request has added to it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    credentials: tuple[str, ...] = field(default=(), repr=False)


class OpenResponse:
    """A response whose body has not been read yet; its `status`, `headers`, `url` and `credentials` are as in
    `HTTPResponse`."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        url: str,
        chunks: AsyncGenerator[bytes, None],
        credentials: tuple[str, ...] = (),
    ) -> None:
        self.status = status
        self.headers = headers
        self.url = url
        self.credentials = credentials
        self.chunks: AsyncGenerator[bytes, None] = chunks
        """The decoded body as it arrives; raises as `HTTPClient.send` does."""

    async def read(self) -> HTTPResponse:
        """Return the response with the rest of its body; raises as `HTTPClient.send` does."""
        async with aclosing(self.chunks) as chunks:
            body = b"".join([part async for part in chunks])
        return HTTPResponse(self.status, self.headers, body, self.url, self.credentials)


class _Target(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{written_authority(self.scheme, self.host, self.port)}{self.path}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self[:3]


@checked("HTTPClient")
class HTTPClient:
    """Sends requests to hosts, on pooled connections of one event loop.

    *hosts* are those that may be reached: `api.example.com` (on ports 80 and 443), `api.example.com:8443`,
    `*.example.com`; None allows all. Names are looked up, and the addresses judged before they are connected to:
    private addresses, and those of this machine, are refused unless *allow_private*, or unless the caller wrote them:
    an address in *hosts* counts, one in the URL of a request does where *hosts* is None, and so does `localhost`. One
    that a redirect leads to does not. Addresses of the cloud's metadata services are always refused.

    *cert_file* and *key_file* (PEM, the key in the first if there is no second; *key_password* decrypts it) are shown
    to servers that ask for a client's certificate: those of *cert_origins*, None for all. *proxy* is the URL of a
    proxy of HTTP or SOCKS 5, which all requests go through, with the user and password *proxy_auth*; `environment` uses
    the proxies of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, which are ignored otherwise. Hosts and their
    addresses are judged here just the same; a name that cannot be looked up here is left to the proxy with
    *allow_private* only.

    *timeout* bounds a request from its start to the last byte of its response, redirects included, in seconds.
    *max_response_bytes* bounds a body after decoding. At most *max_connections* are open at the same time, further
    requests wait. Certificates are always verified, by those that the system trusts and those in *ca_file* (PEM).
    Raises ConfigurationError for settings that cannot work, and
    MissingExtraError without the `http` extra, or the `socks` extra where that is needed.
    """

    def __init__(
        self,
        *,
        hosts: Collection[str] | None = None,
        allow_private: bool = False,
        timeout: float = 30.0,
        max_response_bytes: int = 16 * 2**20,
        max_connections: int = 100,
        max_redirects: int = 5,
        ca_file: str | Path = "",
        cert_file: str | Path = "",
        key_file: str | Path = "",
        key_password: str = "",
        cert_origins: Collection[str] | None = None,
        proxy: str = "",
        proxy_auth: tuple[str, str] | None = None,
        look_up: LookUp = look_up,
    ) -> None:
        check_ranges(
            "HTTPClient",
            above={"timeout": timeout, "max_response_bytes": max_response_bytes, "max_connections": max_connections},
            least={"max_redirects": max_redirects},
        )
        with extra_needed("http", "a client for HTTP"):
            import_module("toolexec.net.pool")  # shows what is missing now, and not at a call
        self._rules = [read_rule(host) for host in hosts] if hosts is not None else None
        self._allow_private = allow_private
        self._timeout = timeout
        self._limit = max_response_bytes
        self._max_connections = max_connections
        self._max_redirects = max_redirects
        self._connections = Connections(
            allow_private=allow_private,
            max_connections=max_connections,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            key_password=key_password,
            cert_origins=cert_origins,
            proxy=proxy,
            proxy_auth=proxy_auth,
            look_up=look_up,
        )
        self._closed = False

    async def send(self, request: HTTPRequest) -> HTTPResponse:
        """Send *request* and return the response, whatever its status.

        Redirects of GET and HEAD are followed, at most `max_redirects`, to hosts that may be reached and never from
        https to http; where the origin changes, only harmless headers go along.

        Raises InputValidationError for a URL, a method or headers that are invalid (a line break in a header, for
        example), BackendUnavailableError and BackendBusyError when nothing was sent (no such host, refused, not
        allowed, no connection in time), ConnectionLostError when the connection was lost after that, ToolTimeoutError,
        RemoteToolError for a response that is too large, that cannot be decoded, or that redirects to where it must
        not. Once the status line is there, the `outcome` of the last three is what that says (`outcome_of_status`).
        """
        target, headers = self._admitted(request)
        with self._reported(target) as attempt:
            async with asyncio.timeout(self._timeout):
                place, response, found, added = await self._follow(request, target, headers, attempt)
                try:
                    body = await self._body(request, response, found, attempt)
                finally:
                    await response.aclose()
        return HTTPResponse(response.status, found, body, place.url, added)

    @asynccontextmanager
    async def open(self, request: HTTPRequest) -> AsyncGenerator[OpenResponse, None]:
        """Send *request* and give the response as soon as its headers are there; see `send`, also for what is raised.

        The connection is closed at the end of the block, unless the body was read to its end. `timeout` bounds the
        response until its last byte here, too.
        """
        target, headers = self._admitted(request)
        ends = asyncio.get_running_loop().time() + self._timeout
        with self._reported(target) as attempt:
            async with asyncio.timeout_at(ends):
                place, response, found, added = await self._follow(request, target, headers, attempt)

        async def chunks() -> AsyncGenerator[bytes, None]:
            async with aclosing(self._chunks(request, response, found, attempt)) as parts:
                while True:
                    # Not around the loop: scopes and variables of a context must not be held while this one rests.
                    with self._reported(target, attempt):
                        async with asyncio.timeout_at(ends):
                            part = await anext(parts, None)
                    if part is None:
                        return
                    yield part

        body = chunks()
        try:
            yield OpenResponse(response.status, found, place.url, body, added)
        finally:
            try:
                await body.aclose()
            finally:
                await response.aclose()

    async def aclose(self) -> None:
        """Close all connections; closing twice is fine. Later requests raise BackendUnavailableError."""
        self._closed = True
        await self._connections.aclose()

    def _admitted(self, request: HTTPRequest) -> tuple[_Target, _Headers]:
        """Return where a request goes, which may be reached, and the headers that it is sent with."""
        target = _target_of(request.url)
        headers = _headers_of(request)
        self._admit(target, written=self._rules is None)
        return target, headers

    @contextmanager
    def _reported(self, target: _Target, known: Attempt | None = None) -> Generator[Attempt]:
        """Give the attempt that the block is a part of, and raise its failures as errors that say what became of it."""
        from toolexec.net.pool import ATTEMPT, FAILURES, Attempt

        attempt = known or Attempt()
        try:
            with Bound(ATTEMPT, attempt):
                yield attempt
        except ToolExecError as error:
            if attempt.sent and error.outcome is Outcome.NOT_SENT:  # of a later hop: the first one has begun
                raise _redirect_refused(error.message, attempt) from error
            raise
        except TimeoutError as error:
            raise self._late(target, attempt) from error
        except FAILURES as error:
            raise _lost(target, attempt, error) from error

    async def _follow(
        self, request: HTTPRequest, target: _Target, headers: _Headers, attempt: Attempt
    ) -> tuple[_Target, httpcore2.Response, dict[str, str], tuple[str, ...]]:
        """Return the response at the end of all redirects, with where it came from, its headers, and what the
        authentication has added to the requests until then; its body is not read yet."""
        first, added = target, tuple[str, ...]()
        for _ in range(self._max_redirects + 1):
            auth = request.auth if target.origin == first.origin else None
            response, more = await self._exchange(replace(request, auth=auth), target, headers, attempt)
            added += more
            is_last = False
            try:
                found = _readable_headers(response.headers)
                attempt.outcome = outcome_of_status(response.status, found)
                location = found.get("location", "") if response.status in _REDIRECTS else ""
                is_last = not location or request.method not in ("GET", "HEAD")
            finally:
                if not is_last:
                    await response.aclose()
            if is_last:
                return target, response, found, added
            following = self._redirected(target, location, attempt)
            self._admit(following, written=self._rules is None and following.origin == first.origin)
            if following.origin != target.origin:
                headers = [each for each in headers if each[0].decode().lower() in _HARMLESS]
            target = following
        raise RemoteToolError(f"{first.host} redirects more than {self._max_redirects} times", outcome=attempt.outcome)

    async def _exchange(
        self, request: HTTPRequest, target: _Target, headers: _Headers, attempt: Attempt
    ) -> tuple[httpcore2.Response, tuple[str, ...]]:
        """Send a request to one place, once more where its authentication has an answer to the response; return that
        response, and what the authentication has added."""
        if self._closed:
            raise BackendUnavailableError("this HTTP client is closed", retryable=False)
        pool = await self._connections.to(target.scheme, target.host, target.port, attempt)
        if request.auth is None:
            return await _answered(pool, _core_request(request, target, headers), attempt), ()
        host = ("Host", written_authority(target.scheme, target.host, target.port))
        read = [host, *((name.decode(), value.decode()) for name, value in headers)]
        flow = request.auth.flow(request.method, target.url, read, request.body or b"")
        added, written = next(flow), tuple[str, ...]()
        while True:
            own = {name.lower() for name, _ in added}
            sent = [each for each in headers if each[0].decode().lower() not in own]
            sent += [(name.encode(), value.encode()) for name, value in added]
            written += tuple(value for _, value in added)
            response = await _answered(pool, _core_request(request, target, sent), attempt)
            try:
                answer = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers]
                attempt.outcome = outcome_of_status(response.status, _readable_headers(response.headers))
                added = flow.send((response.status, answer))
            except StopIteration:
                return response, written
            except BaseException:
                await response.aclose()
                raise
            await response.aclose()

    def _admit(self, target: _Target, *, written: bool) -> None:
        """Raise BackendUnavailableError unless *target* may be reached, by what is known without looking it up.

        *written* says that the caller wrote this host.
        """
        host, port = target.host, target.port
        if self._rules is not None:
            rules = [rule for rule in self._rules if rule.matches(host, port)]
            if not rules:
                where = written_authority(target.scheme, host, port)
                raise BackendUnavailableError(f"{where} is not one of the hosts that may be reached", retryable=False)
            written = any(not rule.below for rule in rules)
        allowed = written or self._allow_private
        if is_address(host):
            reason = refusal(host, allow_private=allowed)
        else:
            reason = "its address is a private one" if is_local_name(host) and not allowed else ""
        if reason:
            raise _not_reached(host, reason)

    def _redirected(self, target: _Target, location: str, attempt: Attempt) -> _Target:
        try:
            following = _target_of(urljoin(target.url, quote(location, safe=_PRINTABLE)))
        except (InputValidationError, ValueError) as error:
            raise _redirect_refused("its address is not a valid URL", attempt) from error
        if target.scheme == "https" and following.scheme == "http":
            raise _redirect_refused(f"it leads from https to http, at {following.host}", attempt)
        return following

    async def _body(
        self, request: HTTPRequest, response: httpcore2.Response, headers: Mapping[str, str], attempt: Attempt
    ) -> bytes:
        async with aclosing(self._chunks(request, response, headers, attempt)) as parts:
            return b"".join([part async for part in parts])

    async def _chunks(
        self, request: HTTPRequest, response: httpcore2.Response, headers: Mapping[str, str], attempt: Attempt
    ) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, decoded. Raises RemoteToolError for one that is refused."""
        if request.method == "HEAD":
            return
        try:
            body = Body(headers.get("content-encoding", ""), self._limit)
            if headers.get("content-length", "0").isdecimal() and int(headers.get("content-length", 0)) > self._limit:
                raise BodyError(f"it is longer than {self._limit} bytes")
            stream: Any = response.stream
            async with aclosing(stream.__aiter__()) as chunks:
                async for chunk in chunks:
                    body.feed(chunk)
                    if part := body.take():
                        yield part
            body.finish()
        except BodyError as error:
            raise RemoteToolError(
                f"the response (status {response.status}) is refused: {error}",
                details={"status": response.status, "limit": self._limit},
                outcome=attempt.outcome,
            ) from error

    def _late(self, target: _Target, attempt: Attempt) -> ToolExecError:
        """Return the error for a request that was not answered in time."""
        seconds = f"within {self._timeout:g} s"
        if attempt.sent:
            return ToolTimeoutError(
                f"{target.host} did not answer completely {seconds}",
                details={"timeout": self._timeout},
                outcome=attempt.outcome,
            )
        if attempt.connecting:
            return BackendUnavailableError(f"{target.host} cannot be reached: no connection {seconds}")
        return BackendBusyError(f"all {self._max_connections} connections were in use {seconds}")


def _not_reached(host: str, reason: str) -> BackendUnavailableError:
    return BackendUnavailableError(
        f"{host} is not reached: {reason}; `allow_private` allows it", retryable=False, details={"host": host}
    )


def _redirect_refused(reason: str, attempt: Attempt) -> RemoteToolError:
    return RemoteToolError(f"a redirect is not followed: {reason}", outcome=attempt.outcome)


async def _answered(
    pool: httpcore2.AsyncConnectionPool, request: httpcore2.Request, attempt: Attempt
) -> httpcore2.Response:
    try:
        return await pool.handle_async_request(request)
    except BaseException:
        await attempt.drop()
        raise


def _lost(target: _Target, attempt: Attempt, error: Exception) -> ToolExecError:
    """Return the error for a request whose connection could not be made, or was lost."""
    if isinstance(error, NotAllowedAddressError):
        return _redirect_refused(str(error), attempt) if attempt.sent else _not_reached(target.host, str(error))
    text = _reason(error)
    if type(error).__name__ == "ProxyError":
        is_passing = text.startswith("5")
        text = f"the proxy answered {text}"
        if not attempt.sent:
            return BackendUnavailableError(f"{target.host} cannot be reached: {text}", retryable=is_passing)
    if attempt.sent:
        return ConnectionLostError(f"the connection to {target.host} was lost: {text}", outcome=attempt.outcome)
    verified = "CERTIFICATE_VERIFY_FAILED" not in text
    return BackendUnavailableError(f"{target.host} cannot be reached: {text}", retryable=verified)


def _reason(error: BaseException) -> str:
    """Return what the error, or the first of its causes that has words, says."""
    found: BaseException | None = error
    while found is not None:
        if str(found):
            return str(found)
        found = found.__cause__ or found.__context__
    return type(error).__name__


def _target_of(url: str) -> _Target:
    """Return what *url* leads to. Raises InputValidationError unless it is absolute, without unsafe characters."""
    problem = ""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _invalid("the URL", "is invalid") from None
    if _UNSAFE.search(url):
        problem = "has characters that a URL cannot have"
    elif parts.scheme not in DEFAULT_PORTS or not parts.netloc:
        problem = "must be absolute, with http or https"
    elif "@" in parts.netloc:
        problem = "has a user or a password in it; send these in a header"
    origin = None if problem else _origin_of(parts.scheme, parts.netloc)
    if origin is None:
        raise _invalid("the URL", problem or "has a host or a port that is invalid")
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return _Target(parts.scheme, *origin, path if path.isascii() else quote(path, safe=_PRINTABLE))


@lru_cache(maxsize=1024)
def _origin_of(scheme: str, netloc: str) -> tuple[str, int] | None:
    return read_authority(netloc, DEFAULT_PORTS[scheme])


def _headers_of(request: HTTPRequest) -> _Headers:
    """Return the headers to send. Raises InputValidationError for a method or headers that are invalid."""
    if not _TOKEN.fullmatch(request.method) or request.method.upper() in ("CONNECT", "TRACE"):
        raise _invalid("the method", "is not one that can be used")
    missing = dict(_DEFAULTS)
    headers: _Headers = []
    for name, value in request.headers:
        if not _TOKEN.fullmatch(name):
            raise _invalid(f"the header {name[:40]!r}", "has a name that headers cannot have")
        if _CONTROLS.search(value):
            raise _invalid(f"the header {name}", "has a line break or another control character in its value")
        if name.lower() in _OURS:
            raise _invalid(f"the header {name}", "is set by the client itself")
        missing.pop(name.lower(), None)
        headers.append((name.encode(), value.strip(" \t").encode()))
    headers.extend((name.encode(), value.encode()) for name, value in missing.items())
    return headers


def _invalid(what: str, problem: str) -> InputValidationError:
    return InputValidationError([Violation(path="", keyword="format", message=f"{what} {problem}")], op="send")


def _core_request(request: HTTPRequest, target: _Target, headers: _Headers) -> httpcore2.Request:
    import httpcore2

    own = [(b"host", written_authority(target.scheme, target.host, target.port).encode())]
    if request.body is not None or request.method in _WITH_BODY:
        own.append((b"content-length", b"%d" % len(request.body or b"")))
    return httpcore2.Request(
        request.method.encode(),
        httpcore2.URL(
            scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode()
        ),
        headers=[*own, *headers],
        content=request.body or b"",
    )


def _readable_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found

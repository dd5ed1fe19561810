"""Requests to the API of Proxmox VE: tokens, tickets and their renewal, certificates, tasks."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from toolexec.errors import ConfigurationError
from toolexec.remote import ProxmoxSettings, SecretResolver, pauses
from toolexec_remote.proxmox.failures import ProxmoxError, failed_task, refusal
from toolexec_remote.proxmox.rights import missing

if TYPE_CHECKING:
    import aiohttp

logger: logging.Logger = logging.getLogger(__name__)
Value = str | int | bool
_RENEW_SECONDS: Final = 100 * 60.0
"""A ticket is good for two hours."""
_MOST_BYTES: Final = 8 << 20
_FIRST_PAUSE: Final = 0.05
_LOG_LINES: Final = 20
_GET_TRIES: Final = 3
_GET_PAUSE: Final = 0.2


def path_of(*parts: str | int) -> str:
    """Return the path of these parts, each of them escaped.

    >>> path_of("nodes", "pve", "tasks", "UPID:pve:0:0:0:vzstart:1:a@pve!b:", "status")
    '/nodes/pve/tasks/UPID%3Apve%3A0%3A0%3A0%3Avzstart%3A1%3Aa%40pve%21b%3A/status'
    """
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


class ProxmoxClient:
    """Sends requests to the API of one Proxmox VE cluster. Belongs to one event loop.

    With a user, it gets a ticket at the first request and renews it before two hours are over (*renew* seconds), and
    when the API no longer accepts it. Secrets are resolved at the first request, and are in no message.

    Methods raise ProxmoxError, MissingPrivilegeError where we lack a privilege, and ConfigurationError and SecretError
    for settings that cannot be used.
    """

    def __init__(self, settings: ProxmoxSettings, *, renew: float = _RENEW_SECONDS) -> None:
        self.settings = settings
        self.logins: int = 0
        """How many tickets it has got."""
        self._renew = renew
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | aiohttp.Fingerprint | bool = True
        self._secret = ""
        self._ticket = ""
        self._csrf = ""
        self._since = 0.0
        self._ahead = 0.0
        self._opening = asyncio.Lock()
        self._logging_in = asyncio.Lock()

    def now(self) -> float:
        """Return the time (as of `time.time`) as the API has it, which all its clients can agree on."""
        return time() + self._ahead

    async def get(self, path: str, /, **query: Value) -> Any:
        """Return what is there. It is asked for again when the connection is lost or the node does not answer."""
        for attempt in range(1, _GET_TRIES):
            try:
                return await self._request("GET", path, query)
            except ProxmoxError as error:
                if error.reason not in ("lost", "node_down", "unreachable"):
                    raise
            await asyncio.sleep(_GET_PAUSE * attempt)
        return await self._request("GET", path, query)

    async def post(self, path: str, /, **form: Value) -> Any:
        """POST, and return the response data, usually a UPID."""
        return await self._request("POST", path, form)

    async def put(self, path: str, /, **form: Value) -> Any:
        """Change something."""
        return await self._request("PUT", path, form)

    async def delete(self, path: str, /, **query: Value) -> Any:
        """Have something removed; return the ID of the task."""
        return await self._request("DELETE", path, query)

    async def wait(self, task: Any, ends: float) -> None:
        """Wait until a task (its UPID) has ended, but no longer than *ends* (of `monotonic()`).

        Raises ProxmoxError, with the reason of its failure, or `task_timeout`; then the task may go on.
        """
        parts = str(task).split(":")
        if parts[0] != "UPID" or len(parts) < 8:
            raise ProxmoxError(f"Proxmox gave no task, but {task!r:.100}", reason="invalid_answer", sent=True)
        path = path_of("nodes", parts[1], "tasks", str(task))
        waits = pauses(_FIRST_PAUSE, self.settings.poll, factor=1.5)
        while True:
            try:
                state = await self.get(f"{path}/status")
            except ProxmoxError as error:
                if not error.retryable or monotonic() >= ends:
                    raise
                state = {}
            if state.get("status") == "stopped":
                exit_status = str(state.get("exitstatus", ""))
                if exit_status != "OK" and not exit_status.startswith("WARNINGS"):
                    raise failed_task(parts[5], exit_status, await self._log(path))
                return
            if monotonic() >= ends:
                raise ProxmoxError(
                    f"the task {parts[5]} of Proxmox did not end in time; it may go on ({task})",
                    reason="task_timeout",
                    retryable=True,
                    sent=True,
                )
            await asyncio.sleep(min(next(waits), max(0.01, ends - monotonic())))

    async def _log(self, path: str) -> str:
        """Return the last lines of a task; "" where there are none."""
        try:
            lines = await self.get(f"{path}/log", limit=500)
        except ProxmoxError:
            return ""
        return " | ".join(str(line.get("t", "")) for line in lines[-_LOG_LINES:])

    async def aclose(self) -> None:
        """Close the connections; a later request opens others."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # -- who asks -----------------------------------------------------------------------------------------------

    async def _headers(self, method: str) -> Mapping[str, str]:
        settings = self.settings
        if settings.token_id:
            return {"Authorization": f"PVEAPIToken={settings.token_id}={self._secret}"}
        if not self._ticket or monotonic() - self._since >= self._renew:
            await self._log_in(self._ticket)
        headers = {"Cookie": f"PVEAuthCookie={quote(self._ticket, safe='')}"}
        return headers if method == "GET" else {**headers, "CSRFPreventionToken": self._csrf}

    async def _log_in(self, stale: str) -> None:
        """Get a ticket in place of *stale*, which renews itself while it is good; at the same time once for all."""
        async with self._logging_in:
            if self._ticket != stale:
                return
            for password in (stale, self._secret) if stale else (self._secret,):
                try:
                    given = await self._send(
                        "POST", "/access/ticket", {"username": self.settings.username, "password": password}, {}
                    )
                except ProxmoxError as error:
                    if error.status == 401 and password is not self._secret:
                        continue
                    raise
                if not isinstance(given, dict) or not given.get("ticket") or given.get("NeedTFA"):
                    raise ProxmoxError(
                        "Proxmox wants a second factor of this user; use an API token", reason="auth", status=401
                    )
                self._ticket, self._csrf = str(given["ticket"]), str(given.get("CSRFPreventionToken", ""))
                self._since = monotonic()
                self.logins += 1
                return

    # -- requests -----------------------------------------------------------------------------------------------

    async def _request(self, method: str, path: str, fields: Mapping[str, Value]) -> Any:
        """Send a request; once more, with another ticket, where that we have is no longer good."""
        await self._opened()
        headers = await self._headers(method)
        ticket = self._ticket
        try:
            return await self._send(method, path, fields, headers)
        except ProxmoxError as error:
            if error.status != 401 or not ticket:
                raise
        await self._log_in(ticket)
        return await self._send(method, path, fields, await self._headers(method))

    async def _send(self, method: str, path: str, fields: Mapping[str, Value], headers: Mapping[str, str]) -> Any:
        import aiohttp
        from yarl import URL

        what = f"{method} {path}"
        session = await self._opened()
        encoded = urlencode([(name, _spelled(value)) for name, value in fields.items()])
        in_body = method in ("POST", "PUT")
        url = self.settings.base + path + (f"?{encoded}" if encoded and not in_body else "")
        more = {"Content-Type": "application/x-www-form-urlencoded"} if in_body else {}
        try:
            async with (
                asyncio.timeout(self.settings.timeout),
                session.request(
                    method,
                    URL(url, encoded=True),
                    data=encoded.encode() if in_body else None,
                    headers={"Accept": "application/json", **more, **headers},
                    ssl=self._tls,
                    allow_redirects=False,
                ) as answer,
            ):
                body = await answer.content.read(_MOST_BYTES)
                self._set_clock(answer.headers.get("Date", ""))
                return _data(answer.status, answer.reason or "", body, what, self.settings)
        except TimeoutError:
            raise ProxmoxError(
                f"Proxmox did not answer {what} within {self.settings.timeout:g} s",
                reason="no_answer",
                retryable=True,
                sent=True,
            ) from None
        except (aiohttp.ServerFingerprintMismatch, aiohttp.ClientConnectorCertificateError, ssl.SSLError) as error:
            raise ProxmoxError(
                "the certificate of Proxmox is not the expected one; correct ca_file or fingerprint, or see whether "
                f"this is Proxmox at all ({type(error).__name__})",
                reason="certificate",
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise ProxmoxError(
                f"Proxmox cannot be reached at {self.settings.base}: {error.os_error.strerror or error}",
                reason="unreachable",
                retryable=True,
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ProxmoxError(
                f"the connection to Proxmox was lost during {what}: {type(error).__name__}",
                reason="lost",
                retryable=True,
                sent=True,
            ) from error

    def _set_clock(self, date: str) -> None:
        try:
            self._ahead = parsedate_to_datetime(date).timestamp() - time()
        except ValueError:
            return

    async def _opened(self) -> aiohttp.ClientSession:
        async with self._opening:
            if self._session is None:
                import aiohttp

                settings = self.settings
                given = settings.token_secret if settings.token_id else settings.password
                resolver = SecretResolver()
                self._secret = await asyncio.to_thread(resolver.resolve, given, "secret of Proxmox")
                if settings.fingerprint:
                    self._tls = aiohttp.Fingerprint(bytes.fromhex(settings.fingerprint.replace(":", "")))
                elif settings.ca_file:
                    self._tls = await asyncio.to_thread(_context, str(settings.ca_file))
                self._session = aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar())
            return self._session


def _context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ConfigurationError(f"the certificates of Proxmox cannot be read: {error}") from error


def _spelled(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _data(status: int, reason: str, body: bytes, what: str, settings: ProxmoxSettings) -> Any:
    """Return what an answer has; raises ProxmoxError for one that refuses, and for one that is not of this API."""
    try:
        found: Any = json.loads(body)
    except ValueError:
        found = None
    if status != 200:
        said = found.get("message") if isinstance(found, dict) else ""
        errors = found.get("errors") if isinstance(found, dict) else None
        message = str(said or reason).strip()
        if isinstance(errors, dict):
            message += " " + "; ".join(f"{name}: {why}" for name, why in errors.items())
        raise missing(message, what, settings) if status == 403 else refusal(status, message, what)
    if not isinstance(found, dict) or "data" not in found:
        raise ProxmoxError(f"the answer to {what} is not that of Proxmox VE", reason="invalid_answer", sent=True)
    return found["data"]

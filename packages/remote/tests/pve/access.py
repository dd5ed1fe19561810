"""Who asks the API: tokens, users, tickets that expire. What they may do is in `Rights`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web
from packages.remote.tests.pve.pveum import pveum
from packages.remote.tests.pve.rights import Rights

_ALL: Final = (
    "VM.Audit VM.PowerMgmt VM.Clone VM.Allocate VM.Config.Options VM.Snapshot VM.Snapshot.Rollback "
    "Datastore.AllocateSpace SDN.Use"
)
_WHO: Final = "--users agents@pve --tokens agents@pve!toolexec --roles Tests"
GENEROUS: Final = (
    "pveum user add agents@pve",
    "pveum user token add agents@pve toolexec --privsep 1",
    f"pveum role add Tests --privs '{_ALL}'",
    *(f"pveum acl modify {path} {_WHO}" for path in ("/vms", "/storage", "/sdn")),
)
"""The commands that allow the token of the tests all that they do, on all paths."""


class ApiError(Exception):
    """What the API answers instead of data."""

    def __init__(self, status: int, message: str, errors: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors


class Access:
    """The users `root@pam` and `agents@pve` (password `pw-of-agents`), and the token of the latter, with `rights` that
    *commands* set up."""

    def __init__(self, commands: Sequence[str] = GENEROUS) -> None:
        self.rights = Rights()
        for command in commands:
            pveum(self.rights, command)
        self.ticket_seconds = 7200.0
        self.passwords = {"root@pam": "pw-of-root", "agents@pve": "pw-of-agents"}
        self.tokens = {"agents@pve!toolexec": "11111111-2222-3333-4444-555555555555"}
        self._tickets: dict[str, tuple[str, float, str]] = {}

    def log_in(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Answer `POST /access/ticket`."""
        user, password = form["username"], form["password"]
        known = self._tickets.get(password)
        renewed = known is not None and known[0] == user and known[1] > time.monotonic()
        if not renewed and self.passwords.get(user) != password:
            raise ApiError(401, "authentication failure")
        ticket = f"PVE:{user}:{int(time.time()):08X}::{secrets.token_urlsafe(64)}=="
        csrf = f"{int(time.time()):08X}:{secrets.token_urlsafe(32)}"
        self._tickets[ticket] = (user, time.monotonic() + self.ticket_seconds, csrf)
        return {"username": user, "ticket": ticket, "CSRFPreventionToken": csrf, "cap": {}, "clustername": "tests"}

    def user_of(self, request: web.Request) -> str:
        """Return who asks; raises ApiError."""
        given = request.headers.get("Authorization", "")
        if given.startswith("PVEAPIToken="):
            name, _, secret = given.removeprefix("PVEAPIToken=").partition("=")
            if name not in self.tokens:
                raise ApiError(401, f"no such token '{name.partition('!')[2]}' for user '{name.partition('!')[0]}'")
            if not secrets.compare_digest(self.tokens[name], secret):
                raise ApiError(401, "invalid token value!")
            return name
        cookie = request.cookies.get("PVEAuthCookie")
        if not cookie:
            raise ApiError(401, "No ticket")
        user, until, csrf = self._tickets.get(unquote(cookie), ("", 0.0, ""))
        if until <= time.monotonic():
            raise ApiError(401, "permission denied - invalid PVE ticket")
        if request.method != "GET" and request.headers.get("CSRFPreventionToken") != csrf:
            raise ApiError(401, "Permission denied - invalid csrf token")
        return user

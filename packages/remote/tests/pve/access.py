"""Who asks the API: tokens, users, tickets that expire, privileges. As pve-access-control has it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from aiohttp import web

__all__ = ["Access", "ApiError"]

_ALL = (
    "VM.Audit",
    "VM.PowerMgmt",
    "VM.Clone",
    "VM.Allocate",
    "VM.Config.Options",
    "VM.Snapshot",
    "VM.Snapshot.Rollback",
    "Datastore.AllocateSpace",
    "Sys.Audit",
)


class ApiError(Exception):
    """What the API answers instead of data."""

    def __init__(self, status: int, message: str, errors: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors


class Access:
    """The users `root@pam` and `agents@pve` (password `pw-of-agents`), and the tokens of the latter."""

    def __init__(self) -> None:
        self.ticket_seconds = 7200.0
        self.passwords = {"root@pam": "pw-of-root", "agents@pve": "pw-of-agents"}
        self.tokens = {"agents@pve!toolexec": "11111111-2222-3333-4444-555555555555"}
        self.denied: set[str] = set()
        """Privileges that only root has."""
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

    def check(self, user: str, path: str, *privileges: str) -> None:
        """Raise ApiError for a user who lacks one of these."""
        for each in privileges:
            assert each in _ALL, each
            if user != "root@pam" and each in self.denied:
                raise ApiError(403, f"Permission check failed ({path}, {each})")

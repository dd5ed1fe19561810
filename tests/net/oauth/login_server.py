"""An MCP-like resource and its authorization server, on loopback: what they do wrong is for each test to say."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import jwt


@dataclass
class Answer:
    """What is answered: a status, JSON or nothing, and headers."""

    status: int = 200
    data: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass
class LoginServer:
    """Gives tokens, and takes them at `/mcp`. `wrong` replaces what it says in places: the metadata by name of the
    field, `iss`, `state` and `nonce` in answers to a login; `moved` are redirects by path."""

    url: str = ""
    wrong: dict[str, Any] = field(default_factory=dict[str, Any])
    resource_wrong: dict[str, Any] = field(default_factory=dict[str, Any])
    moved: dict[str, str] = field(default_factory=dict[str, str])
    seconds: int = 3600
    needed: str = "read"
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    """The tokens that are taken, each with its scopes."""
    refresh_tokens: dict[str, str] = field(default_factory=dict[str, str])
    codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    clients: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    asked: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The requests for tokens."""
    heads: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    documents: dict[str, Any] = field(default_factory=dict[str, Any])
    """What is answered at other paths, to anyone."""
    calls: list[str] = field(default_factory=list[str])
    """The tokens of the calls, empty for none."""
    paths: list[str] = field(default_factory=list[str])
    revoked: list[str] = field(default_factory=list[str])
    approved: bool = False
    said: str = ""
    """What the tool of the MCP server says in place of its token; `{owner}` is whose token it was called with."""
    visitor: str = ""
    """Who is at the browser now."""
    owners: dict[str, str] = field(default_factory=dict[str, str])
    """Whose each token and refresh token is: of the one who was at the browser then."""
    served: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The query of each call that was accepted, and whose token it had."""
    key: Any = None
    """What ID tokens are signed with (RS256), under the ID `key`."""
    claims: dict[str, Any] = field(default_factory=dict[str, Any])
    """What ID tokens say beside, or in place of, what they should; None leaves a claim out."""
    takes: bool = True
    hold: asyncio.Event | None = None
    issued: int = 0

    def metadata(self) -> dict[str, Any]:
        """Return what the authorization server says of itself."""
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "device_authorization_endpoint": f"{self.url}/device",
            "revocation_endpoint": f"{self.url}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "private_key_jwt"],
            "authorization_response_iss_parameter_supported": True,
        } | self.wrong

    async def answer(self, method: str, target: str, head: dict[str, str], body: bytes) -> Answer:
        """Answer one request."""
        parts = urlsplit(target)
        self.paths.append(parts.path)
        fields = dict(parse_qsl(body.decode()))
        if parts.path in self.moved:
            return Answer(307, None, {"Location": self.moved[parts.path]})
        if parts.path in self.documents:
            return Answer(200, self.documents[parts.path])
        if parts.path == "/.well-known/oauth-protected-resource/mcp":
            data = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url], "scopes_supported": ["read"]}
            return Answer(200, data | self.resource_wrong)
        if parts.path == "/.well-known/oauth-authorization-server":
            return Answer(200, self.metadata())
        if parts.path == "/register":
            given = json.loads(body)
            self.clients[identity := f"client-{len(self.clients)}"] = given
            return Answer(201, given | {"client_id": identity})
        if parts.path == "/authorize":
            return self._authorize(dict(parse_qsl(parts.query)))
        if parts.path == "/device":
            data = {"device_code": "the-device-code", "user_code": "AB-CD", "verification_uri": f"{self.url}/type"}
            return Answer(200, data | {"interval": 5, "expires_in": 60})
        if parts.path == "/revoke":
            self.revoked.append(fields["token"])
            return Answer(200, {})
        if parts.path == "/token":
            self.asked.append(fields)
            self.heads.append(head)
            if self.hold is not None:
                await self.hold.wait()
            return self._token(fields, head)
        return self._resource(head, body, parts.query)

    def _resource(self, head: dict[str, str], body: bytes, query: str) -> Answer:
        token = head.get("authorization", "").removeprefix("Bearer ")
        self.calls.append(token)
        known = self.tokens.get(token) if self.takes else None
        if known is None:
            where = f"{self.url}/.well-known/oauth-protected-resource/mcp"
            return Answer(401, None, {"WWW-Authenticate": f'Bearer resource_metadata="{where}", scope="read"'})
        if not set(self.needed.split()) <= set(known.split()):
            say = f'Bearer error="insufficient_scope", scope="{self.needed}"'
            return Answer(403, None, {"WWW-Authenticate": say})
        self.served.append((query, self.owners.get(token, "")))
        return self._mcp(json.loads(body), token) if body else Answer(200, {"token": token})

    def _mcp(self, message: dict[str, Any], token: str) -> Answer:
        """Be an MCP server with one tool, which says too much."""
        if "id" not in message:
            return Answer(202)
        server = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        result = {
            "initialize": {**server, "serverInfo": {"name": "notes", "version": "1"}},
            "tools/list": {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]},
            "tools/call": {
                "content": [
                    {"type": "text", "text": self.said.format(owner=self.owners.get(token)) or f"the token is {token}"}
                ]
            },
        }.get(message["method"])
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
        return Answer(200, {"jsonrpc": "2.0", "id": message["id"], **answer})

    def _authorize(self, asked: dict[str, str]) -> Answer:
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked | {"visitor": self.visitor}
        back = {"code": code, "state": asked["state"], "iss": self.url}
        back |= {name: self.wrong[f"answer_{name}"] for name in back if f"answer_{name}" in self.wrong}
        back = {name: value for name, value in back.items() if value}
        return Answer(302, None, {"Location": f"{asked['redirect_uri']}?{urlencode(back)}"})

    def _token(self, fields: dict[str, str], head: dict[str, str]) -> Answer:
        grant = fields["grant_type"]
        scope, extra, owner = fields.get("scope", "read"), dict[str, Any](), ""
        if grant == "authorization_code":
            asked = self.codes.pop(fields["code"])
            digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked["code_challenge"]:
                return Answer(400, {"error": "invalid_grant"})
            scope, owner = asked.get("scope", ""), asked["visitor"]
            if "nonce" in asked:
                extra["id_token"] = self._id_token(asked)
        elif grant == "refresh_token":
            if fields["refresh_token"] not in self.refresh_tokens:
                return Answer(400, {"error": "invalid_grant"})
            scope = self.refresh_tokens.pop(fields["refresh_token"])
            owner = self.owners[fields["refresh_token"]]
        elif grant.endswith("device_code") and not self.approved:
            return Answer(400, {"error": "authorization_pending"})
        self.issued += 1
        token = f"access-token-number-{self.issued}"
        self.tokens[token] = scope
        self.owners |= {token: owner, f"refresh-token-number-{self.issued}": owner}
        if grant != "client_credentials":
            extra["refresh_token"] = f"refresh-token-number-{self.issued}"
            self.refresh_tokens[extra["refresh_token"]] = scope
        return Answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": self.seconds, **extra})

    def _id_token(self, asked: dict[str, str]) -> str:
        claims = {"iss": self.url, "aud": asked["client_id"], "nonce": asked["nonce"], "exp": time.time() + 60}
        claims |= {"nonce": self.wrong["answer_nonce"]} if "answer_nonce" in self.wrong else {}
        if self.key is not None:
            said: dict[str, Any] = {**claims, "sub": asked["visitor"], **self.claims}
            kept = {name: value for name, value in said.items() if value is not None}
            return jwt.encode(kept, self.key, algorithm="RS256", headers={"kid": "key"})
        return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.sig"


@asynccontextmanager
async def login_server() -> AsyncGenerator[LoginServer]:
    """Run one on this event loop."""
    found = LoginServer()
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
                    head = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
                    body = await reader.readexactly(int(head.get("content-length", 0)))
                    method, target, _ = line.split()
                    answer = await found.answer(method, target, head, body)
                    text = json.dumps(answer.data).encode() if answer.data is not None else b""
                    more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
                    start = f"HTTP/1.1 {answer.status} It\r\nContent-Type: application/json\r\n{more}"
                    writer.write(f"{start}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
        left = [*tasks]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # a transport is closed one turn after its writer


async def visit(link: str, code: str = "") -> None:
    """Do what a person's browser does: open the link, and follow it back to this machine."""
    async with httpx2.AsyncClient(trust_env=False) as browser:
        answer = await browser.get(link)
        if "location" in answer.headers:
            await browser.get(answer.headers["location"])

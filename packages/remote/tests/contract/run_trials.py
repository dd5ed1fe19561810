"""Trials of a sandbox behind a remote runtime that starts the program, makes a call of it, and then answers oddly."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import WSMsgType, web

from toolexec.errors import Outcome
from toolexec.remote import RemoteSettings
from toolexec.testing import SandboxTrial
from toolexec_remote.backend import RemoteBackend
from toolexec_remote.incarnation import NEVER_STARTED, WELCOME, Incarnation
from toolexec_remote.messages import SUBPROTOCOL, VERSION, Link, RemoteMessage, decode_remote, encode_remote

_CALL: Final = json.dumps({"type": "search_tools", "id": "1", "payload": {"query": "any"}}).encode()
_SANDBOX: Final = {"kind": "wasm", "isolation": "wasm", "languages": ["python"]}
_BACKEND: Final = {"kind": "wasm", "isolation": "wasm"}


def _result(**fields: Any) -> bytes:
    return json.dumps({"result": {"backend": _BACKEND, **fields}}).encode()


def _refusal(code: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": "odd", "outcome": "not_sent", "retryable": True}}).encode()


ODD: Final[Mapping[str, tuple[tuple[str, bytes], ...]]] = {
    "a close": (),
    "a message of an unknown type": (("nonsense", b""),),
    "an unknown frame": (("frame", b'{"type": "nonsense", "id": "2"}'),),
    "half a frame": (("frame", _CALL[:20]),),
    "an answer to what was not asked": (("frame", b'{"type": "response", "id": "77", "payload": {"value": 5}}'),),
    "a frame that is NaN": (("frame", b'{"type": "result", "id": "1", "payload": {"value": NaN}}'),),
    "a frame over the limit": (("frame", b" " * (33 << 20)),),
    "a result of a guest": (("frame", b'{"type": "result", "id": "1", "payload": {"value": 5}}'),),
    "a result that is not JSON": (("result", b"{"),),
    "a result that is not UTF-8": (("result", b'{"result": {"value": "\xff"}}'),),
    "a result that is a list": (("result", b"[1]"),),
    "a result of NaN": (("result", _result(value=float("nan"))),),
    "a result of infinity": (("result", _result(value=[5, float("inf")])),),
    "a result too large for a number": (("result", _result(value=5).replace(b"5", b"1e999")),),
    "a result of half a character": (("result", _result(value="\ud800")),),
    "a result from elsewhere": (("result", _result(value=5, backend={"kind": "unsafe_host", "isolation": "none"})),),
    "an empty result": (("result", b""),),
    "a result that does not say what made it": (("result", b'{"result": {"value": 5}}'),),
    "a result whose files go elsewhere": (("result", _result(value=5, files={"../x": ""})),),
    "a refusal after a start without a call": (("started", b""), ("refused", _refusal("queue_full"))),
    "a refusal": (("refused", _refusal("queue_full")),),
    "a refusal without a reason": (("refused", b""),),
    "a failure that says that it was not sent": (("result", _refusal("sandbox_unavailable")),),
    "no room": (("ready", b""),),
}
"""What comes after the call; then the connection is closed, and there is no other one."""

RAW: Final[Mapping[str, bytes | str]] = {
    "half a message": b'{"type": "res',
    "text": '{"type": "result"}',
    "a head that is not JSON": b"nonsense\n",
    "a message that skips one": encode_remote(RemoteMessage("result", "@RUN", body=_result(value=5), seq=99)),
    "an acknowledgement of what was not sent": encode_remote(RemoteMessage("ack", "@RUN", ack=99)),
    "the result of another run": encode_remote(RemoteMessage("result", "another", body=_result(value=5), seq=1)),
    "a second start": encode_remote(RemoteMessage("welcome", fields={"protocol": SUBPROTOCOL, "version": VERSION})),
}

READ: Final[Mapping[str, tuple[tuple[str, bytes], ...]]] = {
    "a second result": (("result", _result(value=5)), ("result", _result(value=6))),
    "a refusal after the result": (("result", _result(value=5)), ("refused", _refusal("queue_full"))),
    "a result before the answer to a call": (),
}
"""The first result counts, which is 5; the service keeps the connection."""

REPEATABLE: Final = ("a refusal", "a failure that says that it was not sent", *READ)
"""After these the connection stays, so that nothing but the client's knowledge keeps it from sending the program again."""

GONE: Final = {"a run that never started": "never_started", "a run that was running": "was_running"}
"""What is said of the run over the next connection."""

REMOTE_RUN: Final[Mapping[str, Outcome]] = dict.fromkeys([*ODD, *RAW, *GONE], Outcome.UNKNOWN)
"""Whatever comes: the program has begun, so that nothing is known of it."""


class RunService:
    """A remote runtime of which only the protocol is there; it answers as *name* says, and proves what is not so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.incarnation = Incarnation()
        self.begun = 0
        self.url = ""

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Take a connection; after a run was begun only to say that it is gone."""
        if self.begun and self.name not in GONE:
            return web.Response(status=503)
        there = web.WebSocketResponse(protocols=(SUBPROTOCOL,), max_msg_size=0)
        await there.prepare(request)
        spoken: dict[str, Any] = {"protocol": SUBPROTOCOL, "version": VERSION, "incarnation": self.incarnation.id}
        await there.send_bytes(encode_remote(RemoteMessage("challenge", fields={**spoken, "nonce": "n"})))
        nonce = str(decode_remote(await there.receive_bytes()).fields["nonce"])
        spoken |= {"proof": self.incarnation.state(WELCOME, "n", nonce), "backends": [_SANDBOX], "remembers": 600.0}
        spoken["capacity"] = {"free": 2, "max_running": 2}
        await there.send_bytes(encode_remote(RemoteMessage("welcome", fields=spoken)))
        links: dict[str, Link] = {}
        async for message in there:
            if message.type is WSMsgType.BINARY and await self._take(there, decode_remote(message.data), links):
                break
        await there.close()
        return there

    async def _take(self, there: web.WebSocketResponse, message: RemoteMessage, links: dict[str, Link]) -> bool:
        """Take a message; return whether that was the last one."""
        if message.type == "resume" and self.name in GONE:
            proof = self.incarnation.state(NEVER_STARTED, "ann-1", message.run)
            gone = RemoteMessage("gone", message.run, fields={"state": GONE[self.name], "proof": proof})
            await there.send_bytes(encode_remote(gone))
            return False
        if not message.run:
            return False
        link = links.setdefault(message.run, Link(message.run))
        link.receive(message)
        if message.type == "go" or (message.type == "execute" and message.fields.get("go")):
            self.begun += 1
            await there.send_bytes(encode_remote(link.send("started")))
            await there.send_bytes(encode_remote(link.send("frame", None, _CALL)))
            if self.name == "a result before the answer to a call":
                await there.send_bytes(encode_remote(link.send("result", None, _result(value=5))))
        elif message.type == "frame":  # the answer to the call
            for kind, body in {**ODD, **READ}.get(self.name, ()):
                proof = (
                    {"proof": self.incarnation.state(NEVER_STARTED, "ann-1", message.run)} if kind == "refused" else {}
                )
                sent = link.send(kind, proof, body) if kind != "nonsense" else _odd(link)
                await there.send_bytes(encode_remote(sent))
            raw = RAW.get(self.name)
            if isinstance(raw, bytes):
                await there.send_bytes(raw.replace(b"@RUN", message.run.encode()))
            elif raw is not None:
                await there.send_str(raw)
            return self.name not in REPEATABLE
        return False


def _odd(link: Link) -> RemoteMessage:
    """Return a message in order of a type that there is not."""
    sent = link.send("ready")
    return RemoteMessage("nonsense", sent.run, seq=sent.seq, ack=sent.ack)


@asynccontextmanager
async def remote_run_trial(name: str) -> AsyncGenerator[SandboxTrial]:
    """Leave the program to a service that starts it."""
    service = RunService(name)
    application = web.Application()
    application.router.add_get("/v1/{rest:.*}", service.connect)
    runner = web.AppRunner(application, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        settings = RemoteSettings(
            endpoints=(f"{site.name}/v1/execute",),
            key_id="ann-1",
            token="token-of-ann-for-tests",
            reconnect=0.3,
            overhead=0.3,
        )
        backend = RemoteBackend(settings)
        try:
            yield SandboxTrial(sandbox=backend, effects=lambda: service.begun)
        finally:
            await backend.aclose()
    finally:
        await runner.cleanup()

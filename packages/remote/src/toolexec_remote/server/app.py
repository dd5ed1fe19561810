"""The HTTP of a server of sandboxes: runs by POST, with JSON or a stream of events, and the doors beside it."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import uuid
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from time import time
from typing import Final

from aiohttp import web

from toolexec.errors import (
    InvalidRequestError,
    LimitNotEnforceableError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.remote import MAX_FRAME_BYTES, MAX_HEAD_BYTES, JSONObject, SigningKey
from toolexec.sandbox import CodeResult
from toolexec_remote.homes import new_run
from toolexec_remote.incarnation import HERE, INCARNATION_HEADER
from toolexec_remote.messages import SUBPROTOCOL, VERSION
from toolexec_remote.server.capacity import Capacity
from toolexec_remote.server.doors import Doors
from toolexec_remote.server.duplex import DuplexHub
from toolexec_remote.server.gateway import Gateways
from toolexec_remote.server.member import Member
from toolexec_remote.server.metrics_of_all import metrics_of_all
from toolexec_remote.server.posted_run import EVENTS, PostWatcher, ending, send_events
from toolexec_remote.server.relay import NoRoute
from toolexec_remote.server.remote_run import Outcome, RemoteRun, remembered
from toolexec_remote.server.runs import RunService
from toolexec_remote.signature import SIGNATURE_HEADER, TIMESTAMP_HEADER, Credentials, KeyRing, ReplayCache, Target
from toolexec_remote.wire import RemoteRequest, encode_error, encode_result, read_request

RUN_HEADER: Final = "X-Toolruntime-Run"
ERROR_HEADER: Final = "X-Toolruntime-Error"
CLIENT_HEADER: Final = "X-Toolruntime-Client"
_BODY_SECONDS: Final = 60.0
_OLD: Final = (
    f"this server speaks {SUBPROTOCOL}, and the request is not signed for one of its processes "
    f"({INCARNATION_HEADER} is missing), as an older version does not; update toolexec-remote on the other side"
)
_RUN_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_STATUSES: Final = {
    "quota_exceeded": 429,
    "request_too_large": 413,
    "run_id_taken": 409,
    "unauthenticated": 401,
    "signature_invalid": 401,
    "signature_stale": 401,
    "signature_replayed": 401,
    "wrong_incarnation": 421,
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RuntimeApp:
    """Answers requests with what *service* runs."""

    def __init__(
        self,
        service: RunService,
        ring: KeyRing,
        replays: ReplayCache,
        capacity: Capacity,
        gateways: Gateways,
        member: Member | None = None,
    ) -> None:
        self._member = member
        self._which: JSONObject = {"process": member.number, "processes": member.count} if member is not None else {}
        self.hub = DuplexHub(service, ring, replays, capacity, self._which)
        self._service = service
        self._settings = service.settings
        self._replays = replays
        self._capacity = capacity
        self._gateways = gateways
        self.doors: Doors | None = None
        """The connections that the requests come by, if they are counted."""

    def made(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=self._settings.max_body_bytes, middlewares=[self._explained])
        if self._member is not None:
            app.on_response_prepare.append(_close_after)
        path = self._settings.path
        app.router.add_post(path, self.execute)
        app.router.add_get(f"{path}/connect", self.connect)
        app.router.add_get(f"{path}/identity", self.identity)
        app.router.add_get(f"{path}/capacity", self.capacity)
        app.router.add_get(f"{path}/runs/{{run}}", self.show)
        app.router.add_get("/health", self.health)
        app.router.add_get("/ready", self.ready)
        app.router.add_get("/metrics", self.metrics)
        return app

    # -- the doors beside the runs ------------------------------------------------------------------------------------

    async def health(self, _: web.Request) -> web.Response:
        """Say that the process lives."""
        return web.json_response({"status": "ok"})

    async def ready(self, _: web.Request) -> web.Response:
        """Say whether runs are taken, and quickly: with the status 503 while it drains, while a sandbox is being built,
        or while none is there."""
        service = self._service
        why = "draining" if service.draining else "a sandbox is being built" if service.building else ""
        if not why and not any(each["available"] for each in await self._capacity.backends()):
            why = "no sandbox is available"
        if self._member is not None and self._member.is_any_ready and not service.draining:
            why = ""  # what comes goes to that one, too
        return web.json_response({"status": why or "ok"}, status=503 if why else 200)

    async def identity(self, request: web.Request) -> web.Response:
        """Say which process this is, so that requests can be signed for it; of a `nonce` in the query it states that it
        is here, with its own key, in the turn of who asks, as each signature takes its time."""
        await self._strange(request)
        incarnation, nonce = self._service.incarnation, request.query.get("nonce", "")[:64]
        said = {
            "protocol": SUBPROTOCOL,
            "version": VERSION,
            "incarnation": incarnation.id,
            "remembers": self._settings.keeps,
            "proof": incarnation.state(HERE, nonce) if nonce else "",
            **self._which,
        }
        return web.json_response(said, headers={"Cache-Control": "no-store"})

    async def capacity(self, request: web.Request) -> web.Response:
        """Say how much room there is, to those who have a key."""
        key = await self._signed(request)
        return web.json_response(await self._capacity.whole(key.account))

    async def metrics(self, request: web.Request) -> web.Response:
        """Give what is counted, to those who have a key, or the token of scrapers: by all processes behind the port."""
        metrics, member = self._service.metrics, self._member
        headers = {"Content-Type": metrics.content_type}
        if member is not None and _has_token(request, member.token):  # another process asks
            return web.Response(body=metrics.text(), headers=headers)
        if not _has_token(request, self._settings.metrics_token):
            await self._signed(request)
        body = metrics.text() if member is None else await metrics_of_all(member, metrics.text())
        return web.Response(body=body, headers=headers)

    async def show(self, request: web.Request) -> web.Response:
        """Say what became of a run, to its tenant: `state` alone while it is not over."""
        key = await self._signed(request)
        run_id = request.match_info["run"]
        if (run := self._service.find(key.account, run_id)) is not None:
            if run.outcome is None:
                return web.json_response({"run": run_id, "state": run.state})
            return _json(run.outcome.body, run_id)
        if (record := self._service.recall(key.account, run_id)) is not None:
            return _json(remembered(record).body, run_id)
        if self._member is not None:
            self._member.check_home(run_id)
        return web.json_response({"run": run_id, "state": "unknown"}, status=404)

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Open a duplex connection, for those who have a token; that they have its secret, too, they show in it."""
        key = await self._asking(request)
        asked = request.headers.get("Sec-WebSocket-Protocol", "")
        if SUBPROTOCOL not in [each.strip() for each in asked.split(",")]:
            raise InvalidRequestError(
                f"this server speaks {SUBPROTOCOL}, and the client {asked[:100] or 'nothing that it says'}; update "
                "toolexec-remote on the side that is older"
            )
        self._service.shares.reading.waste(key.account)
        settings = self._settings
        socket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,),
            autoping=False,  # a ping counts as any message
            heartbeat=settings.ping,
            max_msg_size=max(settings.max_body_bytes, MAX_FRAME_BYTES) + MAX_HEAD_BYTES,
            compress=False,
        )
        await socket.prepare(request)
        door = self.doors.of(request.protocol) if self.doors is not None else None
        await self.hub.serve(socket, key, request.headers.get(CLIENT_HEADER, "")[:64], request.raw_path, door)
        return socket

    async def _asking(self, request: web.Request) -> SigningKey:
        """Return the key whose token a request has, once its tenant has its turn; from now on the connection is one of
        that."""
        key = self.hub.ring.identify(Credentials.of(request.headers), time())
        if self.doors is not None:
            self.doors.admit(request.protocol, key.account)
        await self._service.shares.turn(key.account)
        return key

    async def _strange(self, request: web.Request) -> None:
        """Wait for the turn of a request that needs no key. Strangers have turns like one tenant, to whom these lead to
        nothing; while they wait they make room for others, as those that say nothing do."""
        shares, door = self._service.shares, self.doors.of(request.protocol) if self.doors is not None else None
        if door is not None and door.account:
            await shares.turn(door.account)
            return
        with door.idle() if door is not None else nullcontext():
            await shares.turn("")
        shares.reading.waste("")

    async def _signed(self, request: web.Request) -> SigningKey:
        """Return the key of a request without a body that was signed just now, for this process, in its turn."""
        key = await self._asking(request)
        self._check(request, key, b"")
        return key

    # -- runs by POST -------------------------------------------------------------------------------------------------

    async def execute(self, request: web.Request) -> web.StreamResponse:
        """Run a program, or go on with one that is known by its ID."""
        key = await self._asking(request)  # others need not send a body
        body = await self._body(request)
        self._check(request, key, body)
        wanted = read_request(body)
        last_event = request.headers.get("Last-Event-ID", "")
        resumed, _, number = last_event.rpartition(":")
        given = request.headers.get("Idempotency-Key", "") or resumed or wanted.run
        if (given and not _RUN_ID.fullmatch(given)) or (wanted.run and given != wanted.run):
            raise InvalidRequestError("Idempotency-Key must be 1 to 128 letters and digits, and the run of the body")
        run_id = given or (new_run(self._member.number, self._member.count) if self._member else uuid.uuid4().hex)
        try:
            run = self._known(key, run_id, body)
            if run is None and self._member is not None:
                self._member.check_home(run_id)
            if run is None and last_event:
                raise SandboxUnavailableError(
                    f"the run {run_id} is not known here, so it cannot go on; ask for a new one", retryable=True
                )
            run = run or self._submitted(request, key, run_id, body, wanted)
        except ToolExecError as error:
            self._service.refuse(key.account, error)
            return self._refused(key, wanted.run, error, is_resumed=bool(last_event))
        if isinstance(run, RemoteRun) and isinstance(run.watcher, PostWatcher):
            with run.watcher.watched(self._settings.reconnect if given else 0.0) as changed:
                if _wants_events(request) and await run.watcher.begun(run, changed):
                    response = web.StreamResponse(
                        headers={"Content-Type": EVENTS, "Cache-Control": "no-store", RUN_HEADER: run.id}
                    )
                    await response.prepare(request)
                    after = int(number) if number.isdecimal() else 0
                    prove = self._prover(key, wanted.run)
                    await send_events(response, run, run.watcher, changed, after, prove, self._service.unread)
                    return response
                outcome = await run.ended()
        else:  # it is over, or came by a connection: there are no events of it
            outcome = run if isinstance(run, Outcome) else await run.ended()
        if outcome.kind == "refused" and outcome.error is not None:
            return self._refused(key, wanted.run, outcome.error)
        return await self._answered(request, outcome, run_id, key.account)

    async def _answered(self, request: web.Request, outcome: Outcome, run_id: str, account: str) -> web.StreamResponse:
        """Send the response to a request whose run is over, when little else of its tenant is on its way."""
        size = len(outcome.body)
        with self._service.unread(account, size):
            async with self._service.shares.sending.taken(account, size):
                if _wants_events(request):
                    response = web.StreamResponse(headers={"Content-Type": EVENTS, RUN_HEADER: run_id})
                    await response.prepare(request)
                    await response.write(ending(outcome, f"{run_id}:1"))
                    return response
                answer = _json(outcome.body, run_id)
                await answer.prepare(request)
                await answer.write_eof()
                return answer

    def _prover(self, key: SigningKey, run: str) -> Callable[[], str]:
        """Return what proves that a run never started; it proves nothing of a run whose ID is not in its body, as that
        ID may come again."""
        return lambda: self._service.prove_never(key.account, run, key.id) if run else ""

    def _refused(self, key: SigningKey, run: str, error: ToolExecError, *, is_resumed: bool = False) -> web.Response:
        """Return the response to a request of which nothing was run, with the proof of that. A run that goes on is lost
        where there is none."""
        proof = self._prover(key, run)()
        if is_resumed and not proof:
            lost = SandboxFailedError(f"this run cannot go on, and may have been run: {error}", code="remote_run_lost")
            return _json(encode_result(CodeResult(error=lost)), run)
        return _refusal(error, proof)

    async def _body(self, request: web.Request) -> bytes:
        most = self._settings.max_body_bytes
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await request.read()
            if self.doors is not None and (door := self.doors.of(request.protocol)) is not None:
                door.consumed()
            return body
        except web.HTTPRequestEntityTooLarge:
            raise InvalidRequestError(
                f"the request has more than {most} bytes; send less", code="request_too_large"
            ) from None
        except TimeoutError:
            raise InvalidRequestError(f"the body did not arrive within {_BODY_SECONDS:g} s") from None

    def _check(self, request: web.Request, key: SigningKey, body: bytes) -> None:
        """Raise SandboxDeniedError and SandboxUnavailableError, unless a request was signed just now, for this
        process."""
        headers, ours = request.headers, self._service.incarnation.id
        named = headers.get(INCARNATION_HEADER, "")
        if not named:
            raise SandboxDeniedError(_OLD, code="signature_invalid")
        if named != ours:
            raise SandboxUnavailableError(
                "this request is for another server process, or for this one before it was started again; ask which "
                "one is here, and sign for that",
                code="wrong_incarnation",
                retryable=True,
                details={"incarnation": ours},
            )
        run, last = headers.get("Idempotency-Key", ""), headers.get("Last-Event-ID", "")
        target = Target(ours, request.method, request.raw_path, run, last)
        self.hub.ring.check(
            key,
            headers.get(TIMESTAMP_HEADER, ""),
            headers.get(SIGNATURE_HEADER, ""),
            target,
            body,
            time(),
            self._replays,
        )

    def _known(self, key: SigningKey, run_id: str, body: bytes) -> RemoteRun | Outcome | None:
        """Return the run with this ID, or how it ended; raises InvalidRequestError when it had another body."""
        run = self._service.find(key.account, run_id)
        record = self._service.recall(key.account, run_id) if run is None else None
        if run is None and record is None:
            return None
        digest = run.digest if run is not None else record.digest if record is not None else b""
        if digest != RemoteRun.digest_of(body):
            raise InvalidRequestError(
                f"the run {run_id} is known here with another body; use a new ID for a new run", code="run_id_taken"
            )
        return run if run is not None else remembered(record) if record is not None else None

    def _submitted(
        self, request: web.Request, key: SigningKey, run_id: str, body: bytes, wanted: RemoteRequest
    ) -> RemoteRun:
        route = self._gateways.route_to(wanted.gateway) if wanted.gateway is not None else NoRoute()
        watcher = PostWatcher()
        watcher.run = self._service.submit(
            key.account,
            run_id,
            body,
            wanted,
            route=route,
            watcher=watcher,
            confirmed=True,
            traceparent=request.headers.get("traceparent", "")[:100],
        )
        return watcher.run

    # -- errors -------------------------------------------------------------------------------------------------------

    @web.middleware
    async def _explained(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answer what is raised as JSON, with the status that says most about it."""
        door = self.doors.of(request.protocol) if self.doors is not None else None
        if door is not None:
            door.asks += 1
        try:
            return await handler(request)
        except ToolExecError as error:
            self._service.refuse(door.account if door is not None else "", error)
            return _refusal(error)
        finally:
            if door is not None:
                door.asks -= 1


async def _close_after(_: web.Request, response: web.StreamResponse) -> None:
    """Have each request come by a connection of its own, where there are several processes for it to go to."""
    if not isinstance(response, web.WebSocketResponse):
        response.force_close()
        response.headers["Connection"] = "close"


def _has_token(request: web.Request, wanted: str) -> bool:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    given = token.strip().encode("utf-8", "surrogateescape")
    return bool(wanted) and kind.lower() == "bearer" and hmac.compare_digest(given, wanted.encode())


def _wants_events(request: web.Request) -> bool:
    return EVENTS in request.headers.get("Accept", "")


def _json(body: bytes, run_id: str) -> web.Response:
    return web.Response(body=body, content_type="application/json", headers={RUN_HEADER: run_id})


def _refusal(error: ToolExecError, proof: str = "") -> web.Response:
    """Return the response to a request of which nothing was run; *proof* is what shows that."""
    status = _STATUSES.get(error.code, 500)
    if status == 500:
        kinds = ((LimitNotEnforceableError, 422), (SandboxDeniedError, 403), (InvalidRequestError, 400))
        status = next((number for kind, number in kinds if isinstance(error, kind)), 500)
    if isinstance(error, SandboxUnavailableError) and error.code not in _STATUSES:
        status = 503
    short = {"error": {"code": error.code, "message": error.message[:500], "retryable": error.retryable}}
    headers = {ERROR_HEADER: json.dumps(short)[:2000]}
    pause = error.details.get("retry_after")
    if isinstance(pause, int | float):
        headers["Retry-After"] = str(max(1, round(pause)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = encode_error(error, proof=proof)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)

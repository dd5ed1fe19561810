"""Trials of a sandbox behind a remote runtime that answers oddly."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tests.contract.outcomes.http_service import ANSWERS, Answer, response, serving

from toolexec.errors import Outcome
from toolexec.remote import RemoteSettings
from toolexec.testing import SandboxTrial
from toolexec_remote.backend import RemoteBackend
from toolexec_remote.incarnation import HERE, Incarnation
from toolexec_remote.messages import SUBPROTOCOL, VERSION


def _event(*lines: str) -> bytes:
    return response(200, "\n".join([*lines, "", ""]).encode(), "text/event-stream")


def _error(code: str, outcome: str, status: int = 500) -> bytes:
    return response(status, f'{{"error": {{"code": "{code}", "message": "odd", "outcome": "{outcome}"}}}}'.encode())


_NOT_SENT = '{"error": {"code": "sandbox_unavailable", "message": "odd", "outcome": "not_sent", "retryable": true}}'


def _agreed(outcome: Outcome) -> Outcome:
    """Return what the same answer says of a program: without the proof of the process that was asked, a refusal says no
    more than an answer that cannot be read."""
    return Outcome.UNKNOWN if outcome in (Outcome.REFUSED, Outcome.DONE) else outcome


_OWN = {
    "a stream without a result": (Answer(_event("event: stdout", "data: x")), Outcome.UNKNOWN),
    "a stream that breaks off": (Answer(_event("id: 1", "event: stdout", "data: x")), Outcome.UNKNOWN),
    "a result that is none": (Answer(_event("event: result", "data: nonsense")), Outcome.UNKNOWN),
    "an error that is none": (Answer(_event("event: error", "data: {")), Outcome.UNKNOWN),
    "no result": (Answer(response(200, b"{}")), Outcome.UNKNOWN),
    "a full queue without a proof": (Answer(_error("queue_full", "not_sent", 503), works=False), Outcome.UNKNOWN),
    "a failure before the start without a proof": (
        Answer(_error("sandbox_unavailable", "not_sent"), works=False),
        Outcome.UNKNOWN,
    ),
    "a failure in the middle": (Answer(_error("sandbox_failed", "unknown")), Outcome.UNKNOWN),
    "a failure after output that says that it was not sent": (
        Answer(_event("event: stdout", "data: x", "", "event: error", f"data: {_NOT_SENT}")),
        Outcome.UNKNOWN,
    ),
    "a result of NaN": (Answer(_event("event: result", 'data: {"value": NaN}')), Outcome.UNKNOWN),
    "a result of infinity": (Answer(response(200, b'{"result": {"value": 1e999}}')), Outcome.UNKNOWN),
    "a failure that looks like none": (Answer(_error("queue_full", "unknown", 503)), Outcome.UNKNOWN),
}
_POSTS = {name: (answer, _agreed(outcome)) for name, (answer, outcome) in ANSWERS.items()} | _OWN
REMOTE_POST = {name: outcome for name, (_, outcome) in _POSTS.items()}

_INCARNATION = Incarnation()
_GREETINGS: tuple[str, ...] = (
    "status 404",
    "status 500",
    "status 503",
    "silence",
    "a closed connection",
    "no HTTP",
    "broken JSON",
)
REMOTE_DUPLEX: Mapping[str, Outcome] = dict.fromkeys(_GREETINGS, Outcome.NOT_SENT)
"""Without a connection that is greeted as it should be, no program leaves."""


@asynccontextmanager
async def _trial(answer: Answer, protocol: str) -> AsyncGenerator[SandboxTrial]:
    def reply(head: str, _: bytes) -> Answer:
        if protocol == "duplex":
            return answer
        if head.startswith("GET "):
            nonce = re.findall(r"nonce=(\w+)", head)
            proof = _INCARNATION.state(HERE, *nonce)
            said: dict[str, Any] = {
                "protocol": SUBPROTOCOL,
                "version": VERSION,
                "incarnation": _INCARNATION.id,
                "proof": proof,
            }
            said["backends"] = [{"kind": "wasm", "isolation": "wasm", "languages": ["python"]}]
            return Answer(response(200, json.dumps(said).encode()), works=False)
        goes_on = "last-event-id" in head.lower()  # the same run is asked for
        return replace(answer, works=answer.works and not goes_on)

    async with serving(reply) as service:
        settings = RemoteSettings(
            endpoints=(f"{service.url}/v1/execute",),
            key_id="ann-1",
            token="token-of-ann-for-tests",
            protocol="post" if protocol == "post" else "duplex",
            reconnect=0.3,
            overhead=0.3,
            # By post what was sent is another outcome, which a connection must not miss on a busy machine.
            connect_timeout=0.3 if answer.hangs and protocol == "duplex" else 5.0,
        )
        backend = RemoteBackend(settings)
        try:
            yield SandboxTrial(sandbox=backend, effects=lambda: service.effects, timeout=0.3)
        finally:
            await backend.aclose()


@asynccontextmanager
async def remote_post_trial(name: str) -> AsyncGenerator[SandboxTrial]:
    """Leave the program to a service by POST."""
    async with _trial(_POSTS[name][0], "post") as trial:
        yield trial


@asynccontextmanager
async def remote_duplex_trial(name: str) -> AsyncGenerator[SandboxTrial]:
    """Leave the program to a service that never comes to take one."""
    answer = ANSWERS[name][0]
    async with _trial(replace(answer, works=False), "duplex") as trial:
        yield trial

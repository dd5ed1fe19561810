"""The message that has a guest run a program."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from toolexec.errors import InvalidRequestError
from toolexec.runtime.base import ExecuteRequest
from toolexec.runtime.gateway.protocol import MAX_FRAME_BYTES

__all__ = ["execute_payload", "execute_text"]


def execute_payload(request: ExecuteRequest) -> dict[str, Any]:
    """What an `execute` message says about *request*; its files and its working directory are the backend's affair."""
    payload: dict[str, Any] = {
        "code": request.code,
        "language": request.language or "python",
        "env": dict(request.env),
        "args": list(request.args),
        "output_limit": request.output.limit,
    }
    if request.stdin:
        payload["stdin"] = base64.b64encode(request.stdin).decode()
    if request.seed is not None:
        payload["seed"] = request.seed
    return payload


def execute_text(request: ExecuteRequest, extra: Mapping[str, Any]) -> str:
    """The payload of an `execute` message as JSON, with *extra* beside what it says of *request*.

    Raises InvalidRequestError for what does not fit into a message.
    """
    payload: Mapping[str, Any] = {**execute_payload(request), **extra}
    text = json.dumps(payload)
    if len(text) > MAX_FRAME_BYTES - 1024:
        raise InvalidRequestError(
            f"the program with its environment, arguments and input has {len(text)} bytes as JSON; at most "
            f"{MAX_FRAME_BYTES} fit: put what is large into files"
        )
    return text

"""Large values of programs as the JSON text that they came as: who only passes one on need not read and write it."""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

AS_JSON: Final[ContextVar[bool]] = ContextVar("toolexec_as_json", default=False)
"""True where the value of a result may be a `JSONText`, if it is large and its sandbox has it as that: reading two
megabytes and writing them again takes the interpreter of a server for some milliseconds, in which it does nothing for
others."""
_LARGE: Final = 64 << 10
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class JSONText:
    """A value as JSON in ASCII, without blanks, and without NaN and infinities."""

    text: bytes


def split_answer(answer: str) -> tuple[str, bytes]:
    """Return the answer of a guest without its value, and that value as JSON; empty where it is not large, or not a
    value: the answer has it still then."""
    if len(answer) < _LARGE:
        return answer, b""
    from toolexec.errors import ProtocolError
    from toolexec.run.large import json_pieces
    from toolexec.runtime.protocol.hostcalls import result_payload

    try:
        payload = result_payload(answer)
        if "error" in payload or "value" not in payload:
            return answer, b""
        text = "".join(json_pieces(payload.pop("value"), encode=_encode)).encode()
    except (ProtocolError, TypeError, ValueError, RecursionError):  # the host says what is wrong with it
        return answer, b""
    return _encode({"type": "result", "payload": payload}), text

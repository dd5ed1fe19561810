"""Requests, results and errors as remote runtimes exchange them, as JSON.

The names are a fact of the protocol, and so is what is left out. `limits_enforced` has the names of Go's fields; others
are understood, too. What only this implementation has (files, arguments, the whole error, the sandbox underneath) goes
into fields of its own, which others ignore.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, cast

from toolexec.errors import InvalidRequestError, ProtocolError, SandboxFailedError, ToolExecError
from toolexec.remote import (
    JSONDict,
    JSONObject,
    JSONText,
    JSONValue,
    NotJSONError,
    ToolCallRecord,
    check_names,
    error_payload,
    json_pieces,
    read_error,
    to_json,
    to_json_lossy,
)
from toolexec.sandbox import BackendInfo, CodeResult, ExecuteRequest, Gateway, Limits, LimitsEnforced, Output
from toolexec_remote.messages import decode_json

GATEWAY_PROTOCOL: Final = "toolruntime-gateway-http/v1"
_LIMITS: Final[Mapping[str, str]] = {
    "max_tool_calls": "max_tool_calls",
    "max_chain_steps": "max_chain_steps",
    "cpu_quota_millis": "cpu_ms",
    "memory_bytes": "memory_bytes",
    "pids_max": "pids",
    "disk_bytes": "disk_bytes",
    "cpus": "cpus",
}
"""The name of each limit in the protocol, and here."""
_ENFORCED: Final[Mapping[str, str]] = {
    "Timeout": "timeout",
    "ToolCalls": "tool_calls",
    "ChainSteps": "chain_steps",
    "Memory": "memory",
    "CPU": "cpu",
    "Pids": "pids",
    "Disk": "disk",
    "CPUs": "cpus",
}
_FOLDED: Final = {name.lower(): ours for name, ours in _ENFORCED.items()}
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_NO_VALUE: Final = b'{"result":{"value":null'
"""What each response begins with that has no value."""
_MAX_ID: Final = 128
_MAX_CAUSES: Final = 3
_MAX_NOTE: Final = 200
"""How long the words may be at the end of output that say how much was dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAddress:
    """Where the server finds the tools of a run that comes without a connection of its own."""

    url: str
    token: str = ""

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        token = {"token": self.token} if self.token else {}
        return {"url": self.url, **token, "protocol": GATEWAY_PROTOCOL}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRequest:
    """A request as it came: `fields` is for `ExecuteRequest`, `output_limit` for its output (0: the default), `run` is
    the ID that its sender has signed, if any, and
    `sandbox` the kind that must run it ("": any)."""

    fields: Mapping[str, Any]
    output_limit: int = 0
    run: str = ""
    sandbox: str = ""
    gateway: GatewayAddress | None = None
    stream: bool = False

    def made(self, gateway: Gateway, output: Output) -> ExecuteRequest:
        """Return the request itself, with these for its tools and its output."""
        return ExecuteRequest(**self.fields, gateway=gateway, output=output)


# -- requests ---------------------------------------------------------------------------------------------------------


def encode_request(
    request: ExecuteRequest,
    *,
    run: str = "",
    sandbox: str = "",
    gateway: GatewayAddress | None = None,
    stream: bool = False,
) -> bytes:
    """Return the body that asks a remote runtime to run *request*; *run* is the ID of the run, so that it is signed,
    too; *sandbox* is the kind that must run it ("": any of the profile).

    Raises InvalidRequestError for metadata that is not JSON.
    """
    data: JSONDict = {"language": request.language, "code": request.code}
    if request.timeout is not None:
        data["timeout_ms"] = max(1, math.ceil(request.timeout * 1000))
    data["limits"] = {
        name: getattr(request.limits, ours) for name, ours in _LIMITS.items() if getattr(request.limits, ours)
    }
    data["profile"] = request.profile
    metadata = cast("JSONDict", to_json_lossy(dict(request.metadata)))
    data["metadata"] = {name: metadata[name] for name in sorted(metadata)}
    data |= _own_fields(request)
    data["sandbox"] = sandbox
    wanted = {name: value for name, value in data.items() if name in ("code", "limits") or value not in ("", {}, None)}
    body: JSONDict = {"request": wanted}
    if gateway is not None:
        body["gateway"] = gateway.to_dict()
    if stream:
        body["stream"] = True
    if run:
        body["run"] = run
    return _encoded(body)


def _own_fields(request: ExecuteRequest) -> JSONDict:
    """Return what the protocol has no words for."""
    data: JSONDict = {
        "env": dict(request.env),
        "files": {name: _base64(content) for name, content in request.files.items()},
        "stdin": _base64(request.stdin),
    }
    if request.args:
        data["args"] = [*request.args]
    if request.seed is not None:
        data["seed"] = request.seed
    if request.now is not None:
        data["now"] = request.now
    if request.names:
        data["names"] = dict(request.names)
    if request.best_effort:
        data["best_effort"] = True
    if request.output.limit != Output().limit:
        data["output_limit"] = request.output.limit
    return data


def read_request(body: bytes) -> RemoteRequest:
    """Return what a body asks for. Raises InvalidRequestError that names what is wrong with it; limits and the program
    itself are checked later, as for any other request."""
    data = _object(_decoded(body), "the body")
    request = _object(data.get("request"), "request")
    limits = _object(request.get("limits", {}), "request.limits")
    run = _typed(data, "run", str, "")
    if len(run) > _MAX_ID:
        raise InvalidRequestError(f"run has {len(run)} characters, more than {_MAX_ID}")
    wanted: dict[str, Any] = {
        "code": _typed(request, "code", str, ""),
        "language": _typed(request, "language", str, ""),
        "profile": _typed(request, "profile", str, ""),
        "limits": Limits(**{ours: limits[name] for name, ours in _LIMITS.items() if name in limits}),
        "metadata": _object(request.get("metadata", {}), "request.metadata"),
        "env": _object(request.get("env", {}), "request.env"),
        "files": {
            name: _bytes(content, f"the file {name!r}")
            for name, content in _object(request.get("files", {}), "request.files").items()
        },
        "args": _strings(request.get("args", []), "request.args"),
        "stdin": _bytes(request.get("stdin", ""), "request.stdin"),
        "best_effort": _typed(request, "best_effort", bool, False),
        "names": {
            name: _typed({name: path}, name, str, "")
            for name, path in _object(request.get("names", {}), "request.names").items()
        },
    }
    milliseconds = _typed(request, "timeout_ms", int, 0)
    if milliseconds:
        wanted["timeout"] = milliseconds / 1000
    for name, kinds in (("seed", int), ("now", (int, float))):
        if request.get(name) is not None:
            wanted[name] = _typed(request, name, kinds, 0)
    return RemoteRequest(
        fields=wanted,
        output_limit=_typed(request, "output_limit", int, 0),
        run=run,
        sandbox=_typed(request, "sandbox", str, ""),
        gateway=_gateway(data.get("gateway")),
        stream=_typed(data, "stream", bool, False),
    )


def _gateway(data: JSONValue) -> GatewayAddress | None:
    if data is None:
        return None
    found = _object(data, "gateway")
    url, spoken = _typed(found, "url", str, ""), _typed(found, "protocol", str, GATEWAY_PROTOCOL)
    if not url:
        raise InvalidRequestError("gateway needs a url")
    if spoken != GATEWAY_PROTOCOL:
        raise InvalidRequestError(f"gateway speaks {spoken[:100]!r}, and this server {GATEWAY_PROTOCOL}")
    return GatewayAddress(url=url, token=_typed(found, "token", str, ""))


# -- responses --------------------------------------------------------------------------------------------------------


def encode_result(result: CodeResult) -> bytes:
    """Return the response to a request that was run. One that failed has an error, too. A value that is `JSONText` goes
    into it as it is."""
    text = result.value.text if isinstance(result.value, JSONText) else b""
    data: JSONDict = {"result": result_data(replace(result, value=None) if text else result)}
    if result.error is not None:
        data["error"] = _error_data(result.error)
    encoded = _encoded(data)
    return b"".join((_NO_VALUE[:-4], text, encoded[len(_NO_VALUE) :])) if text else encoded


def encode_error(error: ToolExecError, *, proof: str = "") -> bytes:
    """Return the response to a request that was not run, with the *proof* of that, or of which nothing is known but
    this error."""
    return _encoded({"error": _error_data(error), **({"proof": proof} if proof else {})})


def read_proof(body: bytes) -> str:
    """Return the proof in a response that a run never started; "" where there is none."""
    try:
        data = _decoded(body)
    except InvalidRequestError:
        return ""
    return _text(data.get("proof")) if isinstance(data, dict) else ""


def result_data(result: CodeResult) -> JSONDict:
    """Return what the field `result` has."""
    enforced = result.limits_enforced.to_dict()
    data: JSONDict = {
        "value": result.value,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "tool_calls": [_call_data(call) for call in result.tool_calls],
        "duration_ms": round(result.duration * 1000),
        "limits_enforced": {name: enforced[ours] for name, ours in _ENFORCED.items()},
        "language": result.language,
    }
    if result.backend is not None:
        backend = result.backend
        data["backend"] = {**backend.to_dict(), "details": to_json_lossy(dict(backend.details))}
    if result.files:
        data["files"] = {name: _base64(content) for name, content in result.files.items()}
    return data


def _call_data(call: ToolCallRecord) -> JSONDict:
    data: JSONDict = {"tool_id": call.tool_id, "duration_ms": round(call.duration * 1000)}
    if call.backend_kind:
        data["backend_kind"] = call.backend_kind
    if call.error_op:
        data["error_op"] = call.error_op
    return data


def _error_data(error: BaseException, depth: int = 0) -> JSONDict:
    if not isinstance(error, ToolExecError):
        return {"code": ToolExecError.code, "message": f"the server failed: {type(error).__name__}"}
    data = cast("JSONDict", to_json_lossy(error.public().to_dict()))
    data["outcome"] = error.outcome.value
    data |= {"class": named} if (named := error_payload(error).get("class")) else {}
    if isinstance(error.__cause__, ToolExecError) and depth < _MAX_CAUSES:
        data["cause"] = _error_data(error.__cause__, depth + 1)
    return data


def read_response(body: bytes) -> CodeResult:
    """Return the result that a response has. Raises the error of a response without a result, of the class that its
    code names, and SandboxFailedError for a body that makes no sense or has neither."""
    failure: ToolExecError | None = None
    result: CodeResult | None = None
    try:
        data = _object(_decoded(body), "the body")
        if data.get("error") is not None:
            failure = _read_error(_object(data["error"], "error"))
        if data.get("result") is not None:
            result = read_result(_object(data["result"], "result"))
    except (InvalidRequestError, ProtocolError, NotJSONError) as wrong:
        raise SandboxFailedError(f"the response of the remote runtime makes no sense: {wrong}") from wrong
    if result is None:
        raise failure or SandboxFailedError("the remote runtime sent a response without a result")
    result.error = failure
    return result


def read_object(body: bytes | str) -> JSONDict:
    """Return an object of JSON, with finite numbers alone; an empty one for all else."""
    try:
        found = _decoded(body)
    except InvalidRequestError:
        return {}
    return found if isinstance(found, dict) else {}


def read_result(data: JSONObject) -> CodeResult:
    """Return the result in a field `result`. Nothing in it is believed unchecked: what is of the wrong type counts as
    absent. Raises NotJSONError for infinite numbers and half characters in the value or the details, and
    InvalidRequestError for files whose names are not plain, relative paths."""
    duration = data.get("duration_ms")
    files = data.get("files")
    read_files = {name: _bytes(item, "a file") for name, item in files.items()} if isinstance(files, dict) else {}
    check_names(read_files)
    return CodeResult(
        value=to_json(data.get("value")),
        stdout=_text(data.get("stdout")),
        stderr=_text(data.get("stderr")),
        tool_calls=_read_calls(data.get("tool_calls")),
        duration=_seconds(duration),
        files=read_files,
        language=_text(data.get("language")),
        backend=_read_backend(data.get("backend")),
        limits_enforced=_read_enforced(data.get("limits_enforced")),
    )


def cut(text: str, limit: int) -> str:
    """Return no more of a program's output than its caller wants to keep, with the end that says how much there was."""
    if len(text) <= limit + _MAX_NOTE:
        return text
    output = Output(limit)
    output.write(text)
    return output.text()


def _seconds(milliseconds: JSONValue) -> float:
    """Return a duration; 0 for what is not one."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return 0.0
    try:
        return milliseconds / 1000 if 0 <= milliseconds < math.inf else 0.0
    except OverflowError:
        return 0.0


def _read_calls(data: JSONValue) -> list[ToolCallRecord]:
    found: list[ToolCallRecord] = []
    for item in data if isinstance(data, list) else ():
        if isinstance(item, dict):
            spent = item.get("duration_ms")
            found.append(
                ToolCallRecord(
                    _text(item.get("tool_id")),
                    duration=_seconds(spent),
                    backend_kind=_text(item.get("backend_kind")),
                    error_op=_text(item.get("error_op")),
                )
            )
    return found


def _read_backend(data: JSONValue) -> BackendInfo | None:
    if not isinstance(data, dict):
        return None
    readiness, details = data.get("readiness"), data.get("details")
    if readiness not in ("prod", "beta", "stub"):
        readiness = "beta"
    return BackendInfo(
        kind=_text(data.get("kind")),
        readiness=readiness,
        isolation=_text(data.get("isolation")) or "none",
        details=cast("JSONDict", to_json(details)) if isinstance(details, dict) else {},
    )


def _read_enforced(data: JSONValue) -> LimitsEnforced:
    if not isinstance(data, dict):
        return LimitsEnforced()
    folded = {name.lower().replace("_", ""): value is True for name, value in data.items()}
    known = {field.name for field in fields(LimitsEnforced)}
    return LimitsEnforced(**{ours: folded.get(name, False) for name, ours in _FOLDED.items() if ours in known})


def _read_error(data: JSONObject) -> ToolExecError:
    payload = {"error": data.get("message"), "toolId": data.get("tool_id")}
    payload |= {name: data.get(name) for name in ("code", "class", "retryable", "op", "backend", "details", "outcome")}
    error = read_error(payload)
    if isinstance(data.get("cause"), dict):
        error.__cause__ = _read_error(data["cause"])
    return error


# -- the JSON of it ---------------------------------------------------------------------------------------------------


def _encoded(data: JSONDict) -> bytes:
    try:
        return "".join(json_pieces(data, encode=_encode)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"this cannot be written as JSON: {error}") from error


def _decoded(body: bytes | str) -> JSONValue:
    try:
        return decode_json(body if isinstance(body, str) else body.decode(json.detect_encoding(body), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error


def _object(value: JSONValue, name: str) -> JSONDict:
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{name} must be an object")
    return value


def _typed(data: JSONObject, name: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InvalidRequestError(f"{name} is of the wrong type: {type(value).__name__}")
    return value


def _strings(value: JSONValue, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidRequestError(f"{name} must be a list of strings")
    return value


def _text(value: JSONValue) -> str:
    return value if isinstance(value, str) else ""


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _bytes(value: JSONValue, name: str) -> bytes:
    if not isinstance(value, str):
        raise InvalidRequestError(f"{name} must be Base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequestError(f"{name} must be Base64: {error}") from error

"""Requests for sandboxes and their results as JSON, for the way between machines."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from toolexec.journal import JSONDict, error_from_json, error_to_json, to_json_lossy
from toolexec.sandbox import BackendInfo, CodeResult, ExecuteRequest, Gateway, Limits, LimitsEnforced, Output

_PLAIN = ("code", "language", "timeout", "profile", "seed", "now", "best_effort")


def request_to_json(request: ExecuteRequest) -> JSONDict:
    """Return what a sandbox elsewhere needs of a request, as JSON-able data: all but its gateway and callbacks."""
    data: JSONDict = {name: getattr(request, name) for name in _PLAIN}
    return data | {
        "limits": request.limits.to_dict(),
        "env": dict(request.env),
        "files": _encoded(request.files),
        "args": [*request.args],
        "stdin": b64encode(request.stdin).decode(),
        "metadata": to_json_lossy(dict(request.metadata)),
        "output_chars": request.output.limit,
    }


def read_request(data: Mapping[str, Any], gateway: Gateway, output: Output) -> ExecuteRequest:
    """Return the request that `request_to_json` has written, with these for its tools and its output."""
    return ExecuteRequest(
        **{name: data[name] for name in _PLAIN},
        limits=Limits.from_dict(data["limits"]),
        env=data["env"],
        files=_decoded(data["files"]),
        args=data["args"],
        stdin=b64decode(data["stdin"]),
        metadata=data["metadata"],
        gateway=gateway,
        output=output,
    )


def result_to_json(result: CodeResult) -> JSONDict:
    """Return what came of a request as JSON-able data, without its trace, which its gateway has."""
    data: JSONDict = {
        "value": result.value,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "duration": result.duration,
        "files": _encoded(result.files),
        "limits_enforced": result.limits_enforced.to_dict(),
    }
    if result.error is not None:
        data["error"] = error_to_json(result.error)
    if result.backend is not None:
        data["backend"] = asdict(result.backend)
    return data


def read_result(data: Mapping[str, Any]) -> CodeResult:
    """Return the result that `result_to_json` has written; raises the error of a request that was not run."""
    if "raised" in data:
        raise error_from_json(data["raised"])
    backend = data.get("backend")
    return CodeResult(
        value=data.get("value"),
        stdout=data.get("stdout", ""),
        stderr=data.get("stderr", ""),
        duration=data.get("duration", 0.0),
        error=error_from_json(data["error"]) if "error" in data else None,
        files=_decoded(data.get("files", {})),
        backend=BackendInfo(**backend) if backend else None,
        limits_enforced=LimitsEnforced(**data.get("limits_enforced", {})),
    )


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: b64encode(content).decode() for name, content in files.items()}


def _decoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: b64decode(content) for name, content in files.items()}

"""The JSON of remote runtimes: names, omissions, spellings, and what is made of wrong input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolexec.errors import (
    CodeError,
    ExecutionError,
    InvalidRequestError,
    LimitExceededError,
    Outcome,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
    ToolNotFoundError,
)
from toolexec.remote import ToolCallRecord
from toolexec.sandbox import BackendInfo, CodeResult, ExecuteRequest, Limits, LimitsEnforced, Output
from toolexec_remote.wire import (
    GatewayAddress,
    cut,
    encode_error,
    encode_request,
    encode_result,
    read_request,
    read_response,
)


def test_the_smallest_request_has_code_and_limits() -> None:
    """All else is left out, as Go leaves it out."""
    assert encode_request(ExecuteRequest(code="return 1")) == b'{"request":{"code":"return 1","limits":{}}}'


def test_a_request_has_the_names_of_the_protocol() -> None:
    """Snake case, milliseconds, and limits that are zero left out; metadata is sorted."""
    request = ExecuteRequest(
        code="return 1",
        language="python",
        timeout=1.5,
        profile="hardened",
        metadata={"b": 2, "a": [1]},
        limits=Limits(max_tool_calls=1, max_chain_steps=2, cpu_ms=3, memory_bytes=4, pids=5, disk_bytes=6),
    )
    address = GatewayAddress(url="https://tools.example.com/g", token="secret")
    assert json.loads(encode_request(request, gateway=address, stream=True)) == {
        "request": {
            "language": "python",
            "code": "return 1",
            "timeout_ms": 1500,
            "limits": {
                "max_tool_calls": 1,
                "max_chain_steps": 2,
                "cpu_quota_millis": 3,
                "memory_bytes": 4,
                "pids_max": 5,
                "disk_bytes": 6,
            },
            "profile": "hardened",
            "metadata": {"a": [1], "b": 2},
        },
        "gateway": {
            "url": "https://tools.example.com/g",
            "token": "secret",
            "protocol": "toolruntime-gateway-http/v1",
        },
        "stream": True,
    }


def test_a_request_comes_back_as_it_was() -> None:
    """With all that only this implementation has words for."""
    request = ExecuteRequest(
        code="1 < 2 & 'ü\u2028'",
        language="bash",
        timeout=0.0001,
        profile="standard",
        limits=Limits(cpus=1.5, memory_bytes=1 << 40),
        env={"A": "1"},
        files={"a/b.bin": b"\x00\xff"},
        args=["x", "y"],
        stdin=b"in",
        seed=7,
        now=1.25,
        best_effort=True,
        metadata={"unsafeOptIn": True},
        output=Output(50),
    )
    read = read_request(encode_request(request, run="r-1", sandbox="wasm"))
    assert (read.run, read.sandbox, read.output_limit, read.stream, read.gateway) == ("r-1", "wasm", 50, False, None)
    for name, value in read.fields.items():
        assert value == (0.001 if name == "timeout" else getattr(request, name)), name


def test_a_request_of_go_is_understood() -> None:
    """Go's encoder escapes some characters; the fields that it never sets are left alone."""
    body = (
        b'{"request":{"language":"go","code":"a \\u003c b \\u0026\\u0026 c","timeout_ms":250,"limits":{"pids_max":3},'
        b'"enable_tracing":true,"requested_scope":"x"},"gateway":{"url":"http://h/g","protocol":'
        b'"toolruntime-gateway-http/v1"},"stream":true}'
    )
    read = read_request(body)
    assert (read.fields["code"], read.fields["timeout"], read.fields["limits"]) == ("a < b && c", 0.25, Limits(pids=3))
    assert read.gateway == GatewayAddress(url="http://h/g")
    assert read.stream


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"", "JSON"),
        (b"[]", "the body"),
        (b"{}", "request"),
        (b'{"request":[]}', "request"),
        (b'{"request":{"code":1}}', "code"),
        (b'{"request":{"code":"x","limits":[]}}', "limits"),
        (b'{"request":{"code":"x","limits":{"pids_max":-1}}}', "pids"),
        (b'{"request":{"code":"x","limits":{"pids_max":"1"}}}', "pids"),
        (b'{"request":{"code":"x","timeout_ms":true}}', "timeout_ms"),
        (b'{"request":{"code":"x","files":{"a":"!"}}}', "'a'"),
        (b'{"request":{"code":"x","args":[1]}}', "args"),
        (b'{"request":{"code":"x"},"gateway":{"token":"t"}}', "url"),
        (b'{"request":{"code":"x"},"gateway":{"url":"u","protocol":"other/v9"}}', "other/v9"),
        (b'{"request":{"code":"x"},"run":"' + b"r" * 200 + b'"}', "run"),
        (b"[" * 100_000, "JSON"),
    ],
)
def test_wrong_requests_are_refused_by_name(body: bytes, names: str) -> None:
    """The error names the field, and nothing was run."""
    with pytest.raises(ToolExecError, match=names) as caught:
        read_request(body)
    assert caught.value.outcome == "not_sent"


def test_a_result_has_the_names_of_go() -> None:
    """Those of `limits_enforced` are Go's field names."""
    result = CodeResult(
        value={"a": 1},
        stdout="out",
        stderr="err",
        duration=0.25,
        tool_calls=[
            ToolCallRecord("math:add", duration=0.5, backend_kind="local"),
            ToolCallRecord("x", error_op="run"),
        ],
        limits_enforced=LimitsEnforced(timeout=True, tool_calls=True, cpus=True),
    )
    data = json.loads(encode_result(result))["result"]
    assert data["limits_enforced"] == {
        "Timeout": True,
        "ToolCalls": True,
        "ChainSteps": False,
        "Memory": False,
        "CPU": False,
        "Pids": False,
        "Disk": False,
        "CPUs": True,
    }
    assert data["tool_calls"] == [
        {"tool_id": "math:add", "duration_ms": 500, "backend_kind": "local"},
        {"tool_id": "x", "duration_ms": 0, "error_op": "run"},
    ]
    assert (data["value"], data["stdout"], data["stderr"], data["duration_ms"]) == ({"a": 1}, "out", "err", 250)


@pytest.mark.parametrize(
    "spelling",
    [
        {"Timeout": True, "ToolCalls": True, "Memory": True},
        {"timeout": True, "tool_calls": True, "memory": True},
        {"TIMEOUT": True, "toolcalls": True, "memory": True, "Unknown": True, "CPU": "yes"},
    ],
    ids=["go", "snake", "mixed"],
)
def test_limits_are_understood_in_each_spelling(spelling: dict[str, Any]) -> None:
    """A value that is not exactly true does not count."""
    body = json.dumps({"result": {"value": 1, "limits_enforced": spelling}}).encode()
    assert read_response(body).limits_enforced == LimitsEnforced(timeout=True, tool_calls=True, memory=True)


def test_a_result_comes_back_whole() -> None:
    """The sandbox underneath, files and the failure with its cause, too."""
    error = CodeError("boom", line=3, kind="ValueError", source="raise", traceback="Traceback")
    error.__cause__ = ToolNotFoundError("math:ad", close=["math:add"])
    result = CodeResult(
        value=None,
        stdout="out",
        error=error,
        files={"a.bin": b"\x00"},
        language="python",
        backend=BackendInfo(kind="bubblewrap", isolation="container", readiness="prod", details={"image": "x"}),
    )
    read = read_response(encode_result(result))
    assert isinstance(read.error, CodeError)
    assert (read.error.message, read.error.line, read.error.kind) == ("boom", 3, "ValueError")
    assert isinstance(read.error.__cause__, ToolNotFoundError)
    assert (read.files, read.language, read.backend) == ({"a.bin": b"\x00"}, "python", result.backend)


@pytest.mark.parametrize("outcome", Outcome)
def test_an_error_keeps_its_outcome(outcome: Outcome) -> None:
    """An error and its cause come back with the outcome that was stated, whatever the default of their class is."""
    for kind in (SandboxUnavailableError, CodeError):
        error, reason = kind("odd"), kind("odd, too")
        error.outcome = reason.outcome = outcome
        error.__cause__ = reason
        with pytest.raises(kind) as caught:
            read_response(encode_error(error))
        cause = caught.value.__cause__
        assert isinstance(cause, kind)
        assert (caught.value.outcome, cause.outcome) == (outcome, outcome)


def test_an_unknown_outcome_is_read_as_unknown() -> None:
    """A reply whose outcome has no known name leaves open whether anything was run."""
    body = json.dumps({"error": {"code": SandboxFailedError.code, "message": "odd", "outcome": "odd"}}).encode()
    with pytest.raises(SandboxFailedError) as caught:
        read_response(body)
    assert caught.value.outcome is Outcome.UNKNOWN


def test_a_limit_comes_back_as_one() -> None:
    """With its resource."""
    error = LimitExceededError("used up", details={"resource": "memory"})
    read = read_response(encode_result(CodeResult(error=error)))
    assert isinstance(read.error, LimitExceededError)
    assert read.error.resource == "memory"


def test_an_error_alone_is_raised() -> None:
    """Of the class that its code names, with what it says about a retry."""
    error = SandboxUnavailableError("full", code="queue_full", retryable=True, details={"retry_after": 2.5})
    with pytest.raises(SandboxUnavailableError) as caught:
        read_response(encode_error(error))
    found = caught.value
    assert (found.code, found.retryable, found.outcome == "not_sent", found.details["retry_after"]) == (
        "queue_full",
        True,
        True,
        2.5,
    )


def test_the_code_of_a_foreign_error_is_kept() -> None:
    """A class of its own has none here."""
    with pytest.raises(ToolExecError) as caught:
        read_response(b'{"error":{"code":"quota","message":"too much"}}')
    assert (caught.value.code, caught.value.message) == ("quota", "too much")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"result":null}', b'{"result":[]}', b'{"error":"x"}', b"<html>"])
def test_what_is_no_response_is_a_failure(body: bytes) -> None:
    """A body without a result is never a success."""
    with pytest.raises(SandboxFailedError):
        read_response(body)


def test_values_of_the_wrong_type_count_as_absent() -> None:
    """Nothing in a result is believed unchecked."""
    body = json.dumps(
        {
            "result": {
                "value": 1,
                "stdout": 5,
                "tool_calls": [1, {"tool_id": 2}],
                "duration_ms": "x",
                "backend": {"kind": 1, "readiness": "best"},
                "files": [],
            }
        }
    ).encode()
    read = read_response(body)
    assert (read.value, read.stdout, read.duration, read.files) == (1, "", 0.0, {})
    assert read.backend == BackendInfo(kind="", readiness="beta")
    assert [call.tool_id for call in read.tool_calls] == [""]


def test_what_is_not_json_is_refused() -> None:
    """NaN is not JSON."""
    with pytest.raises(InvalidRequestError):
        encode_result(CodeResult(value=float("nan")))


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "", "a//b", "a\0b"])
def test_files_of_a_result_have_plain_names(name: str) -> None:
    """A server cannot name a path outside of where its caller puts them."""
    body = json.dumps({"result": {"value": 1, "files": {name: ""}}}).encode()
    with pytest.raises(SandboxFailedError, match="makes no sense"):
        read_response(body)


@pytest.mark.parametrize(
    "field",
    ['"duration_ms": NaN', '"backend": {"kind": "wasm", "details": {"x": 1e999}}', '"value": -Infinity'],
)
def test_a_result_has_finite_numbers(field: str) -> None:
    """Wherever they are."""
    with pytest.raises(SandboxFailedError, match="makes no sense"):
        read_response(f'{{"result": {{{field}}}}}'.encode())
    assert read_response(b'{"result": {"duration_ms": 1e999}}').duration == 0.0


def test_output_over_the_limit_is_cut() -> None:
    """Its end says how much there was; what the server itself has cut stays as it is."""
    assert cut("x" * 5000, 100).startswith("x" * 100 + "\n")
    assert len(cut("x" * 5000, 100)) < 250
    output = Output(100)
    output.write("y" * 500)
    assert cut(output.text(), 100) == output.text()


def test_an_error_with_the_code_of_another_class_keeps_its_own() -> None:
    """A tool may fail with any code, such as `closed`; its error is not of the class that has that code."""
    failure = CodeError("the program failed")
    failure.__cause__ = ExecutionError("the ticket is closed", code="closed")
    read = read_response(encode_result(CodeResult(error=failure))).error
    assert read is not None
    cause = read.__cause__
    assert isinstance(cause, ExecutionError)
    assert (type(cause), cause.code) == (ExecutionError, "closed")

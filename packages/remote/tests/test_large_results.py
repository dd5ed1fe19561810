"""Large results of several tenants: what is done with them in threads, and how many at a time."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from packages.remote.tests.servers import OTHER, Client, runtime_server

from toolexec.errors import SandboxFailedError
from toolexec.remote import JSONText
from toolexec.sandbox import CodeResult
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.wire import encode_result


class _Files(dict[str, bytes]):
    """Files that take a while to be encoded: until those of another run are, too, or 0.3 s."""

    def __init__(self, inside: list[int], overlaps: threading.Event) -> None:
        super().__init__({"a.txt": b"a"})
        self._inside = inside
        self._overlaps = overlaps

    def items(self) -> Any:
        """Give what a dict gives."""
        self._inside.append(1)
        if len(self._inside) > 1:
            self._overlaps.set()
        self._overlaps.wait(0.3)
        self._inside.pop()
        return super().items()


async def test_a_tenant_has_one_large_result_encoded_at_a_time(tmp_path: Path) -> None:
    """Each thread that computes takes the interpreter from the event loop for 5 ms, so that of one tenant's there is
    one; that of another one does not wait for it."""
    inside, overlaps = list[int](), threading.Event()
    sandbox = ScriptedSandbox(default=lambda _: CodeResult(value=1, files=_Files(inside, overlaps)))
    async with runtime_server(tmp_path, sandbox) as endpoint, Client(endpoint) as ann:
        for run in ("r1", "r2"):
            await ann.execute(run, "1")
        for run in ("r1", "r2"):
            assert (await ann.result(run)).files == {"a.txt": b"a"}
        assert not overlaps.is_set()
        async with Client(endpoint, OTHER) as bob:
            for client, run in ((ann, "r3"), (bob, "r4")):
                await client.execute(run, "1")
            assert [(await client.result(run)).value for client, run in ((ann, "r3"), (bob, "r4"))] == [1, 1]
        assert overlaps.is_set()


@pytest.mark.parametrize("value", [[*range(200_000)], "é" * 2_000_000, {"a": {"b": ["x" * 50] * 40_000}}])
def test_other_threads_run_while_a_large_result_is_encoded(value: Any) -> None:
    """The encoder gets a part of it at a time: within one call of it the event loop could not run."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is json.JSONEncoder.encode.__code__

    sys.setprofile(count)
    try:
        body = encode_result(CodeResult(value=value))
    finally:
        sys.setprofile(None)
    assert json.dumps(value, separators=(",", ":")).encode() in body
    assert calls > 30


def test_a_value_that_is_json_is_not_written_again() -> None:
    """The response is the same as with the value that it stands for."""
    value = {"a": ["é", 1.5, None], "result": {"value": None}}
    text = JSONText(json.dumps(value, separators=(",", ":")).encode())
    for error in (None, SandboxFailedError("lost")):
        given = {"stdout": '{"result":{"value":null', "files": {"a.txt": b"a"}, "error": error}
        assert encode_result(CodeResult(value=text, **given)) == encode_result(CodeResult(value=value, **given))

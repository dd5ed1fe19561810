"""What a sandbox backend is given and gives back."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.backend.registry import BackendRegistry
from toolexec.code.gateway import Gateway
from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.code.tools import Tools
from toolexec.code.types import BackendInfo, CodeResult, ExecuteRequest
from toolexec.discovery import InMemoryDocStore, InMemoryIndex
from toolexec.errors import (
    CodeError,
    InvalidLimitsError,
    InvalidRequestError,
    SandboxFailedError,
)
from toolexec.run import DefaultRunner
from toolexec.run.run_request import PROFILES
from toolexec.runtime.base import Availability, SandboxBackend, SessionBackend, info_of, located


@pytest.fixture
def gateway() -> Tools:
    """A way to no tools."""
    index = InMemoryIndex()
    return Tools(index, InMemoryDocStore(index), DefaultRunner(index, BackendRegistry()))


class Nowhere:
    """A backend that is nowhere."""

    kind = "nowhere"
    languages = frozenset({"python"})

    def __init__(self, isolation: str = "vm") -> None:
        self.isolation = isolation

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        return LimitsEnforced()

    async def check(self) -> Availability:
        return Availability(ok=False, reason="it is nowhere", remedy="find it")

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        return CodeResult(backend=info_of(self))

    async def aclose(self) -> None:
        pass


class TestRequests:
    """A request is checked before anything runs."""

    def test_a_good_one(self, gateway: Tools) -> None:
        """A valid request is returned as it is."""
        request = ExecuteRequest(code="1", gateway=gateway, env={"A": "b"}, files={"x.csv": b""}, timeout=0.5)
        assert request.validate() is request
        assert request.seconds == 0.5

    def test_defaults(self, gateway: Tools) -> None:
        """30 s, nothing bounded, no profile of its own."""
        request = ExecuteRequest(code="1", gateway=gateway)
        assert (request.seconds, request.limits, request.profile, request.best_effort) == (30.0, Limits(), "", False)
        assert request.output.text() == ""

    @pytest.mark.parametrize("wrong", [None, object(), "gateway"], ids=["nothing", "an object", "a text"])
    def test_a_gateway_is_needed(self, wrong: Any) -> None:
        """A gateway is needed even for code that calls nothing; the error says what to use."""
        with pytest.raises(InvalidRequestError, match="use Tools"):
            ExecuteRequest(code="1", gateway=wrong).validate()

    @pytest.mark.parametrize("code", ["", "  \n\t", None, b"1", 5], ids=repr)
    def test_code_is_needed(self, gateway: Tools, code: Any) -> None:
        """As text that is not blank."""
        with pytest.raises(InvalidRequestError):
            ExecuteRequest(code=code, gateway=gateway).validate()

    @pytest.mark.parametrize("key", ["wasm_module", "wasm_module_b64"])
    def test_a_module_stands_for_code(self, gateway: Tools, key: str) -> None:
        """An empty one does not."""
        assert ExecuteRequest(code="", gateway=gateway, metadata={key: b"\0asm"}).validate()
        with pytest.raises(InvalidRequestError):
            ExecuteRequest(code="", gateway=gateway, metadata={key: b""}).validate()

    @pytest.mark.parametrize("timeout", [0, -1, True, "5", float("nan")], ids=repr)
    def test_a_timeout_is_above_zero(self, gateway: Tools, timeout: Any) -> None:
        """Anything else is refused, with what it was."""
        with pytest.raises(InvalidRequestError, match="above 0"):
            ExecuteRequest(code="1", gateway=gateway, timeout=timeout).validate()

    @pytest.mark.parametrize(
        "part",
        [
            {"env": {"A": 1}},
            {"env": {1: "a"}},
            {"files": {"a": "text"}},
            {"files": {1: b""}},
            {"env": 5},
            {"files": [1]},
            {"env": "A=1"},
        ],
        ids=str,
    )
    def test_env_and_files(self, gateway: Tools, part: dict[str, Any]) -> None:
        """Strings to strings, and strings to bytes."""
        with pytest.raises(InvalidRequestError, match=next(iter(part))):
            ExecuteRequest(code="1", gateway=gateway, **part).validate()

    @pytest.mark.parametrize(
        ("part", "what"),
        [
            ({"files": {"a\ud800": b""}}, "a file"),
            ({"files": {"a\0b": b""}}, "a file"),
            ({"args": ["ok", "a\udfff"]}, "an argument"),
            ({"args": ["a\0b"]}, "an argument"),
        ],
    )
    def test_names_and_arguments_that_no_program_can_have(self, gateway: Tools, part: Any, what: str) -> None:
        """Half a character and NUL are refused before any sandbox sees them, so that all of them agree."""
        with pytest.raises(InvalidRequestError, match=rf"^{what} cannot be 'a"):
            ExecuteRequest(code="1", gateway=gateway, **part).validate()

    def test_the_order_of_the_checks(self) -> None:
        """The gateway first, then the code; both are requests that make no sense. Limits refuse to be made at all."""
        with pytest.raises(InvalidRequestError) as caught:
            ExecuteRequest(code="", timeout=-1).validate()
        assert caught.value.code == "missing_gateway"
        assert issubclass(InvalidLimitsError, InvalidRequestError)


class TestResults:
    """What came of a program."""

    def test_a_good_one(self) -> None:
        """Nothing is enforced unless the backend says so."""
        result = CodeResult(backend=BackendInfo(kind="x"))
        assert result.ok
        assert result.raise_for_error() is result
        assert result.limits_enforced == LimitsEnforced()

    def test_a_failed_one(self) -> None:
        """Captured output is beside the error."""
        result = CodeResult(backend=BackendInfo(kind="x"), stdout="so far", error=CodeError("no"))
        assert not result.ok
        with pytest.raises(CodeError):
            result.raise_for_error()


def test_profiles() -> None:
    """There are three."""
    assert PROFILES == ("dev", "standard", "hardened")


def test_what_is_a_backend() -> None:
    """A class needs no base of ours; one that opens sessions is seen as such."""
    assert isinstance(Nowhere(), SandboxBackend)
    assert not isinstance(Nowhere(), SessionBackend)
    assert not isinstance(object(), SandboxBackend)


def test_what_is_a_gateway(gateway: Tools) -> None:
    """Nor does a gateway."""
    assert isinstance(gateway, Gateway)
    assert not isinstance(Nowhere(), Gateway)


@pytest.mark.parametrize("isolation", ["none", "process", "wasm", "container", "vm"])
def test_what_a_result_says_about_its_backend(isolation: str) -> None:
    """A result has the kind and version of its backend; no isolation makes it more ready for production."""
    info = info_of(Nowhere(isolation), version="1")
    assert (info.kind, info.isolation, info.readiness) == ("nowhere", isolation, "beta")
    assert info.details == {"version": "1"}


def test_where_an_error_happened() -> None:
    """The kind of sandbox is filled in, and never overwritten."""
    error = SandboxFailedError("no")
    assert located(error, Nowhere()) is error
    assert (error.backend, error.op) == ("nowhere", "execute")
    assert located(SandboxFailedError("no", backend="inner"), Nowhere()).backend == "inner"

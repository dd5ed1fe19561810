"""A server made with toolexec against the official conformance suite."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.conformance.suite import VERSIONS, Version, expected_failures, run_suite
from tests.servers import server_environment

pytestmark = pytest.mark.full

MUST_PASS = {
    "stable": {
        "server-initialize",
        "logging-set-level",
        "ping",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-image",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "tools-call-with-logging",
        "tools-call-error",
        "tools-call-with-progress",
        "tools-call-elicitation",
        "json-schema-2020-12",
        "resources-list",
        "prompts-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    }
}
MUST_PASS["newest"] = MUST_PASS["stable"] | {
    "server-session-lifecycle",
    "sep-2164-resource-not-found",
    "http-header-validation",
    "http-custom-header-server-validation",
    "caching",
    "input-required-result-request-state",
    "input-required-result-result-type",
    "input-required-result-tampered-state",
    "input-required-result-missing-input-response",
    "input-required-result-unsupported-methods",
    "input-required-result-validate-input",
}
PARTLY = {"server-stateless": (27, 1)}


@pytest.fixture
def url() -> Iterator[str]:
    """The address of a server of its own."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.server", "0"],
        stdout=subprocess.PIPE,
        env=server_environment(),
        text=True,
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_the_server_conforms(version: Version, url: str) -> None:
    """All scenarios pass but those that are expected to fail; of those that apply in part, no check is lost."""
    outcome = run_suite(version, "server", "--url", url)
    assert outcome.as_expected, outcome.text[-6000:]
    assert not MUST_PASS[version] & expected_failures(version, "server")
    for name in MUST_PASS[version]:
        passed, failed = outcome.scenarios[name]
        assert (passed > 0, failed) == (True, 0), name
    for name, (passed, failed) in PARTLY.items() if version == "newest" else ():
        assert outcome.scenarios[name] == (passed, failed), name

"""toolexec's MCP client against the official conformance suite."""

import sys
from pathlib import Path

import pytest
from tests.conformance.suite import VERSIONS, Version, run_suite

pytestmark = pytest.mark.full

CLIENT = f"{sys.executable} {Path(__file__).parent / 'client.py'}"
LOGINS = {
    "auth/basic-cimd",
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
    "auth/metadata-default",
    "auth/offline-access-scope",
    "auth/pre-registration",
    "auth/scope-retry-limit",
    "auth/scope-step-up",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-none",
    "auth/token-endpoint-auth-post",
}
MUST_PASS = {
    "stable": {"initialize", "tools_call", "sse-retry", *LOGINS},
    "newest": {
        "initialize",
        "tools_call",
        "sse-retry",
        "request-metadata",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
        "auth/authorization-server-migration",
        "auth/iss-supported",
        "auth/iss-wrong-issuer",
        "auth/metadata-issuer-mismatch",
        "auth/resource-mismatch",
        *LOGINS,
    },
}


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_the_client_conforms(version: Version) -> None:
    """All scenarios pass but those that are expected to fail, and those do fail."""
    outcome = run_suite(version, "client", "--command", CLIENT)
    assert outcome.as_expected, outcome.text[-6000:]
    for name in MUST_PASS[version]:
        passed, failed = outcome.scenarios[name]
        assert (passed > 0, failed) == (True, 0), name

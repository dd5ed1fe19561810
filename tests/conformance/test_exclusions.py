"""Why some scenarios of the conformance suite are expected to fail; the lists may only become shorter."""

import pytest
from tests.conformance.suite import VERSIONS, Version, expected_failures

CLIENT = {
    "Tokens are bearer tokens; the client proves no possession of a key (DPoP).": {"auth/dpop", "auth/dpop-nonce"},
    "No assertion of another identity provider is exchanged for a token.": {
        "auth/cross-app-access-complete-flow",
        "auth/enterprise-managed-authorization",
        "auth/wif-jwt-bearer",
    },
    "Its metadata name another issuer than the place that they are at; the newest suite has that corrected.": {
        "auth/2025-03-26-oauth-metadata-backcompat",
    },
    "The client declares no elicitation: a tool's server cannot put questions to the user.": {
        "elicitation-sep1034-client-defaults",
        "sep-2322-client-request-state",
    },
}

SERVER = {
    "The suite reads resources and gets prompts by names of its own; here each begins with the name of its server.": {
        "completion-complete",
        "prompts-get-embedded-resource",
        "prompts-get-simple",
        "prompts-get-with-args",
        "prompts-get-with-image",
        "resources-read-binary",
        "resources-read-text",
        "resources-subscribe",
        "resources-templates-read",
        "resources-unsubscribe",
    },
    "A stream is resumed where it was lost; the server closes none early to have its client come back.": {
        "server-sse-polling",
    },
    "All but one of its checks pass; that one wants a tool that needs the client's model.": {"server-stateless"},
    "Functions have no questions of their own; those of MCP servers pass, under names that the suite does not know.": {
        "elicitation-sep1034-defaults",
        "elicitation-sep1330-enums",
        "input-required-result-basic-elicitation",
        "input-required-result-ignore-extra-params",
        "input-required-result-multi-round",
    },
    "Functions do not ask the client's model or for its roots; MCP servers do, under names that the suite does not know.": {
        "input-required-result-basic-list-roots",
        "input-required-result-basic-sampling",
        "input-required-result-capability-check",
        "input-required-result-multiple-input-requests",
        "input-required-result-non-tool-request",
        "tools-call-sampling",
    },
    "The tasks extension is not offered.": {
        "tasks-capability-negotiation",
        "tasks-dispatch-and-envelope",
        "tasks-lifecycle",
        "tasks-mrtr-composition",
        "tasks-mrtr-input",
        "tasks-request-headers",
        "tasks-request-state-removal",
        "tasks-required-task-error",
        "tasks-wire-fields",
    },
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_expected_failure_has_a_reason(version: Version) -> None:
    """Each expected failure is covered by a listed reason."""
    assert expected_failures(version, "client") <= set().union(*CLIENT.values())
    assert expected_failures(version, "server") <= set().union(*SERVER.values())

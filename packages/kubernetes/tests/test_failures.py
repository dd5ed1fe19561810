"""What clusters say when something goes wrong, and what it means."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import SandboxDeniedError, SandboxUnavailableError
from toolexec_kubernetes.failures import (
    KubeError,
    exit_of,
    is_running,
    lost_stream,
    no_own_users,
    refusal,
    stuck,
    waiting_for,
)


@pytest.mark.parametrize(
    ("status", "message", "reason", "retryable"),
    [
        (401, "Unauthorized", "unauthorized", False),
        (403, 'pods "x" is forbidden: exceeded quota: code, requested: pods=1', "quota", True),
        (403, 'pods "x" is forbidden: User "a" cannot create resource "pods"', "forbidden", False),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged', "pod_security", False),
        (403, 'admission webhook "deny.fixture" denied the request: no pods', "admission", False),
        (400, 'admission webhook "deny.fixture" denied the request: no pods', "admission", False),
        (403, 'pods "x" is forbidden: pod rejected: RuntimeClass "gvisor" not found', "runtime_class", False),
        (403, 'pods "x" is forbidden: error looking up service account code/x: not found', "missing_object", False),
        (404, 'namespaces "code" not found', "namespace", False),
        (403, "unable to create new content in namespace code because it is being terminated", "namespace", True),
        (422, 'Pod "x" is invalid: spec.containers[0].image: Required value', "invalid", False),
        (429, "too many requests", "throttled", True),
        (500, "etcdserver: request timed out", "server_error", True),
        (0, "Connection refused", "unreachable", True),
    ],
)
def test_a_refusal_says_why_and_whether_to_try_again(status: int, message: str, reason: str, retryable: bool) -> None:
    error = refusal(KubeError(status, message), "no pod can be made")
    assert error.details["reason"] == reason
    assert error.retryable is retryable
    assert error.outcome == "not_sent"
    assert message in error.message
    denied = reason in ("admission", "pod_security")
    assert isinstance(error, SandboxDeniedError if denied else SandboxUnavailableError)


def test_a_refusal_says_how_long_to_wait() -> None:
    assert refusal(KubeError(429, "slow down", retry_after=7), "x").details["retry_after"] == 7


def pod(state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    conditions = status.pop("conditions", [])
    return {
        "metadata": {"name": "p", **status.pop("metadata", {})},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "guest", "state": state or {}}],
            "conditions": conditions,
            **status,
        },
    }


@pytest.mark.parametrize(
    ("reason", "message", "word", "retryable"),
    [
        ("ErrImagePull", "manifest unknown", "image_pull", False),
        ("ErrImagePull", "dial tcp: i/o timeout", "image_pull", True),
        ("ImagePullBackOff", 'Back-off pulling image "x": not found', "image_pull", False),
        ("ErrImageNeverPull", "not present with pull policy of Never", "image_pull", False),
        ("InvalidImageName", "couldn't parse image", "container", False),
        ("RunContainerError", "exec: python3: executable file not found", "container", False),
    ],
)
def test_a_container_that_waits_for_what_will_not_come(reason: str, message: str, word: str, retryable: bool) -> None:
    error = waiting_for(pod({"waiting": {"reason": reason, "message": message}}), "team/tools")
    assert error is not None
    assert error.details["reason"] == word
    assert error.retryable is retryable
    assert message in error.message


def test_a_container_that_is_being_made_may_still_come() -> None:
    assert waiting_for(pod({"waiting": {"reason": "ContainerCreating"}}), "x") is None
    assert not is_running(pod({"waiting": {"reason": "ContainerCreating"}}))
    assert is_running(pod({"running": {"startedAt": "now"}}))


def test_a_pod_without_users_of_its_own_is_not_taken_for_one() -> None:
    """API servers leave out what they do not know, and make the pod all the same."""
    assert no_own_users({"spec": {"hostUsers": False}}) is None
    for spec in ({}, {"hostUsers": True}):
        error = no_own_users({"spec": spec})
        assert error is not None
        assert error.details["reason"] == "user_namespaces"
        assert not error.retryable


def test_a_pod_without_a_node_says_so() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    error = stuck(pod(conditions=[condition]), 5)
    assert error.details["reason"] == "unschedulable"
    assert error.retryable
    assert "0/3 nodes" in error.message
    assert stuck(None, 5).details["reason"] == "not_started"


@pytest.mark.parametrize(
    ("found", "reason", "retryable"),
    [
        (pod(phase="Failed", reason="Evicted", message="The node was low on memory"), "evicted", True),
        (
            pod(conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]),
            "preempted",
            True,
        ),
        (
            pod(conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]),
            "node_lost",
            True,
        ),
        (pod({"running": {}}, metadata={"deletionTimestamp": "now"}), "deleted", True),
        (pod({"terminated": {"exitCode": 137}}, metadata={"deletionTimestamp": "now"}), "deleted", True),
        (pod(phase="Failed", reason="DeadlineExceeded"), "deadline", False),
        (pod(phase="Failed", reason="OutOfpods", message="Node didn't have enough"), "not_admitted", True),
        (pod(phase="Failed"), "failed", True),
    ],
)
def test_a_pod_that_was_taken_away(found: dict[str, Any], reason: str, retryable: bool) -> None:
    end = exit_of(found)
    assert end is not None
    assert (end.reason, end.retryable) == (reason, retryable)
    assert end.lost


def test_a_pod_that_vanished_was_deleted() -> None:
    end = exit_of(pod({"running": {}}), deleted=True)
    assert end is not None
    assert end.reason == "deleted"


def test_memory_that_ran_out_is_reported() -> None:
    end = exit_of(pod({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}))
    assert end is not None
    assert end.oom
    assert not end.lost


def test_an_exit_code_is_reported() -> None:
    end = exit_of(pod({"terminated": {"exitCode": 3, "reason": "Error"}}))
    assert end is not None
    assert (end.code, end.lost, end.oom) == (3, "", False)


def test_a_pod_that_runs_has_not_ended() -> None:
    assert exit_of(pod({"running": {}})) is None
    assert exit_of(pod(phase="Pending")) is None


def test_a_broken_connection_may_be_tried_again() -> None:
    end = lost_stream("reset")
    assert (end.reason, end.retryable) == ("stream", True)

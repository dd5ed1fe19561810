"""The containers beside a guest: bounded, with its rights at most, and refused where they would be something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packages.kubernetes.tests.test_spec import CONFIG, made

from toolexec.errors import ConfigurationError
from toolexec_kubernetes.config import KubernetesConfig
from toolexec_kubernetes.failures import is_running, waiting_for
from toolexec_kubernetes.manifest import make_manifest
from toolexec_kubernetes.spec import pod_spec, with_user

SIDE: dict[str, Any] = {
    "name": "db",
    "image": "team/db:1",
    "memory": "256Mi",
    "cpus": 0.5,
    "command": ["db", "--home=$(HOME)"],
    "env": {"MODE": "test"},
    "scratch": {"/var/lib/db": "64Mi"},
}


def test_a_sidecar_has_the_rights_of_the_guest_and_bounds_of_its_own() -> None:
    """Each has a read-only root, its directories in memory, and a user that is not counted with the guest's."""
    pod = pod_spec("x", with_user(made(), 5000), replace(CONFIG, sidecars=(SIDE,)))
    guest, side = pod["containers"]
    assert (side["name"], side["image"]) == ("db", "team/db:1")
    assert side["resources"]["limits"] == side["resources"]["requests"] == {"memory": str(256 << 20), "cpu": "0.500"}
    assert side["securityContext"] == {**guest["securityContext"], "runAsUser": 5001}
    assert side["command"] == ["db", "--home=$$(HOME)"]
    assert not {"stdin", "ports", "lifecycle"} & side.keys()
    mounts = {each["mountPath"]: each["name"] for each in side["volumeMounts"]}
    sizes = {each["name"]: each["emptyDir"] for each in pod["volumes"]}
    assert sizes[mounts["/var/lib/db"]] == {"medium": "Memory", "sizeLimit": str(64 << 20)}
    assert {*mounts} == {"/tmp", "/var/lib/db"}
    assert not {*mounts.values()} & {each["name"] for each in guest["volumeMounts"]}


def test_a_sidecar_never_has_more_rights_than_restricted_allows() -> None:
    """Nor under the profile dev, and not by a prescribed user."""
    config = replace(CONFIG, sidecars=(SIDE,), run_as_user=7000)
    pod = pod_spec("x", with_user(made("dev"), 7000), config)
    rights = pod["containers"][1]["securityContext"]
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert (rights["allowPrivilegeEscalation"], rights["runAsUser"]) == (False, 7000)


def test_the_quota_of_a_namespace_counts_them() -> None:
    """A pod of the usual size is one with its sidecars."""

    def memory(config: KubernetesConfig) -> int:
        (quota,) = [each for each in make_manifest(config, pods=3) if each["kind"] == "ResourceQuota"]
        return int(quota["spec"]["hard"]["limits.memory"])

    assert memory(replace(CONFIG, sidecars=(SIDE,))) - memory(CONFIG) == 3 * (256 << 20)


def status(**states: Any) -> dict[str, Any]:
    return {
        "status": {
            "containerStatuses": [
                {"name": name, "image": f"team/{name}", "state": state} for name, state in states.items()
            ]
        }
    }


def test_a_pod_runs_once_its_sidecars_do() -> None:
    """Those of the settings have to; others that the cluster has put there do not count."""
    assert not is_running(status(guest={"running": {}}), ("db",))
    assert not is_running(status(guest={"running": {}}, db={"waiting": {}}), ("db",))
    assert is_running(status(guest={"running": {}}, db={"running": {}}, mesh={"waiting": {}}), ("db",))
    pod = status(guest={"running": {}}, db={"waiting": {"reason": "ErrImagePull", "message": "not found"}})
    error = waiting_for(pod, "team/guest", ("db",))
    assert error is not None
    assert (error.details["reason"], error.details["image"], error.retryable) == ("image_pull", "team/db", False)
    assert waiting_for(pod, "team/guest") is None
    error = waiting_for(status(guest={"running": {}}, db={"terminated": {"exitCode": 3}}), "x", ("db",))
    assert error is not None
    assert "db beside the guest ended with 3" in error.message
    assert "give it the scratch" in error.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "name must be"),
        ({"name": "No Name"}, "name must be"),
        ({"name": "a" * 43}, "name must be"),
        ({"name": "db\n"}, "name must be"),
        ({"name": 5}, "name must be"),
        ({"name": "guest"}, "is taken"),
        ({"image": ""}, "image must be"),
        ({"image": "not an image"}, "image"),
        ({"image": ["x"]}, "image must be"),
        ({"memory": "1"}, "memory"),
        ({"memory": "unlimited"}, "memory"),
        ({"memory": -1}, "memory"),
        ({"cpus": -1}, "cpus must be"),
        ({"cpus": float("nan")}, "cpus must be"),
        ({"cpus": True}, "cpus must be"),
        ({"command": "sh"}, "command must be"),
        ({"command": ["sh", 1]}, "command must be"),
        ({"command": ["x" * 40_000]}, "command must be"),
        ({"env": ["A=1"]}, "env must"),
        ({"env": {"A B": "1"}}, "env must"),
        ({"env": {"A": 1}}, "env must"),
        ({"env": {"A": "x" * 40_000}}, "env is too large"),
        ({"scratch": "/data"}, "scratch must"),
        ({"scratch": {"/proc/x": "1Mi"}}, "the sandbox has"),
        ({"scratch": {"/a/../b": "1Mi"}}, "plain absolute path"),
        ({"scratch": {"/a": "1Mi", "/a/b": "1Mi"}}, "within another"),
        ({"scratch": {"/a": "1"}}, "size must be"),
        ({"privileged": True}, "there is no 'privileged'"),
        ({"securityContext": {}}, "there is no 'securityContext'"),
        ({"volumes": []}, "there is no 'volumes'"),
    ],
)
def test_what_is_not_a_sidecar_is_refused(change: dict[str, Any], said: str) -> None:
    """The error names the sidecar by its number."""
    KubernetesConfig(sidecars=[SIDE])
    with pytest.raises(ConfigurationError, match=said) as caught:
        KubernetesConfig(sidecars=[SIDE | change])
    assert "sidecars[0]" in str(caught.value)


def test_sidecars_without_a_bound_or_with_one_name_are_refused() -> None:
    """A bound on memory and a name of its own are required."""
    with pytest.raises(ConfigurationError, match="memory must be set"):
        KubernetesConfig(sidecars=[{"name": "db", "image": "x"}])
    with pytest.raises(ConfigurationError, match=r"sidecars\[1\].*is taken"):
        KubernetesConfig(sidecars=[SIDE, SIDE])
    with pytest.raises(ConfigurationError, match="too many"):
        KubernetesConfig(sidecars=[SIDE | {"name": f"db{number}"} for number in range(9)])

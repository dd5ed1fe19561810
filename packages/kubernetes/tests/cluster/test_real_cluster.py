"""The cluster of the tests and a real API server answer alike: the same pods, by the same requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packages.kubernetes.tests.cluster.test_fixture_by_kubectl import Kubectl
from packages.kubernetes.tests.kube.cluster import KubeCluster
from packages.kubernetes.tests.kube.examples import pod, wait_for
from packages.kubernetes.tests.kube.real import RealCluster
from tests.waiting import until_blocking

_CLUSTERS = {"fixture": "kube", "real": "real", "kubelet": "kubelet"}


@pytest.fixture(params=_CLUSTERS)
def place(request: pytest.FixtureRequest) -> tuple[KubeCluster, str]:
    """Give a cluster and a namespace: the fixture, a real control plane with its node, and all of Kubernetes."""
    name = _CLUSTERS[request.param]
    return request.getfixturevalue(f"{name}_cluster"), request.getfixturevalue(f"{name}_namespace")


def _path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods{f'/{name}' if name else ''}"


def test_a_pod_runs_to_its_end(place: tuple[KubeCluster, str]) -> None:
    """A pod runs, has a log and an exit code, and is gone at once after its deletion."""
    cluster, namespace = place
    cluster.ask("POST", _path(namespace), pod("one", "sh", "-c", "echo hello; exit 3"))
    found = wait_for(cluster, namespace, "one")
    assert found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert cluster.ask("GET", f"{_path(namespace, 'one')}/log") == "hello\n"
    cluster.ask("DELETE", _path(namespace, "one"))
    assert cluster.request("GET", _path(namespace, "one"))[0] == 404


def test_what_is_refused(place: tuple[KubeCluster, str]) -> None:
    """Invalid objects, names that are taken, and old versions are refused with the same codes and reasons."""
    cluster, namespace = place
    invalid = pod("x", "true", activeDeadlineSeconds=0)
    status, data = cluster.request("POST", _path(namespace), invalid)
    assert (status, data["reason"]) == (422, "Invalid")
    cluster.ask("POST", _path(namespace), pod("one", "sleep", "600"))
    status, data = cluster.request("POST", _path(namespace), pod("one", "true"))
    assert (status, data["reason"]) == (409, "AlreadyExists")
    wait_for(cluster, namespace, "one", "Running")
    old = {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}
    status, data = cluster.request("PATCH", _path(namespace, "one"), old)
    assert (status, data["reason"]) == (409, "Conflict")
    status, data = cluster.request("PATCH", _path(namespace, "one"), {"spec": {"hostname": "other"}})
    assert (status, data["reason"]) == (422, "Invalid")
    cluster.delete_pod(namespace, "one", force=True)
    status, data = cluster.request("DELETE", _path(namespace, "one"))
    assert (status, data["reason"]) == (404, "NotFound")


def test_streams_pass(place: tuple[KubeCluster, str], tmp_path: Path) -> None:
    """Attached input and the exit code of a command reach kubectl the same way."""
    cluster, namespace = place
    kubectl = Kubectl(cluster, namespace, tmp_path / "cache")
    kubectl.create("echo", "cat", stdin=True)
    kubectl.run("wait", "pod/echo", "--for=condition=Ready", "--timeout=60s")
    kubectl.run("exec", "echo", "--", "sh", "-c", "exit 7", code=7)
    assert "through\n" in kubectl.run("attach", "-i", "echo", stdin="through\n")
    assert wait_for(cluster, namespace, "echo")["status"]["phase"] == "Succeeded"
    cluster.delete_pod(namespace, "echo", force=True)


def test_quota_is_refused(place: tuple[KubeCluster, str]) -> None:
    """A pod beyond the quota is refused with the same words."""
    cluster, namespace = place
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    cluster.ask("POST", quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    if isinstance(cluster, RealCluster):  # a controller has to count first
        until_blocking(lambda: cluster.ask("GET", f"{quotas}/none").get("status", {}).get("hard"), 0.05)
    status, data = cluster.request("POST", _path(namespace), pod("one", "true"))
    assert (status, data["reason"]) == (403, "Forbidden")
    assert "exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0" in json.dumps(data)

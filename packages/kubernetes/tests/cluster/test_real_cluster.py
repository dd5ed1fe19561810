"""The cluster of the tests and a real API server answer alike: the same pods, by the same requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from packages.kubernetes.tests.cluster.test_fixture_by_kubectl import Kubectl
from packages.kubernetes.tests.kube.cluster import KubeCluster
from packages.kubernetes.tests.kube.examples import pod, wait_for
from packages.kubernetes.tests.kube.real import RealCluster
from release.chart import MANIFESTS
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


_OLDER = {"policy/v1": "policy/v1beta1", "autoscaling/v2": "autoscaling/v2beta2"}
"""What the server that `make kube` builds calls the versions of the chart, which have the same fields."""


def _for_server(manifests: str, namespace: str) -> list[dict[str, Any]]:
    """Return the chart's objects for a namespace and the old server; Prometheus' operator is not there."""
    found = [each for each in yaml.safe_load_all(manifests) if each and each["kind"] != "ServiceMonitor"]
    for each in found:
        each["metadata"]["namespace"] = namespace
        each["apiVersion"] = _OLDER.get(each["apiVersion"], each["apiVersion"])
        if each["kind"] == "Deployment":  # a pause as an action of its own came with version 1.30
            (container,) = each["spec"]["template"]["spec"]["containers"]
            container["lifecycle"]["preStop"] = {"exec": {"command": ["sleep", "5"]}}
    return found


def test_the_chart_is_taken(real_cluster: RealCluster, real_namespace: str, tmp_path: Path) -> None:
    """A real server takes all objects by server-side apply, without a warning and twice alike; budgets, policies and
    autoscalers are those of the two servers' pods."""
    kubectl = Kubectl(real_cluster, real_namespace, tmp_path / "cache")
    objects = _for_server(MANIFESTS.read_text(), real_namespace)
    text = yaml.safe_dump_all(objects)
    apply = ("apply", "--server-side", "--field-manager=chart", "--validate=false", "-f", "-")
    try:
        for _ in range(2):
            said = kubectl.run(*apply, stdin=text).splitlines()
            assert len(said) == len(objects), said
            assert [line for line in said if not line.endswith("serverside-applied")] == []
        for part in ("serve", "runtime"):
            _check_part(kubectl, f"toolexec-{part}")
    finally:
        kubectl.run("delete", "hpa,pdb,deployment", "--all", "--cascade=foreground", "--wait=true")
        for each in real_cluster.pods(real_namespace):
            real_cluster.delete_pod(real_namespace, each["metadata"]["name"], force=True)
        until_blocking(lambda: not real_cluster.pods(real_namespace), 0.05)


def _check_part(kubectl: Kubectl, name: str) -> None:
    """Wait until the controllers have found what each object around a server is about."""

    def got(kind: str) -> dict[str, Any]:
        return json.loads(kubectl.run("get", kind, name, "-o", "json"))

    until_blocking(lambda: got("deployment").get("status", {}).get("replicas", 0) >= 2, 0.2)
    until_blocking(lambda: got("pdb").get("status", {}).get("expectedPods", 0) >= 2, 0.2)
    until_blocking(lambda: "AbleToScale" in str(got("hpa")), 0.2)
    selected = got("networkpolicy")["spec"]["podSelector"]["matchLabels"]
    labels = ",".join(f"{key}={value}" for key, value in selected.items())
    pods = json.loads(kubectl.run("get", "pods", "-l", labels, "-o", "json"))["items"]
    assert {each["spec"]["serviceAccountName"] for each in pods} == {name}
    assert got("service")["spec"]["selector"].items() <= pods[0]["metadata"]["labels"].items()

"""What the cluster of the tests enforces, and how it breaks on demand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packages.kubernetes.tests.kube.cluster import KubeCluster
from packages.kubernetes.tests.kube.examples import pod, wait_for
from tests.engines.gvisor import require_runsc
from tests.engines.programs import processes_of
from tests.waiting import until_blocking

_ROOT = Path(__file__).parents[4]
_REACH = """
import os, socket, sys
try:
    socket.create_connection((os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])), 5)
except OSError as error:
    sys.exit(f"no: {error}")
print("reached")
"""
_DENY = {
    "metadata": {"name": "deny"},
    "spec": {"podSelector": {"matchLabels": {"app": "cut"}}, "policyTypes": ["Ingress", "Egress"]},
}


class Space:
    """A namespace of the cluster."""

    def __init__(self, cluster: KubeCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def path(self, resource: str, name: str = "", group: str = "") -> str:
        """Return the path of a resource."""
        return (
            f"{f'/apis/{group}' if group else '/api/v1'}/namespaces/{self.name}/{resource}{f'/{name}' if name else ''}"
        )

    def create(self, item: dict[str, Any], resource: str = "pods", group: str = "") -> tuple[int, Any]:
        """Create an object, and return the answer."""
        return self.cluster.request("POST", self.path(resource, group=group), item)

    def run(self, item: dict[str, Any], *phases: str) -> dict[str, Any]:
        """Create a pod, and return it once it is in one of *phases*."""
        status, data = self.create(item)
        assert status == 201, data
        return wait_for(self.cluster, self.name, item["metadata"]["name"], *phases)

    def log(self, name: str) -> str:
        """Return what a pod has written."""
        return self.cluster.ask("GET", self.path("pods", f"{name}/log"))

    def remove(self, *names: str) -> None:
        """Delete pods at once."""
        for name in names:
            self.cluster.delete_pod(self.name, name, force=True)

    def label(self, **labels: str) -> None:
        """Set labels of the namespace."""
        self.cluster.ask("PATCH", f"/api/v1/namespaces/{self.name}", {"metadata": {"labels": labels}})


@pytest.fixture
def space(kube_cluster: KubeCluster, kube_namespace: str) -> Space:
    """Give a namespace."""
    return Space(kube_cluster, kube_namespace)


def _ended(found: dict[str, Any]) -> dict[str, Any]:
    return found["status"]["containerStatuses"][0]["state"]["terminated"]


def test_memory_is_bounded(space: Space) -> None:
    """A container that takes more memory than its limit is killed for it."""
    limits = {"limits": {"memory": "48Mi", "cpu": "1"}}
    found = space.run(pod("big", "python3", "-c", "x = bytearray(200 << 20)", container={"resources": limits}))
    assert (_ended(found)["reason"], _ended(found)["exitCode"]) == ("OOMKilled", 137)
    space.remove("big")


def test_the_deadline_ends_a_pod(space: Space) -> None:
    """A pod that is active for longer than it may be has failed for its deadline."""
    found = space.run(pod("long", "sleep", "600", activeDeadlineSeconds=1))
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    space.remove("long")


def test_storage_is_bounded(space: Space) -> None:
    """A pod that writes more to the disk than it may is evicted."""
    volume = {"name": "work", "emptyDir": {"sizeLimit": "4Mi"}}
    mounts = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    command = ("sh", "-c", "head -c 8388608 /dev/zero > /work/x; sleep 600")
    found = space.run(pod("full", *command, container=mounts, volumes=[volume]))
    assert found["status"]["reason"] == "Evicted"
    assert 'EmptyDir volume "work"' in found["status"]["message"]
    space.remove("full")


def test_volumes_in_memory_are_shared_and_bounded(space: Space) -> None:
    """A volume in memory is full at its limit, belongs to the group of the pod, and is one for all containers."""
    volume = {"name": "work", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}}
    mounts = [{"name": "work", "mountPath": "/work"}]
    item = pod("full", "sh", "-c", "stat -c '%a %g' /work; wc -c < /work/x", volumes=[volume])
    first = {**item["spec"]["containers"][0], "name": "first", "volumeMounts": mounts}
    first["command"] = ["sh", "-c", "head -c 8388608 /dev/zero > /work/x || true"]
    item["spec"]["initContainers"] = [first]
    item["spec"]["containers"][0]["volumeMounts"] = mounts
    item["spec"]["securityContext"]["fsGroup"] = 1234
    assert space.run(item)["status"]["phase"] == "Succeeded"
    assert space.log("full").split() == ["2777", "1234", "4194304"]
    space.remove("full")


def test_a_runtime_class_decides_the_runtime(space: Space) -> None:
    """A pod whose class is gVisor's runs in gVisor, and one with a runtime that the node lacks does not start."""
    require_runsc()
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    for name, handler in (("g", "runsc"), ("none", "kata")):
        space.cluster.ask("POST", path, {"metadata": {"name": f"{space.name}-{name}"}, "handler": handler})
    found = space.run(pod("inner", "sh", "-c", "dmesg; exit 5", runtimeClassName=f"{space.name}-g"))
    assert _ended(found)["exitCode"] == 5
    assert "Starting gVisor" in space.log("inner")
    space.run(pod("long", "sleep", "600", runtimeClassName=f"{space.name}-g"), "Running")
    space.create(pod("never", "true", runtimeClassName=f"{space.name}-none"))
    events = space.path("events")

    def reasons() -> list[str]:
        return [each["reason"] for each in space.cluster.ask("GET", events)["items"]]

    until_blocking(lambda: "FailedCreatePodSandBox" in reasons())
    space.remove("inner", "long", "never")
    for name in ("g", "none"):
        space.cluster.ask("DELETE", f"{path}/{space.name}-{name}")


def test_unknown_images_are_not_pulled(space: Space) -> None:
    """A pod with an image that does not exist waits, and says why."""
    status, _ = space.create(pod("lost", "true", container={"image": "registry.invalid/none:1"}))
    assert status == 201

    def reason() -> str:
        found = space.cluster.ask("GET", space.path("pods", "lost"))
        return found["status"].get("containerStatuses", [{}])[0].get("state", {}).get("waiting", {}).get("reason", "")

    until_blocking(lambda: reason() == "ImagePullBackOff")
    space.remove("lost")


def test_a_missing_program_is_an_error_of_the_runtime(space: Space) -> None:
    """A command that is not in the image ends the container with the code of the runtime."""
    found = space.run(pod("none", "/no/such/program"))
    assert (_ended(found)["reason"], _ended(found)["exitCode"]) == ("StartError", 128)
    assert "no such file" in _ended(found)["message"]
    space.remove("none")


def test_policies_hold_only_where_they_are_enforced(space: Space) -> None:
    """A pod that a policy selects reaches nothing, unless the network ignores policies."""
    status, _ = space.create(_DENY, "networkpolicies", "networking.k8s.io/v1")
    assert status == 201
    assert space.run(pod("free", "python3", "-c", _REACH))["status"]["phase"] == "Succeeded"
    assert space.run(pod("cut", "python3", "-c", _REACH))["status"]["phase"] == "Failed"
    assert "unreachable" in space.log("cut")
    space.remove("cut", "free")
    with space.cluster.faults(policy="ignore"):
        assert space.run(pod("cut", "python3", "-c", _REACH))["status"]["phase"] == "Succeeded"
    space.remove("cut")


def test_the_restricted_standard_is_enforced(space: Space) -> None:
    """A pod that does not give up what the standard asks for is refused, with every reason."""
    space.label(**{"pod-security.kubernetes.io/enforce": "restricted"})
    item = pod("loose", "true", securityContext={}, container={"securityContext": {}})
    status, data = space.create(item)
    assert (status, data["reason"]) == (403, "Forbidden")
    for part in ("allowPrivilegeEscalation != false", "unrestricted capabilities", "runAsNonRoot", "seccompProfile"):
        assert part in data["message"]
    assert space.run(pod("tight", "true"))["status"]["phase"] == "Succeeded"
    space.remove("tight")


def test_quota_is_enforced(space: Space) -> None:
    """A pod beyond the quota of its namespace is refused."""
    space.create({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}, "resourcequotas")
    space.run(pod("first", "sleep", "600"), "Running")
    status, data = space.create(pod("second", "true"))
    assert status == 403
    assert "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1" in data["message"]
    space.remove("first")


def test_a_service_account_has_a_token_unless_it_is_refused(space: Space) -> None:
    """The token is mounted by default, and is not there for a pod that does without."""
    look = ("ls", "/var/run/secrets/kubernetes.io/serviceaccount")
    space.run(pod("with", *look, automountServiceAccountToken=True))
    assert space.log("with").split() == ["ca.crt", "namespace", "token"]
    assert space.run(pod("without", *look))["status"]["phase"] == "Failed"
    space.remove("with", "without")


def test_requests_are_throttled_and_denied_on_demand(space: Space) -> None:
    """Switches make the API server refuse requests, and a webhook deny pods."""
    with space.cluster.faults(throttle=1, throttle_path="/pods$"):
        status, data = space.create(pod("one", "true"))
        assert (status, data["reason"]) == (429, "TooManyRequests")
    with space.cluster.faults(deny="not today"):
        status, data = space.create(pod("one", "true"))
        assert status == 403
        assert data["message"] == 'admission webhook "deny.fixture" denied the request: not today'


def test_a_job_ends_with_its_pod(space: Space) -> None:
    """A job makes a pod, is complete with it, and goes when its time to live is over."""
    template = {"spec": pod("x", "true")["spec"]}
    spec = {"template": template, "backoffLimit": 0, "ttlSecondsAfterFinished": 1}
    status, _ = space.create({"metadata": {"name": "work"}, "spec": spec}, "jobs", "batch/v1")
    assert status == 201

    def conditions() -> list[str]:
        found = space.cluster.request("GET", space.path("jobs", "work", "batch/v1"))[1]
        return [each["type"] for each in found.get("status", {}).get("conditions", [])]

    until_blocking(lambda: conditions() == ["Complete"])
    until_blocking(lambda: space.cluster.request("GET", space.path("jobs", "work", "batch/v1"))[0] == 404)
    until_blocking(lambda: not space.cluster.pods(space.name))


def test_a_job_whose_pod_is_deleted_has_failed(space: Space) -> None:
    """A pod that goes counts as a failure of its job."""
    spec = {"template": {"spec": pod("x", "sleep", "600")["spec"]}, "backoffLimit": 0}
    space.create({"metadata": {"name": "work"}, "spec": spec}, "jobs", "batch/v1")
    until_blocking(lambda: [each for each in space.cluster.pods(space.name) if each["status"]["phase"] == "Running"])
    space.remove(space.cluster.pods(space.name)[0]["metadata"]["name"])

    def reasons() -> list[str]:
        found = space.cluster.ask("GET", space.path("jobs", "work", "batch/v1"))
        return [each["reason"] for each in found["status"].get("conditions", [])]

    until_blocking(lambda: reasons() == ["BackoffLimitExceeded"])
    space.cluster.ask("DELETE", space.path("jobs", "work", "batch/v1"))


def test_eviction_and_preemption(space: Space) -> None:
    """An evicted pod has failed, and says so; a preempted one is deleted for a reason."""
    space.run(pod("out", "sleep", "600"), "Running")
    space.cluster.evict(space.name, "out")
    assert wait_for(space.cluster, space.name, "out")["status"]["reason"] == "Evicted"
    space.run(pod("less", "sleep", "600"), "Running")
    space.cluster.preempt(space.name, "less")
    until_blocking(lambda: space.cluster.request("GET", space.path("pods", "less"))[0] == 404)
    space.remove("out")


def test_a_lost_node_leaves_its_pods_in_deletion(space: Space) -> None:
    """Pods of a node that does not answer are deleted, and stay until it is back."""
    space.run(pod("gone", "sleep", "600", terminationGracePeriodSeconds=1), "Running")
    space.cluster.node_lost(True)
    path = space.path("pods", "gone")
    until_blocking(lambda: "deletionTimestamp" in space.cluster.ask("GET", path)["metadata"])
    reasons = [each.get("reason") for each in space.cluster.ask("GET", path)["status"]["conditions"]]
    assert "DeletionByTaintManager" in reasons
    space.cluster.node_lost(False)
    until_blocking(lambda: space.cluster.request("GET", path)[0] == 404)


def test_a_pool_of_warm_sandboxes_is_claimed(space: Space) -> None:
    """A claim gets a sandbox that is ready, the pool fills up again, and all goes with claim and pool."""
    group = "extensions.agents.x-k8s.io/v1beta1"
    blueprint = {"spec": pod("x", "sleep", "600")["spec"], "metadata": {"labels": {"mine": "yes"}}}
    template = {"podTemplate": blueprint, "networkPolicyManagement": "Unmanaged"}
    space.create({"metadata": {"name": "kind"}, "spec": template}, "sandboxtemplates", group)
    space.create(
        {"metadata": {"name": "pool"}, "spec": {"replicas": 1, "sandboxTemplateRef": {"name": "kind"}}},
        "sandboxwarmpools",
        group,
    )
    pool = space.path("sandboxwarmpools", "pool", group)
    until_blocking(lambda: (space.cluster.ask("GET", pool).get("status") or {}).get("readyReplicas") == 1)
    claim = {"warmPoolRef": {"name": "pool"}, "additionalPodMetadata": {"labels": {"run": "r1"}}}
    space.create({"metadata": {"name": "claim"}, "spec": claim}, "sandboxclaims", group)
    path = space.path("sandboxclaims", "claim", group)

    def claimed() -> str:
        status = space.cluster.ask("GET", path).get("status") or {}
        is_ready = [each["status"] for each in status.get("conditions", [])] == ["True"]
        return status["sandbox"]["name"] if is_ready else ""

    name = until_blocking(claimed)
    labels = space.cluster.ask("GET", space.path("pods", name))["metadata"]["labels"]
    assert (labels["run"], labels["mine"]) == ("r1", "yes")
    until_blocking(lambda: len(space.cluster.pods(space.name)) == 2)
    space.cluster.ask("DELETE", path)
    space.cluster.ask("DELETE", pool)
    until_blocking(lambda: not space.cluster.pods(space.name))


def test_agent_sandbox_can_be_missing(space: Space) -> None:
    """A cluster without the resources answers as one that never had them."""
    with space.cluster.faults(agent_sandbox=False):
        status, _ = space.cluster.request("GET", "/apis/extensions.agents.x-k8s.io")
        assert status == 404
    assert space.cluster.request("GET", "/apis/extensions.agents.x-k8s.io")[0] == 200


_HOLDS = """
import time
from packages.kubernetes.tests.kube.cluster import KubeCluster

cluster = KubeCluster()
cluster.start()
print(cluster.directory, flush=True)
time.sleep(600)
"""


def test_a_cluster_ends_with_a_test_process_that_is_killed() -> None:
    """Its server, its directory and the links of its network go, though nothing stopped it."""
    process = subprocess.Popen([sys.executable, "-c", _HOLDS], stdout=subprocess.PIPE, text=True, cwd=_ROOT)
    try:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        link = f"txk{(directory / 'network').read_text()}"
        assert len(processes_of(directory)) > 1  # the server, and what is to end it
        assert link in os.listdir("/sys/class/net")
    finally:
        process.kill()
        process.communicate()
    until_blocking(lambda: not directory.exists() and not processes_of(directory), 0.05)
    assert link not in os.listdir("/sys/class/net")

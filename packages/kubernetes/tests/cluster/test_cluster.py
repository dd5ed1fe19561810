"""The sandbox in a cluster of the tests' own, which runs real pods: what it makes there, finds out there, and leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from packages.kubernetes.tests.kube.cluster import KubeCluster
from tests.engines.images import test_image
from tests.waiting import until

from toolexec import Exec
from toolexec.errors import SandboxUnavailableError
from toolexec.sandbox import Limits, LimitsEnforced
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig, KubernetesEngine
from toolexec_kubernetes.manifest import make_manifest

pytestmark = [pytest.mark.full, pytest.mark.anyio]
Make = Callable[..., KubernetesBackend]
PACKAGE = Path(__file__).parents[2]
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    "SandboxTemplate": "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{}/sandboxtemplates",
    "SandboxWarmPool": "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{}/sandboxwarmpools",
}


@pytest.fixture
def make(kube_cluster: KubeCluster, kube_namespace: str) -> Make:
    """Make backends for the namespace of the test."""
    place: dict[str, Any] = {
        "kubeconfig": str(kube_cluster.kubeconfig),
        "namespace": kube_namespace,
        "image": test_image().name,
    }
    return lambda **settings: KubernetesBackend(KubernetesConfig(**{**place, **settings}))


@asynccontextmanager
async def opened(make: Make, **settings: Any) -> AsyncIterator[tuple[Exec, KubernetesBackend]]:
    """An Exec with nothing but this sandbox, and a tool that adds."""
    backend = make(**settings)
    async with Exec(runtime_backends=[backend]) as ex:
        ex.add(lambda a, b: a + b, "math:add")
        yield ex, backend


def apply(cluster: KubeCluster, documents: list[dict[str, Any]]) -> None:
    """Apply what `toolexec sandbox kubernetes manifest` prints; the namespace is there."""
    for each in documents:
        if each["kind"] != "Namespace":
            cluster.ask("POST", PATHS[each["kind"]].format(each["metadata"].get("namespace")), each)


async def test_a_run_has_a_pod_of_its_own(make: Make, kube_cluster: KubeCluster, kube_namespace: str) -> None:
    seen: list[dict[str, Any]] = []
    async with opened(make) as (ex, backend):

        async def look() -> None:
            seen.extend(await asyncio.to_thread(kube_cluster.pods, kube_namespace))

        ex.add(look, "test:look")
        result = await ex.execute_code("tools.test.look()\nreturn tools.math.add(a=1, b=2)", timeout=25)
        assert result.raise_for_error().value == 3
        assert result.limits_enforced == LimitsEnforced(
            timeout=True, tool_calls=True, chain_steps=True, memory=True, cpus=True, pids=True, disk=True
        )
        assert backend.engine.details["network"] == "closed"  # type: ignore[attr-defined]
        assert "network" not in result.backend.details
        await until(lambda: backend.running == 0)
        assert await asyncio.to_thread(kube_cluster.pods, kube_namespace) == []
    (pod,) = seen
    assert pod["spec"]["activeDeadlineSeconds"] == 85
    assert not pod["spec"]["automountServiceAccountToken"]
    assert pod["spec"]["securityContext"]["runAsUser"] > 65_536


async def test_a_check_finds_out_what_there_is(make: Make) -> None:
    engine = KubernetesEngine(make().config)  # type: ignore[arg-type]
    assert engine.enforces(Limits()) == LimitsEnforced()
    found = await engine.check()
    assert found.ok, found
    assert found.version
    assert engine.details["network"] == "closed"
    assert engine.enforces(Limits()) == LimitsEnforced(memory=True, cpus=True, pids=True, disk=True)
    assert (await engine.check()).ok
    await engine.aclose()


async def test_no_cluster_is_used_that_was_not_named(
    kube_cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kube_cluster.kubeconfig))
    engine = KubernetesEngine(KubernetesConfig())
    found = await engine.check()
    assert not found.ok
    assert found.reason == "no cluster is named"
    await engine.aclose()


async def test_a_policy_that_is_not_enforced_is_found_out(make: Make, kube_cluster: KubeCluster) -> None:
    with kube_cluster.faults(policy="ignore"):
        backend = make()
        found = await backend.check()
        assert not found.ok
        assert "does not enforce NetworkPolicies" in found.reason
        await backend.aclose()
        async with opened(make, network="report") as (ex, _):
            result = await ex.execute_code("return 1")
            assert result.raise_for_error().value == 1
            assert result.backend.details["network"] == "open"


async def test_a_policy_that_is_not_proved_to_hold_counts_as_none(
    make: Make, kube_cluster: KubeCluster, kube_namespace: str
) -> None:
    """Where no pod of the namespace reaches anything, code runs only with `report`, and the result says so."""
    denied = {"metadata": {"name": "deny-all"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}
    kube_cluster.ask("POST", PATHS["NetworkPolicy"].format(kube_namespace), denied)
    async with opened(make) as (ex, backend):
        found = await backend.check()
        assert not found.ok
        assert "it is not known whether the cluster enforces NetworkPolicies: the pod without" in found.reason
        assert f"let pods of the namespace {kube_namespace} that lack the label" in str(found)
        with pytest.raises(SandboxUnavailableError, match="it is not known"):
            await ex.execute_code("return 1")
    async with opened(make, network="report") as (ex, _):
        result = await ex.execute_code("return 1")
        assert result.raise_for_error().value == 1
        assert result.backend.details["network"] == "unknown"
    kube_cluster.ask("DELETE", f"{PATHS['NetworkPolicy'].format(kube_namespace)}/deny-all")
    async with opened(make) as (ex, _):
        assert (await ex.execute_code("return 1")).raise_for_error().value == 1


async def test_the_manifest_grants_what_is_needed(make: Make, kube_cluster: KubeCluster, kube_namespace: str) -> None:
    """With the ServiceAccount of the manifest everything works; without a part of it, the check names that."""
    config = make(jobs=True).config
    made = make_manifest(config)  # type: ignore[arg-type]
    apply(kube_cluster, made)
    file = str(kube_cluster.kubeconfig_for(kube_namespace, "toolexec"))
    async with opened(make, kubeconfig=file, jobs=True, warm=1) as (ex, backend):
        found = await backend.check()
        assert found.ok, found
        assert (await ex.execute_code("return 1")).raise_for_error().value == 1
    role = next(each for each in made if each["kind"] == "Role")
    role["rules"] = [each for each in role["rules"] if each["resources"] != ["pods/attach"]]
    kube_cluster.ask("PUT", f"{PATHS['Role'].format(kube_namespace)}/toolexec", role)
    backend = make(kubeconfig=file)
    found = await backend.check()
    assert not found.ok
    assert "get pods/attach, create pods/attach" in found.reason
    assert "toolexec sandbox kubernetes manifest" in str(found)
    await backend.aclose()


async def test_a_namespace_that_is_not_there(make: Make) -> None:
    backend = make(namespace="nowhere")
    found = await backend.check()
    assert not found.ok
    assert "no namespace nowhere" in found.reason
    await backend.aclose()


async def test_a_runtime_class_that_is_not_there(make: Make) -> None:
    backend = make(runtime_class="gvisor-nowhere")
    assert backend.isolation == "gvisor"
    found = await backend.check()
    assert not found.ok
    assert "no runtime class gvisor-nowhere" in found.reason
    await backend.aclose()


async def test_a_runtime_class_that_is_not_what_it_is_called(make: Make, kube_cluster: KubeCluster) -> None:
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    kube_cluster.ask("POST", path, {"metadata": {"name": "gvisor-in-name-only"}, "handler": "runc"})
    try:
        backend = make(runtime_class="gvisor-in-name-only")
        found = await backend.check()
        assert not found.ok
        assert "has the handler runc, which is not gvisor" in found.reason
        await backend.aclose()
    finally:
        kube_cluster.ask("DELETE", f"{path}/gvisor-in-name-only")


async def test_a_namespace_under_the_standard_restricted(
    make: Make, kube_cluster: KubeCluster, kube_namespace: str
) -> None:
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    kube_cluster.ask("PATCH", f"/api/v1/namespaces/{kube_namespace}", labels)
    async with opened(make) as (ex, _):
        assert (await ex.execute_code("return 1")).raise_for_error().value == 1


async def test_a_warm_pod_is_used_once(make: Make) -> None:
    async with opened(make, warm=1) as (ex, backend):
        await ex.execute_code("return 1")
        for _ in range(2):
            await until(lambda: backend.warm_stats.idle == 1)
            result = await ex.execute_code("return tools.math.add(a=1, b=2)")
            assert result.raise_for_error().value == 3
            assert result.backend.details["warm"] is True


async def test_jobs_make_the_pods(make: Make, kube_cluster: KubeCluster, kube_namespace: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{kube_namespace}/jobs"
    seen: list[Any] = []
    async with opened(make, jobs=True) as (ex, backend):

        async def look() -> None:
            seen.extend((await asyncio.to_thread(kube_cluster.ask, "GET", jobs))["items"])

        ex.add(look, "test:look")
        result = await ex.execute_code("tools.test.look()\nreturn 1")
        assert result.raise_for_error().value == 1
        await until(lambda: backend.running == 0)
    (job,) = seen
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["ttlSecondsAfterFinished"] == 60
    assert kube_cluster.ask("GET", jobs)["items"] == []


async def test_pods_of_a_warm_pool_are_claimed(make: Make, kube_cluster: KubeCluster, kube_namespace: str) -> None:
    """One that is just what the template says; a run with other limits gets a pod of its own. The role of the manifest
    is enough for both, and both have the user that is prescribed."""
    base = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{kube_namespace}"
    documents = make_manifest(make(run_as_user=4000).config, pool="python", replicas=2)  # type: ignore[arg-type]
    apply(kube_cluster, documents)
    file = str(kube_cluster.kubeconfig_for(kube_namespace, "toolexec"))
    await until(
        lambda: kube_cluster.ask("GET", f"{base}/sandboxwarmpools/python").get("status", {}).get("readyReplicas") == 2,
        0.05,
    )
    seen: list[int] = []
    try:
        async with opened(make, kubeconfig=file, run_as_user=4000) as (ex, backend):

            async def look() -> None:
                found = await asyncio.to_thread(kube_cluster.ask, "GET", f"{base}/sandboxclaims")
                seen.append(len(found["items"]))

            ex.add(look, "test:look")
            code = "import os\ntools.test.look()\nreturn tools.math.add(a=1, b=2), os.getuid()"
            assert (await backend.check()).ok
            result = await ex.execute_code(code)
            assert result.raise_for_error().value == [3, 4000]
            assert not result.limits_enforced.pids  # all pods of the pool have one user
            result = await ex.execute_code(code, limits=Limits(memory_bytes=300 << 20))
            assert result.raise_for_error().value == [3, 4000]
            assert seen[0] == 1
            assert seen[1] <= 1  # the claim of the first run may be on its way out
            await until(lambda: backend.running == 0)
            assert kube_cluster.ask("GET", f"{base}/sandboxclaims")["items"] == []
    finally:
        kube_cluster.ask("DELETE", f"{base}/sandboxwarmpools/python")
        kube_cluster.ask("DELETE", f"{base}/sandboxtemplates/python")
        await until(lambda: not kube_cluster.pods(kube_namespace), 0.05)


async def test_a_cluster_without_agent_sandbox(make: Make, kube_cluster: KubeCluster) -> None:
    kube_cluster.agent_sandbox(False)
    async with opened(make) as (ex, _):
        assert (await ex.execute_code("return 1")).raise_for_error().value == 1


async def test_fifty_runs_at_once(make: Make) -> None:
    async with opened(make, max_running=50) as (ex, backend):
        await backend.check()
        results = await asyncio.gather(*(ex.execute_code(f"return {n}", timeout=100) for n in range(50)))
        assert [result.raise_for_error().value for result in results] == [*range(50)]
        await until(lambda: backend.running == 0)


async def test_a_host_that_is_killed_is_swept_up(make: Make, kube_cluster: KubeCluster, kube_namespace: str) -> None:
    """Its pods, claims and its Lease are removed by the next one."""
    program = f"""
import asyncio
from toolexec import Exec
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

async def main():
    config = KubernetesConfig(
        kubeconfig={str(kube_cluster.kubeconfig)!r}, namespace={kube_namespace!r}, image={test_image().name!r}, warm=1
    )
    async with Exec(runtime_backends=[KubernetesBackend(config)]) as ex:
        ex.add(lambda: print("waits", flush=True), "test:report")
        await ex.execute_code("tools.test.report()\\nimport time\\ntime.sleep(60)", timeout=100)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"waits\n"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert kube_cluster.pods(kube_namespace)
    backend = make()
    await backend.engine.sweep()
    await until(lambda: not kube_cluster.pods(kube_namespace), 0.05)
    await backend.aclose()


async def test_what_others_run_is_left_alone(make: Make, kube_cluster: KubeCluster, kube_namespace: str) -> None:
    """A pod of another machine stays while its Lease holds, and goes when that has run out."""
    owner = f"{'0' * 16}-1-1"
    lease = {
        "metadata": {
            "name": f"toolexec-{owner}",
            "labels": {"app.kubernetes.io/managed-by": "toolexec", "toolexec.io/owner": owner},
        },
        "spec": {
            "holderIdentity": owner,
            "leaseDurationSeconds": 1,
            "renewTime": "2020-01-01T00:00:00.000000Z",
        },
    }
    pod = {
        "metadata": {"name": "theirs", "labels": {"toolexec.io/owner": owner}},
        "spec": {"containers": [{"name": "guest", "image": test_image().name, "command": ["sleep", "100"]}]},
    }
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{kube_namespace}/leases"
    kube_cluster.ask("POST", f"/api/v1/namespaces/{kube_namespace}/pods", pod)
    lease["spec"]["leaseDurationSeconds"] = 10 * 365 * 86_400
    kube_cluster.ask("POST", leases, lease)
    backend = make()
    await backend.engine.sweep()
    assert [each["metadata"]["name"] for each in kube_cluster.pods(kube_namespace)] == ["theirs"]
    kube_cluster.ask("PATCH", f"{leases}/toolexec-{owner}", {"spec": {"leaseDurationSeconds": 1}})
    await backend.engine.sweep()
    await until(lambda: not kube_cluster.pods(kube_namespace), 0.05)
    assert kube_cluster.ask("GET", leases)["items"] == []
    await backend.aclose()


async def test_the_example_runs(kube_cluster: KubeCluster, kube_namespace: str) -> None:
    example = PACKAGE / "examples" / "kubernetes.py"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(example), kube_namespace, test_image().name],
        env={**os.environ, "KUBECONFIG": str(kube_cluster.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stderr == ""
    promised = example.read_text().partition("Prints:\n\n")[2].partition('"""')[0]
    assert done.stdout.splitlines() == [line.strip() for line in promised.strip().splitlines()]

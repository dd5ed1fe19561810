"""The sandbox with a real API server, which `make kube` has built, and the node of the tests: its whole traffic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from packages.kubernetes.tests.cluster.test_cluster import PATHS, Make, apply, opened
from packages.kubernetes.tests.cluster.test_faults import Stand
from packages.kubernetes.tests.cluster.test_restart import outlive_a_restart
from packages.kubernetes.tests.kube.cluster import KubeCluster
from packages.kubernetes.tests.kube.real import RealCluster
from tests.engines.images import test_image
from tests.held_out.running import escaped, unknown
from tests.waiting import until
from tests.wall import broken, fallen

from toolexec.errors import CodeTimeoutError
from toolexec.sandbox import Limits
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig, KubernetesEngine
from toolexec_kubernetes.manifest import make_manifest

pytestmark = [pytest.mark.full, pytest.mark.anyio]
Place = tuple[KubeCluster, str]


@pytest.fixture
def place(real_cluster: RealCluster, real_namespace: str) -> Place:
    """Give the cluster, and a namespace."""
    return real_cluster, real_namespace


@pytest.fixture
def make(place: Place) -> Make:
    """Make backends for the namespace of the test."""
    cluster, namespace = place
    where = {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace, "image": test_image().name}
    return lambda **settings: KubernetesBackend(KubernetesConfig(**{**where, **settings}))


async def test_the_check_finds_out_what_there_is(make: Make) -> None:
    """Version, permissions and the network are those of the cluster."""
    engine = KubernetesEngine(make().config)  # type: ignore[arg-type]
    found = await engine.check()
    assert found.ok, found
    assert found.version
    assert engine.details["network"] == "closed"
    await engine.aclose()


async def test_code_runs_and_leaves_nothing(make: Make, place: Place) -> None:
    """A run calls a tool, prints, and is over with its pod."""
    cluster, namespace = place
    async with opened(make) as (ex, backend):
        result = await ex.execute_code("print('x' * 100_000)\nreturn tools.math.add(a=1, b=2)", timeout=60)
        assert result.raise_for_error().value == 3
        assert len(result.stdout) == 100_001
        await until(lambda: backend.running == 0)
        assert await asyncio.to_thread(cluster.pods, namespace) == []


async def test_code_runs_on_a_real_kubelet(kubelet_cluster: RealCluster, kubelet_namespace: str) -> None:
    """Runs with calls of tools, warm and not, in containers that a kubelet has containerd make. Its network enforces no
    policy, and lets pods reach nothing, so that code runs there only with `report`. All that asks the kernel is refused
    under the RuntimeDefault of that containerd. A program outlives its API server."""
    where = {"kubeconfig": str(kubelet_cluster.kubeconfig), "namespace": kubelet_namespace}

    def make(**settings: Any) -> KubernetesBackend:
        return KubernetesBackend(KubernetesConfig(**where, image=test_image().name, **settings))

    async with opened(make, warm=1, network="report") as (ex, backend):
        for expected in (3, 4):
            code = f"print('x' * 100_000)\nreturn tools.math.add(a=1, b={expected - 1})"
            result = await ex.execute_code(code, timeout=60)
            assert result.raise_for_error().value == expected
            assert len(result.stdout) == 100_001
            assert result.backend.details["network"] == "unknown"
            await until(lambda: backend.warm_stats.idle == 1)
        await outlive_a_restart(kubelet_cluster, ex, "one")
        result = await ex.execute_code("raise SystemExit(3)", timeout=60)
        assert result.error is not None
    assert broken("kubernetes", "root", await fallen(make(network="report"))) == {}
    assert unknown("kubernetes", await escaped(make(network="report"))) == {}
    await until(lambda: not kubelet_cluster.pods(kubelet_namespace), 0.1)


async def test_limits_hold(make: Make) -> None:
    """A program that takes too much memory fails for it, and one that takes too long for that."""
    async with opened(make) as (ex, backend):
        limits = Limits(memory_bytes=64 << 20)
        result = await ex.execute_code("x = bytearray(500 << 20)\nreturn len(x)", limits=limits, timeout=60)
        assert result.error is not None
        assert "memory" in str(result.error).lower()
        result = await ex.execute_code("while True: pass", timeout=2)
        assert isinstance(result.error, CodeTimeoutError), result.error
        await until(lambda: backend.running == 0)


async def test_pods_are_warm_or_made_by_jobs(make: Make, place: Place) -> None:
    """A pre-warmed pod is used once, and with Jobs each pod has one, which goes with it."""
    cluster, namespace = place
    async with opened(make, warm=1) as (ex, backend):
        await ex.execute_code("return 1", timeout=60)
        await until(lambda: backend.warm_stats.idle == 1)
        result = await ex.execute_code("return 2", timeout=60)
        assert (result.raise_for_error().value, result.backend.details["warm"]) == (2, True)
    async with opened(make, jobs=True) as (ex, backend):
        assert (await ex.execute_code("return 1", timeout=60)).raise_for_error().value == 1
        await until(lambda: backend.running == 0)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    await until(lambda: not cluster.ask("GET", jobs)["items"] and not cluster.pods(namespace), 0.1)


RARELY = {
    ("get", "", "pods"),  # of what cannot be removed at once
    ("get", "", "pods/log"),  # of a container that ended too early
    ("create", "", "pods/attach"),  # newer servers want it, in the place of get
    ("list", "", "events"),  # of a Job that makes no pod
    ("patch", "coordination.k8s.io", "leases"),  # by a process that lives longer
}


@pytest.mark.parametrize("jobs", [False, True])
async def test_the_manifest_grants_what_is_needed(make: Make, place: Place, jobs: bool) -> None:
    """The role of the manifest is enough for RBAC as it really is, and each of its verbs is used in that mode; without
    a role the check names what is lacking."""
    cluster, namespace = place
    made = make_manifest(make(jobs=jobs).config)  # type: ignore[arg-type]
    apply(cluster, made)
    file = str(await asyncio.to_thread(cluster.kubeconfig_for, namespace, "toolexec"))
    async with opened(make, kubeconfig=file, jobs=jobs) as (ex, backend):
        found = await backend.check()
        assert found.ok, found
        assert (await ex.execute_code("return 1", timeout=60)).raise_for_error().value == 1
        await until(lambda: backend.running == 0)
        await backend.engine.sweep()
    (role,) = [each for each in made if each["kind"] == "Role"]
    granted = {(verb, rule["apiGroups"][0], rule["resources"][0]) for rule in role["rules"] for verb in rule["verbs"]}
    assert isinstance(cluster, RealCluster)
    used = cluster.used_by(namespace, "toolexec")
    assert granted - RARELY <= used, granted - used
    assert used <= granted, used - granted
    assert (("create", "", "pods") in granted) is not jobs
    cluster.ask("DELETE", f"{PATHS['RoleBinding'].format(namespace)}/toolexec")

    async def is_refused() -> bool:  # the API server reads its roles again when it gets to it
        backend = make(kubeconfig=file, jobs=jobs)
        found = await backend.check()
        await backend.aclose()
        return not found.ok and "permissions" in found.reason

    await until(is_refused, 0.2)


async def test_a_pod_that_is_deleted_under_us(make: Make, place: Place) -> None:
    """The run fails with what it did until then, may be repeated, and the next one works."""
    cluster, namespace = place
    async with opened(make) as (ex, backend):
        stand = Stand(cluster, namespace, backend, ex)
        error = await stand.lost(lambda pod: cluster.delete_pod(namespace, pod, force=True))
        assert (error.details["reason"], error.retryable) == ("deleted", True)
        await stand.works()


async def test_what_a_dead_host_left_is_swept_up(make: Make, place: Place) -> None:
    """A pod whose owner's Lease ran out goes, and with it the Lease."""
    cluster, namespace = place
    owner = f"{'0' * 16}-1-1"
    labels = {"app.kubernetes.io/managed-by": "toolexec", "toolexec.io/owner": owner}
    lease: dict[str, Any] = {
        "metadata": {"name": f"toolexec-{owner}", "labels": labels},
        "spec": {"holderIdentity": owner, "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"},
    }
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    container = {
        "name": "guest",
        "image": test_image().name,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "600"],
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    cluster.ask("POST", leases, lease)
    cluster.ask(
        "POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "theirs", "labels": labels}, "spec": spec}
    )
    backend = make()
    await backend.engine.sweep()
    await until(lambda: not cluster.pods(namespace), 0.1)
    await backend.aclose()
    assert cluster.ask("GET", leases)["items"] == []

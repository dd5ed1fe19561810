"""What a cluster does to runs: each has a typed error that says whether a retry is safe, and nothing is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from packages.kubernetes.tests.kube.cluster import KubeCluster
from tests.engines.images import test_image
from tests.waiting import reached, until

from toolexec import Exec
from toolexec.errors import SandboxDeniedError, SandboxFailedError, SandboxUnavailableError
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

pytestmark = [pytest.mark.full, pytest.mark.anyio]


CALLS = """\
for number in range(60):
    print(number, 'x' * 5000, flush=True)
    assert tools.test.count(number=number, data=str(number) * 20_000) == str(number) * 20_000
return number + 1
"""
"""A program that calls and prints much."""


class Stand:
    """A backend that was checked, its Exec with a tool that waits until it is let go, and the cluster around it."""

    def __init__(self, cluster: KubeCluster, namespace: str, backend: KubernetesBackend, ex: Exec) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.backend = backend
        self.ex = ex
        self.waits = asyncio.Event()
        self.go_on = asyncio.Event()
        ex.add(self.wait, "test:wait")

    async def wait(self) -> None:
        self.waits.set()
        await self.go_on.wait()

    async def pod(self) -> str:
        """Return the name of the only pod."""
        (pod,) = await asyncio.to_thread(self.cluster.pods, self.namespace)
        return pod["metadata"]["name"]

    async def lost(self, take: Callable[[str], None]) -> SandboxFailedError:
        """Return the error of a run whose pod is taken away in the middle; what it did until then is in the result."""
        code = "print('begun', flush=True)\ntools.test.wait()\nreturn 1"
        running = asyncio.create_task(self.ex.execute_code(code, timeout=50))
        await reached(self.waits, running)
        await asyncio.to_thread(take, await self.pod())
        result = await running
        assert isinstance(result.error, SandboxFailedError), result.error
        assert result.stdout == "begun\n"
        assert [call.tool_id for call in result.tool_calls] == ["test:wait"]
        assert result.error.outcome != "not_sent"
        return result.error

    async def works(self) -> None:
        """Require that a run is as it should be."""
        assert (await self.ex.execute_code("return 1")).raise_for_error().value == 1


@pytest.fixture
def place(kube_cluster: KubeCluster, kube_namespace: str) -> Callable[..., Any]:
    """Open a stand with settings."""

    @asynccontextmanager
    async def open_stand(**settings: Any) -> AsyncIterator[Stand]:
        where: dict[str, Any] = {"kubeconfig": str(kube_cluster.kubeconfig), "namespace": kube_namespace}
        config = KubernetesConfig(**{**where, "image": test_image().name, **settings})
        backend = KubernetesBackend(config)
        async with Exec(runtime_backends=[backend]) as ex:
            found = await backend.check()
            assert found.ok, found
            yield Stand(kube_cluster, kube_namespace, backend, ex)

    return open_stand


# -- the pod is taken away --------------------------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
async def test_a_pod_that_is_deleted_under_us(place: Callable[..., Any], force: bool) -> None:
    async with place() as stand:
        error = await stand.lost(lambda pod: stand.cluster.delete_pod(stand.namespace, pod, force=force))
        assert (error.details["reason"], error.retryable) == ("deleted", True)
        await stand.works()


async def test_a_job_that_is_deleted_under_us(place: Callable[..., Any]) -> None:
    async with place(jobs=True) as stand:

        def take(_: str) -> None:
            jobs = f"/apis/batch/v1/namespaces/{stand.namespace}/jobs"
            (job,) = stand.cluster.ask("GET", jobs)["items"]
            options = {"propagationPolicy": "Background"}
            stand.cluster.ask("DELETE", f"{jobs}/{job['metadata']['name']}", options)

        error = await stand.lost(take)
        assert (error.details["reason"], error.retryable) == ("deleted", True)


async def test_a_pod_that_is_evicted(place: Callable[..., Any]) -> None:
    async with place() as stand:
        error = await stand.lost(lambda pod: stand.cluster.evict(stand.namespace, pod))
        assert (error.details["reason"], error.retryable) == ("evicted", True)
        assert "low on resource" in error.message


async def test_a_pod_that_is_preempted(place: Callable[..., Any]) -> None:
    async with place() as stand:
        error = await stand.lost(lambda pod: stand.cluster.preempt(stand.namespace, pod))
        assert (error.details["reason"], error.retryable) == ("preempted", True)


async def test_a_node_that_is_lost(place: Callable[..., Any]) -> None:
    async with place() as stand:
        try:
            error = await stand.lost(lambda _: stand.cluster.node_lost(True))
            assert (error.details["reason"], error.retryable) == ("node_lost", True)
        finally:
            await asyncio.to_thread(stand.cluster.node_lost, False)
        await until(lambda: stand.backend.running == 0)
        await stand.works()


async def test_streams_that_are_cut_for_good(place: Callable[..., Any]) -> None:
    """Without time for another connection, a run is lost with the first one."""
    async with place(reconnect_seconds=0) as stand:
        error = await stand.lost(lambda _: stand.cluster.fault(drop_streams=True))
        assert (error.details["reason"], error.retryable) == ("stream", True)
        await stand.works()


async def test_streams_that_are_cut(place: Callable[..., Any]) -> None:
    """A run goes on over another connection, again and again: each call is made once, and its output is whole."""
    async with place() as stand:
        calls: list[int] = []

        async def count(number: int, data: str) -> str:
            calls.append(number)
            if number % 10 == 5:
                await asyncio.to_thread(stand.cluster.fault, drop_streams=True)
            return data

        stand.ex.add(count, "test:count")
        result = await stand.ex.execute_code(CALLS, timeout=50)
        assert result.raise_for_error().value == 60
        assert calls == [*range(60)]
        assert result.stdout == "".join(f"{number} {'x' * 5000}\n" for number in range(60))
        await until(lambda: stand.backend.running == 0)


async def test_a_pod_whose_processes_are_killed(place: Callable[..., Any]) -> None:
    async with place() as stand:
        running = asyncio.create_task(stand.ex.execute_code("tools.test.wait()", timeout=50))
        await reached(stand.waits, running)
        await asyncio.to_thread(stand.cluster.kill_pod, stand.namespace, await stand.pod())
        error = (await running).error
        assert error is not None
        assert error.details["exit_code"] == 137


async def test_a_warm_pod_that_is_deleted_is_replaced(place: Callable[..., Any]) -> None:
    async with place(warm=1) as stand:
        await stand.works()
        await until(lambda: stand.backend.warm_stats.idle == 1)
        await until(lambda: stand.backend.running == 0)
        await asyncio.to_thread(stand.cluster.delete_pod, stand.namespace, await stand.pod())
        await until(lambda: stand.backend.warm_stats.died == 1)
        await until(lambda: stand.backend.warm_stats.idle == 1)
        await stand.works()


# -- the pod is not made ----------------------------------------------------------------------------------------


async def refused(stand: Stand, **settings: Any) -> SandboxUnavailableError:
    """Return the error of a run that never began; it is raised."""
    with pytest.raises(SandboxUnavailableError) as caught:
        await stand.ex.execute_code("return 1", **settings)
    assert caught.value.outcome == "not_sent"
    assert caught.value.backend == "kubernetes"
    return caught.value


async def test_a_quota_that_is_used_up(place: Callable[..., Any]) -> None:
    async with place() as stand:
        path = f"/api/v1/namespaces/{stand.namespace}/resourcequotas"
        stand.cluster.ask("POST", path, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
        error = await refused(stand)
        assert (error.details["reason"], error.retryable) == ("quota", True)
        stand.cluster.ask("DELETE", f"{path}/none")
        await stand.works()


async def test_a_quota_that_is_used_up_for_a_job(place: Callable[..., Any]) -> None:
    async with place(jobs=True, start_seconds=6.0) as stand:
        path = f"/api/v1/namespaces/{stand.namespace}/resourcequotas"
        stand.cluster.ask("POST", path, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
        error = await refused(stand)
        assert (error.details["reason"], error.retryable) == ("quota", True)


async def test_an_admission_webhook_that_denies(place: Callable[..., Any]) -> None:
    async with place() as stand:
        with stand.cluster.faults(deny="no pods on Mondays"):
            with pytest.raises(SandboxDeniedError, match="no pods on Mondays") as caught:
                await stand.ex.execute_code("return 1")
            assert caught.value.details["reason"] == "admission"
            assert caught.value.outcome == "not_sent"
            assert not caught.value.retryable
            assert caught.value.backend == "kubernetes"
        await stand.works()


async def test_an_admission_webhook_that_denies_is_found_by_the_check(
    kube_cluster: KubeCluster, kube_namespace: str
) -> None:
    config = KubernetesConfig(
        kubeconfig=str(kube_cluster.kubeconfig), namespace=kube_namespace, image=test_image().name
    )
    backend = KubernetesBackend(config)
    with kube_cluster.faults(deny="no pods on Mondays"):
        found = await backend.check()
        assert not found.ok
        assert "no pods on Mondays" in found.reason
    await backend.aclose()


async def test_an_image_that_cannot_be_pulled(place: Callable[..., Any]) -> None:
    async with place() as stand:
        with stand.cluster.faults(pull="fail"):
            error = await refused(stand)
            assert error.details["reason"] == "image_pull"
            assert test_image().name in error.message
        await stand.works()


async def test_a_pod_that_no_node_takes(place: Callable[..., Any]) -> None:
    async with place(start_seconds=4.0) as stand:
        with stand.cluster.faults(pods_stuck=True):
            error = await refused(stand)
            assert (error.details["reason"], error.retryable) == ("unschedulable", True)


async def test_a_time_limit_that_ends_before_the_pod_runs(place: Callable[..., Any]) -> None:
    async with place() as stand:
        with stand.cluster.faults(pods_stuck=True):
            result = await stand.ex.execute_code("return 1", timeout=1)
            assert result.error is not None
            assert result.error.code == "code_timeout"
            assert result.error.outcome == "not_sent"
        await until(lambda: stand.backend.running == 0)


# -- the API server ---------------------------------------------------------------------------------------------


async def test_a_server_that_is_too_busy_is_asked_again(place: Callable[..., Any]) -> None:
    async with place() as stand:
        with stand.cluster.faults(throttle=2, throttle_path="pods$", retry_after=1):
            await stand.works()


async def test_a_server_that_stays_too_busy(place: Callable[..., Any]) -> None:
    async with place() as stand:
        with stand.cluster.faults(throttle=100, throttle_path="pods$", retry_after=60):
            error = await refused(stand)
            assert (error.details["reason"], error.retryable) == ("throttled", True)
            assert error.details["retry_after"] == 60
        await stand.works()


async def test_a_server_that_fails_for_a_moment(place: Callable[..., Any]) -> None:
    async with place() as stand:
        stand.cluster.fault(server_error=2)
        await stand.works()


async def test_watches_that_end_in_the_middle(place: Callable[..., Any]) -> None:
    """A run goes on when the watch is cut, and when the server has forgotten where it was."""
    async with place() as stand:
        for fault in ({"drop_watches": True}, {"gone": True}):
            stand.waits.clear()
            stand.go_on.clear()
            running = asyncio.create_task(stand.ex.execute_code("tools.test.wait()\nreturn 1", timeout=50))
            await reached(stand.waits, running)
            await asyncio.to_thread(lambda fault=fault: stand.cluster.fault(**fault))
            stand.go_on.set()
            assert (await running).raise_for_error().value == 1
            await stand.works()
        await until(lambda: stand.backend.running == 0)


async def test_a_pod_that_is_deleted_without_a_watch(place: Callable[..., Any]) -> None:
    async with place() as stand:

        def take(pod: str) -> None:
            stand.cluster.delete_pod(stand.namespace, pod, force=True)
            stand.cluster.fault(gone=True)

        error = await stand.lost(take)
        assert error.details["reason"] == "deleted"


async def test_a_server_that_is_not_there(tmp_path: Any) -> None:
    file = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "code"}}
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [cluster],
                "contexts": [context],
                "users": [{"name": "u", "user": {"token": "x"}}],
            }
        )
    )
    backend = KubernetesBackend(KubernetesConfig(kubeconfig=str(file)))
    found = await backend.check()
    assert not found.ok
    assert "cannot be talked to" in found.reason
    await backend.aclose()


async def test_a_kubeconfig_that_is_none(tmp_path: Any) -> None:
    backend = KubernetesBackend(KubernetesConfig(kubeconfig=str(tmp_path / "nowhere")))
    found = await backend.check()
    assert not found.ok
    assert "no cluster is known" in found.reason
    await backend.aclose()

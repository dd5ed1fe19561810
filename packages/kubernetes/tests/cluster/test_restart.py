"""A restart of the real API server in the middle of runs."""

from __future__ import annotations

import asyncio

import pytest
from packages.kubernetes.tests.cluster.test_faults import CALLS
from packages.kubernetes.tests.kube.real import RealCluster
from tests.engines.images import test_image
from tests.waiting import until

from toolexec import Exec
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

pytestmark = [pytest.mark.full, pytest.mark.anyio]


async def outlive_a_restart(cluster: RealCluster, ex: Exec, *names: str) -> None:
    """Run a program for each of *names*, and kill the API server while they call tools and print. Fails unless each
    call is made once, and no output is lost or doubled."""
    calls: list[tuple[str, int]] = []
    restarted: list[asyncio.Task[None]] = []

    def add(name: str) -> None:
        async def count(number: int, data: str) -> str:
            calls.append((name, number))
            if number == 20 and not restarted:
                restarted.append(asyncio.create_task(asyncio.to_thread(cluster.restart_api_server)))
            if number == 30:  # no program ends before
                await restarted[0]
            return data

        ex.add(count, f"{name}:count")

    async def run(name: str) -> None:
        result = await ex.execute_code(CALLS.replace("tools.test", f"tools.{name}"), timeout=100)
        assert result.raise_for_error().value == 60
        assert result.stdout == "".join(f"{number} {'x' * 5000}\n" for number in range(60))

    for name in names:
        add(name)
    await asyncio.gather(*map(run, names))
    assert sorted(calls) == [(name, number) for name in sorted(names) for number in range(60)]


async def test_a_restart_of_the_api_server_loses_no_run(real_cluster: RealCluster, real_namespace: str) -> None:
    """Programs go on over other connections, the next one runs, and pods are removed."""
    where = {"kubeconfig": str(real_cluster.kubeconfig), "namespace": real_namespace}
    backend = KubernetesBackend(KubernetesConfig(**where, image=test_image().name))
    async with Exec(runtime_backends=[backend]) as ex:
        await outlive_a_restart(real_cluster, ex, "one", "two")
        assert (await ex.execute_code("return 1", timeout=60)).raise_for_error().value == 1
        await until(lambda: backend.running == 0)
    await until(lambda: not real_cluster.pods(real_namespace), 0.1)


async def test_a_program_sees_nothing_of_services(real_cluster: RealCluster, real_namespace: str) -> None:
    """Their variables are neither in its environment nor in that of the pod's first process."""
    where = {"kubeconfig": str(real_cluster.kubeconfig), "namespace": real_namespace}
    backend = KubernetesBackend(KubernetesConfig(**where, image=test_image().name, labels={"team": "search"}))
    code = (
        "import os\nfound = [name for name in os.environ if 'KUBERNETES' in name or 'SERVICE' in name]\n"
        "first = open('/proc/1/environ').read().split(chr(0))\n"
        "return found, [each for each in first if 'KUBERNETES' in each and not each.endswith('=')]"
    )
    async with Exec(runtime_backends=[backend]) as ex:
        assert (await ex.execute_code(code, timeout=60)).raise_for_error().value == [[], []]
        await until(lambda: backend.running == 0)

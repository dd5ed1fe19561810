"""Volumes with a real API server, whose controllers bind the claims, and the node of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from packages.kubernetes.tests.kube.real import RealCluster
from tests.engines.images import test_image
from tests.waiting import until, until_blocking

from toolexec import Exec
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

pytestmark = [pytest.mark.full, pytest.mark.anyio]


@pytest.fixture
def claim(real_cluster: RealCluster, real_namespace: str) -> Iterator[str]:
    """Give the name of a claim that is bound to a directory of the node."""
    place = real_cluster.directory / f"disk-{real_namespace}"
    place.mkdir()
    place.chmod(0o2777)
    (place / "models").mkdir(mode=0o755)
    (place / "models" / "small").write_text("weights")
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        "metadata": {"name": real_namespace},
        "spec": {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(place)}},
    }
    wanted = {
        "metadata": {"name": "team"},
        "spec": {**common, "volumeName": real_namespace, "resources": {"requests": {"storage": "1Gi"}}},
    }
    claims = f"/api/v1/namespaces/{real_namespace}/persistentvolumeclaims"
    real_cluster.ask("POST", "/api/v1/persistentvolumes", volume)
    real_cluster.ask("POST", claims, wanted)
    until_blocking(lambda: real_cluster.ask("GET", f"{claims}/team")["status"]["phase"] == "Bound", 0.05)
    yield "team"
    real_cluster.ask("DELETE", f"{claims}/team")
    real_cluster.ask("DELETE", f"/api/v1/persistentvolumes/{real_namespace}")


async def test_a_workspace_outlives_its_pods(real_cluster: RealCluster, real_namespace: str, claim: str) -> None:
    """A program reads in its pod what the one before wrote to a claim in another; a read-only volume cannot be written, and a
    volume of its own is empty each time and has a bound."""
    volumes = (
        {"target": "/data", "claim": claim},
        {"target": "/models", "claim": claim, "read_only": True, "sub_path": "models"},
        {"target": "/scratch", "size": "64Mi"},
    )
    config = KubernetesConfig(
        kubeconfig=str(real_cluster.kubeconfig),
        namespace=real_namespace,
        image=test_image().name,
        run_as_user=4000,
        volumes=volumes,
    )
    backend = KubernetesBackend(config)
    code = (
        "import os\n"
        "found = os.path.exists('/data/note') and open('/data/note').read()\n"
        "open('/data/note', 'a').write('x')\n"
        "empty = os.listdir('/scratch') == []\n"
        "open('/scratch/note', 'w').write('x')\n"
        "try:\n    open('/models/small', 'a')\n    fixed = False\nexcept OSError:\n    fixed = True\n"
        "return found, empty, fixed, open('/models/small').read()"
    )
    async with Exec(runtime_backends=[backend]) as ex:
        for before in (False, "x", "xx"):
            result = await ex.execute_code(code, timeout=60)
            assert result.raise_for_error().value == [before, True, True, "weights"]
        await until(lambda: backend.running == 0)
    await until(lambda: not real_cluster.pods(real_namespace), 0.1)


async def test_a_claim_that_is_not_there_is_named(real_cluster: RealCluster, real_namespace: str) -> None:
    """No program runs, and the error has the name."""
    config = KubernetesConfig(
        kubeconfig=str(real_cluster.kubeconfig),
        namespace=real_namespace,
        image=test_image().name,
        start_seconds=5.0,
        volumes=({"target": "/data", "claim": "nowhere", "read_only": True},),
    )
    backend = KubernetesBackend(config)
    async with Exec(runtime_backends=[backend]) as ex:
        with pytest.raises(Exception, match='persistentvolumeclaim "nowhere" not found') as caught:
            await ex.execute_code("return 1", timeout=60)
        assert caught.value.outcome == "not_sent"  # type: ignore[attr-defined]
    await asyncio.to_thread(real_cluster.settle)

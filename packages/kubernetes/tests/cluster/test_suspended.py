"""Sessions that a Sandbox of agent-sandbox suspends, in a cluster of the tests' own that has its controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from packages.kubernetes.tests.kube.cluster import KubeCluster
from tests.engines.images import test_image
from tests.waiting import until

from toolexec import Exec
from toolexec.model import Caller, Origin, acting
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig
from toolexec_kubernetes.workspace import Workspace, workspace_body, workspace_name

pytestmark = [pytest.mark.full, pytest.mark.anyio]
ANN = Origin(caller=Caller(id="ann", method="api_key"))
WRITE = "open('note', 'a').write('x')\nimport os\nreturn os.getuid(), open('note').read()"


@pytest.fixture
def claim(kube_cluster: KubeCluster, kube_namespace: str) -> Iterator[str]:
    """Give the workspace of ann, bound to a directory of the node as a controller of volumes would do it."""
    workspace = Workspace(size=64 << 20)
    name = workspace_name(workspace, "", "ann")
    disk = kube_cluster.directory / f"disk-{kube_namespace}"
    disk.mkdir()
    disk.chmod(0o2777)
    volume = {
        "metadata": {"name": kube_namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "64Mi"},
            "hostPath": {"path": str(disk)},
        },
    }
    body = workspace_body(name, workspace, {"app.kubernetes.io/managed-by": "toolexec"}, "2999-01-01T00:00:00Z")
    body["spec"]["volumeName"] = kube_namespace
    claims = f"/api/v1/namespaces/{kube_namespace}/persistentvolumeclaims"
    kube_cluster.ask("POST", "/api/v1/persistentvolumes", volume)
    kube_cluster.ask("POST", claims, body)
    yield name
    kube_cluster.ask("DELETE", f"{claims}/{name}")
    kube_cluster.ask("DELETE", f"/api/v1/persistentvolumes/{kube_namespace}")


async def test_a_sandbox_of_the_cluster_is_suspended(
    kube_cluster: KubeCluster, kube_namespace: str, claim: str
) -> None:
    """Where agent-sandbox is installed, a session is a Sandbox, which is suspended while it is idle and resumed by the next
    program, with its files and its user; it is removed with the session, also with one that is suspended."""
    listed = f"/apis/agents.x-k8s.io/v1beta1/namespaces/{kube_namespace}/sandboxes"
    config = KubernetesConfig(
        kubeconfig=str(kube_cluster.kubeconfig),
        namespace=kube_namespace,
        image=test_image().name,
        workspace={"size": "64Mi"},
        suspend_seconds=0.3,
    )
    backend = KubernetesBackend(config)

    def modes() -> list[Any]:
        return [each["spec"]["operatingMode"] for each in kube_cluster.ask("GET", listed)["items"]]

    def is_suspended() -> bool:
        return modes() == ["Suspended"] and not kube_cluster.pods(kube_namespace)

    async with Exec(runtime_backends=[backend]) as ex:
        with acting(ANN):
            async with ex.session(timeout=60) as session:
                first = await session.execute_code("x = 1\n" + WRITE)
                assert first.raise_for_error().value[1] == "x"
                (made,) = kube_cluster.ask("GET", listed)["items"]
                assert made["spec"]["shutdownPolicy"] == "Delete"
                await until(is_suspended, 0.05)
                second = await session.execute_code(WRITE + ", 'x' in globals()")
                assert second.raise_for_error().value == [first.value[0], "xx", False]
                assert second.backend.details["resumed"] is True
                assert [each["metadata"]["uid"] for each in kube_cluster.ask("GET", listed)["items"]] == [
                    made["metadata"]["uid"]
                ]
                await until(is_suspended, 0.05)
                kube_cluster.ask("DELETE", f"{listed}/{made['metadata']['name']}")
                third = await session.execute_code(WRITE)  # the cluster has removed it: there is another one
                assert third.raise_for_error().value == [first.value[0], "xxx"]
                await until(is_suspended, 0.05)
            assert modes() == []
        await until(lambda: backend.running == 0)
    await until(lambda: not kube_cluster.pods(kube_namespace), 0.05)

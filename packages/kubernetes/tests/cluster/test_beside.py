"""Containers beside the guest, with a real API server and the node of the tests."""

from __future__ import annotations

import pytest
from packages.kubernetes.tests.kube.real import RealCluster
from tests.engines.images import test_image
from tests.waiting import until

from toolexec import Exec
from toolexec.errors import SandboxUnavailableError
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

pytestmark = [pytest.mark.full, pytest.mark.anyio]

_SERVE = """
import socket
server = socket.create_server(("127.0.0.1", 8000))
open("/srv/note", "w").write("from db")
while True:
    connection, _ = server.accept()
    connection.sendall(open("/srv/note", "rb").read())
    connection.close()
"""
CODE = """
import os, socket, time
for _ in range(200):
    try:
        text = socket.create_connection(('127.0.0.1', 8000), 5).recv(100).decode()
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
return text, os.path.exists('/srv/note')
"""


def config(cluster: RealCluster, namespace: str, *command: str) -> KubernetesConfig:
    """Settings with one container that serves a file of its own."""
    side = {
        "name": "db",
        "image": test_image().name,
        "memory": "64Mi",
        "command": [*command],
        "scratch": {"/srv": "1Mi"},
    }
    where = {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace}
    return KubernetesConfig(**where, image=test_image().name, sidecars=(side,))  # type: ignore[arg-type]


async def test_code_reaches_what_runs_beside_it(real_cluster: RealCluster, real_namespace: str) -> None:
    """A server is at 127.0.0.1, has files of its own, and is gone with the pod."""
    backend = KubernetesBackend(config(real_cluster, real_namespace, "python3", "-c", _SERVE))
    async with Exec(runtime_backends=[backend]) as ex:
        assert (await ex.execute_code(CODE, timeout=60)).raise_for_error().value == ["from db", False]
        await until(lambda: backend.running == 0)
    await until(lambda: not real_cluster.pods(real_namespace), 0.1)


async def test_a_sidecar_that_cannot_start_is_named(real_cluster: RealCluster, real_namespace: str) -> None:
    """No program runs without it."""
    backend = KubernetesBackend(config(real_cluster, real_namespace, "no-such-command"))
    async with Exec(runtime_backends=[backend]) as ex:
        with pytest.raises(SandboxUnavailableError, match="no-such-command") as caught:
            await ex.execute_code("return 1", timeout=60)
        assert caught.value.outcome == "not_sent"

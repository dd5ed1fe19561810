"""Images without Python, on a real kubelet: the pod brings one along from another image."""

from __future__ import annotations

import pytest
from packages.kubernetes.tests.kube.kubelet_node import BARE_IMAGE
from packages.kubernetes.tests.kube.real import RealCluster
from tests.engines.images import test_image
from tests.waiting import until

from toolexec import Exec
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

pytestmark = [pytest.mark.full, pytest.mark.anyio]

CODE = """
import ctypes, humanize, os, sqlite3, ssl, subprocess, sys, threading
again = subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True, text=True, check=True).stdout
thread = threading.Thread(target=os.getpid)
thread.start()
thread.join()
loaded = [line.split()[5] for line in open('/proc/self/maps') if '.so' in line]
try:
    open(sys.executable, 'ab')
    fixed = False
except OSError:
    fixed = True
return {
    'root': [name for name in os.listdir('/') if name in ('bin', 'lib', 'lib64', 'usr', 'pause')],
    'again': again.strip(),
    'foreign': [path for path in loaded if not path.startswith('/toolexec/')],
    'fixed': fixed,
    'sum': tools.math.add(a=1, b=2),
}
"""


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def config(cluster: RealCluster, namespace: str, runtime: str) -> KubernetesConfig:
    """Settings for an image that has one static program."""
    return KubernetesConfig(
        kubeconfig=str(cluster.kubeconfig),
        namespace=namespace,
        network="report",
        image=BARE_IMAGE,
        runtime_image=runtime,
        pull="never",
    )


async def test_code_runs_in_an_image_without_python(kubelet_cluster: RealCluster, kubelet_namespace: str) -> None:
    """A program has the Python, the packages and the libraries of the other image, and nothing of it in its own root; it
    calls tools, starts more of that Python, and cannot write to it."""
    backend = KubernetesBackend(config(kubelet_cluster, kubelet_namespace, test_image().name))
    async with Exec(runtime_backends=[backend]) as ex:
        ex.add(add, "math:add")
        result = await ex.execute_code(CODE, timeout=60)
        assert result.raise_for_error().value == {
            "root": ["pause"],
            "again": "42",
            "foreign": [],
            "fixed": True,
            "sum": 3,
        }
        await until(lambda: backend.running == 0)
    await until(lambda: not kubelet_cluster.pods(kubelet_namespace), 0.1)


async def test_an_image_that_has_none_to_bring_is_named(kubelet_cluster: RealCluster, kubelet_namespace: str) -> None:
    """No program runs, and the error has the image and what the node says."""
    backend = KubernetesBackend(config(kubelet_cluster, kubelet_namespace, BARE_IMAGE))
    found = await backend.check()
    await backend.aclose()
    assert not found.ok
    assert BARE_IMAGE in found.reason
    assert "runtime_image" in found.reason
    await until(lambda: not kubelet_cluster.pods(kubelet_namespace), 0.1)

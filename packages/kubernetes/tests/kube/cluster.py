"""The cluster of the tests as a process: how it is started, asked, broken and stopped."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import psutil
import pytest
from packages.kubernetes.tests.kube.guard import end_guard, start_guard
from tests.engines.certificates import make_certificates
from tests.engines.images import test_image
from tests.engines.programs import free_port, has_ended, require_program, unused_network, wait_until
from tests.tiers import missing

_ROOT = Path(__file__).parents[4]
_SERVER = "packages.kubernetes.tests.kube.server"
_START = 60.0
_SETTLE = 10.0


class KubeCluster:
    """An API server and a node, in a process of their own with one directory. `stop` removes all of it."""

    namespace = "default"

    def __init__(self) -> None:
        if os.name != "posix" or os.geteuid() != 0:
            missing("only root can run pods", "sudo -E bash .ci/run")
        require_program("runc", "runc")
        require_program("ip", "iproute2")
        test_image()
        self.directory = Path(tempfile.mkdtemp(prefix="kc"))
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.token = secrets.token_urlsafe(24)
        self.ca = self.directory / "tls" / "ca.pem"
        self.log = self.directory / "log"
        self.kubeconfig = self.directory / "kubeconfig"
        self.pid = 0
        self._network = unused_network()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        make_certificates(self.directory / "tls", [f"{self._network}.1"])
        self.kubeconfig.write_text(kubeconfig(self.url, self.ca, self.token))
        settings = {"token": self.token, "port": self.port, "network": self._network}
        (self.directory / "settings.json").write_text(json.dumps(settings))
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        start_guard(self.directory)
        words = [sys.executable, "-m", _SERVER, f"{self.directory}/"]
        with self.log.open("ab") as log:
            # Not a child of ours: it is to outlive a test, and tests are looked at for what they leave running.
            subprocess.run(
                ["setsid", "--fork", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
                cwd=_ROOT,
                env={key: value for key, value in os.environ.items() if not key.startswith("COV")},
            )
        try:
            wait_until(ready.exists, _START, "the cluster of the tests did not start")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; its log: {self.log.read_text('utf-8', 'replace')[-3000:]}") from None
        self.pid = next(each.pid for each in psutil.process_iter() if _is_server(each, self.directory))

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Make a request as the administrator: for what tests look at behind the back of a client."""
        tls = ssl.create_default_context(cafile=str(self.ca))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=tls, timeout=60)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            data = answer.read()
            is_json = "json" in (answer.getheader("Content-Type") or "")
            return answer.status, json.loads(data) if is_json else data.decode("utf-8", "replace")
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Make a request that has to succeed, and return its answer."""
        status, data = self.request(method, path, body)
        assert status < 300, (method, path, status, data)
        return data

    def kubeconfig_for(self, namespace: str, account: str) -> Path:
        """Write a kubeconfig with a token of a service account, and return its path."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
        token = self.ask("POST", path, spec)["status"]["token"]
        file = self.directory / f"kubeconfig-{namespace}-{account}"
        file.write_text(kubeconfig(self.url, self.ca, token, namespace))
        return file

    def fault(self, **switches: Any) -> None:
        """Set switches; see `faults.Faults`."""
        self.ask("POST", "/fixture/set", switches)

    def reset(self) -> None:
        """Set all switches back."""
        self.ask("POST", "/fixture/reset", {})

    @contextmanager
    def faults(self, **switches: Any) -> Iterator[None]:
        """Set switches, and set all back after the block."""
        self.fault(**switches)
        try:
            yield
        finally:
            self.reset()

    def node_lost(self, lost: bool) -> None:
        """Cut the node off, or bring it back."""
        self.fault(node_lost=lost)

    def agent_sandbox(self, offered: bool) -> None:
        """Have the resources of agent-sandbox, or not."""
        self.fault(agent_sandbox=offered)

    def evict(self, namespace: str, pod: str) -> None:
        """Evict a pod as a node does that is short of memory."""
        self._pod(namespace, pod, "evict")

    def preempt(self, namespace: str, pod: str) -> None:
        """Delete a pod as the scheduler does for a more important one."""
        self._pod(namespace, pod, "preempt")

    def kill_pod(self, namespace: str, pod: str) -> None:
        """Kill the processes of a pod."""
        self._pod(namespace, pod, "kill")

    def _pod(self, namespace: str, pod: str, what: str) -> None:
        self.ask("POST", "/fixture/pod", {"namespace": namespace, "name": pod, "what": what})

    def delete_pod(self, namespace: str, pod: str, *, force: bool = False) -> None:
        """Delete a pod, with its grace period or without."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self.request("DELETE", path, {"gracePeriodSeconds": 0} if force else None)

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        """Return all pods of a namespace."""
        return self.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]

    def left(self) -> list[str]:
        """Return the directories, control groups, mounts and network namespaces of pods that have ended."""
        return self.ask("POST", "/fixture/left", {})["left"]

    def settle(self) -> None:
        """Wait until nothing is left of pods that have ended; fails with what is."""
        ends = time.monotonic() + _SETTLE
        while found := self.left():
            assert time.monotonic() < ends, f"left on the node: {found}"
            time.sleep(0.02)

    def make_namespace(self) -> str:
        """Make a namespace, and return its name."""
        name = f"t{secrets.token_hex(4)}"
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        wait_until(
            lambda: self.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] == 200,
            _SETTLE,
            "the namespace got no service account",
        )
        return name

    def remove_namespace(self, name: str) -> None:
        """Delete a namespace with all that is in it, and wait for that."""
        for pod in self.pods(name):
            self.delete_pod(name, pod["metadata"]["name"], force=True)
        self.request("DELETE", f"/api/v1/namespaces/{name}")
        wait_until(lambda: self.request("GET", f"/api/v1/namespaces/{name}")[0] == 404, _START, "the namespace stays")

    def stop(self) -> None:
        """End it, and remove everything that it has made, also after it was killed."""
        from packages.kubernetes.tests.kube.node import clear_node

        end_guard(self.directory)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.pid and not has_ended(self.pid):
                os.kill(self.pid, number)
                try:
                    wait_until(lambda: has_ended(self.pid), 15, "the cluster of the tests did not end")
                except TimeoutError:
                    continue
        clear_node(self.directory)
        rmtree(self.directory, ignore_errors=True)


def _is_server(process: psutil.Process, directory: Path) -> bool:
    try:
        words = process.cmdline()
        return f"{directory}/" in words and _SERVER in words and "setsid" not in process.name()
    except psutil.Error:
        return False


def kubeconfig(url: str, ca: Path, token: str, namespace: str = "default") -> str:
    """Return a kubeconfig with one context, which is the current one."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "admin",
            "clusters": [{"name": "tests", "cluster": {"server": url, "certificate-authority": str(ca)}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "admin", "context": {"cluster": "tests", "user": "admin", "namespace": namespace}}],
        }
    )


_shared: list[KubeCluster] = []


@pytest.fixture(scope="package")
def kube_cluster() -> Iterator[KubeCluster]:
    """Start a cluster for all tests, which leave it as it is; one for all modules that have this fixture."""
    if not _shared:
        cluster = KubeCluster()
        try:
            cluster.start()
        except BaseException:
            cluster.stop()
            raise
        _shared.append(cluster)
    yield _shared[0]
    if _shared:
        _shared.pop().stop()


@pytest.fixture
def kube_namespace(kube_cluster: KubeCluster) -> Iterator[str]:
    """Give a namespace of its own to a test that leaves no pod and no lease, and nothing on the node."""
    name = kube_cluster.make_namespace()
    yield name
    kube_cluster.reset()
    pods = [each["metadata"]["name"] for each in kube_cluster.pods(name)]
    leases = kube_cluster.ask("GET", f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases")["items"]
    kube_cluster.remove_namespace(name)
    kube_cluster.settle()
    assert not pods, f"pods are left: {pods}"
    assert not leases, f"leases are left: {[each['metadata']['name'] for each in leases]}"

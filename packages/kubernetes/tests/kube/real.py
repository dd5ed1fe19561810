"""A real control plane: etcd, kube-apiserver, controller-manager and scheduler, with the node of the tests."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from packages.kubernetes.tests.kube.cluster import KubeCluster, kubeconfig
from packages.kubernetes.tests.kube.guard import end_guard, start_guard
from packages.kubernetes.tests.kube.kubelet_node import KubeletNode
from tests.engines.certificates import make_certificates
from tests.engines.programs import free_port, has_ended, processes_of, require_program, wait_until
from tests.tiers import missing

_ROOT = Path(__file__).parents[4]
_START = 120.0
_NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class RealCluster(KubeCluster):
    """The servers that `make kube` has built, each a process; without switches for faults, but with the node's `left`."""

    def __init__(self) -> None:
        self._bin = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolexec" / "kube" / "bin"
        lacking = [name for name in _NEEDED if not (self._bin / name).is_file()]
        if lacking:
            missing(f"{', '.join(lacking)} of Kubernetes is not built", "make kube")
        super().__init__()
        self.port = _lasting_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._kubelet_port = free_port()
        self._words: list[str] = []

    def start(self) -> None:
        """Start everything, and wait until a pod could run."""
        make_certificates(self.directory / "tls", [f"{self._network}.1"])
        self.kubeconfig.write_text(kubeconfig(self.url, self.ca, self.token))
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self.directory / "sa.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
        )
        (self.directory / "tokens").write_text(f'{self.token},admin,admin,"system:masters"\n')
        start_guard(self.directory)
        self._words = self._api_server(self._start_etcd())
        self._start_api_server()
        config = f"--kubeconfig={self.kubeconfig}"
        ports = [f"--secure-port={free_port()}", "--bind-address=127.0.0.1", "--port=0", "--leader-elect=false"]
        self._start(
            "kube-controller-manager",
            config,
            *ports,
            f"--service-account-private-key-file={self.directory}/sa.key",
            f"--root-ca-file={self.ca}",
            f"--cert-dir={self.directory}/cm",
            "--feature-gates=TTLAfterFinished=true",
            "--controllers=*,ttl-after-finished",
            "--node-monitor-grace-period=16s",
            "--node-monitor-period=1s",
            "--pod-eviction-timeout=2s",
            "--horizontal-pod-autoscaler-sync-period=1s",
        )
        self._start(
            "kube-scheduler", config, *ports[1:], f"--secure-port={free_port()}", f"--cert-dir={self.directory}/sched"
        )
        self._start_node()
        self._wait(
            lambda: self.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")[0] == 200,
            "controller-manager",
        )

    def _start_etcd(self) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._start(
            "etcd",
            f"--data-dir={self.directory}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        return client

    def _api_server(self, store: str) -> list[str]:
        tls = self.directory / "tls"
        accounts = [{"level": "Metadata", "userGroups": ["system:serviceaccounts"], "omitStages": ["RequestReceived"]}]
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [*accounts, {"level": "None"}]}
        (self.directory / "audit.json").write_text(json.dumps(policy))
        return [
            f"--etcd-servers={store}",
            f"--audit-policy-file={self.directory}/audit.json",
            f"--audit-log-path={self.directory}/audit.log",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.directory}/api",
            f"--tls-cert-file={tls}/server-cert.pem",
            f"--tls-private-key-file={tls}/server-key.pem",
            f"--client-ca-file={self.ca}",
            f"--token-auth-file={self.directory}/tokens",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self.directory}/sa.key",
            f"--service-account-key-file={self.directory}/sa.key",
            "--service-cluster-ip-range=10.232.0.0/24",
            f"--kubelet-client-certificate={tls}/cert.pem",
            f"--kubelet-client-key={tls}/key.pem",
            "--kubelet-preferred-address-types=InternalIP",
            "--endpoint-reconciler-type=none",
            "--feature-gates=TTLAfterFinished=true",
        ]

    def _start_api_server(self) -> None:
        self._start("kube-apiserver", *self._words)
        self._wait(lambda: self._answers("/readyz"), "kube-apiserver")

    def used_by(self, namespace: str, account: str) -> set[tuple[str, str, str]]:
        """Return what an account has done in its namespace: verbs, groups and resources, of requests that were allowed."""
        events = map(json.loads, (self.directory / "audit.log").read_text().splitlines())
        found: set[tuple[str, str, str]] = set()
        for each in events:
            about = each.get("objectRef") or {}
            ours = each["user"]["username"] == f"system:serviceaccount:{namespace}:{account}"
            if ours and about.get("namespace") == namespace and each["responseStatus"]["code"] != 403:
                parts = [about["resource"], *([about["subresource"]] if "subresource" in about else [])]
                found.add((each["verb"], about.get("apiGroup", ""), "/".join(parts)))
        return found

    def restart_api_server(self) -> None:
        """Kill the API server, and start another one."""
        (process,) = _named(self.directory, "kube-apiserver")
        process.kill()
        wait_until(lambda: has_ended(process.pid), 10, "the API server did not end")
        self._start_api_server()

    def _start_node(self) -> None:
        settings = {
            "url": self.url,
            "token": self.token,
            "port": self.port,
            "network": self._network,
            "kubelet_port": self._kubelet_port,
        }
        (self.directory / "settings.json").write_text(json.dumps(settings))
        self._start(
            "node", "-m", "packages.kubernetes.tests.kube.kubelet", f"{self.directory}/", program=sys.executable
        )
        self._wait((self.directory / "ready").exists, "the node of the tests")

    def _start(self, name: str, *words: str, program: str = "") -> None:
        """Start a server as a process that is not a child of ours."""
        with (self.directory / f"{name}.log").open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", program or str(self._bin / name), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
                cwd=_ROOT if program else self.directory,
            )

    def _wait(self, happened: Any, what: str) -> None:
        try:
            wait_until(happened, _START, f"{what} did not start")
        except TimeoutError as error:
            logs = {path.name: path.read_text("utf-8", "replace")[-1500:] for path in self.directory.glob("*.log")}
            raise TimeoutError(f"{error}; the logs: {logs}") from None

    def _answers(self, path: str) -> bool:
        try:
            return self.request("GET", path)[0] == 200
        except OSError:
            return False

    def reset(self) -> None:
        """Do nothing: there are no switches."""

    def fault(self, **switches: Any) -> None:
        """Refuse: a real server has no switches."""
        raise NotImplementedError(switches)

    def left(self) -> list[str]:
        """Return what is left of pods that have ended on the node."""
        tls = ssl.create_default_context(cafile=str(self.ca))
        connection = http.client.HTTPSConnection("127.0.0.1", self._kubelet_port, context=tls, timeout=60)
        try:
            connection.request("GET", "/left")
            return json.loads(connection.getresponse().read())["left"]
        finally:
            connection.close()

    def remove_namespace(self, name: str) -> None:
        """Delete a namespace and its pods. The controllers take five seconds for the rest, which nothing waits for."""
        for pod in self.pods(name):
            self.delete_pod(name, pod["metadata"]["name"], force=True)
        self.ask("DELETE", f"/api/v1/namespaces/{name}")

    def stop(self) -> None:
        """End everything, the node first, and remove what it has made."""
        from packages.kubernetes.tests.kube.node import clear_node

        end_guard(self.directory)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for name in (
                "python",
                "kubelet",
                "containerd",
                "kube-scheduler",
                "kube-controller",
                "kube-apiserver",
                "etcd",
                "",
            ):
                found = _named(self.directory, name)
                for process in found:
                    try:
                        process.send_signal(number)
                    except psutil.NoSuchProcess:
                        continue
                try:
                    wait_until(lambda found=found: all(has_ended(each.pid) for each in found), 10, "it did not end")
                except TimeoutError:
                    continue
        clear_node(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)


def _lasting_port() -> int:
    """Return a port that no connection of this machine gets for its own end while a server is away that had it."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(lowest // 2, lowest)
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


class KubeletCluster(RealCluster):
    """The same with a real kubelet and containerd as its node, whose network enforces no NetworkPolicy."""

    def __init__(self) -> None:
        super().__init__()
        if not (self._bin / "kubelet").is_file():
            missing("the kubelet of Kubernetes is not built", "make kube")
        require_program("/usr/lib/cni/bridge", "containernetworking-plugins")
        self._node = KubeletNode(self.directory, self._bin, self.kubeconfig, self._network, self._kubelet_port)

    def _start_node(self) -> None:
        self._node.start(self._start, self._wait)
        self._wait(self._is_ready, "the kubelet")

    def _is_ready(self) -> bool:
        nodes = self.ask("GET", "/api/v1/nodes")["items"]
        conditions = [each for node in nodes for each in node["status"].get("conditions", [])]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def left(self) -> list[str]:
        """Return the containers that are there."""
        return self._node.left()

    def stop(self) -> None:
        """End everything, and remove what it has made."""
        super().stop()
        self._node.clear()


_shared: dict[type[RealCluster], RealCluster] = {}


def _started(kind: type[RealCluster]) -> Iterator[RealCluster]:
    """Give the cluster of a kind, which all modules of this process share."""
    if kind not in _shared:
        cluster = kind()
        try:
            cluster.start()
        except BaseException:
            cluster.stop()
            raise
        _shared[kind] = cluster
    yield _shared[kind]
    if kind in _shared:
        _shared.pop(kind).stop()


def _space(cluster: RealCluster) -> Iterator[str]:
    name = cluster.make_namespace()
    yield name
    pods = [each["metadata"]["name"] for each in cluster.pods(name)]
    cluster.remove_namespace(name)
    cluster.settle()
    assert not pods, f"pods are left: {pods}"


@pytest.fixture(scope="package")
def real_cluster() -> Iterator[RealCluster]:
    """Start a real control plane, with the node of the tests."""
    yield from _started(RealCluster)


@pytest.fixture
def real_namespace(real_cluster: RealCluster) -> Iterator[str]:
    """Give a namespace of its own to a test that leaves no pod, and nothing on the node."""
    yield from _space(real_cluster)


@pytest.fixture(scope="package")
def kubelet_cluster() -> Iterator[RealCluster]:
    """Start a real control plane, with a real kubelet."""
    yield from _started(KubeletCluster)


@pytest.fixture
def kubelet_namespace(kubelet_cluster: RealCluster) -> Iterator[str]:
    """Give a namespace of its own to a test that leaves no pod, and no container on the node."""
    yield from _space(kubelet_cluster)


def _named(directory: Path, name: str) -> list[psutil.Process]:
    """Return the processes of the cluster whose name begins so; those of containers end at any moment."""
    found: list[psutil.Process] = []
    for each in processes_of(directory):
        with suppress(psutil.NoSuchProcess):
            if each.name().startswith(name):
                found.append(each)
    return found

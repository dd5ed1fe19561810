"""The cluster of the tests as kubectl sees it: a client that was not written for it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packages.kubernetes.tests.kube.cluster import KubeCluster
from packages.kubernetes.tests.kube.examples import pod, wait_for
from tests.engines.programs import require_program

_ECHO = "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)"


class Kubectl:
    """The command for one namespace of the cluster."""

    def __init__(self, cluster: KubeCluster, namespace: str, cache: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._words = [require_program("kubectl", "kubernetes-client"), f"--kubeconfig={cluster.kubeconfig}"]
        self._words += [f"--namespace={namespace}", f"--cache-dir={cache}"]

    def run(self, *words: str, stdin: str = "", code: int = 0) -> str:
        """Return what a command prints, on both streams."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
        done = subprocess.run(
            [*self._words, *words], input=stdin, capture_output=True, text=True, timeout=60, check=False, env=env
        )
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def create(self, name: str, *command: str, stdin: bool = False, **spec: object) -> None:
        """Create a pod."""
        self.run("create", "--validate=false", "-f", "-", stdin=json.dumps(pod(name, *command, stdin=stdin, **spec)))

    def remove(self, name: str) -> None:
        """Delete a pod."""
        self.run("delete", "pod", name, "--now", "--wait=true")


@pytest.fixture
def kubectl(kube_cluster: KubeCluster, kube_namespace: str, tmp_path: Path) -> Iterator[Kubectl]:
    """Give the command."""
    return Kubectl(kube_cluster, kube_namespace, tmp_path / "cache")


def test_pods_are_listed_and_described(kubectl: Kubectl) -> None:
    """A pod is found by its label, and its events are those of a node."""
    kubectl.create("one", "python3", "-c", "print('hello')")
    kubectl.run("wait", "pod/one", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    listed = json.loads(kubectl.run("get", "pods", "-l", "app=one", "-o", "json"))
    assert [each["metadata"]["name"] for each in listed["items"]] == ["one"]
    described = kubectl.run("describe", "pod", "one")
    assert "Exit Code:    0" in described
    assert "Started container main" in described
    assert "one" in kubectl.run("get", "pods")
    kubectl.remove("one")
    assert "not found" in kubectl.run("get", "pod", "one", code=1)


def test_logs_are_read_and_followed(kubectl: Kubectl) -> None:
    """Logs come as lines, also while the container still writes them."""
    kubectl.create("talk", "sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.2; done; echo err >&2")
    wait_for(kubectl.cluster, kubectl.namespace, "talk", "Running", "Succeeded")
    assert kubectl.run("logs", "-f", "talk") == "line 1\nline 2\nline 3\nerr\n"
    assert kubectl.run("logs", "--tail=1", "talk") == "err\n"
    assert kubectl.run("logs", "--timestamps", "--tail=1", "talk").endswith("Z err\n")
    kubectl.remove("talk")


def test_exec_gives_output_and_exit_codes(kubectl: Kubectl) -> None:
    """Commands run beside the first process, with their own streams and exit code."""
    kubectl.create("stay", "sleep", "600")
    kubectl.run("wait", "pod/stay", "--for=condition=Ready", "--timeout=60s")
    assert kubectl.run("exec", "stay", "--", "sh", "-c", "echo out; id -u") == "out\n65534\n"
    assert "exit code 7" in kubectl.run("exec", "stay", "--", "sh", "-c", "exit 7", code=7)
    assert kubectl.run("exec", "-i", "stay", "--", "cat", stdin="through\n") == "through\n"
    kubectl.remove("stay")


def test_attach_connects_to_the_first_process(kubectl: Kubectl) -> None:
    """Attached input reaches the program, its end ends it, and its output comes back."""
    kubectl.create("echo", "python3", "-c", _ECHO, stdin=True)
    kubectl.run("wait", "pod/echo", "--for=condition=Ready", "--timeout=60s")
    said = kubectl.run("attach", "-i", "echo", stdin="first\nsecond\n")
    assert "got first\ngot second\n" in said
    assert wait_for(kubectl.cluster, kubectl.namespace, "echo")["status"]["phase"] == "Succeeded"
    kubectl.remove("echo")


def test_wrong_objects_are_refused(kubectl: Kubectl) -> None:
    """An unknown field, and a missing one, end in the errors of a real API server."""
    wrong = pod("wrong", "true", noSuchField=1)
    said = kubectl.run("create", "--validate=false", "-f", "-", stdin=json.dumps(wrong), code=1)
    assert 'unknown field "spec.noSuchField"' in said
    wrong = pod("wrong", "true", containers=[{"name": "main"}])
    said = kubectl.run("create", "--validate=false", "-f", "-", stdin=json.dumps(wrong), code=1)
    assert "spec.containers[0].image: Required value" in said


def test_permissions_can_be_asked_for(kubectl: Kubectl) -> None:
    """Reviews of access answer for the administrator, and for an account without any role."""
    assert review(kubectl)["allowed"]
    config = kubectl.cluster.kubeconfig_for(kubectl.namespace, "default")
    assert not review(kubectl, f"--kubeconfig={config}")["allowed"]
    assert "forbidden" in kubectl.run(f"--kubeconfig={config}", "get", "pods", code=1)


def review(kubectl: Kubectl, *options: str) -> dict[str, Any]:
    """Ask whether pods may be created; `kubectl auth` itself asks in a binary format that the server does not read."""
    attributes = {"verb": "create", "resource": "pods", "namespace": kubectl.namespace}
    body = {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return json.loads(kubectl.run(*options, "create", f"--raw={path}", "-f", "-", stdin=json.dumps(body)))["status"]

"""The cluster of the tests as the official Python client sees it, which sends and reads typed objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from packages.kubernetes.tests.kube.cluster import KubeCluster
from packages.kubernetes.tests.kube.examples import pod, wait_for
from tests.engines.images import TEST_IMAGE

kubernetes = pytest.importorskip("kubernetes")


@pytest.fixture
def core(kube_cluster: KubeCluster) -> Iterator[Any]:
    """Give the client of the core API."""
    client = kubernetes.config.new_client_from_config(str(kube_cluster.kubeconfig))
    with client:
        yield kubernetes.client.CoreV1Api(client)


def test_typed_objects_pass_the_schema(core: Any, kube_cluster: KubeCluster, kube_namespace: str) -> None:
    """Objects of the classes of the client are accepted, and answers are read into them."""
    api = kubernetes.client
    limits = {"cpu": "500m", "memory": "64Mi", "ephemeral-storage": "10Mi"}
    container = api.V1Container(
        name="main",
        image=TEST_IMAGE,
        command=["python3", "-c", "print(6 * 7)"],
        resources=api.V1ResourceRequirements(limits=limits),
        volume_mounts=[api.V1VolumeMount(name="tmp", mount_path="/tmp")],
    )
    volume = api.V1Volume(name="tmp", empty_dir=api.V1EmptyDirVolumeSource(medium="Memory", size_limit="8Mi"))
    spec = api.V1PodSpec(containers=[container], volumes=[volume], restart_policy="Never")
    made = core.create_namespaced_pod(
        kube_namespace, api.V1Pod(metadata=api.V1ObjectMeta(generate_name="typed-"), spec=spec)
    )
    assert made.status.qos_class == "Guaranteed"
    wait_for(kube_cluster, kube_namespace, made.metadata.name)
    found = core.read_namespaced_pod(made.metadata.name, kube_namespace)
    assert found.status.container_statuses[0].state.terminated.exit_code == 0
    assert core.read_namespaced_pod_log(made.metadata.name, kube_namespace) == "42\n"
    core.delete_namespaced_pod(made.metadata.name, kube_namespace)


def test_a_watch_sees_a_pod_from_start_to_end(core: Any, kube_namespace: str) -> None:
    """A watch has every phase, in order, and the deletion last."""
    watch = kubernetes.watch.Watch()
    listed = core.list_namespaced_pod(kube_namespace)
    core.create_namespaced_pod(kube_namespace, pod("seen", "true"))
    phases: list[str] = []
    version = listed.metadata.resource_version
    for event in watch.stream(core.list_namespaced_pod, kube_namespace, resource_version=version, timeout_seconds=60):
        phases.append(event["object"].status.phase)
        if event["type"] == "DELETED":
            break
        if phases[-1] == "Succeeded" and phases.count("Succeeded") == 1:
            core.delete_namespaced_pod("seen", kube_namespace)
    assert list(dict.fromkeys(phases)) == ["Pending", "Running", "Succeeded"]


def test_exec_by_the_older_protocol(core: Any, kube_cluster: KubeCluster, kube_namespace: str) -> None:
    """A client that knows v4 only gets the streams, and the exit code from the error channel."""
    core.create_namespaced_pod(kube_namespace, pod("stay", "sleep", "600"))
    wait_for(kube_cluster, kube_namespace, "stay", "Running")
    stream = kubernetes.stream.stream(
        core.connect_get_namespaced_pod_exec,
        "stay",
        kube_namespace,
        command=["sh", "-c", "echo out; echo err >&2; exit 3"],
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    stream.run_forever(timeout=60)
    assert (stream.read_stdout(), stream.read_stderr(), stream.returncode) == ("out\n", "err\n", 3)
    stream.sock.shutdown()  # its own close does nothing after the server has closed
    core.delete_namespaced_pod("stay", kube_namespace)


def test_an_expired_version_ends_a_watch(core: Any, kube_cluster: KubeCluster, kube_namespace: str) -> None:
    """A watch from a version that is too old fails with 410, which the client raises."""
    version = core.list_namespaced_pod(kube_namespace).metadata.resource_version
    kube_cluster.fault(gone=True)
    core.create_namespaced_pod(kube_namespace, pod("later", "true"))
    watch = kubernetes.watch.Watch()
    with pytest.raises(kubernetes.client.ApiException) as caught:
        list(
            watch.stream(
                core.list_namespaced_pod, kube_namespace, resource_version=str(int(version) - 1), timeout_seconds=5
            )
        )
    assert caught.value.status == 410
    wait_for(kube_cluster, kube_namespace, "later")
    core.delete_namespaced_pod("later", kube_namespace)

"""The Python that a pod brings along: whose container copies it, with which rights, and what is said when it fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packages.kubernetes.tests.test_spec import CONFIG, made

from toolexec.errors import ConfigurationError
from toolexec.sandbox import Limits
from toolexec_kubernetes.brought import BRINGER, BRINGER_MEMORY, BROUGHT, BROUGHT_BYTES
from toolexec_kubernetes.config import KubernetesConfig
from toolexec_kubernetes.failures import waiting_for
from toolexec_kubernetes.manifest import make_manifest, python_pod
from toolexec_kubernetes.spec import pod_spec, spec_hash

BRINGING = replace(CONFIG, runtime_image="team/python:3")


def limit(pod: dict[str, Any]) -> int:
    return int(pod["containers"][0]["resources"]["limits"]["ephemeral-storage"])


def test_the_other_image_has_the_rights_of_the_guest_and_runs_once_before_it() -> None:
    """The one volume that it writes is what the guest reads, and both see it at one place."""
    pod = pod_spec("team/tools:1", made(), BRINGING)
    (first,), (guest,) = pod["initContainers"], pod["containers"]
    assert (first["name"], first["image"], guest["image"]) == (BRINGER, "team/python:3", "team/tools:1")
    for name in ("securityContext", "imagePullPolicy"):
        assert first[name] == guest[name]
    assert first["volumeMounts"] == [{"name": BRINGER, "mountPath": BROUGHT}]
    assert {"name": BRINGER, "mountPath": BROUGHT, "readOnly": True} in guest["volumeMounts"]
    assert {"name": BRINGER, "emptyDir": {"sizeLimit": str(BROUGHT_BYTES)}} in pod["volumes"]
    assert not {"env", "stdin"} & first.keys()


def test_it_has_the_memory_that_a_copy_takes() -> None:
    """The other bounds are those of the guest; the quota of a namespace counts the larger of the two."""
    for guest, first in ((64 << 20, BRINGER_MEMORY), (512 << 20, 512 << 20)):
        config = replace(BRINGING, limits=Limits(memory_bytes=guest))
        pod = pod_spec("x", made(memory_bytes=guest, cpus=0.5), config)
        wanted = pod["containers"][0]["resources"]["limits"] | {"memory": str(first)}
        assert pod["initContainers"][0]["resources"]["limits"] == wanted
        (quota,) = [each for each in make_manifest(config, pods=3) if each["kind"] == "ResourceQuota"]
        assert int(quota["spec"]["hard"]["limits.memory"]) == 3 * first


def test_the_guest_and_what_it_is_linked_with_run_the_python_that_was_brought() -> None:
    """Nothing of it counts on a python3 of the image; the room on the disk is added to that of the files."""
    plain, pod = (pod_spec("x", made(disk_bytes=1 << 20), config) for config in (CONFIG, BRINGING))
    command = pod["containers"][0]["command"]
    assert command.count(f"{BROUGHT}/bin/python3") == plain["containers"][0]["command"].count("python3") == 2
    assert "python3" not in command
    assert limit(pod) == limit(plain) + BROUGHT_BYTES
    assert "initContainers" not in plain


def test_a_pool_of_the_cluster_has_it() -> None:
    """Pods of a warm pool are other ones with another Python."""
    digests = {spec_hash(python_pod(each), each) for each in (CONFIG, BRINGING, replace(BRINGING, runtime_image="y"))}
    assert len(digests) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"runtime_image": "not a name"},
        {"sidecars": ({"name": BRINGER, "image": "x", "memory": "8Mi"},)},
        {"volumes": ({"target": f"{BROUGHT}/lib", "size": "8Mi"},)},
    ],
    ids=["image", "sidecar", "volume"],
)
def test_what_is_in_its_way_is_refused(settings: dict[str, Any]) -> None:
    """An invalid name of an image, and a container or a volume with its name or place."""
    with pytest.raises(ConfigurationError):
        KubernetesConfig(namespace="code", **settings)


def pod_with(state: dict[str, Any]) -> dict[str, Any]:
    return {"status": {"initContainerStatuses": [{"name": BRINGER, "image": "team/python:3", "state": state}]}}


def test_a_failure_names_the_image_that_is_to_blame() -> None:
    """Its image that cannot be pulled, its end with what it said, its end without a word; its ordinary end is none."""
    pulling = waiting_for(pod_with({"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}}), "x")
    assert pulling is not None
    assert (pulling.details["image"], pulling.details["reason"]) == ("team/python:3", "image_pull")
    assert not pulling.retryable
    ended = {"exitCode": 1, "reason": "Error", "message": "not glibc's"}
    failed = waiting_for(pod_with({"terminated": ended}), "x")
    assert failed is not None
    assert failed.message.endswith("team/python:3 (exit code 1); it said: not glibc's")
    assert failed.details["container"] == BRINGER
    killed = waiting_for(pod_with({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), "x")
    assert killed is not None
    assert "memory" in killed.message
    silent = waiting_for(pod_with({"terminated": {"exitCode": 127, "reason": "Error"}}), "x")
    assert silent is not None
    assert "is there a python3" in silent.message
    for state in ({"terminated": {"exitCode": 0}}, {"running": {}}, {"waiting": {"reason": "PodInitializing"}}):
        assert waiting_for(pod_with(state), "x") is None

"""The volumes of an operator: in each pod as they were set, and refused where they would be something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packages.kubernetes.tests.test_spec import CONFIG, made

from toolexec.errors import ConfigurationError
from toolexec_kubernetes.config import KubernetesConfig
from toolexec_kubernetes.spec import pod_spec

VOLUMES: tuple[dict[str, Any], ...] = (
    {"target": "/data", "claim": "models", "read_only": True, "sub_path": "v1/small"},
    {"target": "/srv/team", "claim": "team"},
    {"target": "/scratch", "size": "2Gi"},
    {"target": "/fast", "size": 5_000_000, "storage_class": "ssd"},
)


def test_a_pod_has_the_volumes_of_the_settings() -> None:
    """Claims by their names, and new ones with a size; what is on the node's disk counts as ephemeral storage."""
    config = replace(CONFIG, volumes=VOLUMES, run_as_user=1000)
    pod = pod_spec("x", made(disk_bytes=8 << 20), config)
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["volume-0"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert volumes["volume-1"]["persistentVolumeClaim"] == {"claimName": "team", "readOnly": False}
    assert volumes["volume-2"]["emptyDir"] == {"sizeLimit": str(2 << 30)}
    claim = volumes["volume-3"]["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert (claim["storageClassName"], claim["resources"]) == ("ssd", {"requests": {"storage": "5000000"}})
    (container,) = pod["containers"]
    mounts = [each for each in container["volumeMounts"] if each["name"].startswith("volume-")]
    assert mounts == [
        {"name": "volume-0", "mountPath": "/data", "readOnly": True, "subPath": "v1/small"},
        {"name": "volume-1", "mountPath": "/srv/team"},
        {"name": "volume-2", "mountPath": "/scratch"},
        {"name": "volume-3", "mountPath": "/fast"},
    ]
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    (before,) = pod_spec("x", made(disk_bytes=8 << 20), CONFIG)["containers"]
    sizes = [int(each["resources"]["limits"]["ephemeral-storage"]) for each in (container, before)]
    assert sizes[0] - sizes[1] == 2 << 30
    assert "fsGroupChangePolicy" not in pod_spec("x", made(), CONFIG)["securityContext"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"host_path": "/etc"}, "no files of its node"),
        ({"hostPath": {"path": "/etc"}}, "no files of its node"),
        ({"source": "/etc"}, "no files of its node"),
        ({"secret": "x"}, "there is no 'secret'"),
        ({"target": ""}, "plain absolute path"),
        ({"target": "data"}, "plain absolute path"),
        ({"target": "/"}, "plain absolute path"),
        ({"target": "/data/"}, "plain absolute path"),
        ({"target": "/data/../etc"}, "plain absolute path"),
        ({"target": "/data\n"}, "plain absolute path"),
        ({"target": "/$(HOME)"}, "plain absolute path"),
        ({"target": "/" + "x" * 5000}, "plain absolute path"),
        ({"target": 1}, "must be text"),
        *(
            ({"target": path}, "the sandbox has")
            for path in ("/work", "/work/a", "/tmp", "/etc", "/usr/lib", "/proc/1")
        ),
        ({"claim": ""}, "either a claim or a size"),
        ({"size": "1Gi"}, "either a claim or a size"),
        ({"claim": "No Name"}, "not a name"),
        ({"claim": "a/../b"}, "not a name"),
        ({"claim": ["a"]}, "must be text"),
        ({"storage_class": "x"}, "has its storage_class"),
        ({"read_only": "yes"}, "true or false"),
        ({"read_only": False}, "set run_as_user"),
        ({"sub_path": "../up"}, "plain relative path"),
        ({"sub_path": ".."}, "plain relative path"),
        ({"sub_path": "/abs"}, "plain relative path"),
        ({"sub_path": "a/../../b"}, "plain relative path"),
        ({"sub_path": "a//b"}, "plain relative path"),
    ],
)
def test_what_is_no_volume_of_a_sandbox_is_refused(change: dict[str, Any], said: str) -> None:
    """The error names the volume by its number."""
    right = {"target": "/data", "claim": "models", "read_only": True}
    KubernetesConfig(volumes=[right])
    with pytest.raises(ConfigurationError, match=said) as caught:
        KubernetesConfig(volumes=[right | change])
    assert "volumes" in str(caught.value)


@pytest.mark.parametrize("size", ["", "0", "1", "-1Gi", "1e9", "17Ti", "9" * 400, "1Gi\n", "1 Gi", True, 1.5, None, []])
def test_wrong_sizes_are_refused(size: Any) -> None:
    """A volume of its own has a bound."""
    with pytest.raises(ConfigurationError, match="size must be"):
        KubernetesConfig(volumes=[{"target": "/data", "size": size}])


@pytest.mark.parametrize(
    ("volumes", "said"),
    [
        ([{"target": "/a", "size": "1Gi"}, {"target": "/a", "size": "1Gi"}], r"volumes\[1\].*same place"),
        ([{"target": "/a/b", "size": "1Gi"}, {"target": "/a", "size": "1Gi"}], r"volumes\[1\].*same place"),
        ([{"target": f"/a{number}", "size": "1Gi"} for number in range(17)], "too many"),
        ([{"target": "/a", "size": "1Gi", "read_only": True}], "for claims"),
        ("text", "volumes"),
        (["text"], "volumes"),
    ],
)
def test_volumes_that_do_not_fit_together_are_refused(volumes: Any, said: str) -> None:
    """Two at one place, too many, and what is not a list of tables."""
    with pytest.raises(ConfigurationError, match=said):
        KubernetesConfig(volumes=volumes)

"""The labels and annotations of an operator: on each pod, never in the place of ours, and refused where they are invalid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packages.kubernetes.tests.test_spec import CONFIG, made

from toolexec.errors import ConfigurationError
from toolexec_kubernetes.config import KubernetesConfig
from toolexec_kubernetes.manifest import make_manifest
from toolexec_kubernetes.spec import job_body, labels_of, pod_body, pod_spec

LABELS = {"team": "search", "example.com/cost-center": "42", "empty": ""}
NOTES = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "example.com/note": "für alle\n{}"}
OWN = replace(CONFIG, labels=LABELS, annotations=NOTES)


def test_pods_have_the_labels_and_annotations_of_the_settings() -> None:
    """A pod, one of a Job and one of a warm pool have them, beside our own labels."""
    labels = labels_of(made(), "owner", "run", OWN.labels)
    pod = pod_spec("x", made(), OWN)
    template = make_manifest(OWN, pool="python")[-2]["spec"]["podTemplate"]
    job = job_body("x", labels, pod, OWN.annotations, ttl=1)
    for found in (pod_body("x", labels, pod, OWN.annotations), job["spec"]["template"], template):
        assert found["metadata"]["labels"].items() >= LABELS.items()
        assert found["metadata"]["labels"]["toolexec.io/sandbox"] == "true"
        assert found["metadata"]["annotations"] == NOTES
    assert "annotations" not in pod_body("x", labels, pod)["metadata"]


def test_a_label_of_a_spec_does_not_take_the_place_of_ours() -> None:
    """Whatever a spec and the settings say, the policy selects the pod and its owner is known."""
    spec = replace(made(), labels={"team": "other"})
    labels = labels_of(spec, "owner", "run", {"team": "search", "toolexec.io/sandbox": "false"})
    assert (labels["team"], labels["toolexec.io/sandbox"], labels["toolexec.io/owner"]) == ("other", "true", "owner")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"labels": {"toolexec.io/sandbox": "false"}}, "not yours to set"),
        ({"labels": {"x.toolexec.io/sandbox": "false"}}, "not yours to set"),
        ({"labels": {"app.kubernetes.io/managed-by": "me"}}, "not yours to set"),
        ({"labels": {"job-name": "x"}}, "not yours to set"),
        ({"labels": {"../up": "x"}}, "not a name"),
        ({"labels": {"a/b/c": "x"}}, "not a name"),
        ({"labels": {"": "x"}}, "not a name"),
        ({"labels": {"a" * 64: "x"}}, "not a name"),
        ({"labels": {"a" * 254 + "/b": "x"}}, "not a name"),
        ({"labels": {"line\n": "x"}}, "not a name"),
        ({"labels": {"a": "x" * 64}}, "not a value"),
        ({"labels": {"a": "$(b)"}}, "not a value"),
        ({"labels": {"a": "b\n"}}, "not a value"),
        ({"labels": {f"a{number}": "b" for number in range(65)}}, "too many"),
        ({"labels": {"a": 1}}, "labels"),
        ({"annotations": {"container.apparmor.security.beta.kubernetes.io/guest": "unconfined"}}, "not yours to set"),
        ({"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}}, "not yours to set"),
        ({"annotations": {"k8s.v1.cni.cncf.io/networks": "other"}}, "not yours to set"),
        ({"annotations": {"io.katacontainers.config.hypervisor.kernel_params": "x"}}, "not yours to set"),
        ({"annotations": {"dev.gvisor.internal.network": "host"}}, "not yours to set"),
        ({"annotations": {"io.kubernetes.cri-o.Devices": "/dev/kvm"}}, "not yours to set"),
        ({"annotations": {"cdi.k8s.io/gpu": "vendor.com/gpu=0"}}, "not yours to set"),
        ({"annotations": {"devices.nri.io/container.guest": "- path: /dev/sda"}}, "not yours to set"),
        ({"annotations": {"a": "x" * (65 << 10)}}, "too many"),
        ({"annotations": {"a": "\0"}}, "not text"),
        ({"annotations": {"a": "\ud800"}}, "not text"),
    ],
)
def test_what_is_no_label_or_annotation_of_an_operator_is_refused(settings: dict[str, Any], said: str) -> None:
    """Reserved, invalid and huge ones are errors that name the setting."""
    with pytest.raises(ConfigurationError, match=said):
        KubernetesConfig(**settings)

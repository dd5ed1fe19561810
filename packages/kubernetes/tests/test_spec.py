"""Containers as pods, Jobs and claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from toolexec.containers import HOSTNAME, NAMESPACES, NOBODY, Mount, Security, spec_for
from toolexec.errors import ConfigurationError, SandboxDeniedError
from toolexec.sandbox import ContainerSpec, Limits
from toolexec_kubernetes.config import KubernetesConfig, isolation_of
from toolexec_kubernetes.manifest import python_pod
from toolexec_kubernetes.spec import (
    claim_body,
    job_body,
    labels_of,
    pod_body,
    pod_spec,
    policy_body,
    random_user,
    spec_hash,
    with_one_user,
    with_user,
)

CONFIG = KubernetesConfig(namespace="code", image="team/tools:1")


def made(profile: str = "standard", config: KubernetesConfig = CONFIG, **limits: Any) -> ContainerSpec:
    return spec_for(
        image=config.image,
        command=("python3", "-c", "print('$(HOME) $x')"),
        limits=Limits(**limits),
        profile=profile,
        config=config,
        kind="kubernetes",
    )


def test_a_pod_is_restricted() -> None:
    pod = pod_spec("team/tools:1", made(), CONFIG, seconds=90)
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["activeDeadlineSeconds"] == 90
    assert pod["restartPolicy"] == "Never"
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["dnsPolicy"] == "None"
    assert not {"hostUsers", "serviceAccountName", "runtimeClassName"} & pod.keys()
    (container,) = pod["containers"]
    rights = container["securityContext"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert (rights["runAsUser"], rights["runAsGroup"], rights["runAsNonRoot"]) == (65534, 65534, True)
    assert (container["stdin"], container["stdinOnce"]) == (True, False)


def test_a_pod_is_made_from_what_the_profiles_promise() -> None:
    """The name, the user, the namespaces and the hidden files are those of all engines; a guest filters its calls."""
    pod = pod_spec("x", made(), CONFIG)
    assert pod["hostname"] == HOSTNAME
    assert {*NAMESPACES} >= {"network", "pid", "ipc"}
    assert [pod[name] for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")] == [False] * 4
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == NOBODY
    (container,) = pod["containers"]
    assert container["securityContext"]["procMount"] == "Default"
    assert container["securityContext"]["privileged"] is False
    assert CONFIG.guest_drops == ("seccomp",)
    assert replace(CONFIG, seccomp="profiles/code.json").guest_drops == ()
    assert replace(CONFIG, runtime_class="gvisor").guest_drops == ()
    assert '"seccomp"' in " ".join(python_pod(CONFIG)["containers"][0]["command"])


def test_pods_that_are_alike_have_the_user_that_is_prescribed() -> None:
    """Those of a warm pool, too: they are found by what they are."""
    config = replace(CONFIG, run_as_user=4000)
    pod = python_pod(config)
    assert pod["securityContext"]["runAsUser"] == pod["containers"][0]["securityContext"]["runAsUser"] == 4000
    assert with_one_user(made(), CONFIG) == made()
    assert spec_hash(pod, config) != spec_hash(python_pod(CONFIG), CONFIG)


def test_pods_have_users_of_their_own_on_request() -> None:
    """A namespace of users has few numbers, and each pod may use the same one."""
    config = replace(CONFIG, user_namespaces=True)
    assert pod_spec("x", made(), config)["hostUsers"] is False
    assert (CONFIG.one_user, config.one_user) == (0, 65534)
    assert replace(config, run_as_user=1000).one_user == 1000
    with pytest.raises(ConfigurationError, match="below 65536 with user_namespaces"):
        replace(config, run_as_user=1 << 16)


def test_bounds_are_requests_and_limits() -> None:
    spec = made(memory_bytes=128 << 20, cpus=1.5, disk_bytes=8 << 20)
    (container,) = pod_spec("x", spec, CONFIG)["containers"]
    resources = container["resources"]
    assert resources["limits"] == resources["requests"]
    assert resources["limits"]["memory"] == str(128 << 20)
    assert resources["limits"]["cpu"] == "1500m"
    volumes = pod_spec("x", spec, CONFIG)["volumes"]
    sizes = [int(each["emptyDir"]["sizeLimit"]) for each in volumes]
    assert sum(sizes) <= 8 << 20
    assert {each["emptyDir"]["medium"] for each in volumes} == {"Memory"}
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/work", "/tmp", "/dev/shm"]


def test_without_a_rate_the_scheduler_gets_a_small_request() -> None:
    (container,) = pod_spec("x", made(), CONFIG)["containers"]
    assert "cpu" not in container["resources"]["limits"]
    assert container["resources"]["requests"]["cpu"] == "100m"


def test_the_kubelet_expands_nothing() -> None:
    (container,) = pod_spec("x", made(), CONFIG)["containers"]
    assert container["command"][-1] == "print('$$(HOME) $$x')"
    assert "$" not in "".join(container["command"]).replace("$$", "")


def test_a_command_has_its_streams_over_a_link_or_its_own() -> None:
    """The link outlives a connection, and hides the variables of services; a command without one is as it is."""
    (container,) = pod_spec("x", made(), CONFIG)["containers"]
    assert container["command"][-3:] == ["python3", "-c", "print('$$(HOME) $$x')"]
    hidden = {each["name"] for each in container["env"] if each["value"] == ""}
    assert {"KUBERNETES_SERVICE_HOST", "KUBERNETES_PORT"} <= hidden
    (container,) = pod_spec("x", made(), CONFIG, linked=False)["containers"]
    assert container["command"] == ["python3", "-c", "print('$$(HOME) $$x')"]
    assert container["stdinOnce"] is True
    assert not hidden & {each["name"] for each in container["env"]}


def test_settings_of_the_operator_are_in_the_pod() -> None:
    config = replace(
        CONFIG,
        runtime_class="gvisor",
        service_account="code",
        node_selector={"pool": "code"},
        tolerations=({"key": "code", "operator": "Exists"},),
        pull_secrets=("registry",),
        priority_class="low",
        pull="always",
        seccomp="profiles/code.json",
    )
    pod = pod_spec("x", made(config=config), config)
    assert pod["runtimeClassName"] == "gvisor"
    assert pod["serviceAccountName"] == "code"
    assert pod["nodeSelector"] == {"pool": "code"}
    assert pod["tolerations"][0] == {"key": "code", "operator": "Exists"}
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["priorityClassName"] == "low"
    assert pod["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["securityContext"]["seccompProfile"] == {"type": "Localhost", "localhostProfile": "profiles/code.json"}


def test_dev_can_write_its_root() -> None:
    (container,) = pod_spec("x", made("dev"), CONFIG)["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is False


def test_a_user_by_name_is_one_that_owns_nothing() -> None:
    """An image that knows names cannot be asked before the pod is there."""
    spec = made()
    named = replace(spec, security=replace(spec.security, user="coder:coder"))
    context = pod_spec("x", named, CONFIG)["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (65534, 65534)


def test_a_profile_that_filters_nothing_is_said_to() -> None:
    """The pod says so, and does not take the runtime's own filter without a word."""
    spec = made()
    unfiltered = replace(spec, security=replace(spec.security, seccomp="unconfined"))
    assert pod_spec("x", unfiltered, CONFIG)["securityContext"]["seccompProfile"] == {"type": "Unconfined"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"security": Security(privileged=True)}, "never privileged"),
        ({"security": Security(network="host")}, "network of its node"),
        ({"security": Security(user="0:0")}, "never root"),
        ({"security": Security(user="1000:0")}, "never root"),
        ({"mounts": (Mount(type="bind", source="/srv", target="/srv"),)}, "no files of its node"),
    ],
)
def test_what_would_let_code_out_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SandboxDeniedError, match=said):
        pod_spec("x", replace(made(), **change), CONFIG)


def test_labels_that_cannot_be_labels_are_left_out() -> None:
    spec = replace(made(), labels={"fine": "yes", "not fine": "x", "long": "x" * 64, "toolexec.owner": "me"})
    labels = labels_of(spec, "owner-1-2", "run")
    assert "fine" in labels
    assert not {"not fine", "long", "toolexec.owner"} & labels.keys()
    assert labels["toolexec.io/owner"] == "owner-1-2"
    assert labels["toolexec.io/sandbox"] == "true"


def test_a_job_makes_one_pod_once() -> None:
    job = job_body("x", {"a": "b"}, pod_spec("x", made(), CONFIG, seconds=90), ttl=30)
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["ttlSecondsAfterFinished"] == 30
    assert job["spec"]["activeDeadlineSeconds"] == 90
    assert job["spec"]["template"]["metadata"]["labels"] == {"a": "b"}


def test_a_claim_ends_by_itself_and_marks_its_pod() -> None:
    claim = claim_body("x", "pool", "owner", "run", "2026-01-01T00:00:00Z")
    assert claim["spec"]["warmPoolRef"] == {"name": "pool"}
    assert claim["spec"]["lifecycle"] == {"shutdownTime": "2026-01-01T00:00:00Z", "shutdownPolicy": "Delete"}
    assert claim["spec"]["additionalPodMetadata"]["labels"]["toolexec.io/run"] == "run"


def test_the_policy_allows_nothing() -> None:
    spec = policy_body()["spec"]
    assert spec == {
        "podSelector": {"matchLabels": {"toolexec.io/sandbox": "true"}},
        "policyTypes": ["Ingress", "Egress"],
    }


def test_pods_are_alike_whatever_their_deadline() -> None:
    spec = made()
    first, second = pod_spec("x", spec, CONFIG, seconds=1), pod_spec("x", spec, CONFIG, seconds=2)
    assert spec_hash(first, CONFIG) == spec_hash(second, CONFIG)
    assert spec_hash(first, CONFIG) != spec_hash(pod_spec("y", spec, CONFIG), CONFIG)
    assert spec_hash(first, CONFIG) != spec_hash(first, replace(CONFIG, labels={"a": "b"}))
    assert pod_body("n", {"a": "b"}, first)["metadata"] == {"name": "n", "labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("name", "isolation"),
    [("", "container"), ("runc", "container"), ("gvisor", "gvisor"), ("runsc", "gvisor"), ("kata-qemu", "vm")],
)
def test_the_runtime_class_decides_the_isolation(name: str, isolation: str) -> None:
    assert isolation_of(name) == isolation


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"namespace": "No Name"}, "not a name of a namespace"),
        ({"runtime_class": "a/b"}, "runtime_class"),
        ({"pull_secrets": ("fine", "not fine")}, r"pull_secrets\[1\]"),
        ({"lifetime": 5}, "lifetime must be 60 or more"),
        ({"reconnect_seconds": -1}, "reconnect_seconds must be 0 or more"),
        ({"reconnect_seconds": 101}, "reconnect_seconds must be 100 or less"),
        ({"reconnect_seconds": float("nan")}, "reconnect_seconds"),
        ({"network": "open"}, "network must be one of"),
        ({"namespce": "x"}, "did you mean"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        KubernetesConfig(**settings)


def test_each_pod_has_a_user_of_its_own() -> None:
    """The kernel counts processes by user; the group stays, to which the volumes belong."""
    spec = made()
    users = {pod_spec("x", with_user(spec, random_user()), CONFIG)["securityContext"]["runAsUser"] for _ in range(20)}
    assert len(users) == 20
    assert min(users) > 1 << 16
    own = pod_spec("x", with_user(spec, 5000), CONFIG)
    assert (own["securityContext"]["runAsGroup"], own["securityContext"]["fsGroup"]) == (65534, 65534)
    assert own["containers"][0]["securityContext"]["runAsUser"] == 5000

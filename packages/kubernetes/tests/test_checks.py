"""What makes a cluster one that cannot be used, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from packages.kubernetes.tests.test_workspace import EXISTS, NONE, Server

from toolexec.errors import SandboxUnavailableError
from toolexec_kubernetes import KubernetesConfig
from toolexec_kubernetes.checks import (
    Permission,
    ensure_policy,
    held_by,
    look_at_namespace,
    look_at_permissions,
    look_at_runtime_class,
    server_version,
)
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.pools import find_pools
from toolexec_kubernetes.spec import POLICY, policy_body

FORBIDDEN, BROKEN = KubeError(403, "may not"), KubeError(500, "broken")


class Cluster(Server):
    """An API server that is asked questions, too."""

    host = "https://cluster"

    async def ask(self, path: str, body: Any) -> Any:
        return self._answer("ask", path, body)


def cluster(*answers: Any) -> Any:
    return Cluster(*answers)


async def test_the_version_is_read_as_numbers() -> None:
    """A suffix that a vendor appends to a number is left out; a build without numbers is taken as it is."""
    assert await server_version(cluster({"major": "1", "minor": "33+", "gitVersion": "v1.33.2-x"})) == (
        "1.33.2-x",
        (1, 33),
    )
    assert await server_version(cluster({"gitVersion": "dev"})) == ("dev", (0, 0))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"major": "1", "minor": "18", "gitVersion": "v1.18.0"}, "too old: v1.18.0"),
        (KubeError(0, "refused"), "https://cluster cannot be used.*refused"),
    ],
)
async def test_a_cluster_that_is_too_old_or_silent_is_refused(answer: Any, said: str) -> None:
    with pytest.raises(SandboxUnavailableError, match=said):
        await server_version(cluster(answer))


def test_old_clusters_do_not_bound_volumes() -> None:
    """A volume in memory has a size since 1.22."""
    assert not held_by((1, 21), pids=True).disk
    assert held_by((1, 22), pids=True).disk
    assert held_by((1, 22), pids=True).pids
    assert not held_by((1, 22), pids=False).pids


async def test_a_namespace_that_may_not_be_looked_at_is_believed() -> None:
    for answer in ({"status": {"phase": "Active"}}, {}, FORBIDDEN):
        server = cluster(answer)
        await look_at_namespace(server)
        assert server.asked == [("get", "/api/v1/namespaces/code", {})]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (NONE, "has no namespace code"),
        ({"status": {"phase": "Terminating"}}, "is being deleted"),
        (BROKEN, "cannot be looked at.*broken"),
    ],
)
async def test_a_namespace_that_is_not_there_is_refused(answer: Any, said: str) -> None:
    with pytest.raises(SandboxUnavailableError, match=said):
        await look_at_namespace(cluster(answer))


PERMISSIONS = (Permission("", "pods", ("get", "create"), "attach"), Permission("n", "policies", ("get",), names=("p",)))


async def test_each_permission_is_asked_for_by_its_verb() -> None:
    """The question names the object and the part of it that the permission is for."""
    server = cluster(*[{"status": {"allowed": True}}] * 3)
    await look_at_permissions(server, PERMISSIONS)
    asked = [body["spec"]["resourceAttributes"] for _, _, body in server.asked]
    pods = {"namespace": "code", "group": "", "resource": "pods", "subresource": "attach"}
    assert asked == [
        {**pods, "verb": "get"},
        {**pods, "verb": "create"},
        {"namespace": "code", "group": "n", "resource": "policies", "verb": "get", "name": "p"},
    ]


async def test_all_permissions_that_are_lacking_are_named() -> None:
    """An answer that does not allow something is a refusal, whatever else it says."""
    server = cluster({"status": {"allowed": True}}, {"status": {"allowed": "yes"}}, {})
    with pytest.raises(SandboxUnavailableError, match="we lack the permissions: create pods/attach, get policies"):
        await look_at_permissions(server, PERMISSIONS)
    with pytest.raises(SandboxUnavailableError, match=r"does not say what we may do.*broken"):
        await look_at_permissions(cluster(BROKEN), PERMISSIONS[1:])


GVISOR = KubernetesConfig(namespace="code", runtime_class="gvisor-own")


async def test_a_runtime_class_is_what_it_says() -> None:
    """Its handler is returned; without one nothing is asked."""
    assert await look_at_runtime_class(cluster({"handler": "runsc"}), GVISOR) == "runsc"
    assert await look_at_runtime_class(cluster(), KubernetesConfig(namespace="code")) == ""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"handler": "runc"}, "has the handler runc, which is not gvisor"),
        ({}, "has the handler , which is not gvisor"),
        (NONE, "has no runtime class gvisor-own"),
        (FORBIDDEN, "may not look at the runtime class gvisor-own"),
        (BROKEN, "cannot be looked at.*broken"),
    ],
)
async def test_a_runtime_class_that_does_not_isolate_is_refused(answer: Any, said: str) -> None:
    with pytest.raises(SandboxUnavailableError, match=said):
        await look_at_runtime_class(cluster(answer), GVISOR)


def policy(**changed: Any) -> dict[str, Any]:
    body = policy_body()
    return {**body, "spec": {**body["spec"], **changed}}


@pytest.mark.parametrize(
    ("answers", "verbs"),
    [((policy(),), "get"), ((NONE, {}), "get create"), ((NONE, EXISTS), "get create")],
)
async def test_the_policy_is_made_where_there_is_none(answers: tuple[Any, ...], verbs: str) -> None:
    """That another process was quicker is not an error."""
    server = cluster(*answers)
    await ensure_policy(server)
    assert " ".join(verb for verb, _, _ in server.asked) == verbs
    assert server.asked[0][1].endswith(f"networkpolicies/{POLICY}")
    assert all(body == policy_body() for verb, _, body in server.asked if verb == "create")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((policy(egress=[{}]),), "lets something through"),
        ((policy(ingress=[{}]),), "lets something through"),
        ((policy(policyTypes=["Ingress"]),), "lets something through"),
        ((policy(podSelector={"matchLabels": {"app": "x"}}),), "lets something through"),
        (({},), "lets something through"),
        ((NONE, FORBIDDEN), "there is no NetworkPolicy .* we may not make it"),
        ((BROKEN,), "cannot be made.*broken"),
    ],
)
async def test_a_policy_that_is_not_ours_is_refused(answers: tuple[Any, ...], said: str) -> None:
    with pytest.raises(SandboxUnavailableError, match=said):
        await ensure_policy(cluster(*answers))


async def test_warm_pools_are_found_by_what_their_pods_are() -> None:
    """A template without a pool counts for nothing."""
    labels = {"toolexec.io/spec": "d1", "toolexec.io/pool": "p1"}
    items = [{"metadata": {"labels": labels}}, {"metadata": {"labels": {"toolexec.io/spec": "d2"}}}, {"metadata": {}}]
    group = {"versions": [{"version": "v1beta1"}]}
    assert await find_pools(cluster(group, {"items": items})) == {"d1": "p1"}
    assert await find_pools(cluster(group, {})) == {}


async def test_a_cluster_without_warm_pools_has_none() -> None:
    """Neither has one of another version, nor one that does not say."""
    for answers in ((NONE,), ({"versions": [{"version": "v1"}]},), (BROKEN,), ({"versions": None},)):
        assert await find_pools(cluster(*answers)) is None

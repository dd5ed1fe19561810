"""The workspace of each caller with a real API server, whose controllers bind the claims, and the node of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from packages.kubernetes.tests.kube.real import RealCluster
from tests.engines.images import test_image
from tests.waiting import until, until_blocking

from toolexec import CodeResult, Exec
from toolexec.errors import SandboxDeniedError, SandboxUnavailableError
from toolexec.model import Caller, Origin, acting
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig
from toolexec_kubernetes.manifest import make_manifest
from toolexec_kubernetes.spec import MANAGED_LABEL, MANAGER
from toolexec_kubernetes.workspace import USED, WORKSPACE_LABEL, workspace_name, workspace_user

pytestmark = [pytest.mark.full, pytest.mark.anyio]
WRITE = "open('note', 'a').write('x')\nimport os\nreturn os.getuid(), open('note').read()"
GIVEN = {"size": "64Mi", "storage_class": "tests"}


class Place:
    """A namespace with volumes for the workspaces of some callers."""

    def __init__(self, cluster: RealCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        self.volumes: list[str] = []

    def config(self, **settings: Any) -> KubernetesConfig:
        """Settings with workspaces."""
        given: dict[str, Any] = {
            "kubeconfig": str(self.cluster.kubeconfig),
            "namespace": self.namespace,
            "image": test_image().name,
            "workspace": GIVEN,
        }
        return KubernetesConfig(**{**given, **settings})

    def name(self, caller: str, realm: str = "") -> str:
        """What the claim of a caller is called."""
        workspace = self.config().own_workspace
        assert workspace is not None
        return workspace_name(workspace, realm, caller)

    def add_volume(self, caller: str, realm: str = "") -> None:
        """Make a directory of the node that the claim of a caller gets."""
        claim = self.name(caller, realm)
        place = self.cluster.directory / f"disk-{self.namespace}-{claim[-16:]}"
        place.mkdir()
        place.chmod(0o2777)
        volume = {
            "metadata": {"name": f"{self.namespace}-{claim[-16:]}"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "tests",
                "capacity": {"storage": "64Mi"},
                "hostPath": {"path": str(place)},
                "claimRef": {"namespace": self.namespace, "name": claim},
            },
        }
        self.volumes.append(volume["metadata"]["name"])  # type: ignore[index]
        self.cluster.ask("POST", "/api/v1/persistentvolumes", volume)

    def claim(self, caller: str) -> dict[str, Any] | None:
        """The claim of a caller."""
        status, found = self.cluster.request("GET", f"{self.claims}/{self.name(caller)}")
        return found if status == 200 else None

    def clear(self) -> None:
        """Remove what there is."""
        for each in self.cluster.ask("GET", self.claims)["items"]:
            self.cluster.ask("DELETE", f"{self.claims}/{each['metadata']['name']}")
        for name in self.volumes:
            self.cluster.ask("DELETE", f"/api/v1/persistentvolumes/{name}")


@pytest.fixture
def place(real_cluster: RealCluster, real_namespace: str) -> Iterator[Place]:
    """Give a namespace with a volume for ann, and one for bob."""
    found = Place(real_cluster, real_namespace)
    for caller in ("ann", "bob"):
        found.add_volume(caller)
    yield found
    until_blocking(lambda: not real_cluster.pods(real_namespace), 0.05)
    found.clear()


def by(caller: str, tenant: str = "") -> Origin:
    """The origin of what a caller does."""
    return Origin(caller=Caller(id=caller, tenant=tenant, method="api_key"))


async def test_each_caller_has_files_of_its_own(place: Place) -> None:
    """Files that a caller leaves in /work are there in its next pod, where it has the same user, and in that of no other caller; they are not
    handed out again. An anonymous caller has no workspace. The role of the manifest is enough."""
    documents = make_manifest(place.config())
    for kind, path in (
        ("ServiceAccount", "/api/v1"),
        *((kind, "/apis/rbac.authorization.k8s.io/v1") for kind in ("Role", "RoleBinding")),
    ):
        (document,) = [each for each in documents if each["kind"] == kind]
        place.cluster.ask("POST", f"{path}/namespaces/{place.namespace}/{kind.lower()}s", document)
    policy = documents[4]
    place.cluster.ask("POST", f"/apis/networking.k8s.io/v1/namespaces/{place.namespace}/networkpolicies", policy)
    file = str(place.cluster.kubeconfig_for(place.namespace, "toolexec"))
    backend = KubernetesBackend(place.config(kubeconfig=file))
    async with Exec(runtime_backends=[backend]) as ex:

        async def run(origin: Origin, code: str = WRITE) -> CodeResult:
            with acting(origin):
                return await ex.execute_code(code, timeout=60)

        first = await run(by("ann"))
        user = workspace_user(place.name("ann"))
        assert first.raise_for_error().value == [user, "x"]
        assert first.files == {"note": b"x"}
        second = await run(by("ann"), "import os\nreturn os.getuid(), open('note').read()")
        assert second.raise_for_error().value == [user, "x"]
        assert second.files == {}
        other = await run(by("bob"))
        assert other.raise_for_error().value == [workspace_user(place.name("bob")), "x"]
        assert workspace_user(place.name("bob")) != user
        unknown = await run(Origin())
        assert unknown.raise_for_error().value[1] == "x"
        assert unknown.value[0] not in (user, other.value[0])
        again = await run(Origin())
        assert again.raise_for_error().value[1] == "x"
        await until(lambda: backend.running == 0)
    claims = place.cluster.ask("GET", place.claims)["items"]
    assert {each["metadata"]["name"] for each in claims} == {place.name("ann"), place.name("bob")}
    assert all("ann" not in each["metadata"]["name"].removeprefix("toolexec-") for each in claims)


async def test_a_claim_of_another_user_is_refused(place: Place) -> None:
    """A claim that has the name of a workspace and is not one of ours is given to no program."""
    wanted = {
        "metadata": {"name": place.name("ann")},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "tests",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    place.cluster.ask("POST", place.claims, wanted)
    async with Exec(runtime_backends=[KubernetesBackend(place.config())]) as ex:
        with acting(by("ann")), pytest.raises(SandboxUnavailableError, match="made by another user") as caught:
            await ex.execute_code("return 1", timeout=30)
    assert not caught.value.retryable
    assert caught.value.details["reason"] == "workspace"


async def test_what_is_not_used_is_removed(place: Place) -> None:
    """Unused workspaces go after `keep_seconds`, by the first check, and not what was used since, nor what belongs to another scope."""
    old, body = "2020-01-01T00:00:00.000000Z", place.config()
    common = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "tests",
        "resources": {"requests": {"storage": "1Mi"}},
    }
    for name, scope, used in (
        (place.name("ann"), "default", old),
        (place.name("bob"), "default", "2999-01-01T00:00:00Z"),
        ("other", "other", old),
    ):
        labels = {MANAGED_LABEL: MANAGER, WORKSPACE_LABEL: scope}
        metadata = {"name": name, "labels": labels, "annotations": {USED: used}}
        place.cluster.ask("POST", place.claims, {"metadata": metadata, "spec": common})
    backend = KubernetesBackend(body)
    found = await backend.check()
    await backend.aclose()
    assert found.ok, found
    left = [each["metadata"] for each in place.cluster.ask("GET", place.claims)["items"]]
    there = {each["name"] for each in left if "deletionTimestamp" not in each}
    assert there == {place.name("bob"), "other"}


async def test_an_idle_session_is_suspended(place: Place) -> None:
    """The pod of an idle session goes, and its next program has another one, with its files and its user, without its names. Another caller
    cannot use it."""
    backend = KubernetesBackend(place.config(suspend_seconds=0.2))
    async with Exec(runtime_backends=[backend]) as ex:
        with acting(by("ann")):
            async with ex.session(timeout=60) as session:
                first = await session.execute_code("x = 1\n" + WRITE)
                assert first.raise_for_error().value[1] == "x"
                assert "resumed" not in first.backend.details
                await until(lambda: not place.cluster.pods(place.namespace), 0.05)
                second = await session.execute_code(WRITE + ", 'x' in globals()")
                assert second.raise_for_error().value == [first.value[0], "xx", False]
                assert second.backend.details["resumed"] is True
                assert second.limits_enforced == first.limits_enforced
                with acting(by("bob")), pytest.raises(SandboxDeniedError, match="another caller"):
                    await session.execute_code("return 1")
        await until(lambda: backend.running == 0)

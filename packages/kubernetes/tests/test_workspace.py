"""The workspaces of callers: what is refused, what they are called, and what a pod has of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packages.kubernetes.tests.test_spec import CONFIG, made

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.model import Caller, Origin
from toolexec.sandbox import ExecuteRequest
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig
from toolexec_kubernetes.checks import permissions_for
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.keeping import have_workspace, remove_unused
from toolexec_kubernetes.manifest import make_manifest
from toolexec_kubernetes.sandboxes import has_sandboxes, resume_sandbox, sandbox_body
from toolexec_kubernetes.spec import AGENTS, MANAGED_LABEL, MANAGER, OWNED_LABEL, RUN_LABEL, Made, pod_spec, spec_hash
from toolexec_kubernetes.workspace import (
    USED,
    WORKSPACE_LABEL,
    PlacedSpec,
    SessionPod,
    Workspace,
    workspace_name,
    workspace_of,
    workspace_user,
)

ONE = Workspace(size=1 << 30)


def asked(caller: Caller) -> ExecuteRequest:
    return ExecuteRequest(code="1", origin=Origin(caller=caller))


def placed(name: str) -> PlacedSpec:
    spec = made()
    values = {each: getattr(spec, each) for each in type(spec).__dataclass_fields__}
    return PlacedSpec(**values, workspace=name)


@pytest.mark.parametrize(
    ("workspace", "said"),
    [
        ({}, None),
        ({"storage_class": "ssd"}, "it needs a size"),
        ({"size": "1"}, "size must be"),
        ({"size": "1Gi", "path": "/x"}, "there is no 'path'"),
        ({"size": "1Gi", "storage_class": "No Class"}, "not a name of an object"),
        ({"size": "1Gi", "storage_class": 3}, "not a name of an object"),
        ({"size": "1Gi", "access": "ReadOnlyMany"}, "access must be one of"),
        ({"size": "1Gi", "scope": "A/b"}, "scope must be"),
        ({"size": "1Gi", "scope": ""}, "scope must be"),
        ({"size": "1Gi", "keep_seconds": True}, "keep_seconds must be"),
        ({"size": "1Gi", "keep_seconds": -1}, "keep_seconds must be"),
        ({"size": "1Gi", "keep_seconds": 3600}, "must be above lifetime"),
        ({"size": "1Gi", "keep_seconds": 0}, None),
    ],
)
def test_what_is_not_a_workspace_is_refused(workspace: dict[str, Any], said: str | None) -> None:
    """The error names the key, when the settings are made."""
    if said is None:
        assert (KubernetesConfig(namespace="code", workspace=workspace).own_workspace is None) == (not workspace)
        return
    with pytest.raises(ConfigurationError, match=said):
        KubernetesConfig(namespace="code", workspace=workspace)


def test_a_session_without_a_workspace_cannot_be_suspended() -> None:
    with pytest.raises(ConfigurationError, match="needs a workspace"):
        KubernetesConfig(namespace="code", suspend_seconds=5)


def test_no_two_callers_have_one_workspace() -> None:
    """Callers differ in another tenant, at another endpoint, in another scope, or where the words are split elsewhere; an
    anonymous caller has none."""
    callers = [
        Caller(id="ann"),
        Caller(id="Ann"),
        Caller(id="ann", tenant="a"),
        Caller(id="aann"),
        Caller(id="ann", endpoint="a"),
        Caller(id="ann", tenant="/a/"),
        Caller(id="../ann"),
        Caller(id='","'),
    ]
    names = {workspace_of(asked(caller), ONE) for caller in callers}
    names.add(workspace_of(asked(callers[0]), replace(ONE, scope="other")))
    assert len(names) == len(callers) + 1
    assert all(len(name) <= 253 and name.replace("-", "").isalnum() and name.islower() for name in names)
    assert len({workspace_user(name) for name in names}) == len(names)
    assert all(1 << 24 <= workspace_user(name) < 1 << 31 for name in names)
    assert workspace_of(asked(Caller(tenant="a")), ONE) == ""
    assert workspace_of(asked(Caller(id="ann")), None) == ""


def test_a_pod_has_the_workspace_as_its_working_directory() -> None:
    """A pod has nothing else of another one; one of a warm pool is never taken for it."""
    usual, own = pod_spec("x", made(), CONFIG), pod_spec("x", placed("claim"), CONFIG)
    volumes = {each["name"]: each for each in own["volumes"]}
    assert volumes.pop("workspace") == {"name": "workspace", "persistentVolumeClaim": {"claimName": "claim"}}
    assert all("emptyDir" in each for each in volumes.values())
    (mount,) = [each for each in own["containers"][0]["volumeMounts"] if each["name"] == "workspace"]
    assert mount == {"name": "workspace", "mountPath": "/work"}
    assert own["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert spec_hash(usual, CONFIG) != spec_hash(own, CONFIG)


def test_a_workspace_has_no_bound_that_we_keep() -> None:
    """A result does not say that the size of files is enforced; it does for a caller who has none."""
    backend = KubernetesBackend(KubernetesConfig(namespace="code", workspace={"size": "1Gi"}))
    backend.engine._held = replace(backend.engine.enforces(asked(Caller()).limits), disk=True)  # type: ignore[attr-defined]
    assert backend.enforces(asked(Caller())).disk
    assert not backend.enforces(asked(Caller(id="ann"))).disk


def test_the_role_has_what_workspaces_need() -> None:
    """A role has nothing more where none is ever removed, and Sandboxes only where sessions are suspended."""
    rules = {each.resource: each.verbs for each in permissions_for(jobs=False, claims=False, workspace=ONE)}
    assert rules["persistentvolumeclaims"] == ("create", "delete", "get", "list", "patch")
    assert "sandboxes" not in rules
    kept = KubernetesConfig(namespace="code", workspace={"size": 1 << 30, "keep_seconds": 0}, suspend_seconds=9)
    (role,) = [each for each in make_manifest(kept) if each["kind"] == "Role"]
    found = {each["resources"][0]: each["verbs"] for each in role["rules"]}
    assert found["persistentvolumeclaims"] == ["create", "get"]
    assert found["sandboxes"] == ["create", "delete", "list", "patch"]


class Server:
    """What an API server answers, one after the other; `asked` has the requests."""

    namespace = "code"

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]
        self.asked: list[tuple[str, str, Any]] = []

    def path(self, group: str, kind: str, name: str = "") -> str:
        return f"{group}/{kind}/{name}".rstrip("/")

    def now(self) -> float:
        return 4e9

    def _answer(self, verb: str, path: str, body: Any) -> Any:
        self.asked.append((verb, path, body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def get(self, path: str, **query: str) -> Any:
        return self._answer("get", path, query)

    async def create(self, path: str, body: Any) -> Any:
        return self._answer("create", path, body)

    async def merge(self, path: str, body: Any) -> Any:
        return self._answer("merge", path, body)

    async def delete(self, path: str, *, version: str) -> Any:
        return self._answer("delete", path, version)


NONE, EXISTS = KubeError(404, "not found"), KubeError(409, "there", reason="AlreadyExists")


def claim(used: str = "2000-01-01T00:00:00Z", **metadata: Any) -> dict[str, Any]:
    labels = {MANAGED_LABEL: MANAGER, WORKSPACE_LABEL: "default"}
    own = {"name": "a", "resourceVersion": "7", "labels": labels, "annotations": {USED: used}}
    return {"metadata": {**own, **metadata}, "status": {"phase": "Bound"}}


@pytest.mark.parametrize(
    ("answers", "verbs"),
    [
        ((NONE, {}), "get create"),
        ((NONE, EXISTS, claim()), "get create get merge"),
        ((claim("2096-10-02T07:06:00Z"),), "get"),
        ((claim(), NONE, NONE, {}), "get merge get create"),
    ],
)
async def test_a_workspace_is_had_though_others_make_or_remove_it(answers: tuple[Any, ...], verbs: str) -> None:
    server = Server(*answers, {})
    await have_workspace(server, "a", ONE)  # type: ignore[arg-type]
    assert " ".join(verb for verb, _, _ in server.asked) == verbs


@pytest.mark.parametrize(
    ("answers", "said", "retryable"),
    [
        ((claim(labels={MANAGED_LABEL: MANAGER}),), "made by another user", False),
        ((claim(deletionTimestamp="2096-10-02T07:00:00Z"),), "being removed", True),
        (({**claim(), "status": {"phase": "Lost"}},), "its volume is lost", False),
        ((NONE, EXISTS) * 3, "all the time", True),
        ((KubeError(403, "no"),), "no", False),
        ((NONE, KubeError(503, "busy")), "busy", True),
        ((claim(), KubeError(500, "broken")), "broken", True),
    ],
)
async def test_a_workspace_that_cannot_be_used_says_why(answers: tuple[Any, ...], said: str, retryable: bool) -> None:
    with pytest.raises(SandboxUnavailableError, match=said) as caught:
        await have_workspace(Server(*answers), "a", ONE)  # type: ignore[arg-type]
    assert caught.value.retryable is retryable
    assert caught.value.outcome == "not_sent"


async def test_only_the_version_that_was_unused_is_removed() -> None:
    """A workspace that is used meanwhile stays; what else the server says is an error."""
    items = [claim(), claim("2096-10-02T07:00:00Z"), claim(deletionTimestamp="x"), claim(name="b", annotations={})]
    server = Server({"items": items}, True, KubeError(409, "changed"))
    assert await remove_unused(server, ONE) == ["a"]  # type: ignore[arg-type]
    assert [each for each in server.asked if each[0] == "delete"] == [
        ("delete", "v1/persistentvolumeclaims/a", "7"),
        ("delete", "v1/persistentvolumeclaims/b", "7"),
    ]
    assert await remove_unused(Server(), replace(ONE, keep_seconds=0)) == []  # type: ignore[arg-type]
    with pytest.raises(KubeError):
        await remove_unused(Server({"items": [claim()]}, KubeError(500, "x")), ONE)  # type: ignore[arg-type]


async def test_sandboxes_are_used_where_the_cluster_has_them() -> None:
    """A cluster without them, or one that does not say, has none."""
    assert await has_sandboxes(Server({"resources": [{"name": "sandboxes"}]}))  # type: ignore[arg-type]
    for answer in (NONE, KubeError(500, "broken"), {"resources": []}):
        assert not await has_sandboxes(Server(answer))  # type: ignore[arg-type]


async def test_a_sandbox_that_is_gone_is_not_resumed() -> None:
    """The caller makes it again; another answer is an error."""
    labels = {OWNED_LABEL: "me", RUN_LABEL: "r", "other": "x"}
    body = sandbox_body("s", labels, {"containers": []}, {}, "2030-01-01T00:00:00Z")
    assert set(body["metadata"]["labels"]) == {MANAGED_LABEL, OWNED_LABEL, RUN_LABEL}
    sandbox = Made(group=AGENTS, kind="sandboxes", body=body, run="r", image="x")
    assert await resume_sandbox(Server({}), sandbox)  # type: ignore[arg-type]
    assert not await resume_sandbox(Server(NONE), sandbox)  # type: ignore[arg-type]
    with pytest.raises(KubeError):
        await resume_sandbox(Server(KubeError(500, "x")), sandbox)  # type: ignore[arg-type]


def test_sessions_of_one_caller_have_pods_of_their_own() -> None:
    assert SessionPod() != SessionPod()
    assert workspace_name(ONE, "", "ann").startswith("toolexec-default-")

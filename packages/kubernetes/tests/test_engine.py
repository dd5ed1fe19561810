"""The engine of a cluster: when it may start pods, what makes them, and what it removes, by what an API server answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from packages.kubernetes.tests.test_sessions import ANN, Inner
from packages.kubernetes.tests.test_spec import made as spec_made
from packages.kubernetes.tests.test_workspace import NONE, placed

from toolexec.containers import PROCESSES, Daemon, this_owner
from toolexec.errors import SandboxDeniedError, SandboxFailedError, SandboxUnavailableError
from toolexec.model import Origin
from toolexec.sandbox import Availability, ContainerBackend, Image
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig, engine, pod, probe
from toolexec_kubernetes.engine import KubernetesEngine
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.lease import OwnLease
from toolexec_kubernetes.probe import NetworkFinding
from toolexec_kubernetes.sessions import IdleSession
from toolexec_kubernetes.spec import AGENTS, OWNED_LABEL, POLICY, pod_spec, spec_hash, with_one_user
from toolexec_kubernetes.workspace import SessionPod

FORBIDDEN, BROKEN = KubeError(403, "may not"), KubeError(500, "broken")
IMAGE = Image(name="team/tools:1", reference="team/tools:1", digest="")
CLAIMS = "v1/persistentvolumeclaims"
LEASES = "coordination.k8s.io/v1/leases"
VERSION = {"major": "1", "minor": "33", "gitVersion": "v1.33.2"}
CLOSED = NetworkFinding("closed")
OPEN = NetworkFinding("open", "it is open")
ANONYMOUS = ANN.given(origin=Origin())


class Cluster:
    """An API server: `answers` has what is there by its path, and all else is not; what is made is believed."""

    host = "https://cluster"
    namespace = "code"

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers: dict[str, Any] = {"/version": VERSION, "/api/v1/namespaces/code": {}, **answers}
        self.asked: list[tuple[str, str]] = []
        self.closed = 0

    def path(self, group: str, kind: str, name: str = "") -> str:
        return f"{group}/{kind}/{name}".rstrip("/")

    def now(self) -> float:
        return 4e9

    def _answer(self, verb: str, path: str, default: Any) -> Any:
        self.asked.append((verb, path))
        answer = self.answers.get(f"{verb} {path}", self.answers.get(path, default) if verb == "get" else default)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def get(self, path: str, **_: str) -> Any:
        return self._answer("get", path, NONE)

    async def create(self, path: str, _: Any) -> Any:
        return self._answer("create", path, {})

    async def ask(self, path: str, _: Any) -> Any:
        return self._answer("ask", path, {"status": {"allowed": True}})

    async def delete(self, path: str, **_: Any) -> Any:
        return self._answer("delete", path, False)

    async def aclose(self) -> None:
        self.closed += 1

    def count(self, verb: str, path: str) -> int:
        return self.asked.count((verb, path))


class Stand:
    """An engine that is connected to a cluster; `findings` has what is found out about its network."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        given: dict[str, Any] = {"namespace": "code", "image": IMAGE.name, **settings}
        self.config = KubernetesConfig(**given)
        self.cluster: Any = Cluster(answers or {})
        self.findings: list[Any] = [CLOSED]
        self.probed = 0
        self.engine = self.connected(KubernetesEngine(self.config))
        monkeypatch.setattr(probe, "probe_network", self.probe)

    def connected(self, found: KubernetesEngine) -> KubernetesEngine:
        cluster = engine._Cluster(self.cluster, self.cluster, OwnLease(self.cluster, this_owner()))
        found._connection = Daemon(cluster, engine._ClusterImages())
        return found

    async def probe(self, *_: Any) -> NetworkFinding:
        self.probed += 1
        found = self.findings.pop(0) if len(self.findings) > 1 else self.findings[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def plan(self, spec: Any = None) -> Any:
        return await self.engine._plan((await self.engine._connect()).client, IMAGE, spec or spec_made())


async def test_a_cluster_that_has_all_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    """The details have what was found out; the network that was seen to be closed is not tried again."""
    stand = Stand(monkeypatch)
    for _ in range(2):
        found = await stand.engine.check()
        assert (found.ok, found.version) == (True, "1.33.2")
    assert dict(stand.engine.details) == {
        "cluster": "https://cluster",
        "namespace": "code",
        "server": "1.33.2",
        "runtime_class": "",
        "handler": "",
        "isolation": "container",
        "network": "closed",
    }
    assert stand.probed == 1
    assert PROCESSES in stand.engine.drops
    assert stand.engine.enforces(ANN.limits).disk
    assert stand.cluster.count("create", LEASES) == 1
    assert stand.cluster.count("get", f"networking.k8s.io/v1/networkpolicies/{POLICY}") == 2
    await stand.engine.aclose()
    assert stand.cluster.closed == 2  # the client and the watch
    assert stand.cluster.asked[-1] == ("delete", f"{LEASES}/toolexec-{this_owner()}")


@pytest.mark.parametrize(
    ("finding", "reason", "fix"),
    [
        (OPEN, "it is open", "install a network plugin"),
        (NetworkFinding("unknown", "not known"), "not known", "let pods of the namespace code"),
        (SandboxDeniedError("a rule forbids it"), "a rule forbids it", ""),
    ],
)
async def test_an_open_network_starts_nothing(
    finding: Any, reason: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a check before, too: a start looks by itself."""
    stand = Stand(monkeypatch)
    stand.findings = [finding]
    found = await stand.engine.check()
    assert (found.ok, found.reason) == (False, reason)
    assert fix in repr(found)
    assert (found == Availability(ok=False, reason=reason, version="1.33.2")) is (not fix)
    with pytest.raises((SandboxUnavailableError, SandboxDeniedError), match=reason):
        await stand.engine.start(IMAGE, spec_made())
    assert stand.cluster.count("create", "v1/pods") == 0
    await stand.engine.aclose()


async def test_an_open_network_can_be_accepted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has it each time, and it is tried again after a while, as it may be closed by then."""
    monkeypatch.setattr(engine, "_UNPROVEN_HOLDS", 0.0)
    stand = Stand(monkeypatch, network="report")
    stand.findings = [OPEN, CLOSED]
    for state in ("open", "closed", "closed"):
        assert (await stand.engine.check()).ok
        assert stand.engine.details["network"] == state
    assert stand.probed == 2
    assert caplog.text.count("it is open; code runs all the same") == 1
    await stand.engine.aclose()


async def test_no_cluster_is_used_that_was_not_named() -> None:
    """The current one of this user is not ours to use."""
    found = await KubernetesEngine().check()
    assert (found.ok, found.reason) == (False, "no cluster is named")


class Started:
    """A container that is opened at once."""

    made: Any
    options: Any

    def __init__(self, client: Any, watch: Any, made: Any, left: Any, **options: Any) -> None:
        Started.made, Started.options = made, options

    async def open(self, seconds: float) -> None:
        assert seconds > 0


async def test_a_pod_is_started_in_the_workspace_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is made before the pod; the network is tried before both."""
    monkeypatch.setattr(pod, "PodContainer", Started)
    stand = Stand(monkeypatch, workspace={"size": "1Gi"})
    await stand.engine.start(IMAGE, placed("claim"))
    assert stand.probed == 1
    assert stand.cluster.count("create", CLAIMS) == 1
    assert Started.options == {"reconnect_seconds": stand.config.reconnect_seconds, "session": None}
    volumes = {each["name"]: each for each in Started.made.body["spec"]["volumes"]}
    assert volumes["workspace"]["persistentVolumeClaim"] == {"claimName": "claim"}
    await stand.engine.start(IMAGE, spec_made())
    assert (stand.probed, stand.cluster.count("create", CLAIMS)) == (1, 1)
    await stand.engine.aclose()


async def test_without_a_lease_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would take its pods for those of a dead process."""
    stand = Stand(monkeypatch, {f"create {LEASES}": FORBIDDEN})
    stand.engine._network = CLOSED
    with pytest.raises(SandboxUnavailableError, match=r"our Lease cannot be made.*may not"):
        await stand.engine.start(IMAGE, spec_made())
    assert stand.cluster.asked == [("create", LEASES)]
    await stand.engine.aclose()


async def test_unused_workspaces_are_removed_once_an_hour(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Code runs though that fails."""
    stand = Stand(monkeypatch, {CLAIMS: BROKEN}, workspace={"size": "1Gi"})
    for _ in range(2):
        assert (await stand.engine.check()).ok
    assert stand.cluster.count("get", CLAIMS) == 1
    assert "unused workspaces are not removed: broken" in caplog.text
    stand.engine._tidy_at = 0.0
    stand.cluster.answers[CLAIMS] = {"items": []}
    caplog.clear()
    assert (await stand.engine.check()).ok
    assert (stand.cluster.count("get", CLAIMS), caplog.text) == (2, "")
    await stand.engine.aclose()


async def test_a_pod_is_made_by_what_the_settings_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a warm pool that is alike is claimed; a pod or a Job is made for all others."""
    plain = await Stand(monkeypatch).plan()
    assert (plain.group, plain.kind) == ("v1", "pods")
    assert plain.body["metadata"]["name"] == f"toolexec-{plain.run}"
    job = await Stand(monkeypatch, jobs=True).plan()
    assert (job.group, job.kind, job.image) == ("batch/v1", "jobs", IMAGE.name)
    stand = Stand(monkeypatch, agent_sandbox=True)
    alike = pod_spec(IMAGE.reference, with_one_user(spec_made(), stand.config), stand.config)
    stand.engine._pools = {spec_hash(alike, stand.config): "warm"}
    claimed = await stand.plan()
    assert claimed.kind == "sandboxclaims"
    assert "warm" in str(claimed.body["spec"])
    assert (await stand.plan(spec_made(memory_bytes=99 << 20))).kind == "pods"


async def test_a_session_that_is_suspended_has_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next pod of the session is of the same one, which then lasts longer."""
    settings: dict[str, Any] = {"workspace": {"size": "1Gi"}, "suspend_seconds": 60}
    stand = Stand(monkeypatch, agent_sandbox=True, **settings)
    session = SessionPod()
    spec = replace(placed("claim"), session=session)
    assert (await stand.plan(spec)).kind == "pods"
    stand.engine._has_sandboxes = True
    first = await stand.plan(spec)
    assert (first.group, first.kind, first.keeps) == (AGENTS, "sandboxes", stand.config.lifetime)
    ends = first.body["spec"]["shutdownTime"]
    body = {**first.body, "spec": {**first.body["spec"], "shutdownTime": "long ago"}}
    session.made = replace(first, body=body)
    assert (await stand.plan(spec)).body == {**first.body, "spec": {**first.body["spec"], "shutdownTime": ends}}


async def test_a_session_is_forgotten_with_its_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Sandbox that cannot be removed is left; a session without one leaves nothing."""
    stand = Stand(monkeypatch, {f"delete {AGENTS}/sandboxes/s": BROKEN})
    made = replace(await stand.plan(), group=AGENTS, kind="sandboxes", body={"metadata": {"name": "s"}})
    session = SessionPod(made=made)
    await stand.engine.forget(session)
    await stand.engine.forget(session)
    assert stand.engine.left == {"sandboxes/s"}
    assert session.made is None
    assert stand.cluster.count("delete", f"{AGENTS}/sandboxes/s") == 1
    del stand.cluster.answers[f"delete {AGENTS}/sandboxes/s"]
    await stand.engine.aclose()
    assert stand.engine.left == frozenset()


async def test_a_sweep_removes_what_dead_processes_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their Leases go last; an API server that fails does not make the sweep raise."""
    labels = {OWNED_LABEL: "dead"}
    lease = {"metadata": {"labels": labels}, "spec": {"renewTime": "2000-01-01T00:00:00Z", "leaseDurationSeconds": 1}}
    pods = {"items": [{"metadata": {"name": "p", "labels": labels}}]}
    stand = Stand(monkeypatch, {LEASES: {"items": [lease]}, "v1/pods": pods})
    stand.engine._left.add("jobs/j")
    await stand.engine.sweep()
    deleted = [path for verb, path in stand.cluster.asked if verb == "delete"]
    assert sorted(deleted[:2]) == ["batch/v1/jobs/j", "v1/pods/p"]
    assert deleted[2:] == [f"{LEASES}/toolexec-dead"]
    assert stand.engine.left == frozenset()
    stand.cluster.answers[LEASES] = BROKEN
    await stand.engine.sweep()
    assert len([verb for verb, _ in stand.cluster.asked if verb == "delete"]) == 3


async def test_only_sessions_of_identified_callers_are_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are closed with their backend; their guests know which session they are for."""
    opened: list[Any] = []

    async def open_session(_: Any, request: Any) -> Any:
        opened.append((request, engine._OPENING.get(), Inner()))
        return opened[-1][2]

    monkeypatch.setattr(ContainerBackend, "open_session", open_session)
    backend = KubernetesBackend(KubernetesConfig(namespace="code", workspace={"size": "1Gi"}, suspend_seconds=60))
    assert await backend.open_session(ANONYMOUS) is opened[0][2]
    session = await backend.open_session(ANN)
    assert isinstance(session, IdleSession)
    assert [isinstance(each, SessionPod) for _, each, _ in opened] == [False, True]
    assert engine._OPENING.get() is None
    spec = backend.spec_for_request(ANN, spec_made())
    assert spec == replace(placed(spec.workspace), session=None)  # type: ignore[attr-defined]
    assert spec.workspace.startswith("toolexec-default-")  # type: ignore[attr-defined]
    assert backend.spec_for_request(ANONYMOUS, spec_made()) == spec_made()
    await backend.aclose()
    assert [inner.closed for _, _, inner in opened] == [False, True]
    with pytest.raises(SandboxFailedError, match="it was closed"):
        await session.execute(ANN)

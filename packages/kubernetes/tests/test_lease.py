"""The Lease of a process, what dead processes have left, and how that is removed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from packages.kubernetes.tests.test_workspace import EXISTS, NONE, Server

from toolexec_kubernetes import lease, removal
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.lease import OwnLease, forget_dead, orphans, read_timestamp, timestamp
from toolexec_kubernetes.removal import remove_for_good, remove_object
from toolexec_kubernetes.spec import MANAGED_LABEL, OWNED_LABEL

BROKEN = KubeError(500, "broken")
LEASES = "coordination.k8s.io/v1/leases"


class Cluster(Server):
    """An API server that removes pods within a time, too, and that is silent when it has no answer left."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.silent = asyncio.Event()

    async def merge(self, path: str, body: Any) -> Any:
        if not self.answers:
            self.silent.set()
            await asyncio.Event().wait()
        return await super().merge(path, body)

    async def delete(self, path: str, *, grace: int | None = None, version: str = "") -> Any:
        return self._answer("delete", path, grace)

    @property
    def verbs(self) -> str:
        return " ".join(verb for verb, _, _ in self.asked)


def cluster(*answers: Any) -> Any:
    return Cluster(*answers)


def held(owner: str, renewed: float, seconds: int = 120) -> dict[str, Any]:
    return {
        "metadata": {"name": f"toolexec-{owner}", "labels": {OWNED_LABEL: owner}},
        "spec": {"renewTime": timestamp(renewed), "leaseDurationSeconds": seconds},
    }


def item(name: str, owner: str, made: float) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {OWNED_LABEL: owner}, "creationTimestamp": timestamp(made)}}


NOW = 4e9
"""The time by the clock of the server."""


def test_a_time_is_read_as_it_is_written() -> None:
    assert read_timestamp(timestamp(1.5)) == 1.5
    assert timestamp(1.5) == "1970-01-01T00:00:01.500000Z"
    assert read_timestamp("None") == 0.0


async def test_a_lease_is_made_once() -> None:
    """Where another engine of this process has made it, it is used."""
    for first in ({}, EXISTS):
        server = cluster(first, True)
        own = OwnLease(server, "me")
        await asyncio.gather(own.hold(), own.hold())
        await own.aclose()
        assert server.verbs == "create delete"
        assert server.asked[0][2]["spec"]["renewTime"] == timestamp(NOW)
        assert server.asked[1][1] == f"{LEASES}/toolexec-me"


async def test_a_lease_that_cannot_be_made_is_not_held() -> None:
    """The next try makes it; one that was never held is not removed."""
    server = cluster(BROKEN, {}, BROKEN)
    own = OwnLease(server, "me")
    await own.aclose()
    with pytest.raises(KubeError, match="broken"):
        await own.hold()
    await own.hold()
    await own.aclose()  # does not raise, though it cannot be removed
    assert server.verbs == "create create delete"


@pytest.mark.parametrize(
    ("answers", "verbs"),
    [
        (({},), "merge"),
        ((BROKEN, {}), "merge merge"),
        ((NONE, {}, {}), "merge create merge"),
        ((NONE, BROKEN, NONE, {}), "merge create merge create"),
    ],
)
async def test_a_lease_is_renewed_until_it_is_closed(
    answers: tuple[Any, ...], verbs: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was removed is made again, and no answer ends that."""
    monkeypatch.setattr(lease, "_EVERY", 0.0)
    server = cluster({}, *answers)
    own = OwnLease(server, "me")
    await own.hold()
    await server.silent.wait()
    server.answers = [True]
    await own.aclose()
    assert server.verbs == f"create {verbs} delete"
    assert ("is not renewed" in caplog.text) == (len(answers) > 1)
    assert ("cannot be made again: broken" in caplog.text) == ("merge create merge create" in verbs)


async def test_what_dead_processes_have_left_is_found() -> None:
    """Ours, that of a process with a Lease, and what is younger than a Lease may be late are not among it."""
    leases = {"items": [held("alive", NOW - 60), held("dead", NOW - 600), {"metadata": {"name": "x"}}]}
    pods = [
        item("own", "me", 0),
        item("of-alive", "alive", 0),
        item("of-dead", "dead", NOW),
        item("young", "unknown", NOW - 60),
        item("old", "unknown", NOW - 600),
    ]
    server = cluster(
        leases, {"items": pods}, {"items": [item("j", "dead", NOW)]}, {}, {"items": [item("s", "dead", 0)]}
    )
    found = await orphans(server, "me", jobs=True, claims=True, sandboxes=True)
    assert found == {"pods/of-dead", "pods/old", "jobs/j", "sandboxes/s"}
    assert [path.split("/")[-1] for _, path, _ in server.asked] == [
        "leases",
        "pods",
        "jobs",
        "sandboxclaims",
        "sandboxes",
    ]
    assert server.asked[0][2] == {"labelSelector": f"{MANAGED_LABEL}=toolexec"}
    few = cluster(leases, {"items": pods})
    assert await orphans(few, "me", jobs=False, claims=False) == {"pods/of-dead", "pods/old"}


async def test_leases_of_dead_processes_are_removed() -> None:
    server = cluster({"items": [held("alive", NOW), held("dead", NOW - 600)]}, True)
    await forget_dead(server)
    assert server.asked[1:] == [("delete", f"{LEASES}/toolexec-dead", None)]


@pytest.mark.parametrize(
    ("id", "pod", "answers", "deleted", "there"),
    [
        ("pods/a", "", (True,), ["v1/pods/a"], True),
        ("pods/a", "", (False,), ["v1/pods/a"], False),
        ("jobs/j", "p", (False, True), ["batch/v1/jobs/j", "v1/pods/p"], True),
        ("jobs/j", "", (True,), ["batch/v1/jobs/j"], True),
        ("pods/", "", (), [], False),
    ],
)
async def test_what_makes_a_pod_is_removed_before_it(
    id: str, pod: str, answers: tuple[Any, ...], deleted: list[str], there: bool
) -> None:
    server = cluster(*answers)
    assert await remove_object(server, id, pod) is there
    assert [path for _, path, _ in server.asked] == deleted


@pytest.mark.parametrize(
    ("id", "answers", "verbs", "gone"),
    [
        ("pods/a", (False,), "delete", True),
        ("jobs/j", (True,), "delete", True),
        ("pods/a", (True, {}, NONE), "delete get get", True),
        ("pods/a", (True, {}, {}, {}, True), "delete get get get delete", True),
        ("pods/a", (True, BROKEN), "delete get", False),
    ],
)
async def test_a_pod_whose_node_is_lost_is_forgotten(
    id: str, answers: tuple[Any, ...], verbs: str, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node has some time to remove it; what is still there then is removed whatever the node says."""
    monkeypatch.setattr(removal, "_LOOK", 0.0)
    monkeypatch.setattr(removal, "_LOOKS", 3)
    server = cluster(*answers)
    assert await remove_for_good(server, id) is gone
    assert server.verbs == verbs
    assert [body for verb, _, body in server.asked[1:] if verb == "delete"] == [0] * (verbs.count("delete") - 1)

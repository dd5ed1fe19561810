"""The pods of sessions that are suspended: what becomes of their Sandbox, and what the session knows of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from packages.kubernetes.tests.test_pod import BROKEN, FORBIDDEN, RUNS, Cluster, Socket, container
from packages.kubernetes.tests.test_workspace import NONE
from tests.waiting import until

from toolexec.errors import SandboxUnavailableError
from toolexec_kubernetes.pod import PodContainer
from toolexec_kubernetes.spec import AGENTS
from toolexec_kubernetes.workspace import SessionPod

MODE = {"spec": {"operatingMode": "Running"}}
SANDBOX = f"{AGENTS}/sandboxes/p"


def stands_for(session: SessionPod) -> list[tuple[str, str]]:
    return [] if session.made is None else [(session.made.kind, session.made.id)]


async def opened(cluster: Cluster, session: SessionPod) -> PodContainer:
    """Return a container that a Sandbox has made a pod for."""
    found = container(cluster, "sandboxes", session)
    opening = asyncio.create_task(found.open(30))
    await until(lambda: cluster.asked, 0)
    cluster.report(RUNS)
    await opening
    return found


async def test_the_pod_of_a_session_is_suspended_and_resumed() -> None:
    """Its Sandbox stays for the next pod, and is removed with the session."""
    session = SessionPod(is_over=True)
    cluster = Cluster(MODE, Socket(), {}, True)
    found = await opened(cluster, session)
    assert not session.is_over
    session.is_suspending = True
    await found.aclose()
    assert stands_for(session) == [("sandboxes", "sandboxes/p")]
    verb, path, body = cluster.asked[2]
    assert (verb, path, body["spec"]["operatingMode"]) == ("merge", SANDBOX, "Suspended")
    assert body["spec"]["shutdownTime"].startswith("2096-10-02T07:07:40")
    assert cluster.asked[3] == ("delete", "v1/pods/p", 1)
    session.is_suspending = False
    again = Cluster({}, Socket(), True, True)
    found = await opened(again, session)
    assert again.asked[0] == ("merge", SANDBOX, {"spec": {"operatingMode": "Running", "shutdownTime": "then"}})
    await found.aclose()
    assert again.asked[2:] == [("delete", SANDBOX, None), ("delete", "v1/pods/p", 1)]
    assert (stands_for(session), session.is_over) == ([], True)


@pytest.mark.parametrize(("answer", "stays"), [(MODE, True), ({"spec": {}}, False)])
async def test_a_sandbox_that_is_gone_is_made_again(answer: Any, stays: bool) -> None:
    """One that the API server keeps no mode of cannot be suspended, and is removed."""
    before = container(Cluster(), "sandboxes")._made
    session = SessionPod(made=before)
    cluster = Cluster(NONE, answer, Socket(), *([{}, True] if stays else [True, True]))
    found = await opened(cluster, session)
    assert cluster.verbs == "merge create stream"
    assert bool(stands_for(session)) is stays
    session.is_suspending = True
    await found.aclose()
    assert cluster.verbs == f"merge create stream {'merge' if stays else 'delete'} delete"


async def test_a_session_that_cannot_be_suspended_has_another_pod_next() -> None:
    """The rest of this one is removed later."""
    session = SessionPod()
    found = await opened(Cluster(MODE, Socket(), BROKEN), session)
    session.is_suspending = True
    await found.aclose()
    assert (stands_for(session), found._left) == ([], {"sandboxes/p"})


async def test_a_sandbox_that_cannot_be_resumed_says_why() -> None:
    session = SessionPod(made=container(Cluster(), "sandboxes")._made)
    found = container(Cluster(FORBIDDEN, True), "sandboxes", session)
    with pytest.raises(SandboxUnavailableError, match="may not"):
        await found.open(30)
    assert session.is_over

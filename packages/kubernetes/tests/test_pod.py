"""One pod: how it comes to run or why not, and what is left of it, by what an API server may answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from packages.kubernetes.tests.test_workspace import NONE, Server
from tests.waiting import until

from toolexec.errors import SandboxError
from toolexec_kubernetes import pod as module
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.pod import PodContainer
from toolexec_kubernetes.spec import AGENTS, Made
from toolexec_kubernetes.workspace import SessionPod

BROKEN, FORBIDDEN = KubeError(500, "broken", retry_after=0.001), KubeError(403, "may not")


class Socket:
    """A connection to the streams of a container, which the test ends with `hang_up`."""

    protocol = "v5.channel.k8s.io"

    def __init__(self) -> None:
        self.closed = False
        self.close_code: int | None = None
        self.sent: list[bytes] = []
        self.messages: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()

    async def receive(self) -> aiohttp.WSMessage:
        return await self.messages.get()

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    async def close(self) -> None:
        self.closed = True

    def hang_up(self, code: int) -> None:
        self.close_code = code
        self.messages.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None))


class Cluster(Server):
    """An API server, with the watch that reports what it does with the one pod."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.notify: Callable[[Any, bool], None] | None = None
        self.pod: Any = None
        self.removes = True

    async def add(self, _: str, notify: Callable[[Any, bool], None]) -> None:
        self.notify = notify

    def note(self, pod: Any) -> None:
        self.report(pod)

    def report(self, pod: Any, deleted: bool = False) -> None:
        assert self.notify is not None
        self.pod = pod
        self.notify(pod, deleted)

    def remove(self, _: str) -> None:
        self.notify = None

    async def stream(self, path: str, _: Any) -> Any:
        answer = self._answer("stream", path, None)
        if isinstance(answer, dict):  # it ends, and then cannot be attached to
            self.report(answer)
            raise KubeError(500, "the container is not running")
        return answer

    async def text(self, path: str, **query: str) -> str:
        return str(self._answer("text", path, query))

    async def delete(self, path: str, *, grace: int | None = None, version: str = "") -> Any:
        there = self._answer("delete", path, grace)
        if there and self.removes and self.pod is not None:
            self.report(self.pod, deleted=True)
        return there

    @property
    def verbs(self) -> str:
        return " ".join(verb for verb, _, _ in self.asked)


def pod(state: dict[str, Any] | None = None, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    status = {"phase": phase, "containerStatuses": [{"name": "guest", "state": state or {}}]}
    return {"metadata": {"name": "p"}, "spec": spec, "status": status}


RUNS = pod({"running": {}})
PENDING = pod(phase="Pending")
ENDED = pod({"terminated": {"exitCode": 127}})
EVICTED = {**pod(phase="Failed"), "status": {"phase": "Failed", "reason": "Evicted"}}


def container(cluster: Cluster, kind: str = "pods", session: SessionPod | None = None, **made: Any) -> PodContainer:
    """Return the one that is to be opened; what it leaves is in its `_left`."""
    group = {"pods": "v1", "jobs": "batch/v1", "sandboxes": AGENTS}[kind]
    body = {"metadata": {"name": "p"}, "spec": {"shutdownTime": "then"}}
    given = Made(group=group, kind=kind, body=body, run="r", image="team/tools", linked=False, keeps=60, **made)
    return PodContainer(cluster, cluster, given, set(), session=session)  # type: ignore[arg-type]


async def refused(cluster: Cluster, seconds: float = 30, kind: str = "pods", **made: Any) -> SandboxError:
    """Return the error of a container that does not come to run; nothing of it is left."""
    found = container(cluster, kind, **made)
    with pytest.raises(SandboxError) as caught:
        await found.open(seconds)
    assert cluster.verbs.endswith("delete")
    assert cluster.notify is None
    assert found._left == set()
    return caught.value


async def test_a_pod_runs_until_it_is_closed() -> None:
    """Closing it ends its input, and returns when it is gone."""
    socket = Socket()
    cluster = Cluster(PENDING, socket, True)
    found = container(cluster)
    assert found.pod_name == ""
    opening = asyncio.create_task(found.open(30))
    await until(lambda: cluster.pod is not None, 0)
    cluster.report(RUNS)
    await opening
    assert found.pod_name == "p"
    assert await found.cpu_seconds() is None
    await found.stream.write(b"in")
    socket.messages.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, b"\x01out", None))
    assert await found.stream.read() == b"out"
    assert found.said() == ""
    await found.aclose()
    assert socket.sent == [b"\x00in", b"\xff\x00"]
    assert socket.closed
    assert (await found.wait()).lost == ""
    assert cluster.asked[-1] == ("delete", "v1/pods/p", 1)
    assert found._left == set()


async def test_a_pod_that_is_refused_says_why() -> None:
    """Removing is tried all the same: the answer may have been lost after the pod was made."""
    error = await refused(Cluster(FORBIDDEN, False))
    assert "no pod can be made in the namespace code" in error.message
    assert "may not" in error.message


async def test_a_container_that_ends_at_once_has_its_last_words_in_the_error() -> None:
    """The image may have no Python: the error asks for it."""
    error = await refused(Cluster(ENDED, "exec: python3: not found\n", True))
    assert "it ended with exit code 127; is there a python3 (3.9 or later) in the image team/tools?" in error.message
    assert error.message.endswith("it said: exec: python3: not found")
    assert (error.details, error.retryable) == ({"reason": "container", "image": "team/tools"}, False)


async def test_a_pod_that_is_taken_away_before_it_runs_may_be_tried_again() -> None:
    """A log that cannot be read is left out of the error."""
    error = await refused(Cluster(EVICTED, NONE, True))
    assert "evicted by its node" in error.message
    assert "python3" not in error.message
    assert "it said" not in error.message
    assert (error.details["reason"], error.retryable) == ("evicted", True)


async def test_a_pod_without_what_it_needs_is_not_waited_for() -> None:
    waiting = pod({"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}}, phase="Pending")
    assert (await refused(Cluster(waiting, True))).details["reason"] == "image_pull"
    assert (await refused(Cluster(RUNS, True), own_users=True)).details["reason"] == "user_namespaces"


@pytest.mark.parametrize(
    ("answer", "reason", "said"),
    [
        ({"items": [{"type": "Warning", "message": "exceeded quota: q"}, {"type": "Normal"}]}, "quota", "makes no pod"),
        ({"items": [{"type": "Normal", "message": "made"}]}, "not_started", "does not run after 0 s"),
        ({}, "not_started", "does not run after 0 s"),
        (FORBIDDEN, "not_started", "does not run after 0 s"),
    ],
)
async def test_what_a_cluster_says_of_a_job_without_a_pod_is_in_the_error(answer: Any, reason: str, said: str) -> None:
    """Its last warning is; without one, only that nothing runs is known."""
    cluster = Cluster({}, answer, True)
    error = await refused(cluster, 0, "jobs")
    assert error.details["reason"] == reason
    assert said in error.message
    assert cluster.asked[1:] == [
        ("get", "v1/events", {"fieldSelector": "involvedObject.name=p"}),
        ("delete", "batch/v1/jobs/p", None),
    ]


async def test_a_pod_that_stays_pending_is_given_up() -> None:
    """The pod has all that the cluster says of it: nothing else is asked."""
    cluster = Cluster(PENDING, True)
    assert (await refused(cluster, 0)).details == {"reason": "not_started", "phase": "Pending"}
    assert cluster.verbs == "create delete"


async def test_streams_that_are_refused_end_the_pod() -> None:
    """A node that is not ready for them is asked again, for some time; a refusal is final."""
    socket = Socket()
    cluster = Cluster(RUNS, BROKEN, BROKEN, socket, True)
    found = container(cluster)
    await found.open(30)
    await found.aclose()
    assert cluster.verbs == "create stream stream stream delete"
    cluster = Cluster(RUNS, FORBIDDEN, True)
    assert "the streams of the pod cannot be had" in (await refused(cluster)).message
    assert cluster.verbs == "create stream delete"


async def test_streams_are_asked_for_during_a_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ATTACH", -1.0)
    assert "broken" in (await refused(Cluster(RUNS, BROKEN, True))).message


async def test_a_container_that_ends_before_it_is_attached_to_never_ran() -> None:
    error = await refused(Cluster(RUNS, ENDED, "no room", True))
    assert "it ended with exit code 127" in error.message
    assert error.message.endswith("it said: no room")
    assert isinstance(error.__cause__, KubeError)


async def test_an_opening_that_is_cancelled_leaves_nothing() -> None:
    cluster = Cluster(PENDING, True)
    found = container(cluster)
    opening = asyncio.create_task(found.open(30))
    await until(lambda: cluster.pod is not None, 0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert cluster.verbs == "create delete"
    assert cluster.notify is None


async def open_one(cluster: Cluster) -> PodContainer:
    found = container(cluster)
    await found.open(30)
    return found


async def test_a_connection_that_breaks_is_the_end_where_the_pod_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run may have had effects, so the end says that it was lost."""
    monkeypatch.setattr(module, "_LAST_WORDS", 0.0)
    socket = Socket()
    found = await open_one(Cluster(RUNS, socket, True))
    socket.hang_up(1006)
    assert await found.stream.read() == b""
    end = await found.wait()
    assert (end.reason, end.lost) == ("stream", "the connection to the pod broke: closed with 1006")
    await found.aclose()


@pytest.mark.parametrize(("state", "lost"), [({"exitCode": 3}, ""), ({"exitCode": 0}, "closed with 1006")])
async def test_a_pod_says_how_it_ended_after_its_connection(state: dict[str, Any], lost: str) -> None:
    """A guest ends with 0 when its input does: then the connection was what broke."""
    socket = Socket()
    cluster = Cluster(RUNS, socket, True)
    found = await open_one(cluster)
    socket.hang_up(1006)
    reading = asyncio.create_task(found.stream.read())
    await until(lambda: found._broken, 0)
    cluster.report(pod({"terminated": state}))
    assert await reading == b""
    end = await found.wait()
    assert lost in end.lost
    assert bool(end.lost) is bool(lost)
    assert end.code == (3 if not lost else None)
    await found.aclose()


async def test_what_cannot_be_removed_is_left_to_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that fails, and a node that does not answer in time, leave the name of the pod."""
    monkeypatch.setattr(module, "_REMOVE", 0.01)
    for answer in (BROKEN, True):
        cluster = Cluster(RUNS, Socket(), answer)
        cluster.removes = False
        session = SessionPod()
        found = container(cluster, session=session)
        await found.open(30)
        await found.aclose()
        assert found._left == {"pods/p"}
        assert session.made is None

"""One watch for all pods: nothing is missed, whatever the API server forgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.waiting import until

from toolexec_kubernetes import watch as module
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.watch import PodWatch


def pod(run: str, version: int, phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"name": f"pod-{run}", "labels": {"toolexec.io/run": run}, "resourceVersion": str(version)},
        "status": {"phase": phase},
    }


class Server:
    """Lists what `pods` has, and gives the events that `queue` is fed with; an exception is raised."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.version = 1
        self.asked: list[str] = []

    def path(self, group: str, kind: str, name: str = "") -> str:
        return f"/{group}/{kind}"

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        self.asked.append("list")
        return {"metadata": {"resourceVersion": str(self.version)}, "items": list(self.pods)}

    async def events(self, path: str, seconds: int, **query: str) -> AsyncIterator[dict[str, Any]]:
        self.asked.append(query["resourceVersion"])
        while True:
            event = await self.queue.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                return
            yield event


class Seen:
    def __init__(self) -> None:
        self.news: list[tuple[str, bool]] = []

    def __call__(self, pod: dict[str, Any], deleted: bool) -> None:
        self.news.append((str(pod["status"]["phase"]), deleted))


async def watching(server: Server) -> PodWatch:
    return PodWatch(server, "owner")  # type: ignore[arg-type]


async def test_each_is_notified_of_its_own_pod_only() -> None:
    server, first, second = Server(), Seen(), Seen()
    watch = await watching(server)
    await watch.add("one", first)
    await watch.add("two", second)
    server.queue.put_nowait({"type": "ADDED", "object": pod("one", 2, "Pending")})
    server.queue.put_nowait({"type": "MODIFIED", "object": pod("one", 3)})
    server.queue.put_nowait({"type": "ADDED", "object": pod("other", 4)})
    server.queue.put_nowait({"type": "DELETED", "object": pod("one", 5)})
    await until(lambda: len(first.news) == 3)
    assert first.news == [("Pending", False), ("Running", False), ("Running", True)]
    assert second.news == []
    assert watch.relists == 1
    await watch.aclose()


async def test_an_interruption_goes_on_where_it_was() -> None:
    server, seen = Server(), Seen()
    watch = await watching(server)
    await watch.add("one", seen)
    server.queue.put_nowait({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}})
    server.queue.put_nowait(None)
    await until(lambda: server.asked == ["list", "1", "7"])
    assert watch.relists == 1
    await watch.aclose()


async def test_a_version_that_is_forgotten_is_listed_again() -> None:
    """Report what was deleted meanwhile, whether the server says so by an event or by its answer."""
    server, seen = Server(), Seen()
    watch = await watching(server)
    await watch.add("one", seen)
    server.queue.put_nowait({"type": "ADDED", "object": pod("one", 2)})
    await until(lambda: len(seen.news) == 1)
    server.queue.put_nowait({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})
    await until(lambda: len(seen.news) == 2)
    assert seen.news[-1] == ("Running", True)
    server.pods = [pod("one", 9, "Failed")]
    server.version = 9
    server.queue.put_nowait(KubeError(410, "too old"))
    await until(lambda: len(seen.news) == 3)
    assert seen.news[-1] == ("Failed", False)
    assert watch.relists == 3
    await watch.aclose()


async def test_a_pod_that_was_just_made_is_missed_when_it_is_gone() -> None:
    server, seen = Server(), Seen()
    watch = await watching(server)
    await watch.add("one", seen)
    watch.note(pod("one", 2, "Pending"))
    server.queue.put_nowait(KubeError(410, "too old"))
    await until(lambda: len(seen.news) == 2)
    assert seen.news == [("Pending", False), ("Pending", True)]
    await watch.aclose()


async def test_a_pod_that_is_made_while_pods_are_listed_is_not_taken_for_deleted() -> None:
    server, seen = Server(), Seen()
    watch = await watching(server)
    await watch.add("one", seen)
    listed = server.get

    async def late(path: str, **query: str) -> dict[str, Any]:
        answer = await listed(path, **query)
        watch.note(pod("one", 5, "Pending"))
        return answer

    server.get = late  # type: ignore[method-assign]
    server.queue.put_nowait(KubeError(410, "too old"))
    await until(lambda: watch.relists == 2)
    assert seen.news == [("Pending", False)]
    await watch.aclose()


async def test_who_is_not_interested_any_more_is_left_alone() -> None:
    server, seen = Server(), Seen()
    watch = await watching(server)
    await watch.add("one", seen)
    watch.remove("one")
    server.queue.put_nowait({"type": "ADDED", "object": pod("one", 2)})
    server.queue.put_nowait(None)
    await until(lambda: len(server.asked) == 3)
    assert seen.news == []
    await watch.aclose()


async def test_a_watch_goes_on_after_errors(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An API server that is away interrupts it; after an event that is not one, the pods are listed again."""
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    server, seen = Server(), Seen()
    watch = await watching(server)
    await watch.add("one", seen)
    server.queue.put_nowait(KubeError(503, "away", retry_after=0.001))
    server.queue.put_nowait({"type": "ADDED", "object": pod("one", 2, "Pending")})
    await until(lambda: len(seen.news) == 1)
    assert watch.relists == 1
    assert "the watch of our pods is interrupted: away" in caplog.text
    server.queue.put_nowait(ValueError("no event"))
    server.pods, server.version = [pod("one", 9)], 9
    await until(lambda: len(seen.news) == 2)
    assert seen.news == [("Pending", False), ("Running", False)]
    assert watch.relists == 2
    assert "the watch of our pods failed" in caplog.text
    await watch.aclose()


async def test_a_pod_does_not_wait_for_a_watch_that_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch is tried again, and then has what it missed."""
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    server, seen = Server(), Seen()
    listed, errors, back = server.get, [KubeError(500, "broken")], asyncio.Event()

    async def get(path: str, **query: str) -> dict[str, Any]:
        if errors:
            raise errors.pop()
        await back.wait()
        return await listed(path, **query)

    server.get = get  # type: ignore[method-assign]
    server.pods = [pod("one", 3)]
    watch = await watching(server)
    await watch.add("one", seen)
    assert (seen.news, errors) == ([], [])
    back.set()
    await until(lambda: seen.news)
    assert seen.news == [("Running", False)]
    await watch.aclose()

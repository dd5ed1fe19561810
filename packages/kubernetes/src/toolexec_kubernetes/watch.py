"""One watch for all pods of this process: each container is notified of the changes of its pod.

A watch is a long answer of the API server, which ends now and then; what happened meanwhile is asked for again by the
number of the last event. When the server has forgotten that (410 Gone), the pods are listed again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from toolexec.containers import JSONDict, JSONObject
from toolexec_kubernetes.client import KubeClient
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.spec import OWNED_LABEL, RUN_LABEL

logger: logging.Logger = logging.getLogger(__name__)
OnChange = Callable[[JSONObject, bool], None]
"""Receives a pod, and whether it has been deleted."""

_SECONDS: Final = 290
_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
_GONE: Final = 410


class PodWatch:
    """The pods with the label of *owner*, by their label `toolexec.io/run`. Starts with the first container.

    Belongs to one event loop.
    """

    def __init__(self, client: KubeClient, owner: str) -> None:
        self._client = client
        self._owner = owner
        self._waiting: dict[str, OnChange] = {}
        self._known: dict[str, JSONObject] = {}
        self._version = ""
        self._task: asyncio.Task[None] | None = None
        self._listed = asyncio.Event()
        self.relists: int = 0
        """How often the pods were listed."""

    async def add(self, run: str, notify: OnChange) -> None:
        """Have *notify* called with each change of the pod of *run*, from now on. Returns when the watch stands, or
        cannot; it is tried again then."""
        self._waiting[run] = notify
        if self._task is None or self._task.done():
            self._listed.clear()
            self._task = asyncio.create_task(self._keep())
        await self._listed.wait()

    def remove(self, run: str) -> None:
        """Stop to report the pod of *run*."""
        self._waiting.pop(run, None)
        self._known.pop(run, None)

    def note(self, pod: JSONObject) -> None:
        """Take in a pod that the server has just shown to us: it is missed when it is gone."""
        run = _run_of(pod)
        if run in self._waiting and run not in self._known:
            self._report(run, pod, deleted=False)

    async def aclose(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._listed.set()

    async def _keep(self) -> None:
        pause = _PAUSE
        while True:
            began = monotonic()
            try:
                if not self._version:
                    await self._list()
                self._listed.set()
                await self._follow()
                pause = _PAUSE
            except KubeError as error:
                self._listed.set()  # who waits for a pod finds out by itself that nothing answers
                if error.status == _GONE:
                    self._version = ""
                else:
                    logger.warning("the watch of our pods is interrupted: %s", error)
                    pause = error.retry_after or min(2 * pause, _LONGEST_PAUSE)
            except Exception:
                self._listed.set()
                logger.exception("the watch of our pods failed")
                self._version = ""
                pause = min(2 * pause, _LONGEST_PAUSE)
            if monotonic() - began < pause:
                await asyncio.sleep(pause)

    async def _list(self) -> None:
        """Take in all pods as they are, and report those as deleted that were there before, and are not any more."""
        before = {*self._known}
        found = await self._client.get(self._path, labelSelector=self._selector)
        self.relists += 1
        there: set[str] = set()
        for pod in found.get("items") or ():
            run = _run_of(pod)
            there.add(run)
            self._report(run, pod, deleted=False)
        for run in before - there:
            known = self._known.get(run)
            if known is not None:
                self._report(run, known, deleted=True)
        self._version = str(found["metadata"]["resourceVersion"])

    async def _follow(self) -> None:
        """Report events until the server ends the watch. Raises KubeError."""
        query = {"labelSelector": self._selector, "resourceVersion": self._version}
        async for event in self._client.events(self._path, _SECONDS, **query):
            kind, pod = str(event.get("type")), event.get("object") or {}
            if kind == "ERROR":
                raise KubeError(int(pod.get("code") or 500), str(pod.get("message")), reason=str(pod.get("reason")))
            self._version = str((pod.get("metadata") or {}).get("resourceVersion") or self._version)
            if kind != "BOOKMARK":
                self._report(_run_of(pod), pod, deleted=kind == "DELETED")

    def _report(self, run: str, pod: JSONObject, *, deleted: bool) -> None:
        notify = self._waiting.get(run)
        if notify is None:
            return
        if deleted:
            self._known.pop(run, None)
        else:
            self._known[run] = pod
        notify(pod, deleted)

    @property
    def _path(self) -> str:
        return self._client.path("v1", "pods")

    @property
    def _selector(self) -> str:
        return f"{OWNED_LABEL}={self._owner}"


def _run_of(pod: JSONObject) -> str:
    labels: JSONDict = (pod.get("metadata") or {}).get("labels") or {}
    return str(labels.get(RUN_LABEL, ""))

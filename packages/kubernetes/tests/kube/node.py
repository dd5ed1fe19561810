"""The node: starts a runner for each pod that is scheduled to it, and gives streams and logs of their containers."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from packages.kubernetes.tests.kube.linux import adopt_orphans, cgroup_directories, kill_cgroup, remove_cgroups, unmount
from packages.kubernetes.tests.kube.network import Network
from packages.kubernetes.tests.kube.objects import Object
from packages.kubernetes.tests.kube.pods import PodRunner
from packages.kubernetes.tests.kube.store import Change

from toolexec.containers import ImageStore, StoredImage

_PIDS = 1024


class NodeApi(Protocol):
    """What a node needs of an API server."""

    async def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""
        ...

    async def token(self, namespace: str, account: str) -> str:
        """Return a token of a service account."""
        ...

    async def set_status(self, pod: Object, status: Object) -> None:
        """Write the status of a pod; one that is gone is fine."""
        ...

    async def remove(self, pod: Object) -> None:
        """Remove a pod that has ended after its deletion."""
        ...

    async def event(self, pod: Object, type: str, reason: str, message: str) -> None:
        """Record an event about a pod."""
        ...

    def follow(self) -> AsyncIterator[Change]:
        """Yield all pods of the cluster, then their changes."""
        ...


class Node:
    """The node *name*; `open` before `run`. Everything that it makes is in *directory*, or has its mark."""

    def __init__(self, name: str, directory: Path, api: NodeApi, ca: bytes) -> None:
        self.name = name
        self.directory = directory
        self.api = api
        self.ca = ca
        self.state = directory / "runc"
        self.cgroup = f"toolexec-kube-{directory.name}"
        self.network: Network | None = None
        self.pull: tuple[float, bool] = (0.0, False)
        self.service = ("127.0.0.1", 443)
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.runners: dict[str, PodRunner] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._images: dict[str, StoredImage] = {}

    async def open(self) -> None:
        """Prepare the directories."""
        adopt_orphans()
        self.state.mkdir(parents=True, exist_ok=True)
        (self.directory / "pods").mkdir(exist_ok=True)
        if self.network is not None:
            (self.directory / "network").write_text(self.network.mark)  # for `clear_node`
            await self.network.open()

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside what is done now."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            task.get_loop().call_exception_handler(
                {"message": "a task of the node failed", "exception": task.exception()}
            )

    async def run(self) -> None:
        """Follow the pods until this is cancelled."""
        async for change in self.api.follow():
            await self.reachable.wait()
            self._take(change)

    def _take(self, change: Change) -> None:
        pod = change.item
        uid = pod["metadata"]["uid"]
        runner = self.runners.get(uid)
        if change.type == "DELETED":
            if runner is not None:
                runner.delete(0)
                self.runners.pop(uid)
            return
        if pod["spec"].get("nodeName") != self.name:
            return
        phase = pod.get("status", {}).get("phase")
        if runner is None and phase not in ("Succeeded", "Failed"):
            runner = self.runners[uid] = PodRunner(self, pod)
            self.start(self._run(runner))
        if runner is not None and pod["metadata"].get("deletionTimestamp"):
            runner.delete(pod["metadata"].get("deletionGracePeriodSeconds", 0))
            if runner.is_finished:
                self.start(self.api.remove(pod))

    async def _run(self, runner: PodRunner) -> None:
        await runner.run()
        if runner.uid in self.runners and runner.is_deleted:
            await self.api.remove(runner.pod)

    def limit_pids(self, cgroup: str) -> None:
        """Bound the processes of a pod, as the setting podPidsLimit of a kubelet does."""
        root = Path("/sys/fs/cgroup")
        parent = root / "pids" if (root / "pids").is_dir() else root
        directory = parent / cgroup.strip("/")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "pids.max").write_text(str(_PIDS))

    def image(self, name: str) -> StoredImage | None:
        """Return the image *name*: one of the user's store, with or without the registry that is the default."""
        plain = name.removeprefix("docker.io/library/")
        if plain not in self._images:
            found = ImageStore().find(plain) or ImageStore().find(plain.removesuffix(":latest"))
            if found is None:
                return None
            self._images[plain] = found
        return self._images[plain]

    def service_env(self) -> dict[str, str]:
        """Return the variables that every container gets: where the API server is."""
        host, port = self.service
        return {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
            "KUBERNETES_PORT": f"tcp://{host}:{port}",
        }

    def clear(self, cgroup: str, directory: Path) -> None:
        """Remove the control groups and the directory of a pod; blocks."""
        kill_cgroup(cgroup)
        remove_cgroups(cgroup)
        for mounted in [*directory.glob("*/root"), *directory.glob("volumes/*")]:
            unmount(mounted)
        shutil.rmtree(directory, ignore_errors=True)

    def left(self) -> list[str]:
        """Return what is there of pods that do not run any more."""
        living = {uid for uid, runner in self.runners.items() if runner.phase in ("Pending", "Running")}
        found = [str(path) for path in (self.directory / "pods").iterdir() if path.name not in living]
        for directory in cgroup_directories(self.cgroup):
            found += [str(each) for each in directory.glob("pod*") if each.name.removeprefix("pod") not in living]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        targets = [line.split()[4] for line in mounts]
        pods = f"{self.directory}/pods/"
        found += [each for each in targets if each.startswith(pods) and each.removeprefix(pods)[:36] not in living]
        return found + (self.network.left() if self.network is not None else [])

    async def close(self) -> None:
        """End all pods, and remove everything."""
        for task in [*self._tasks]:
            task.cancel()
        for runner in self.runners.values():
            for slot in runner.slots:
                if slot.running is not None:
                    with suppress(Exception):
                        await slot.running.remove(self.state)
        if self.network is not None:
            await self.network.close()
        await asyncio.to_thread(clear_node, self.directory)


def clear_node(directory: Path) -> None:
    """Remove what a node in *directory* has left, also after it was killed; blocks."""
    cgroup = f"toolexec-kube-{directory.name}"
    kill_cgroup(cgroup)
    remove_cgroups(cgroup)
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        target = line.split()[4]
        if target.startswith(f"{directory}/"):
            unmount(Path(target))
    mark = directory / "network"
    if mark.exists():
        _clear_network(mark.read_text())
    shutil.rmtree(directory / "pods", ignore_errors=True)
    shutil.rmtree(directory / "runc", ignore_errors=True)


def _clear_network(mark: str) -> None:
    """Remove the links and namespaces of a node's network."""
    for path in Path("/run/netns").glob(f"txk{mark}-*"):
        subprocess.run(["ip", "netns", "del", path.name], check=False, capture_output=True)
    for name in os.listdir("/sys/class/net"):
        if name.startswith((f"tx{mark}", f"txk{mark}")):
            subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)

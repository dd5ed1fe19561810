"""One pod on the node, from its start to its end: what a kubelet does for it."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packages.kubernetes.tests.kube.bundle import bundle_config, inside
from packages.kubernetes.tests.kube.containers import Log, RunningContainer, StartError
from packages.kubernetes.tests.kube.linux import disk_usage, mount
from packages.kubernetes.tests.kube.objects import Object, now, quantity
from packages.kubernetes.tests.kube.volumes import MountError, Volumes, environment

from toolexec.containers import StoredImage

if TYPE_CHECKING:
    from packages.kubernetes.tests.kube.node import Node

_BACKOFF = 10.0
_SERVICE_GRACE = 2.0
_LOOK = 0.2


@dataclass
class _Slot:
    """A container of the pod: what runs now, and what the status says about it."""

    spec: Object
    is_init: bool = False
    state: Object = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: Object = field(default_factory=dict)
    restarts: int = 0
    image: str = ""
    running: RunningContainer | None = None
    log: Log = field(default_factory=Log)
    started: str = ""

    @property
    def name(self) -> str:
        return self.spec["name"]

    @property
    def is_sidecar(self) -> bool:
        return self.is_init and self.spec.get("restartPolicy") == "Always"

    def exit_code(self) -> int | None:
        """Return the exit code once it has ended."""
        return self.state["terminated"]["exitCode"] if "terminated" in self.state else None


@dataclass(frozen=True)
class _Verdict:
    """Why the node ends a pod: `condition` is the reason of a DisruptionTarget condition."""

    reason: str
    message: str
    condition: str = ""
    grace: float = 0


class _Failed(Exception):
    """A container waits, and will not start: `reason` is that of the waiting state."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PodRunner:
    """Runs one pod. `run` is its whole life; `stop` and `evict` end it early."""

    def __init__(self, node: Node, pod: Object) -> None:
        self.node = node
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.directory: Path = node.directory / "pods" / self.uid
        self.cgroup = f"/{node.cgroup}/pod{self.uid}"
        self.slots = [_Slot(each, is_init=True) for each in pod["spec"].get("initContainers") or []]
        self.slots += [_Slot(each) for each in pod["spec"]["containers"]]
        self.phase = "Pending"
        self._verdict: _Verdict | None = None
        self._ending = asyncio.Event()
        self._deleted = False
        self.is_finished = False
        self._begun = time.monotonic()
        self._start_time = now()
        self._ip = ""
        self._namespaces: dict[str, str] = {}
        self._volumes = Volumes(pod, self.directory / "volumes", node.api.get, node.api.token, node.ca)
        self._network_lock = asyncio.Lock()

    @property
    def is_deleted(self) -> bool:
        """Return whether it ends, or has ended, because it was deleted."""
        return self._deleted

    def slot(self, name: str) -> _Slot | None:
        """Return a container by its name, or the first one."""
        wanted = name or self.pod["spec"]["containers"][0]["name"]
        return next((each for each in self.slots if each.name == wanted), None)

    async def run(self) -> None:
        """Run the pod until it has ended and nothing of it is left but its status and its logs."""
        watching = asyncio.create_task(self._watch_limits())
        living = asyncio.create_task(self._live())
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait({living, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not living.done():
                await self._end_early(living)
            living.result()
        except asyncio.CancelledError:
            if not living.cancelled():
                raise
        except Exception as error:
            self._verdict = _Verdict("NodeError", f"the node of the tests failed: {error!r}")
            raise
        finally:
            watching.cancel()
            ending.cancel()
            living.cancel()
            with suppress(BaseException):
                await living
            self.phase = self._final_phase()
            await self._report()
            await self._clean()
            self.is_finished = True

    async def _end_early(self, living: asyncio.Task[None]) -> None:
        """Stop all containers, as the verdict says."""
        verdict = self._verdict
        assert verdict is not None
        if verdict.reason != "Deleted":
            await self.node.api.event(self.pod, "Warning", verdict.reason, verdict.message)
        await asyncio.gather(*(each.running.kill(verdict.grace) for each in self.slots if each.running is not None))
        living.cancel()
        with suppress(asyncio.CancelledError):
            await living
        for each in self.slots:
            if each.running is not None and each.running.pid and "terminated" not in each.state:
                await each.running.ended.wait()
                self._set_terminated(each, each.running)
            elif "waiting" in each.state:
                each.state = {"waiting": {"reason": "ContainerCreating"}}

    def end(self, reason: str, message: str, *, condition: str = "", grace: float = 0) -> None:
        """End it: with the first reason that is given, and the shortest grace."""
        if self._verdict is None:
            self._verdict = _Verdict(reason, message, condition, grace)
        self._ending.set()

    def delete(self, grace: float) -> None:
        """End it because it is deleted; a shorter grace later on makes it end sooner."""
        self._deleted = True
        is_first = self._verdict is None
        self.end("Deleted", "", grace=grace)
        if not is_first and not grace:
            for each in self.slots:
                if each.running is not None:
                    self.node.start(each.running.kill(0))

    async def _live(self) -> None:
        await self._set_up()
        for each in self.slots:
            if each.is_init:
                await self._run_init(each)
        await asyncio.gather(*(self._run_main(each) for each in self.slots if not each.is_init))
        await asyncio.gather(
            *(each.running.kill(_SERVICE_GRACE) for each in self.slots if each.is_sidecar and each.running)
        )

    async def _set_up(self) -> None:
        """Directories, volumes, the network and the bound of processes; what is not there yet is waited for."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.node.limit_pids(self.cgroup)
        delay = 1.0
        while True:
            try:
                await self._volumes.prepare()
                break
            except MountError as error:
                await self._report()
                await self.node.api.event(self.pod, "Warning", "FailedMount", f"MountVolume.SetUp failed: {error}")
            await asyncio.sleep(delay)
            delay = min(delay * 2, 60)
        found = await self.node.network.connect(self.pod) if self.node.network is not None else None
        if found is not None:
            self._namespaces["network"] = found.path
            self._ip = found.address

    async def _run_init(self, slot: _Slot) -> None:
        """Run an init container to its end, or start it, if it is a sidecar."""
        while True:
            await self._start(slot)
            if slot.is_sidecar:
                self.node.start(self._keep(slot))
                return
            if slot.running is not None:
                await slot.running.ended.wait()
                self._set_terminated(slot, slot.running)
            await self._report()
            if slot.exit_code() == 0:
                return
            if self.pod["spec"]["restartPolicy"] == "Never":
                raise asyncio.CancelledError
            await self._back_off(slot)

    async def _keep(self, slot: _Slot) -> None:
        """Record the end of a sidecar."""
        if slot.running is not None:
            await slot.running.ended.wait()
            self._set_terminated(slot, slot.running)

    async def _run_main(self, slot: _Slot) -> None:
        while True:
            await self._start(slot)
            if slot.running is not None:
                self.phase = "Running"
                await self._report()
                await slot.running.ended.wait()
                self._set_terminated(slot, slot.running)
            policy = self.pod["spec"]["restartPolicy"]
            if policy == "Never" or (policy == "OnFailure" and slot.exit_code() == 0):
                if len(self.slots) > 1:  # the end of the only one is that of the pod
                    await self._report()
                return
            await self._report()
            await self._back_off(slot)

    async def _back_off(self, slot: _Slot) -> None:
        slot.last, running = slot.state, slot.running
        slot.running = None
        if running is not None:
            await running.remove(self.node.state)
        delay = min(_BACKOFF * 2**slot.restarts, 300)
        if slot.restarts:
            said = f"back-off {delay:g}s restarting failed container={slot.name} pod={self.pod['metadata']['name']}"
            slot.state = {"waiting": {"reason": "CrashLoopBackOff", "message": said}}
            await self._report()
            await asyncio.sleep(delay)
        slot.restarts += 1

    async def _start(self, slot: _Slot) -> None:
        """Start a container, with a new try after what may pass; a failed start of the runtime is an end of it."""
        delay = 1.0
        while True:
            try:
                await self._create(slot)
                return
            except _Failed as error:
                slot.state = {"waiting": {"reason": error.reason, "message": str(error)}}
            except StartError as error:
                what = f"failed to create containerd task: OCI runtime create failed: {error}"
                slot.state = {"terminated": self._terminated(128, "StartError", what)}
                await self.node.api.event(self.pod, "Warning", "Failed", f"Error: {what}")
                return
            await self._report()
            await asyncio.sleep(delay)
            if slot.state["waiting"]["reason"] == "ErrImagePull":
                said = f'Back-off pulling image "{slot.spec["image"]}"'
                slot.state = {"waiting": {"reason": "ImagePullBackOff", "message": said}}
                await self.node.api.event(self.pod, "Normal", "BackOff", said)
                await self._report()
                await asyncio.sleep(delay)
            delay = min(delay * 2, 60)

    async def _create(self, slot: _Slot) -> None:
        image = await self._image(slot)
        slot.image = image.digest
        number = slot.restarts
        directory = self.directory / f"{slot.name}-{number}"
        directory.mkdir(exist_ok=True)
        id = f"{self.node.name}-{self.uid[:8]}-{slot.name}-{number}"
        handler = await self._handler()
        running = RunningContainer(id, directory, f"{self.cgroup}/{slot.name}", self.node.state, handler=handler)
        try:
            config = await self._config(slot, image, directory, running.cgroup)
        except ValueError as error:
            raise _Failed("CreateContainerConfigError", str(error)) from error
        slot.log, slot.running = running.log, running
        try:
            await running.start(config, stdin=bool(slot.spec.get("stdin")))
        except StartError:
            slot.running = None
            await running.remove(self.node.state)
            raise
        slot.started = now()
        slot.state = {"running": {"startedAt": slot.started}}
        if number == 0:
            await self.node.api.event(self.pod, "Normal", "Started", f"Started container {slot.name}")

    async def _handler(self) -> str:
        """Return the runtime of the pod's RuntimeClass; one that the node does not have is waited for."""
        wanted = self.pod["spec"].get("runtimeClassName")
        if not wanted:
            return "runc"
        found = await self.node.api.get("runtimeclasses.node.k8s.io", "", wanted)
        handler = (found or {}).get("handler", "")
        if handler != "runc" and (handler != "runsc" or shutil.which(handler) is None):
            said = f'failed to get sandbox runtime: no runtime for "{handler}" is configured'
            await self.node.api.event(self.pod, "Warning", "FailedCreatePodSandBox", said)
            raise _Failed("ContainerCreating", said)
        return handler

    async def _image(self, slot: _Slot) -> StoredImage:
        name = slot.spec["image"]
        seconds, is_failing = self.node.pull
        if seconds:
            await self.node.api.event(self.pod, "Normal", "Pulling", f'Pulling image "{name}"')
            await asyncio.sleep(seconds)
        found = None if is_failing else self.node.image(name)
        if found is not None:
            return found
        why = f'failed to pull and unpack image "{name}": failed to resolve reference "{name}": not found'
        if slot.spec.get("imagePullPolicy") == "Never":
            raise _Failed("ErrImageNeverPull", f'Container image "{name}" is not present with pull policy of Never')
        await self.node.api.event(self.pod, "Warning", "Failed", f'Failed to pull image "{name}": {why}')
        raise _Failed("ErrImagePull", f"rpc error: code = NotFound desc = {why}")

    async def _config(self, slot: _Slot, image: StoredImage, directory: Path, cgroup: str) -> Object:
        env = await environment(self.pod, slot.spec, {**image.env, **self.node.service_env()}, self.node.api.get)
        args = [*(slot.spec.get("command") or []), *(slot.spec.get("args") or [])]
        if not args:
            raise ValueError("no command specified")
        mounts = self._volumes.mounts(slot.spec)
        root = image.root
        is_fixed = bool((slot.spec.get("securityContext") or {}).get("readOnlyRootFilesystem"))
        lacking = [each.target for each in mounts if not inside(root, each.target).is_dir()]
        if lacking or not is_fixed:
            root = _overlay(image.root, directory, lacking)
        return bundle_config(
            self.pod,
            slot.spec,
            root=root,
            args=args,
            env=env,
            mounts=mounts,
            cgroup=cgroup,
            namespaces=self._namespaces,
        )

    def _set_terminated(self, slot: _Slot, running: RunningContainer) -> None:
        if "terminated" in slot.state:
            return
        code = running.exit_code or 0
        reason = "Completed" if code == 0 else ("OOMKilled" if running.is_oom else "Error")
        slot.state = {
            "terminated": self._terminated(code, reason, "", slot.started)
            | {"containerID": f"containerd://{running.id}"}
        }

    def _terminated(self, code: int, reason: str, message: str, started: str = "") -> Object:
        state: Object = {"exitCode": code, "reason": reason, "startedAt": started or now(), "finishedAt": now()}
        return state | ({"message": message} if message else {})

    async def _watch_limits(self) -> None:
        """Look at the deadline, and at the storage on the disk, until one of them is over."""
        deadline = self.pod["spec"].get("activeDeadlineSeconds")
        volumes = self._volumes.on_disk()
        storage = any(self._storage_limit(each) for each in self.slots) or any(limit for _, _, limit in volumes)
        while deadline or storage:
            await asyncio.sleep(_LOOK)
            if deadline and time.monotonic() - self._begun >= deadline:
                said = "Pod was active on the node longer than the specified deadline"
                self.end("DeadlineExceeded", said, grace=self.pod["spec"].get("terminationGracePeriodSeconds", 30))
                return
            said = await asyncio.to_thread(self._over_storage) if storage else ""
            if said:
                self.end("Evicted", said, condition="TerminationByKubelet")
                return

    @staticmethod
    def _storage_limit(slot: _Slot) -> float:
        return quantity(((slot.spec.get("resources") or {}).get("limits") or {}).get("ephemeral-storage", 0))

    def _over_storage(self) -> str:
        """Return what a kubelet says about the first bound of storage that is exceeded; blocks on the disk."""
        total = 0.0
        for name, directory, limit in self._volumes.on_disk():
            used = disk_usage(directory)
            total += used
            if limit and used > limit:
                return f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit:g}". '
        limits = [self._storage_limit(each) for each in self.slots]
        for slot, limit in zip(self.slots, limits, strict=True):
            used = slot.log.size + disk_usage(self.directory / f"{slot.name}-{slot.restarts}" / "upper")
            total += used
            if limit and used > limit:
                return f'Container {slot.name} exceeded its local ephemeral storage limit "{limit:g}". '
        if all(limits) and total > sum(limits):
            return f"Pod ephemeral local storage usage exceeds the total limit of containers {sum(limits):g}. "
        return ""

    def _final_phase(self) -> str:
        if self._verdict is not None and self._verdict.reason != "Deleted":
            return "Failed"
        codes = [each.exit_code() for each in self.slots if not each.is_sidecar]
        if any(code is None for code in codes) and not any(code for code in codes if code):
            return self.phase if self._verdict is not None else "Failed"
        return "Failed" if any(codes) else "Succeeded"

    async def _report(self) -> None:
        await self.node.api.set_status(self.pod, self.status())

    def status(self) -> Object:
        """Return what the API is to say about it."""
        is_over = self.phase in ("Succeeded", "Failed")
        is_ready = not is_over and all(
            "running" in each.state for each in self.slots if not each.is_init or each.is_sidecar
        )
        is_initialized = all(each.exit_code() == 0 or "running" in each.state for each in self.slots if each.is_init)
        why: Object = {"reason": None}
        if not is_ready:
            why = {"reason": "PodCompleted" if self.phase == "Succeeded" else "ContainersNotReady"}
        conditions = [
            self._condition("PodReadyToStartContainers", not is_over),
            self._condition("Initialized", is_initialized),
            self._condition("Ready", is_ready) | why,
            self._condition("ContainersReady", is_ready) | why,
            self._condition("PodScheduled", True),
        ]
        status: Object = {
            "phase": self.phase,
            "hostIP": "127.0.0.1",
            "hostIPs": [{"ip": "127.0.0.1"}],
            "startTime": self._start_time,
            "containerStatuses": [self._container_status(each) for each in self.slots if not each.is_init],
        }
        if self._ip:
            status |= {"podIP": self._ip, "podIPs": [{"ip": self._ip}]}
        if any(each.is_init for each in self.slots):
            status["initContainerStatuses"] = [self._container_status(each) for each in self.slots if each.is_init]
        verdict = self._verdict
        if verdict is not None and verdict.reason != "Deleted":
            status |= {"reason": verdict.reason, "message": verdict.message}
            if verdict.condition:
                said = {"reason": verdict.condition, "message": verdict.message}
                conditions.append(self._condition("DisruptionTarget", True) | said)
        return status | {"conditions": conditions}

    def _condition(self, kind: str, holds: bool) -> Object:
        return {
            "type": kind,
            "status": "True" if holds else "False",
            "lastProbeTime": None,
            "lastTransitionTime": now(),
        }

    def _container_status(self, slot: _Slot) -> Object:
        status: Object = {
            "name": slot.name,
            "state": slot.state,
            "lastState": slot.last,
            "ready": "running" in slot.state,
            "started": "running" in slot.state,
            "restartCount": slot.restarts,
            "image": slot.spec["image"],
            "imageID": slot.image,
        }
        return status | ({"containerID": f"containerd://{slot.running.id}"} if slot.running is not None else {})

    async def _clean(self) -> None:
        await asyncio.gather(*(each.running.remove(self.node.state) for each in self.slots if each.running is not None))
        if self.node.network is not None:
            await self.node.network.disconnect(self.uid)
        await asyncio.to_thread(self.node.clear, self.cgroup, self.directory)


def _overlay(lower: Path, directory: Path, targets: list[str]) -> Path:
    """Return a writable root over an image, with the directories *targets* that it lacks."""
    for name in ("upper", "work", "root"):
        (directory / name).mkdir(exist_ok=True)
    for target in targets:
        (directory / "upper" / inside(lower, target).relative_to(lower)).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={lower},upperdir={directory}/upper,workdir={directory}/work"
    mount("overlay", "overlay", directory / "root", options)
    return directory / "root"

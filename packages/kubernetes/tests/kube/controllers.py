"""The controllers of the cluster: the scheduler, jobs, namespaces, and what becomes of the pods of a lost node."""

from __future__ import annotations

import asyncio
import calendar
import time
from contextlib import suppress

from packages.kubernetes.tests.kube.objects import ApiError, Object, now, quantity, strategic
from packages.kubernetes.tests.kube.registry import Registry
from packages.kubernetes.tests.kube.store import Change

_EVICTION_DELAY = 2.0
_CPUS, _MEMORY = 64, 64 << 30


def node_object(name: str, *, ready: bool = True) -> Object:
    """Return the node as an object."""
    resources = {"cpu": str(_CPUS), "memory": str(_MEMORY), "pods": "110", "ephemeral-storage": "100Gi"}
    condition = {"type": "Ready", "status": "True" if ready else "Unknown", "reason": "KubeletReady"}
    if not ready:
        condition |= {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
        "spec": {} if ready else {"taints": taints},
        "status": {
            "conditions": [condition | {"lastHeartbeatTime": now(), "lastTransitionTime": now()}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "capacity": resources,
            "allocatable": resources,
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "",
                "osImage": "fixture",
                "containerRuntimeVersion": "runc://1",
                "kubeletVersion": "v1.33.0",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }  # fmt: skip


class Scheduler:
    """Gives each pod the one node that there is, if it fits on it; `is_stuck` keeps all pods waiting."""

    def __init__(self, registry: Registry, node: str) -> None:
        self._registry = registry
        self._node = node
        self.is_stuck = False
        self._last = time.monotonic()

    async def run(self) -> None:
        """Follow the pods until this is cancelled."""
        async for change in self._registry.store.follow("pods"):
            if change.type != "DELETED" and not change.item["spec"].get("nodeName"):
                self.place(change.item)

    def again(self) -> None:
        """Try all waiting pods again."""
        for pod in self._registry.store.all("pods"):
            if not pod["spec"].get("nodeName"):
                self.place(pod)

    def place(self, pod: Object) -> None:
        """Bind *pod* to the node, or record why that is not possible."""
        if pod["spec"].get("schedulingGates") or pod["metadata"].get("deletionTimestamp"):
            return
        why = self._against(pod)
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
        if why:
            message = f"0/1 nodes are available: 1 {why}."
            condition |= {"status": "False", "reason": "Unschedulable", "message": message}
            found = [each for each in pod["status"].get("conditions") or [] if each["type"] == "PodScheduled"]
            if found and found[0].get("message") == message:
                return
            self._registry.event(pod, "Warning", "FailedScheduling", message)

        def bind(item: Object) -> Object:
            if not why:
                item["spec"]["nodeName"] = self._node
            item["status"] = strategic(item["status"], {"conditions": [condition]})
            return item

        with suppress(ApiError):
            self._registry.write("pods", pod, bind)

    def _against(self, pod: Object) -> str:
        """Return what the scheduler says against the node; "" where the pod fits."""
        node = self._registry.store.find("nodes", "", self._node)
        if self.is_stuck or node is None:
            return "Too many pods"
        spec, labels = pod["spec"], node["metadata"]["labels"]
        if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
            return "node(s) didn't match Pod's node affinity/selector"
        for taint in node["spec"].get("taints") or []:
            if not any(_tolerates(each, taint) for each in spec.get("tolerations") or []):
                return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        for name, capacity in (("cpu", _CPUS), ("memory", _MEMORY)):
            others = (each for each in self._registry.store.all("pods") if _counts(each, self._node))
            if sum(_requested(each, name) for each in others) + _requested(pod, name) > capacity:
                return f"Insufficient {name}"
        return ""


def _counts(pod: Object, node: str) -> bool:
    return pod["spec"].get("nodeName") == node and pod["status"].get("phase") not in ("Succeeded", "Failed")


def _requested(pod: Object, name: str) -> float:
    resources = [each.get("resources") or {} for each in pod["spec"]["containers"]]
    return sum(quantity((each.get("requests") or {}).get(name, 0)) for each in resources)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")


class Jobs:
    """Makes the pods of jobs, and ends jobs with them. One pod at a time: `parallelism` above 1 is not for sandboxes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._timers: set[asyncio.TimerHandle] = set()
        self._made: dict[str, int] = {}

    async def run(self) -> None:
        """Follow jobs and their pods until this is cancelled."""
        await asyncio.gather(self._follow("jobs.batch"), self._follow("pods"))

    async def _follow(self, key: str) -> None:
        async for change in self._registry.store.follow(key):
            uid = _job_of(change)
            for job in self._registry.store.all("jobs.batch", change.item["metadata"]["namespace"]):
                if job["metadata"]["uid"] == uid:
                    self._sync(job)

    def _sync(self, job: Object) -> None:
        conditions = job["status"].get("conditions") or []
        if any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions):
            return
        if job["metadata"].get("deletionTimestamp") or job["spec"].get("suspend"):
            return
        pods = [each for each in self._registry.store.all("pods", job["metadata"]["namespace"]) if _owned(each, job)]
        phases = [each["status"].get("phase") for each in pods]
        active = len(pods) - phases.count("Succeeded") - phases.count("Failed")
        made = self._made.get(job["metadata"]["uid"], 0)  # a pod that was deleted has failed
        status: Object = {
            "startTime": job["status"].get("startTime") or now(),
            "active": active,
            "succeeded": phases.count("Succeeded"),
            "failed": made - phases.count("Succeeded") - active,
        }
        verdict = self._verdict(job, status)
        if verdict is None and not status["active"]:
            try:
                self._make_pod(job)
                status["active"] = 1
            except ApiError as error:
                self._registry.event(job, "Warning", "FailedCreate", f"Error creating: {error.message}")
                self._later(1.0, job)
        if verdict is not None:
            status |= verdict
            self._finish(job, pods)
        self._registry.write("jobs.batch", job, lambda item: item | {"status": item["status"] | status})

    def _verdict(self, job: Object, status: Object) -> Object | None:
        spec = job["spec"]
        condition: Object = {"status": "True", "lastTransitionTime": now(), "lastProbeTime": now()}
        deadline = spec.get("activeDeadlineSeconds")
        if status["succeeded"] >= spec["completions"]:
            return {
                "completionTime": now(),
                "conditions": [condition | {"type": "Complete", "reason": "CompletionsReached"}],
            }
        if status["failed"] > spec["backoffLimit"]:
            why = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
            return {"conditions": [condition | {"type": "Failed"} | why]}
        if deadline and "startTime" in job["status"]:
            left = deadline - (time.time() - _seconds(job["status"]["startTime"]))
            if left <= 0:
                why = {"reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}
                return {"conditions": [condition | {"type": "Failed"} | why]}
            self._later(left + 0.05, job)
        elif deadline:
            self._later(deadline + 0.05, job)
        return None

    def _finish(self, job: Object, pods: list[Object]) -> None:
        """Delete the pods that still run, and the job itself once its time to live is over."""
        for pod in pods:
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                self._registry.delete("pods", pod)
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is not None:
            self._call(ttl, lambda: self._registry.delete("jobs.batch", job))

    def _later(self, seconds: float, job: Object) -> None:
        metadata = job["metadata"]

        def sync() -> None:
            found = self._registry.store.find("jobs.batch", metadata["namespace"], metadata["name"])
            if found is not None and found["metadata"]["uid"] == metadata["uid"]:
                self._sync(found)

        self._call(seconds, sync)

    def _call(self, seconds: float, what: object) -> None:
        assert callable(what)
        self._timers.add(asyncio.get_running_loop().call_later(seconds, what))

    def _make_pod(self, job: Object) -> None:
        template = job["spec"]["template"]
        metadata = job["metadata"]
        labels = {
            **((template.get("metadata") or {}).get("labels") or {}),
            "batch.kubernetes.io/job-name": metadata["name"],
            "job-name": metadata["name"],
            "batch.kubernetes.io/controller-uid": metadata["uid"],
            "controller-uid": metadata["uid"],
        }
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
        pod = {
            "metadata": {
                "generateName": f"{metadata['name']}-",
                "labels": labels,
                "annotations": (template.get("metadata") or {}).get("annotations") or {},
                "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            },
            "spec": template["spec"],
        }
        made = self._registry.create("pods", metadata["namespace"], pod)
        self._made[metadata["uid"]] = self._made.get(metadata["uid"], 0) + 1
        self._registry.event(job, "Normal", "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")


def _job_of(change: Change) -> str:
    """Return the uid of the job that a change is of."""
    if change.key == "jobs.batch":
        return change.item["metadata"]["uid"]
    owners = change.item["metadata"].get("ownerReferences") or []
    return next((each["uid"] for each in owners if each["kind"] == "Job"), "")


def _owned(pod: Object, owner: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    return any(each["uid"] == owner["metadata"]["uid"] for each in owners)


def _seconds(text: str) -> float:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


async def run_namespaces(registry: Registry) -> None:
    """Empty the namespaces that are deleted, and give new ones their service account."""
    async for change in registry.store.follow("namespaces"):
        name = change.item["metadata"]["name"]
        if change.type != "DELETED" and not change.item["metadata"].get("deletionTimestamp"):
            if registry.store.find("serviceaccounts", name, "default") is None:
                registry.create("serviceaccounts", name, {"metadata": {"name": "default"}})
        elif change.type == "MODIFIED":
            registry.start(_empty(registry, name))


async def _empty(registry: Registry, namespace: str) -> None:
    while left := registry.contents(namespace):
        for key, item in left:
            if not item["metadata"].get("deletionTimestamp"):
                registry.delete(key, item)
        if registry.contents(namespace):
            await asyncio.sleep(0.02)
    with suppress(ApiError):
        registry.store.remove(registry.resource("namespaces"), "", namespace)


async def lose_node(registry: Registry, node: str) -> None:
    """Do what the node controller does about a node that stopped reporting."""
    registry.put_status(node_object(node, ready=False))
    pods = [each for each in registry.store.all("pods") if _counts(each, node)]
    for pod in pods:
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": now()}
        with suppress(ApiError):
            registry.write("pods", pod, _with_conditions(condition))
        registry.event(pod, "Warning", "NodeNotReady", "Node is not ready")
    await asyncio.sleep(_EVICTION_DELAY)
    for pod in pods:
        disrupt(registry, pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")


def disrupt(registry: Registry, pod: Object, reason: str, message: str) -> None:
    """Delete a pod for the reason that its condition DisruptionTarget gives."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    with suppress(ApiError):
        registry.write("pods", pod, _with_conditions(condition | {"lastTransitionTime": now()}))
        registry.event(pod, "Warning", "Preempted" if "Preempt" in reason else "TaintManagerEviction", message)
        registry.delete("pods", pod)


def _with_conditions(condition: Object):
    def change(item: Object) -> Object:
        item["status"] = strategic(item["status"], {"conditions": [condition]})
        return item

    return change

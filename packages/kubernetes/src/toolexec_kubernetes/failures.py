"""What the API server and the state of a pod say when something goes wrong, and what it means. Pure: no I/O, no clock.

Each error says by `retryable` whether the same run may succeed later, by `outcome` whether it is safe to make it
again, and by `details["reason"]` in one word what happened.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from toolexec.containers import JSONDict, JSONObject
from toolexec.errors import SandboxDeniedError, SandboxError, SandboxUnavailableError
from toolexec.sandbox import Exit
from toolexec_kubernetes.brought import BRINGER
from toolexec_kubernetes.config import CONTAINER

_SAID: Final = 1000
_MANIFEST: Final = "toolexec sandbox kubernetes manifest"


class KubeError(Exception):
    """The API server says no, with an HTTP *status*; or it cannot be talked to, with the status 0.

    `reason` is the word of its answer (`AlreadyExists`, `Forbidden`, ...), `retry_after` how many seconds it asks to
    wait, None where it does not.
    """

    def __init__(self, status: int, message: str, *, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.retry_after = retry_after


class _Refusal(NamedTuple):
    """An answer: its status (0 for any), a pattern of its message, a word, what to do, and whether to try again."""

    status: int
    pattern: str
    reason: str
    text: str
    retryable: bool = False
    denied: bool = False


_REFUSALS: Final = (  # the first that fits counts
    _Refusal(401, "", "unauthorized", "the cluster does not accept our credentials; renew those of the kubeconfig"),
    _Refusal(
        0,
        r"exceeded quota|is forbidden: .*quota",
        "quota",
        "the quota of the namespace is used up; try again when other pods have ended, or raise it",
        retryable=True,
    ),
    _Refusal(
        0,
        r"violates PodSecurity",
        "pod_security",
        "the pod security standard of the namespace forbids the pod; it fits `restricted` in the profiles standard and "
        "hardened",
        denied=True,
    ),
    _Refusal(
        0,
        r"admission webhook|denied the request|ValidatingAdmissionPolicy",
        "admission",
        "a rule of the cluster forbids the pod; ask who made it",
        denied=True,
    ),
    _Refusal(
        0, r"RuntimeClass .*not found", "runtime_class", "the cluster has no such runtime class; name one that it has"
    ),
    _Refusal(
        0,
        r"no PriorityClass|serviceaccount .*not found|error looking up service account",
        "missing_object",
        "the namespace lacks something that the settings name; make it, or correct the settings",
    ),
    _Refusal(
        0, r"namespaces? \"?\S+\"? not found", "namespace", f"there is no such namespace; make it with: {_MANIFEST}"
    ),
    _Refusal(
        0,
        r"because it is being terminated",
        "namespace",
        "the namespace is being deleted; wait, and make it again",
        retryable=True,
    ),
    _Refusal(403, "", "forbidden", f"we lack a permission; grant it with: {_MANIFEST}"),
    _Refusal(
        404,
        "",
        "not_found",
        "the cluster has no such thing; is it the right one?",
    ),
    _Refusal(409, "", "conflict", "another user changed it at the same time; try again", retryable=True),
    _Refusal(
        429,
        "",
        "throttled",
        "the API server has too many requests; try again later, or send fewer at once",
        retryable=True,
    ),
    _Refusal(400, "", "invalid", "the cluster does not understand the object; is it older than Kubernetes 1.19?"),
    _Refusal(422, "", "invalid", "the cluster does not take the object; correct the settings"),
)


def refusal(error: KubeError, what: str) -> SandboxError:
    """Return why *what* could not be done, as the API server said; nothing of a program has run.

    A SandboxDeniedError where a rule of the cluster forbids it, else a SandboxUnavailableError.
    """
    said = error.message[:_SAID]
    details: JSONDict = {"status": error.status, "said": said}
    if error.retry_after is not None:
        details["retry_after"] = error.retry_after
    for known in _REFUSALS:
        if known.status in (0, error.status) and (known.status or re.search(known.pattern, said, re.IGNORECASE)):
            kind = SandboxDeniedError if known.denied else SandboxUnavailableError
            return kind(
                f"{what}: {known.text}; it said: {said}",
                retryable=known.retryable,
                details={**details, "reason": known.reason},
            )
    if error.status:
        text, reason = f"{what}: the API server failed ({error.status}); try again; it said: {said}", "server_error"
    else:
        text, reason = f"{what}: the API server cannot be talked to: {said}; is the cluster up?", "unreachable"
    return SandboxUnavailableError(text, retryable=True, details={**details, "reason": reason})


class _Waiting(NamedTuple):
    """Why a container does not start: the word of the kubelet, what to do, and whether to try again."""

    text: str
    retryable: bool = False


_PULL: Final = "the image {image} cannot be pulled; push it to a registry that the cluster reaches, and name it in full"
_WAITING: Final = {
    "ErrImagePull": _Waiting(_PULL),
    "ImagePullBackOff": _Waiting(_PULL),
    "ErrImageNeverPull": _Waiting("the node has no image {image}, and may not pull any (pull='never')"),
    "InvalidImageName": _Waiting("{image} is not a name of an image; correct it in the configuration"),
    "RegistryUnavailable": _Waiting("the registry of the image {image} cannot be reached; try again", retryable=True),
    "CreateContainerConfigError": _Waiting("the container cannot be made as it is configured; correct the settings"),
    "CreateContainerError": _Waiting("the node cannot make the container of the image {image}"),
    "RunContainerError": _Waiting(
        "the container of the image {image} cannot be started; is there a python3 (3.9 or later) in it?"
    ),
}
_KILLED: Final = (137, 143)
_PERMANENT: Final = re.compile(
    r"not found|pull policy of Never"
    r"|denied|unauthori[sz]ed|forbidden|manifest unknown|does not exist|no basic auth|invalid reference"
    r"|no match for platform",
    re.IGNORECASE,
)


def waiting_for(pod: JSONObject, image: str, beside: Collection[str] = ()) -> SandboxUnavailableError | None:
    """Return why a container of *pod* will not start, the guest's of *image* or one of those *beside* it; None while
    all may."""
    found = _bringing(pod) or _waiting(_container(pod), image)
    for name in beside:
        container = _container(pod, name)
        own = str(container.get("image") or "")
        found = found or _waiting(container, own)
        ended = (container.get("state") or {}).get("terminated")
        if found is None and ended is not None:
            said = str(ended.get("message") or "")[:_SAID]
            hint = f"it said: {said}" if said else "its root cannot be written, and it is not root: give it the scratch"
            return SandboxUnavailableError(
                f"the container {name} beside the guest ended with {ended.get('exitCode')} at its start; {hint}",
                details={"reason": "container", "image": own, "container": name, "said": said},
            )
    return found


def _bringing(pod: JSONObject) -> SandboxUnavailableError | None:
    """Return why the guest gets no Python from the other image; None while it may, and where it needs none."""
    container = _container(pod, BRINGER, "initContainerStatuses")
    image = str(container.get("image") or "")
    ended = (container.get("state") or {}).get("terminated")
    if ended is None or ended.get("exitCode") == 0:
        return _waiting(container, image)
    if ended.get("reason") == "OOMKilled":
        hint = "its memory is used up; raise the limit"
    else:
        hint = "is there a python3 (3.9 or later) of Debian or Fedora in it? Its log says more"
    said = str(ended.get("message") or "").strip()[-_SAID:]
    return SandboxUnavailableError(
        f"no Python could be brought from the runtime_image {image} (exit code {ended.get('exitCode')}); "
        + (f"it said: {said}" if said else hint),
        details={"reason": "container", "image": image, "container": BRINGER, "said": said},
    )


def _waiting(container: JSONObject, image: str) -> SandboxUnavailableError | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    known = _WAITING.get(str(waiting.get("reason")))
    if known is None:
        return None
    said = str(waiting.get("message") or waiting.get("reason"))[:_SAID]
    pulling = "Pull" in str(waiting.get("reason"))
    return SandboxUnavailableError(
        f"{known.text.format(image=image)}; it said: {said}",
        retryable=known.retryable or (pulling and not _PERMANENT.search(said)),
        details={"reason": "image_pull" if pulling else "container", "image": image, "said": said},
    )


def stuck(pod: JSONObject | None, seconds: float) -> SandboxUnavailableError:
    """Return why *pod* does not run after *seconds*; None for a pod that was never seen."""
    for condition in _conditions(pod or {}):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = str(condition.get("message") or condition.get("reason"))[:_SAID]
            return SandboxUnavailableError(
                f"no node has room for the pod ({said}); try again later, or add nodes",
                retryable=True,
                details={"reason": "unschedulable", "said": said},
            )
    state = str((pod or {}).get("status", {}).get("phase") or "not there")
    return SandboxUnavailableError(
        f"the pod does not run after {seconds:g} s (it is {state}); is its node slow, or is a controller missing?",
        retryable=True,
        details={"reason": "not_started", "phase": state},
    )


def is_running(pod: JSONObject, beside: Collection[str] = ()) -> bool:
    """Return whether its container runs, and those *beside* it."""
    return all("running" in (_container(pod, name).get("state") or {}) for name in (CONTAINER, *beside))


def no_own_users(pod: JSONObject) -> SandboxUnavailableError | None:
    """Return why *pod* is not what was asked for: an API server that does not know `hostUsers` leaves it out without a
    word. None for a pod that has users of its own."""
    if (pod.get("spec") or {}).get("hostUsers") is False:
        return None
    return SandboxUnavailableError(
        "the cluster made the pod without users of its own, which takes Kubernetes 1.33 or later, and warm pools that "
        "were made with this setting: update it, or set user_namespaces to false",
        details={"reason": "user_namespaces"},
    )


_GONE: Final = {
    "Evicted": ("evicted", "the pod was evicted by its node"),
    "Preempting": ("preempted", "the pod had to make room for a more important one"),
    "PreemptionByScheduler": ("preempted", "the pod had to make room for a more important one"),
    "DeletionByTaintManager": ("node_lost", "the node of the pod is lost"),
    "NodeLost": ("node_lost", "the node of the pod is lost"),
    "DeletionByPodGC": ("node_lost", "the node of the pod is gone"),
    "EvictionByEvictionAPI": ("evicted", "the pod was evicted"),
    "TerminationByKubelet": ("evicted", "the pod was ended by its node"),
    "NodeShutdown": ("node_lost", "the node of the pod was shut down"),
    "Terminated": ("node_lost", "the node of the pod was shut down"),
    "NodeAffinity": ("not_admitted", "the node did not take the pod"),
    "UnexpectedAdmissionError": ("not_admitted", "the node did not take the pod"),
    "OutOfcpu": ("not_admitted", "the node did not take the pod"),
    "OutOfmemory": ("not_admitted", "the node did not take the pod"),
    "OutOfpods": ("not_admitted", "the node did not take the pod"),
}


def exit_of(pod: JSONObject, *, deleted: bool = False) -> Exit | None:
    """Return how the container of *pod* ended; None while it runs, or is still to start. *deleted* says that the pod is
    not in the API any more.

    A pod that is being deleted, or that its node has abandoned, has ended for us, whatever its container does.
    """
    status: JSONObject = pod.get("status") or {}
    ended: JSONObject = (_container(pod).get("state") or {}).get("terminated") or {}
    code = int(ended["exitCode"]) if "exitCode" in ended else None
    why = _why_gone(pod, status)
    if str(ended.get("reason")) == "OOMKilled":
        return Exit(code=code, oom=True)
    if status.get("reason") == "DeadlineExceeded":
        return _lost("deadline", "the pod reached the end of its lifetime", code, retryable=False)
    if why is not None:
        return _lost(why[0], f"{why[1]}{_said(status)}", code)
    taken = deleted or bool((pod.get("metadata") or {}).get("deletionTimestamp"))
    if ended and not (
        taken and code in _KILLED
    ):  # the kubelet does not always see what the kernel killed for its memory
        return Exit(code=code)
    if taken:
        return _lost("deleted", "another user has deleted the pod", code)
    if status.get("phase") in ("Failed", "Succeeded"):
        return _lost("failed", f"the pod has ended without its container{_said(status)}", code)
    return None


def lost_stream(why: str) -> Exit:
    """Return the end of a container whose connection broke, for *why*, while it ran."""
    return _lost("stream", f"the connection to the pod broke: {why}", None)


def _why_gone(pod: JSONObject, status: JSONObject) -> tuple[str, str] | None:
    for condition in _conditions(pod):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            found = _GONE.get(str(condition.get("reason")))
            if found is not None:
                return found
    return _GONE.get(str(status.get("reason")))


def _lost(reason: str, text: str, code: int | None, *, retryable: bool = True) -> Exit:
    return Exit(code=code, lost=text, reason=reason, retryable=retryable)


def _said(status: JSONObject) -> str:
    message = str(status.get("message") or "").strip()
    return f" ({message[:_SAID]})" if message else ""


def _container(pod: JSONObject, name: str = CONTAINER, kind: str = "containerStatuses") -> JSONDict:
    for each in (pod.get("status") or {}).get(kind) or ():
        if each.get("name") == name:
            return each
    return {}


def _conditions(pod: JSONObject) -> list[Any]:
    return (pod.get("status") or {}).get("conditions") or []

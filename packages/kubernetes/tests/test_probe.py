"""What two pods find out about the network of a cluster, with pods that the test answers for."""

from __future__ import annotations

from typing import Any

import pytest
from packages.kubernetes.tests.test_workspace import Server

from toolexec.errors import SandboxDeniedError, SandboxUnavailableError
from toolexec.sandbox import Limits
from toolexec_kubernetes import KubernetesConfig, probe
from toolexec_kubernetes.probe import NetworkFinding, probe_network
from toolexec_kubernetes.spec import SANDBOX_LABEL, Made

DENIED = SandboxDeniedError("a rule forbids it")


class Tried:
    """A pod that says what `answers` has, or does not run; it is its own stream."""

    def __init__(self, made: Made, answers: list[Any]) -> None:
        self.made = made
        self.answers = answers
        self.problem: Exception | None = None
        self.closed = False
        self.input = b""
        self.stream = self

    async def open(self, seconds: float) -> None:
        assert seconds > 0
        if self.problem is not None:
            raise self.problem

    async def write(self, data: bytes) -> None:
        self.input += data

    async def read(self) -> bytes:
        answer = self.answers.pop(0) if self.answers else b""
        if isinstance(answer, Exception):
            raise answer
        return answer

    def said(self) -> str:
        return "no python3"

    async def aclose(self) -> None:
        self.closed = True


class Pods:
    """The two pods: *inside* is the one under the policy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, inside: Any, outside: Any) -> None:
        self.given = {True: inside, False: outside}
        self.made: dict[bool, Tried] = {}
        monkeypatch.setattr(probe, "PodContainer", self.make)

    def make(self, client: Any, watch: Any, made: Made, left: set[str]) -> Tried:
        labels = (made.body["spec"]["template"] if made.kind == "jobs" else made.body)["metadata"]["labels"]
        held = SANDBOX_LABEL in labels
        given = self.given[held]
        found = self.made[held] = Tried(made, given if isinstance(given, list) else [])
        found.problem = given if isinstance(given, Exception) else None
        return found

    async def find(self, **settings: Any) -> NetworkFinding:
        config = KubernetesConfig(namespace="code", **settings)
        try:
            return await probe_network(Server(), Server(), config, "me", set())  # type: ignore[arg-type]
        finally:
            assert [each.closed for each in self.made.values()] == [True, True]


YES, NO = [b"reac", b"hed\n"], [b"nothing\n"]


@pytest.mark.parametrize(
    ("inside", "outside", "state", "said"),
    [
        (NO, YES, "closed", ""),
        (YES, YES, "open", "does not enforce NetworkPolicies"),
        (YES, NO, "open", "does not enforce NetworkPolicies"),
        (YES, DENIED, "open", "does not enforce NetworkPolicies"),
        (NO, NO, "unknown", "did not reach the API server either"),
        (NO, DENIED, "unknown", "did not run: a rule forbids it"),
    ],
)
async def test_a_policy_holds_if_only_the_other_pod_reaches_something(
    inside: Any, outside: Any, state: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is known, a pod under the policy that reaches something shows that the network is open."""
    copies = [[*each] if isinstance(each, list) else each for each in (inside, outside)]
    pods = Pods(monkeypatch, *copies)
    found = await pods.find()
    assert found.state == state
    assert said in found.reason
    assert bool(found.reason) is bool(said)
    assert pods.made[True].input == b"\n"


@pytest.mark.parametrize(
    ("inside", "said", "retryable"),
    [
        (DENIED, "a rule forbids it", False),
        ([BrokenPipeError("gone")], "could not be tried: BrokenPipeError", True),
        ([TimeoutError()], "could not be tried: TimeoutError", True),
        ([b"Traceback\n"], "could not be tried: no python3", False),
        ([], "could not be tried: no python3", False),
    ],
)
async def test_a_pod_under_the_policy_that_says_nothing_proves_nothing(
    inside: Any, said: str, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network does not count as closed then, though the other pod has reached something."""
    with pytest.raises((SandboxUnavailableError, SandboxDeniedError), match=said) as caught:
        await Pods(monkeypatch, inside, [*YES]).find()
    assert caught.value.retryable is retryable


async def test_pods_are_made_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs make them where only those are allowed; the volumes of the settings are not given to them."""
    pods = Pods(monkeypatch, [*NO], [*YES])
    volumes = [{"claim": "data", "target": "/data", "read_only": True}]
    assert (await pods.find(jobs=True, volumes=volumes)).state == "closed"
    for each in pods.made.values():
        assert (each.made.group, each.made.kind, each.made.linked) == ("batch/v1", "jobs", False)
        spec = each.made.body["spec"]["template"]["spec"]
        assert all("persistentVolumeClaim" not in volume for volume in spec["volumes"])
    names = {each.made.body["metadata"]["name"] for each in pods.made.values()}
    assert len(names) == 2


async def test_pods_are_small_and_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has 64 MiB and a little disk, whatever programs may have, and the cluster ends it after five minutes."""
    pods = Pods(monkeypatch, [*NO], [*YES])
    assert (await pods.find(limits=Limits(memory_bytes=4 << 30, disk_bytes=2 << 30))).state == "closed"
    for each in pods.made.values():
        spec = each.made.body["spec"]
        assert spec["activeDeadlineSeconds"] == 300
        (container,) = spec["containers"]
        assert int(container["resources"]["limits"]["memory"]) == 64 << 20
        assert int(container["resources"]["requests"]["memory"]) == 64 << 20
        assert sum(int(volume["emptyDir"]["sizeLimit"]) for volume in spec["volumes"]) <= 4 << 20

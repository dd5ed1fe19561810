"""The sandboxes of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.workspace import usable

from toolexec.config.blocks import KEYS
from toolexec.config.load import load_settings
from toolexec.config.parts import egress_secret, exec_options
from toolexec.errors import ConfigurationError
from toolexec.exec.options import Options
from toolexec.runtime.egress import Egress, Secret
from toolexec.runtime.kinds import KINDS, isolations
from toolexec.runtime.sandboxes import SANDBOXES, SandboxSettings, make_runtime, make_sandbox
from toolexec.runtime.wasm.backend import WasmBackend


def options(tmp_path: Path, text: str) -> Options:
    file = tmp_path / "toolexec.toml"
    file.write_text(text)
    return exec_options(load_settings([file]), Options())


def test_without_a_word_about_them_all_are_used(tmp_path: Path) -> None:
    assert options(tmp_path, "[code]\nlanguage = 'bash'\n").runtime_backends is None


def test_everything_that_can_be_set(tmp_path: Path) -> None:
    made = options(
        tmp_path,
        """
[sandboxes]
use = ["gvisor", "docker"]
image = "team/tools"
warm = 2
max_running = 8
wasm_workers = 3
runsc = "/opt/runsc"
bwrap = "/opt/bwrap"
docker_host = "unix:///run/podman.sock"
docker_runtime = "runsc"
containerd_address = "/run/c.sock"
route_by_needs = true
egress = ["api.example.com"]
[[sandboxes.egress_secrets]]
placeholder = "API_TOKEN_HERE"
value = "secretref:env:API_TOKEN"
hosts = ["api.example.com"]
where = ["headers", "url"]
""",
    ).runtime_backends
    secret = Secret(ref="env:API_TOKEN", hosts=("api.example.com",), where=("headers", "url"))
    assert made == SandboxSettings(
        use=("gvisor", "docker"),
        image="team/tools",
        warm=2,
        max_running=8,
        wasm_workers=3,
        runsc="/opt/runsc",
        bwrap="/opt/bwrap",
        docker_host="unix:///run/podman.sock",
        docker_runtime="runsc",
        containerd_address="/run/c.sock",
        route_by_needs=True,
        egress=Egress(hosts=("api.example.com",), secrets={"API_TOKEN_HERE": secret}),
    )


@pytest.mark.parametrize(("text", "count"), [('"auto"', "auto"), ("0", 0), ("4", 4)])
def test_worker_processes_of_the_embedded_sandbox(tmp_path: Path, text: str, count: object) -> None:
    settings = options(tmp_path, f"[sandboxes]\nwasm_workers = {text}\n").runtime_backends
    assert isinstance(settings, SandboxSettings)
    backend = make_sandbox("wasm", settings)
    assert isinstance(backend, WasmBackend)
    assert backend.config.workers == count


@pytest.mark.parametrize("text", ["-1", "true", '"many"', "1.5", "2000"])
def test_worker_processes_that_make_no_sense(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="0 to 1024"):
        options(tmp_path, f"[sandboxes]\nwasm_workers = {text}\n")


def test_the_names_of_kinds_are_those_of_the_runtime() -> None:
    assert KEYS["sandboxes.use"].kind.name == f"list of {', '.join(KINDS)}"
    assert KEYS["sandboxes.remote.sandbox"].kind.name == " / ".join(isolations())


def test_the_order_of_the_operator_holds() -> None:
    runtime = make_runtime(SandboxSettings(use=("bubblewrap", "wasm", *usable(("docker", "gvisor")))))
    assert [backend.kind for backend in runtime.candidates("standard")] == ["bubblewrap", "wasm", *usable(["docker"])]
    assert [backend.kind for backend in runtime.candidates("hardened")] == ["wasm", *usable(["docker", "gvisor"])]
    assert runtime.candidates("dev") == []


def test_all_sandboxes_are_there_by_default() -> None:
    assert [backend.kind for backend in make_runtime().backends] == [
        kind for kind in usable(SANDBOXES) if kind not in ("firecracker", "kata", "proxmox_lxc", "remote")
    ]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="there is no sandbox chroot"):
        SandboxSettings(use=("chroot",))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"placeholder": "X" * 8, "value": "secretref:env:A", "host": []}, "did you mean hosts"),
        ({"value": "secretref:env:A"}, "needs placeholder"),
        ({"placeholder": "X" * 8, "value": "hunter2hunter2"}, "must be a reference"),
        ({"placeholder": "X" * 8, "value": "secretref:env:A"}, "needs the list of hosts"),
        ({"placeholder": "X" * 8, "value": "secretref:env:A", "hosts": "a.b"}, "list of strings"),
        ({"placeholder": "X" * 8, "value": "secretref:env:A", "hosts": ["a.b"], "plain_http": 1}, "true or false"),
        ({"placeholder": "X" * 8, "value": "secretref:env:A", "hosts": ["a.b"], "where": ["feet"]}, "headers, url"),
    ],
)
def test_a_wrong_secret_is_refused(data: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        egress_secret(data)
    assert "hunter2" not in str(caught.value)


def test_secrets_without_hosts_are_refused(tmp_path: Path) -> None:
    text = '[[sandboxes.egress_secrets]]\nplaceholder = "XXXXXXXX"\nvalue = "secretref:env:A"\nhosts = ["a.b"]\n'
    with pytest.raises(ConfigurationError, match=r"name those in sandboxes\.egress"):
        options(tmp_path, text)


def test_remote_runtimes_are_set_up_once_they_have_endpoints(tmp_path: Path) -> None:
    """Their isolation is that of the kind that runs there, and no secret is shown."""
    made = options(
        tmp_path,
        """
[sandboxes.remote]
endpoints = ["https://a.example.com/v1/execute", "https://b.example.com/v1/execute"]
key_id = "team"
token = "secretref:env:RUNTIME_TOKEN"
sandbox = "gvisor"
silence = "5s"
""",
    ).runtime_backends
    assert isinstance(made, SandboxSettings)
    assert made.remote is not None
    assert made.remote.endpoints == ("https://a.example.com/v1/execute", "https://b.example.com/v1/execute")
    assert (made.remote.silence, made.remote.expected_isolation) == (5.0, "gvisor")
    assert "RUNTIME_TOKEN" not in repr(made.remote)


def test_a_remote_without_a_key_is_a_mistake_of_the_file(tmp_path: Path) -> None:
    """The message names what is missing."""
    with pytest.raises(ConfigurationError, match="key_id and a token"):
        options(tmp_path, '[sandboxes.remote]\nendpoints = ["https://a.example.com/"]\n')

"""How a settings file and Python set the sandbox up, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from toolexec import Exec
from toolexec.config import load, parts
from toolexec.errors import ConfigurationError
from toolexec.runtime import sandboxes
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

FORMER = (
    "kubeconfig",
    *(f"kube_{name}" for name in ("context", "namespace", "runtime_class", "service_account", "node_selector")),
    *(f"kube_{name}" for name in ("tolerations", "pull_secrets", "jobs", "network")),
)

CLUSTER = """
[sandboxes]
use = ["kubernetes"]
image = "team/tools"
[[sandboxes.plugins]]
kind = "kubernetes"
kubeconfig = "/etc/code/kubeconfig"
context = "code"
namespace = "code"
runtime_class = "gvisor"
service_account = "pods"
node_selector = { pool = "code", arch = "amd64" }
tolerations = [{ key = "code", operator = "Exists" }]
pull_secrets = ["registry"]
jobs = true
network = "report"
"""


def _backend(ex: Exec) -> KubernetesBackend:
    (backend,) = ex.runtime.backends
    assert isinstance(backend, KubernetesBackend)
    return backend


def test_former_keys_name_settings_that_there_are() -> None:
    """Say for each former key of [sandboxes] which field of the configuration it is now."""
    fields = {field.name for field in dataclasses.fields(KubernetesConfig)}
    for name in FORMER:
        with pytest.raises(ConfigurationError, match=r'plugins=\{"kubernetes": ') as caught:
            sandboxes.SandboxSettings(**{name: "x"})  # type: ignore[arg-type]
        assert str(caught.value).split('"')[3] in fields, str(caught.value)


async def test_a_cluster_can_be_set(tmp_path: Path) -> None:
    """A table of `sandboxes.plugins` has the fields of `KubernetesConfig`; `[sandboxes]` has what all kinds share."""
    file = tmp_path / "toolexec.toml"
    file.write_text(CLUSTER)
    settings = parts.sandbox_settings(load.load_settings([file]))
    async with Exec(runtime_backends=settings) as ex:
        backend = _backend(ex)
        config = backend.config
        assert (backend.kind, backend.isolation, config.image) == ("kubernetes", "gvisor", "team/tools")
        assert (config.kubeconfig, config.context, config.namespace) == ("/etc/code/kubeconfig", "code", "code")
        assert config.node_selector == {"pool": "code", "arch": "amd64"}
        assert [*config.tolerations] == [{"key": "code", "operator": "Exists"}]
        assert ([*config.pull_secrets], config.jobs, config.network) == (["registry"], True, "report")


async def test_python_has_the_same_settings() -> None:
    """`SandboxSettings` takes them by the name of the kind."""
    settings = sandboxes.SandboxSettings(
        use=("kubernetes",), plugins={"kubernetes": {"namespace": "code", "jobs": True}}
    )
    async with Exec(runtime_backends=settings) as ex:
        config = _backend(ex).config
        assert (config.namespace, config.jobs) == ("code", True)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"namespaces": "code"}, "did you mean namespace"),
        ({"namespace": "No Name"}, "not a name of a namespace"),
        ({"node_selector": "pool"}, "node_selector"),
    ],
)
def test_wrong_settings_are_refused(own: dict[str, object], said: str) -> None:
    """An unknown key, an invalid name and a wrong type are errors that name the setting."""
    settings = sandboxes.SandboxSettings(use=("kubernetes",), plugins={"kubernetes": own})
    with pytest.raises(ConfigurationError, match=said):
        Exec(runtime_backends=settings).runtime  # noqa: B018 - makes the sandboxes


async def test_it_is_among_the_sandboxes_that_are_there_by_themselves() -> None:
    """Once the package is installed, an `Exec` without sandboxes of its own has it, in its place of each profile."""
    async with Exec(runtime_backends=sandboxes.SandboxSettings()) as ex:
        assert "kubernetes" in [backend.kind for backend in ex.runtime.backends]
        for profile in ("standard", "hardened"):
            assert "kubernetes" in [backend.kind for backend in ex.runtime.candidates(profile)]

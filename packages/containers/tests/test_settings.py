"""How sandboxes of container engines are set up: by their own classes, and by the keys of `[sandboxes]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.machines import SandboxSettings
from toolexec.sandbox import SandboxPlugin
from toolexec_containers import ContainerdConfig, DockerConfig, GvisorConfig, KataConfig
from toolexec_containers.containerd.plugin import PLUGIN as CONTAINERD
from toolexec_containers.docker.plugin import PLUGIN as DOCKER
from toolexec_containers.gvisor.plugin import PLUGIN as GVISOR
from toolexec_containers.kata_plugin import PLUGIN as KATA

PLUGINS = (DOCKER, CONTAINERD, GVISOR, KATA)


def read(plugin: SandboxPlugin, settings: SandboxSettings) -> Any:
    assert plugin.read is not None
    return plugin.read(settings)


@pytest.mark.parametrize(
    ("make", "given", "named"),
    [
        (DockerConfig, {"pull": "allways"}, "always"),
        (DockerConfig, {"hst": "unix:///d.sock"}, "host"),
        (DockerConfig, {"image": "not a name"}, "name of an image"),
        (GvisorConfig, {"platform": "sytrap"}, "systrap"),
        (ContainerdConfig, {"pull": "always"}, "ctr -n toolexec images pull"),
        (ContainerdConfig, {"namespace": ""}, "namespace"),
        (KataConfig, {"hypervisor": "bochs"}, "qemu"),
        (KataConfig, {"kernel_path": "vmlinux"}, "absolute path"),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[..., object], given: dict[str, Any], named: str) -> None:
    """The error names the setting, or the nearest name, or what there is instead."""
    with pytest.raises(ToolExecError) as caught:
        make(**given)
    assert named in caught.value.message


def test_the_keys_of_sandboxes_are_those_of_engines() -> None:
    """Each has its own place; all have the image, the guests that wait, and how many programs run at once."""
    settings = SandboxSettings(
        image="team/tools",
        warm=2,
        max_running=3,
        docker_host="unix:///d.sock",
        docker_runtime="runsc",
        containerd_address="/c.sock",
        runsc="/opt/g/runsc",
    )
    docker, containerd, gvisor, kata = (read(plugin, settings) for plugin in PLUGINS)
    assert (docker.host, docker.runtime) == ("unix:///d.sock", "runsc")
    assert (containerd.address, kata.address) == ("/c.sock", "/c.sock")
    assert gvisor.runsc == "/opt/g/runsc"
    assert {(each.image, each.warm, each.max_running) for each in (docker, containerd, gvisor, kata)} == {
        ("team/tools", 2, 3)
    }


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.kind)
def test_a_table_of_its_own_is_refused(plugin: SandboxPlugin) -> None:
    """A table of plugins for an engine would have no effect beside the keys, and is an error for that."""
    with pytest.raises(ConfigurationError, match=f"the sandbox {plugin.kind} is of toolexec"):
        SandboxSettings(plugins={plugin.kind: {"warm": 1}})


def test_gvisor_comes_first_and_kata_only_where_it_is_named() -> None:
    """A kernel apart is the first choice for code that may be hostile; no run in a machine of Kata was ever measured."""
    assert min(PLUGINS, key=lambda plugin: plugin.profiles["hardened"]) is GVISOR
    assert [plugin.kind for plugin in PLUGINS if plugin.experimental] == ["kata"]

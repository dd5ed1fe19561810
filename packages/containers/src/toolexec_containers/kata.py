"""Containers that are virtual machines: Kata's, through containerd."""

from __future__ import annotations

import asyncio
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from toolexec.containers import ImageStore, JSONDict
from toolexec.errors import ConfigurationError, InvalidRequestError, SandboxUnavailableError
from toolexec.machines import lacking, look_at_kvm
from toolexec.sandbox import (
    Availability,
    ContainerBackend,
    ContainerSpec,
    Limits,
    LimitsEnforced,
    checked,
    claim_resources,
)
from toolexec_containers.containerd import ContainerdConfig, ContainerdEngine
from toolexec_containers.containerd.runtimes import Runtime
from toolexec_containers.oci import oci_config

Hypervisor: TypeAlias = Literal["qemu", "cloud-hypervisor", "firecracker"]
"""The hypervisors that Kata starts machines with."""

_PREFIX: Final = "io.katacontainers."
_SETTINGS: Final[Mapping[str, str]] = {"qemu": "qemu", "cloud-hypervisor": "clh", "firecracker": "fc"}
_DIRECTORIES: Final = (
    Path("/etc/kata-containers"),
    Path("/opt/kata/share/defaults/kata-containers"),
    Path("/usr/share/defaults/kata-containers"),
)
_NAMED: Final = ("path", "jailer_path", "kernel", "image", "initrd")
"""Keys of the configuration of a hypervisor that name files."""
_OWN_MEMORY: Final = 256 << 20
"""What the guest's kernel and Kata's agent need besides the memory of the code."""


@checked("KataConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class KataConfig(ContainerdConfig):
    """How the kata sandbox is set up; see `ContainerdConfig`.

    `hypervisor` runs the virtual machines. `kernel_path` and `image_path` are what they boot, "" for those of Kata's
    own configuration, which must allow them to be changed (`enable_annotations = ["kernel", "image", …]`). `settings`
    is the path of that configuration, "" for the one that Kata installs for the hypervisor.

    Kata's agent must be in the image that boots, and the drivers in its kernel: the kernel of an image of ours
    (`toolexec image build --kind vm`) has those as modules, which only its own initrd loads, and does not fit.

    Raises ConfigurationError, too, for an unknown hypervisor, and for a path that is not absolute.
    """

    runtime: str = "kata"
    hypervisor: Hypervisor = "qemu"
    kernel_path: str = ""
    image_path: str = ""
    settings: str = ""

    def __post_init__(self) -> None:
        ContainerdConfig.__post_init__(self)
        if self.hypervisor not in _SETTINGS:
            known = ", ".join(get_args(Hypervisor))
            raise ConfigurationError(f"unknown hypervisor {self.hypervisor!r}; use {known}")
        for name in ("kernel_path", "image_path", "settings"):
            path = getattr(self, name)
            if path and not path.startswith("/"):
                raise ConfigurationError(f"{name} of the kata sandbox must be an absolute path, not {path!r}")


class KataEngine(ContainerdEngine):
    """Runs each container in a virtual machine of its own; see `ContainerEngine`."""

    def __init__(self, config: KataConfig | None = None, *, store: ImageStore | None = None) -> None:
        self._kata = config or KataConfig()
        super().__init__(self._kata, store=store)

    async def _check(self) -> Availability:
        """Kata needs its shim, what its configuration names, and a processor that runs virtual machines: all that is
        missing is listed."""
        try:
            found = await super()._check()
        except SandboxUnavailableError as error:
            found = lacking(error)
        lacks = [] if found.ok else [found]
        lacks += [each for each in (await asyncio.to_thread(self._lack), await asyncio.to_thread(look_at_kvm)) if each]
        if not lacks:
            return found
        reason = "; and ".join(each.reason for each in lacks)
        return replace(found, ok=False, reason=reason, remedy="; ".join(each.remedy for each in lacks if each.remedy))

    def _lack(self) -> Availability | None:
        """Return what Kata's configuration, or ours of it, names and is not there."""
        settings = self._settings()
        if self._kata.hypervisor != "qemu" and not settings:
            name = _settings_name(self._kata.hypervisor)
            reason = f"Kata is not set up for {self._kata.hypervisor}: there is no {name} in {_DIRECTORIES[1]}"
        else:
            asked = {"kernel_path": self._kata.kernel_path, "image_path": self._kata.image_path}
            missing = [f"{name} is {path}" for name, path in asked.items() if path and not Path(path).is_file()]
            settings = settings or self._default_settings()
            problems = [f"{each}, which is not there" for each in missing]
            reason = "; ".join([*problems, *(_problems(Path(settings)) if settings else ())])
        if not reason:
            return None
        return Availability(
            ok=False,
            reason=reason,
            remedy="install the full release of Kata Containers, or give the path as `settings`",
        )

    def _default_settings(self) -> str:
        """Return the configuration that Kata takes for QEMU by itself; "" for none that is found."""
        names = (_settings_name("qemu"), "configuration.toml")
        found = (directory / name for directory in _DIRECTORIES for name in names)
        return next((str(path) for path in found if path.is_file()), "")

    def enforces(self, limits: Limits) -> LimitsEnforced:
        """Implement `ContainerEngine.enforces`: the machine's size bounds what no cgroup of the host sees."""
        return claim_resources(memory=True, cpu=False, cpus=True, pids=True, disk=True)

    async def configure(self, spec: ContainerSpec, runtime: Runtime, cgroup: str) -> JSONDict:
        """Implement `ContainerdEngine.configure`."""
        settings = await asyncio.to_thread(self._settings)
        annotations = kata_annotations(self._kata, spec, settings)

        def make() -> JSONDict:
            bundle = oci_config(spec, "rootfs", cgroups_path=cgroup, annotations=annotations)
            # The filter is written for the host's kernel; that of the guest is another, and the code's own.
            bundle["linux"].pop("seccomp", None)
            return bundle

        return await asyncio.to_thread(make)

    def _settings(self) -> str:
        """Return the configuration for the hypervisor; "" for Kata's default, which is made for QEMU."""
        if self._kata.settings or self._kata.hypervisor == "qemu":
            return self._kata.settings
        name = _settings_name(self._kata.hypervisor)
        return next((str(directory / name) for directory in _DIRECTORIES if (directory / name).is_file()), "")


@checked("KataBackend")
class KataBackend(ContainerBackend):
    """Code in virtual machines, one for each program."""

    def __init__(self, config: KataConfig | None = None, *, store: ImageStore | None = None) -> None:
        config = config or KataConfig()
        engine = KataEngine(config, store=store)
        super().__init__(engine, config, kind="kata", isolation=engine.isolation)


def kata_annotations(config: KataConfig, spec: ContainerSpec, settings: str = "") -> dict[str, str]:
    """Return Kata's settings of the machine for *spec*: its size, what it boots, and the configuration *settings*.

    Its memory is that of the container, in MiB, and 256 more for the system in it. Raises InvalidRequestError for a
    container without a memory bound, as a machine has to have some size.
    """
    resources = spec.resources
    if not resources.memory_bytes:
        raise InvalidRequestError("a kata container needs a memory limit: it is the size of its virtual machine")
    machine = {
        "default_memory": str(math.ceil((resources.memory_bytes + _OWN_MEMORY) / (1 << 20))),
        "default_vcpus": str(math.ceil(resources.cpus)) if resources.cpus else "",
        "kernel": config.kernel_path,
        "image": config.image_path,
    }
    annotations = {f"{_PREFIX}config.hypervisor.{name}": value for name, value in machine.items() if value}
    if settings:
        annotations[f"{_PREFIX}config_path"] = settings
    return annotations


def _settings_name(hypervisor: str) -> str:
    return f"configuration-{_SETTINGS[hypervisor]}.toml"


def _problems(settings: Path) -> list[str]:
    """List the programs and files that a configuration of Kata's names and that are not there."""
    try:
        hypervisors = tomllib.loads(settings.read_text("utf-8")).get("hypervisor", {})
        named = [(key, str(table[key])) for table in hypervisors.values() for key in _NAMED if table.get(key)]
    except (OSError, ValueError, AttributeError) as error:
        return [f"{settings} cannot be read: {error}"]
    return [f"the {key} {path} in {settings} is not there" for key, path in named if not Path(path).exists()]

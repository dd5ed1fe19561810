"""Kata, which this machine can hardly have: what it is told, and how it fails where it is not."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from packages.containers.tests.engines import containerd as daemons
from packages.containers.tests.engines.containerd import ContainerdDaemon, stand_in
from tests.engines.images import test_image

from toolexec.containers import spec_for
from toolexec.errors import ConfigurationError, InvalidRequestError, SandboxUnavailableError
from toolexec.machines import look_at_kvm
from toolexec.sandbox import ContainerSpec, Limits
from toolexec_containers import kata
from toolexec_containers.containerd.runtimes import runtime_named
from toolexec_containers.kata import KataBackend, KataConfig, KataEngine, kata_annotations

pytestmark = pytest.mark.anyio
containerd_daemon = daemons.containerd_daemon
MACHINE = "io.katacontainers.config.hypervisor."


def spec_of(config: KataConfig, **limits: Any) -> ContainerSpec:
    """A container."""
    return spec_for(
        image=config.image,
        command=("python3", "-c", "print(1)"),
        limits=Limits(**limits),
        profile="hardened",
        config=config,
        kind="kata",
    )


def engine_for(daemon: ContainerdDaemon, **settings: Any) -> KataEngine:
    """An engine that uses *daemon*."""
    return KataEngine(KataConfig(address=daemon.socket, snapshotter=daemon.snapshotter, **settings))


class TestSpec:
    def test_size_of_the_machine(self) -> None:
        """The machine has the memory of the container and some for itself, and whole processors."""
        config = KataConfig()
        found = kata_annotations(config, spec_of(config, memory_bytes=(512 << 20) + 1, cpus=1.5))
        assert found == {f"{MACHINE}default_memory": "769", f"{MACHINE}default_vcpus": "2"}

    def test_what_it_boots(self) -> None:
        """Kernel and image that are configured, and the settings of another hypervisor."""
        config = KataConfig(kernel_path="/k", image_path="/i")
        found = kata_annotations(config, spec_of(config, memory_bytes=256 << 20), "/etc/kata-containers/clh.toml")
        assert found[f"{MACHINE}kernel"] == "/k"
        assert found[f"{MACHINE}image"] == "/i"
        assert found["io.katacontainers.config_path"] == "/etc/kata-containers/clh.toml"

    def test_no_size(self) -> None:
        """A machine without a size cannot be."""
        with pytest.raises(InvalidRequestError, match="memory limit"):
            kata_annotations(KataConfig(), ContainerSpec(image="x", command=("x",)))

    async def test_bundle(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The host filters no system calls of the guest; all else is as for other containers."""
        monkeypatch.setattr(kata, "_DIRECTORIES", (tmp_path / "none", tmp_path))
        (tmp_path / "configuration-fc.toml").touch()
        engine = KataEngine(KataConfig(hypervisor="firecracker"))
        assert engine.isolation == "vm"
        spec = spec_of(engine._kata, memory_bytes=256 << 20, pids=7)
        bundle = await engine.configure(spec, runtime_named("kata"), "/c")
        assert "seccomp" not in bundle["linux"]
        assert bundle["linux"]["resources"]["pids"] == {"limit": 7}
        assert bundle["root"] == {"path": "rootfs", "readonly": True}
        assert bundle["annotations"]["io.katacontainers.config_path"] == str(tmp_path / "configuration-fc.toml")
        held = engine.enforces(Limits())
        assert (held.memory, held.cpus, held.pids, held.disk, held.cpu) == (True, True, True, True, False)

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"hypervisor": "bochs"}, "hypervisor must be one of qemu, .*, not 'bochs'"),
            ({"kernel_path": "vmlinux"}, "kernel_path .* must be an absolute path"),
            ({"image_path": "x.img"}, "image_path"),
            ({"settings": "x.toml"}, "settings"),
        ],
    )
    def test_refused(self, settings: dict[str, Any], says: str) -> None:
        """Refuses an unworkable configuration when it is made."""
        with pytest.raises(ConfigurationError, match=says):
            KataConfig(**settings)


class TestMachine:
    def files(self, directory: Path, *, device: bool, flags: str) -> dict[str, Path]:
        """Stand-ins for what the kernel says."""
        (directory / "cpuinfo").write_text(f"flags\t: fpu {flags} sse\n")
        if device:
            (directory / "kvm").touch()
        return {"device": directory / "kvm", "processor": directory / "cpuinfo"}

    def test_no_device(self, tmp_path: Path) -> None:
        """A kernel without KVM."""
        found = look_at_kvm(**self.files(tmp_path, device=False, flags="vmx"))
        assert found is not None
        assert "offers no virtual machines" in found.reason
        assert "gvisor" in found.remedy

    @pytest.mark.skipif(os.uname().machine != "x86_64", reason="the flags are those of x86")
    def test_software_only(self, tmp_path: Path) -> None:
        """A device that no guest boots with: the processor has no virtualization."""
        found = look_at_kvm(**self.files(tmp_path, device=True, flags=""))
        assert found is not None
        assert "neither vmx nor svm" in found.reason

    @pytest.mark.parametrize("flag", ["vmx", "svm"])
    def test_fine(self, tmp_path: Path, flag: str) -> None:
        """Nothing to say."""
        assert look_at_kvm(**self.files(tmp_path, device=True, flags=flag)) is None

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
    def test_not_for_this_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The device is another user's."""
        files = self.files(tmp_path, device=True, flags="vmx")
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        found = look_at_kvm(**files)
        assert found is not None
        assert "not for this user" in found.reason

    def test_no_processor(self, tmp_path: Path) -> None:
        """A system that does not tell."""
        assert look_at_kvm(tmp_path / "kvm", tmp_path / "cpuinfo") is not None


class TestSettings:
    """Files that Kata's own configuration names."""

    async def test_missing_files(self, containerd_daemon: ContainerdDaemon, tmp_path: Path) -> None:
        """All that is missing is listed at once: the shim, and each file of the configuration."""
        settings = tmp_path / "configuration-qemu.toml"
        (tmp_path / "vmlinux").touch()
        settings.write_text(
            f'[hypervisor.qemu]\npath = "{tmp_path}/qemu"\nkernel = "{tmp_path}/vmlinux"\nimage = "{tmp_path}/image"\n'
        )
        engine = engine_for(containerd_daemon, settings=str(settings), kernel_path=f"{tmp_path}/none")
        found = await engine.check()
        await engine.aclose()
        assert not found.ok
        for text in ("containerd-shim-kata-v2", f"kernel_path is {tmp_path}/none", f"path {tmp_path}/qemu in"):
            assert text in found.reason
        assert f"the image {tmp_path}/image in {settings} is not there" in found.reason
        assert "vmlinux" not in found.reason

    async def test_broken(self, containerd_daemon: ContainerdDaemon, tmp_path: Path) -> None:
        """A configuration that is not TOML is named."""
        settings = tmp_path / "configuration.toml"
        settings.write_text("[hypervisor")
        engine = engine_for(containerd_daemon, settings=str(settings))
        found = await engine.check()
        await engine.aclose()
        assert f"{settings} cannot be read" in found.reason


class TestContainerd:
    async def test_not_installed(self, containerd_daemon: ContainerdDaemon) -> None:
        """Without its shim it is unavailable, with the way to get it."""
        engine = engine_for(containerd_daemon)
        found = await engine.check()
        await engine.aclose()
        assert not found.ok
        assert "containerd-shim-kata-v2" in found.reason
        assert "kata-containers" in found.remedy
        assert found.version

    @pytest.mark.full
    async def test_started_all_the_same(self, containerd_daemon: ContainerdDaemon) -> None:
        """Passes on containerd's error about a runtime that it does not have."""
        engine = engine_for(containerd_daemon, image=test_image().name)
        image = await engine.resolve(engine.config.image)
        with pytest.raises(SandboxUnavailableError, match=r'runtime "io\.containerd\.kata\.v2" binary not installed'):
            await engine.start(image, spec_of(engine._kata))
        await engine.aclose()
        containerd_daemon.check_left()

    async def test_what_reaches_the_shim(self, containerd_daemon: ContainerdDaemon, tmp_path: Path) -> None:
        """The right shim is started with the right bundle; what it says when it fails is passed on."""
        text = f"""#!/bin/sh
for word in "$@"; do last="$word"; done
if [ "$last" = start ]; then cp config.json {tmp_path}/config.json; echo "$0 $*" > {tmp_path}/words; fi
echo "no hypervisor for $last" >&2
exit 1
"""
        engine = engine_for(
            containerd_daemon, image=test_image().name, kernel_path="/opt/kata/vmlinux", hypervisor="qemu"
        )
        image = await engine.resolve(engine.config.image)
        stand_in(containerd_daemon, "containerd-shim-kata-v2", text)
        try:
            with pytest.raises(SandboxUnavailableError, match="no hypervisor for start"):
                await engine.start(image, spec_of(engine._kata, memory_bytes=300 << 20))
        finally:
            (containerd_daemon.bin / "containerd-shim-kata-v2").unlink()
            await engine.aclose()
        assert "/containerd-shim-kata-v2 -namespace toolexec" in (tmp_path / "words").read_text()
        config = json.loads((tmp_path / "config.json").read_text())
        assert config["annotations"][f"{MACHINE}kernel"] == "/opt/kata/vmlinux"
        assert config["annotations"][f"{MACHINE}default_memory"] == "556"
        assert "seccomp" not in config["linux"]
        containerd_daemon.check_left()

    async def test_machine_and_settings(
        self, containerd_daemon: ContainerdDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """With a shim, the processor and the settings of the hypervisor are looked at."""
        stand_in(containerd_daemon, "containerd-shim-kata-v2", "#!/bin/sh\nexit 1\n")
        (tmp_path / "cpuinfo").write_text("flags: vmx\n")
        monkeypatch.setattr(kata, "_DIRECTORIES", (tmp_path, tmp_path))
        try:
            monkeypatch.setattr("toolexec.runtime.containers.kvm._KVM", tmp_path / "kvm")
            monkeypatch.setattr("toolexec.runtime.containers.kvm._PROCESSOR", tmp_path / "cpuinfo")
            backend = KataBackend(
                KataConfig(address=containerd_daemon.socket, snapshotter=containerd_daemon.snapshotter)
            )
            assert (backend.kind, backend.isolation) == ("kata", "vm")
            assert "no virtual machines" in (await backend.check()).reason
            (tmp_path / "kvm").touch()
            assert (await backend.check()).ok
            await backend.aclose()
            engine = engine_for(containerd_daemon, hypervisor="cloud-hypervisor")
            found = await engine.check()
            assert not found.ok
            assert "configuration-clh.toml" in found.reason
            (tmp_path / "configuration-clh.toml").touch()
            assert (await engine.check()).ok
            await engine.aclose()
        finally:
            await asyncio.to_thread((containerd_daemon.bin / "containerd-shim-kata-v2").unlink)

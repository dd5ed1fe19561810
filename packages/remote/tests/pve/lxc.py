"""Linux containers as a node of Proxmox VE has them: volumes, clones, snapshots, and LXC that runs them."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolexec.containers import ImageStore
from toolexec.runtime import doctor

_ROOT = Path(__file__).parents[4]
_DIRECTORIES = "usr etc var/lib var/log var/tmp tmp root proc sys dev run opt home srv"
_INIT = """\
trap 'exit 0' PWR TERM INT
{start}
while :; do sleep 1000 & wait; done
"""
_START = "{python} -m toolexec -c /etc/toolexec.toml runtime serve >/var/log/runtime.log 2>&1 &"
_RUNTIME = """\
[sandboxes]
use = ["{sandbox}"]
image = "{image}"

[runtime_server]
host = "0.0.0.0"
tls_cert = "/etc/server-cert.pem"
tls_key = "/etc/server-key.pem"
state_directory = "/var/lib/toolexec"
profiles = {profiles}
max_running = 16

[[runtime_server.keys]]
id = "tests"
token = "{token}"
secret = "{secret}"
"""
_CONFIG = """\
lxc.uts.name = {name}
lxc.rootfs.path = {rootfs}
lxc.net.0.type = veth
lxc.net.0.link = {bridge}
lxc.net.0.flags = up
lxc.net.0.name = eth0
lxc.net.0.ipv4.address = {address}/24
lxc.mount.auto = proc:rw sys:ro cgroup:rw:force
lxc.mount.entry = proc dev/.lxc/proc proc create=dir,optional 0 0
lxc.mount.entry = sys dev/.lxc/sys sysfs create=dir,optional 0 0
{mounts}
lxc.apparmor.profile = unconfined
lxc.environment = PATH=/usr/sbin:/usr/bin:/sbin:/bin
lxc.environment = HOME=/root
lxc.environment = TOOLEXEC_CACHE={cache}
lxc.init.cmd = /bin/sh /etc/init.sh
"""


class LxcError(Exception):
    """A task cannot do its work; the message is that of Proxmox."""


@dataclass
class Container:
    """One container, with the settings that the API shows."""

    vmid: int
    directory: Path
    config: dict[str, Any]
    address: str
    lock: str = ""
    snapshots: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    base: Path | None = None
    """The volume that a linked clone is a copy of."""

    @property
    def is_template(self) -> bool:
        """Whether it is one."""
        return bool(self.config.get("template"))


class LxcNode:
    """The containers of one node below *directory*, at a bridge of their own, which has `network`.1."""

    def __init__(self, directory: Path, network: str, tokens: dict[str, str]) -> None:
        self.directory = directory
        self.network = network
        self.bridge = f"pv{network.rpartition('.')[2]}"
        self.containers: dict[int, Container] = {}
        self._tokens = tokens
        self._lxc = directory / "lxc"
        self._volumes = directory / "volumes"

    async def open(self) -> None:
        """Make the bridge and the directories."""
        self._lxc.mkdir()
        self._volumes.mkdir()
        await run("ip", "link", "add", self.bridge, "type", "bridge")
        await run("ip", "addr", "add", f"{self.network}.1/24", "dev", self.bridge)
        await run("ip", "link", "set", self.bridge, "up")

    async def close(self) -> None:
        """Stop all containers and remove the bridge."""
        await asyncio.gather(*(self.stop(vmid) for vmid in self.containers))
        await run("ip", "link", "delete", self.bridge, check=False)
        for group in Path("/sys/fs/cgroup").glob("*/lxc.pivot"):  # LXC makes it for itself, and leaves it
            with suppress(OSError):
                group.rmdir()

    # -- volumes ------------------------------------------------------------------------------------------------

    def create(self, vmid: int, *, sandbox: str, template: bool, broken: str = "") -> None:
        """Make a container whose runtime has *sandbox*.

        *broken* is `silent` for one that starts no runtime, `exits` for one that stops at once.
        """
        volume = self._volumes / str(vmid)
        for name in (f"rootfs/{name}" for name in _DIRECTORIES.split()):
            (volume / name).mkdir(parents=True)
        root = volume / "rootfs"
        for name in ("bin", "sbin", "lib", "lib64"):
            if Path(f"/{name}").is_symlink():
                (root / name).symlink_to(f"usr/{name}")
            elif Path(f"/{name}").is_dir():
                (root / name).mkdir()
        for mount in _mounts():
            (root / str(mount).lstrip("/")).mkdir(parents=True, exist_ok=True)
        etc = root / "etc"
        for name in ("passwd", "group", "ld.so.cache", "nsswitch.conf"):
            shutil.copy(f"/etc/{name}", etc / name)
        for name in ("ssl", "alternatives"):
            shutil.copytree(f"/etc/{name}", etc / name, symlinks=True)
        for name in ("server-cert.pem", "server-key.pem"):
            shutil.copy(self.directory / "tls" / name, etc / name)
        profiles = ["dev"] if sandbox == "unsafe_host" else ["standard", "hardened"]
        (etc / "toolexec.toml").write_text(
            _RUNTIME.format(sandbox=sandbox, image="toolexec-test", profiles=json.dumps(profiles), **self._tokens)
        )
        start = {"": _START.format(python=sys.executable), "silent": "", "exits": "exit 1"}[broken]
        (etc / "init.sh").write_text(_INIT.format(start=start))
        config = {"hostname": f"CT{vmid}", "features": "nesting=1", "memory": 512, "swap": 512, "arch": "amd64"}
        self._add(vmid, {**config, "ostype": "debian", **({"template": 1} if template else {})}, None)

    def _add(self, vmid: int, config: dict[str, Any], base: Path | None) -> Container:
        address = self._free_address()
        volume = "rootfs" if base is None else f"linked clone of {base.parent.name}"
        net = f"name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:{vmid >> 8 & 255:02X}:{vmid & 255:02X},ip=dhcp,type=veth"
        config = {**config, "rootfs": f"local:{vmid}/{volume.split()[0]},size=2G", "net0": net}
        made = Container(vmid, self._volumes / str(vmid), config, address, base=base)
        self.containers[vmid] = made
        return made

    def _free_address(self) -> str:
        used = {each.address for each in self.containers.values()}
        return next(each for number in range(2, 250) if (each := f"{self.network}.{number}") not in used)

    def move(self, container: Container) -> None:
        """Give it another address from its next start."""
        container.address = self._free_address()

    def reserve(self, source: Container, vmid: int, config: dict[str, Any], *, full: bool) -> Container:
        """Enter a clone that is to be made, locked."""
        base = None if full else source.directory / "rootfs"
        kept = {key: value for key, value in source.config.items() if key not in ("template", "rootfs", "net0")}
        made = self._add(vmid, {**kept, **config}, base)
        made.lock = "create"
        return made

    async def copy(self, source: Container, made: Container) -> None:
        """Make the volume of a clone."""
        if made.base is not None:
            (made.directory / "delta").mkdir(parents=True)
        else:
            made.directory.mkdir()
            await run("cp", "-a", str(source.directory / "rootfs"), str(made.directory / "rootfs"))

    def users_of(self, template: Container) -> Sequence[int]:
        """Return the linked clones of a template."""
        return [each.vmid for each in self.containers.values() if each.base == template.directory / "rootfs"]

    async def snapshot(self, container: Container, name: str) -> None:
        """Keep the volume as it is."""
        await run("cp", "-a", str(_data(container)), str(container.directory / f"snapshot-{name}"))

    async def rollback(self, container: Container, name: str) -> None:
        """Give it the volume of a snapshot."""
        if await self.pid(container.vmid):
            await self.stop(container.vmid)
        data = _data(container)
        await run("rm", "-rf", str(data))
        await run("cp", "-a", str(container.directory / f"snapshot-{name}"), str(data))

    async def destroy(self, container: Container) -> None:
        """Remove it with its volume."""
        await run("rm", "-rf", str(container.directory), str(self._lxc / str(container.vmid)))
        del self.containers[container.vmid]

    # -- running ------------------------------------------------------------------------------------------------

    async def start(self, container: Container) -> None:
        """Start it."""
        own = self._lxc / str(container.vmid)
        own.mkdir(exist_ok=True)
        data = _data(container)
        rootfs = f"dir:{data}" if container.base is None else f"overlay:{container.base}:{data}"
        mounts = "\n".join(f"lxc.mount.entry = {path} {str(path)[1:]} none ro,bind 0 0" for path in _mounts())
        (own / "config").write_text(
            _CONFIG.format(
                name=container.config["hostname"],
                rootfs=rootfs,
                bridge=self.bridge,
                address=container.address,
                mounts=mounts,
                cache=ImageStore().directory.parent,
            )
        )
        code, said = await run("lxc-start", *self._named(container.vmid), "-d", "-o", str(own / "log"), check=False)
        if code:
            raise LxcError(f"startup for container '{container.vmid}' failed: {said}")

    async def stop(self, vmid: int) -> None:
        """Stop it hard."""
        await run("lxc-stop", *self._named(vmid), "-k", check=False)

    async def shutdown(self, vmid: int, seconds: int, *, force: bool) -> None:
        """Ask it to stop, and wait so many seconds for that."""
        words = ["-t", str(seconds)] if force else ["--nokill", "-t", str(seconds)]
        code, _ = await run("lxc-stop", *self._named(vmid), *words, check=False)
        if code and await self.pid(vmid):
            raise LxcError("command 'lxc-stop' failed: container did not stop")

    async def pid(self, vmid: int) -> int:
        """Return the process that is number 1 in it; 0 while it does not run."""
        code, said = await run("lxc-info", *self._named(vmid), "-p", "-H", check=False)
        return int(said) if not code and said.strip().isdecimal() else 0

    async def interfaces(self, vmid: int) -> list[dict[str, Any]] | None:
        """Return its interfaces, as the API shows them; None while it does not run."""
        pid = await self.pid(vmid)
        if not pid:
            return None
        _, said = await run("nsenter", "-t", str(pid), "-n", "ip", "-j", "addr")
        found: list[dict[str, Any]] = []
        for each in json.loads(said):
            shown: dict[str, Any] = {"name": each["ifname"], "hwaddr": each.get("address", "")}
            for info in each.get("addr_info", ()):
                shown[info["family"]] = f"{info['local']}/{info['prefixlen']}"
            found.append(shown)
        return found

    def _named(self, vmid: int) -> tuple[str, ...]:
        return ("-P", str(self._lxc), "-n", str(vmid))


def _data(container: Container) -> Path:
    return container.directory / ("rootfs" if container.base is None else "delta")


def _mounts() -> list[Path]:
    """What containers see of this machine: programs, Python, the repository, and the images of toolexec."""
    cache = Path(doctor.cache_state().directory)
    wanted = [Path("/usr"), _ROOT, Path(sys.base_prefix), Path(sys.prefix), ImageStore().directory, cache]
    found: list[Path] = []
    for path in wanted:
        if path.is_dir() and not any(path.is_relative_to(each) for each in found):
            found.append(path)
    return found


async def run(*words: str, check: bool = True) -> tuple[int, str]:
    """Run a program; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if check and process.returncode:
        raise LxcError(f"command '{' '.join(words)}' failed: {said.decode()}")
    return process.returncode or 0, said.decode()

"""A node with a real kubelet and containerd, in a mount namespace of its own: what they write elsewhere goes with it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

from tests.engines.images import test_image
from tests.engines.programs import require_program

from toolexec.containers import ImageStore

_CGROUP = "k8s.io"
_PAUSE = "docker.io/library/pause:1"
BARE_IMAGE = "docker.io/library/bare:1"
"""An image of the node with one static program, `/pause`, and nothing else."""
_PLUGINS = Path("/usr/lib/cni")
_DISABLED = [f"io.containerd.snapshotter.v1.{name}" for name in ("devmapper", "zfs", "aufs", "btrfs")]
_TUNABLES = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1}
"""What a kubelet sets for the whole machine, unless it is so already; here it sees files that say so."""

# Both servers are in one namespace: the volumes that the one mounts are for the containers of the other.
_START = """
set -e
mkdir -p /var/lib /var/log /run/netns "$1/lib" "$1/log" "$1/netns"
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
mount --bind "$1/netns" /run/netns
for file in "$1"/tunables/*; do
    mount --bind "$file" "/proc/sys/$(basename "$file" | tr . /)"
done
containerd=$2
shift 2
"$containerd" --config "$0/config.toml" &
exec "$@"
"""
_CONFIG = """version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = {disabled}
[grpc]
  address = "{directory}/c.sock"
[ttrpc]
  address = "{directory}/t.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{directory}/cni"
"""


class KubeletNode:
    """A kubelet for the API server of *kubeconfig*; *programs* has what `make kube` builds."""

    def __init__(self, directory: Path, programs: Path, kubeconfig: Path, network: str, port: int) -> None:
        self._directory = directory
        self._programs = programs
        self._kubeconfig = kubeconfig
        self._network = network
        self._port = port
        self._bridge = f"txk{os.urandom(2).hex()}"
        self._ctr = [require_program("ctr", "containerd"), f"--address={directory}/c.sock", f"--namespace={_CGROUP}"]

    def start(self, start: Callable[..., None], wait: Callable[[Callable[[], bool], str], None]) -> None:
        """Start containerd and the kubelet with *start*, and give them their images; *wait* waits for a condition."""
        containerd = require_program("containerd", "containerd")
        self._configure()
        self._run("ip", "link", "add", self._bridge, "type", "bridge")
        self._run("ip", "addr", "add", f"{self._network}.1/24", "dev", self._bridge)
        self._run("ip", "link", "set", self._bridge, "up")
        words = ["--mount", "--propagation=private", "sh", "-c", _START, str(self._directory), f"{self._directory}/"]
        start("kubelet", *words, containerd, str(self._programs / "kubelet"), *self._flags(), program="unshare")
        wait(
            lambda: subprocess.run([*self._ctr, "version"], capture_output=True, check=False).returncode == 0,
            "containerd",
        )
        program = (self._programs / "pause").read_bytes()
        archives = {name: self._directory / f"{name.rpartition('/')[2]}.tar" for name in (_PAUSE, BARE_IMAGE)}
        for name, path in archives.items():
            _write_image(path, name, program)
        for archive in (*archives.values(), ImageStore().archive(test_image())):
            self._run(*self._ctr, "images", "import", str(archive))

    def _configure(self) -> None:
        directory = self._directory
        for name in ("cni", "tunables"):
            (directory / name).mkdir()
        (directory / "network").write_text(self._bridge.removeprefix("txk"))  # for `clear_node`
        for name, value in _TUNABLES.items():
            (directory / "tunables" / name.replace("/", ".")).write_text(f"{value}\n")
        config = _CONFIG.format(directory=directory, disabled=json.dumps(_DISABLED), pause=_PAUSE, plugins=_PLUGINS)
        (directory / "config.toml").write_text(config)
        addresses = {"type": "host-local", "subnet": f"{self._network}.0/24", "rangeStart": f"{self._network}.10"}
        plugin = {"type": "bridge", "bridge": self._bridge, "isGateway": True, "ipam": addresses}
        network = {"cniVersion": "0.4.0", "name": self._bridge, "plugins": [plugin]}
        (directory / "cni" / "10.conflist").write_text(json.dumps(network))

    def _flags(self) -> list[str]:
        directory = self._directory
        return [
            f"--kubeconfig={self._kubeconfig}",
            f"--root-dir={directory}/kubelet",
            f"--cert-dir={directory}/certificates",
            "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{directory}/c.sock",
            "--cgroups-per-qos=false",
            "--enforce-node-allocatable=",
            "--eviction-hard=imagefs.available<1%",
            "--fail-swap-on=false",
            "--make-iptables-util-chains=false",
            "--hostname-override=kubelet-node",
            f"--node-ip={self._network}.1",
            f"--address={self._network}.1",
            f"--port={self._port}",
            "--read-only-port=0",
            "--healthz-port=0",
            "--anonymous-auth=true",
            "--authorization-mode=AlwaysAllow",
            "--resolv-conf=",
            f"--volume-plugin-dir={directory}/plugins",
        ]

    def left(self) -> list[str]:
        """Return the containers, sandboxes of pods too, that are there."""
        done = subprocess.run([*self._ctr, "tasks", "ls", "-q"], capture_output=True, text=True, check=False)
        return done.stdout.split()

    @staticmethod
    def clear() -> None:
        """Remove the control groups that are empty: containerd puts all of its pods into one."""
        for directory in Path("/sys/fs/cgroup").glob(f"*/{_CGROUP}"):
            for each in [*directory.iterdir(), directory]:
                if each.is_dir():
                    try:
                        each.rmdir()
                    except OSError:
                        continue

    @staticmethod
    def _run(*words: str) -> None:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)


def _write_image(path: Path, name: str, program: bytes) -> None:
    """Write an archive of an image that has only a program."""
    blobs: dict[str, bytes] = {}

    def add(kind: str, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    layer = add("layer.v1.tar", _tar({"pause": program}))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    entry = add("config.v1+json", json.dumps(config).encode())
    manifest = add("manifest.v1+json", json.dumps({"schemaVersion": 2, "config": entry, "layers": [layer]}).encode())
    index = {"schemaVersion": 2, "manifests": [{**manifest, "annotations": {"io.containerd.image.name": name}}]}
    files = {f"blobs/sha256/{digest}": data for digest, data in blobs.items()}
    files |= {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    path.write_bytes(_tar(files))


def _tar(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return target.getvalue()

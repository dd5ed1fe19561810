"""What the measured programs of container sandboxes share: the engines, and the own way of each to start a Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from packages.containers.tests.engines.containerd import NAMESPACE, ContainerdDaemon
from tests.engines.docker import DockerDaemon

from toolexec.code.limits import Limits
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.config import DEFAULT_LIMITS, ContainerConfig
from toolexec.runtime.images.store import ImageStore, StoredImage

KINDS = ("bubblewrap", "docker", "containerd", "gvisor")
IMAGE = "toolexec-test"
NOTHING = ("python3", "-I", "-c", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One kind of sandbox, ready: `make` makes a backend, `raw` starts the runtime's own way and gives seconds. A
    daemon's files are all in `folder`."""

    make: Callable[..., ContainerBackend]
    raw: Callable[[], float]
    host: str = ""
    folder: str = ""


@contextmanager
def place(kind: str) -> Iterator[Place]:
    """The engine of *kind*, started if it is a daemon, and ended afterwards; raises RuntimeError without the image."""
    image = ImageStore().find(IMAGE)
    if image is None:
        raise RuntimeError(f"there is no image {IMAGE}: toolexec image build --name {IMAGE} --node --with humanize")
    makers = {
        "bubblewrap": _bubblewrap,
        "docker": _docker,
        "containerd": _containerd,
        "gvisor": _gvisor,
        "kubernetes": _kubernetes,
    }
    with makers[kind](image) as it:
        yield it


def _timed(*command: str) -> float:
    started = perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return perf_counter() - started


@contextmanager
def _bubblewrap(image: StoredImage) -> Iterator[Place]:
    from toolexec.runtime.containers.bubblewrap import BubblewrapBackend, BubblewrapConfig

    namespaces = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    user = ("--uid", "65534", "--gid", "65534", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin")
    files = ("--ro-bind", str(image.root), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")
    yield Place(
        make=lambda **settings: BubblewrapBackend(BubblewrapConfig(image=IMAGE, **settings)),
        raw=lambda: _timed("bwrap", *namespaces, *files, *user, *NOTHING),
    )


@contextmanager
def _docker(image: StoredImage) -> Iterator[Place]:
    from toolexec_containers import DockerBackend, DockerConfig

    daemon = DockerDaemon()
    try:
        daemon.start()
        subprocess.run(
            ["docker", "-H", daemon.host, "load", "-q", "-i", str(ImageStore().archive(image))],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        bounds = ("--memory", "512m", "--memory-swap", "512m", "--pids-limit", "128", "--network", "none")
        rights = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534")
        files = ("--tmpfs", "/tmp:size=16m", "--tmpfs", "/work:size=224m")
        run = ("docker", "-H", daemon.host, "run", "--rm", *bounds, *rights, *files, IMAGE, *NOTHING)
        yield Place(
            make=lambda **settings: DockerBackend(DockerConfig(image=IMAGE, host=daemon.host, **settings)),
            raw=lambda: _timed(*run),
            host=daemon.host,
            folder=str(daemon.directory),
        )
    finally:
        daemon.stop()


@contextmanager
def _containerd(image: StoredImage) -> Iterator[Place]:
    from toolexec_containers import ContainerdBackend, ContainerdConfig

    daemon = ContainerdDaemon()
    count = 0

    def raw() -> float:
        nonlocal count
        count += 1
        ctr = (
            "ctr",
            "-a",
            daemon.socket,
            "-n",
            NAMESPACE,
            "run",
            "--rm",
            "--snapshotter",
            daemon.snapshotter,
            "--read-only",
        )
        return _timed(
            *ctr, "--memory-limit", str(512 << 20), f"docker.io/library/{IMAGE}:latest", f"raw{count}", *NOTHING
        )

    try:
        daemon.start()
        archive = str(ImageStore().archive(image))
        daemon.ctr("images", "import", "--snapshotter", daemon.snapshotter, archive)
        yield Place(
            make=lambda **settings: ContainerdBackend(
                ContainerdConfig(image=IMAGE, address=daemon.socket, snapshotter=daemon.snapshotter, **settings)
            ),
            raw=raw,
            folder=str(daemon.directory),
        )
    finally:
        daemon.stop()


@contextmanager
def _gvisor(image: StoredImage) -> Iterator[Place]:
    from toolexec_containers import GvisorBackend, GvisorConfig

    runsc = shutil.which("runsc") or "runsc"
    with _bundle(image, "gvisor") as bundle:
        own = (runsc, f"--root={bundle}-state", "--platform=systrap", "--network=none", "--overlay2=none")
        yield Place(
            make=lambda **settings: GvisorBackend(GvisorConfig(image=IMAGE, **settings)),
            raw=lambda: _timed(*own, "run", f"--bundle={bundle}", "raw"),
        )


@contextmanager
def _kubernetes(image: StoredImage) -> Iterator[Place]:
    from packages.kubernetes.tests.kube.cluster import KubeCluster

    from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

    cluster = KubeCluster()
    try:
        cluster.start()
        namespace = cluster.make_namespace()
        where = {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace, "image": IMAGE}
        with _bundle(image, "kubernetes") as bundle:
            own = ("runc", f"--root={bundle}-state")
            yield Place(
                make=lambda **settings: KubernetesBackend(KubernetesConfig(**where, **settings)),
                raw=lambda: _timed(*own, "run", f"--bundle={bundle}", "raw"),
                folder=str(cluster.directory),
            )
    finally:
        cluster.stop()


@contextmanager
def _bundle(image: StoredImage, kind: str) -> Iterator[Path]:
    """A bundle for an OCI runtime that starts a Python which does nothing."""
    from toolexec.runtime.containers.builder import spec_for
    from toolexec_containers.oci import oci_config

    spec = spec_for(
        image=IMAGE, command=NOTHING, limits=DEFAULT_LIMITS, profile="standard", config=ContainerConfig(), kind=kind
    )
    config = oci_config(spec, str(image.root), cgroups_path="/toolexec-raw")
    config["linux"].pop("seccomp", None)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(config))
        yield bundle
    for group in Path("/sys/fs/cgroup").glob("*/toolexec-raw"):
        with suppress(OSError):
            group.rmdir()


SMALL = Limits(memory_bytes=512 << 20, pids=128, disk_bytes=256 << 20)

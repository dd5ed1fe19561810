"""All container sandboxes for tests that hold for each of them: the real ones, with the image of the tests."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from tests.engines.bubblewrap import require_bwrap
from tests.engines.gvisor import require_runsc
from tests.engines.images import test_image
from tests.engines.microvm import require_qemu

from toolexec.runtime.containers.backend import ContainerBackend

if find_spec("toolexec_kubernetes") is not None:
    from packages.kubernetes.tests.kube.cluster import kube_cluster, kube_namespace

    PODS: tuple[str, ...] = ("kubernetes",)
else:  # the tests of the core pass without the package
    kube_cluster = kube_namespace = None
    PODS = ()
if find_spec("toolexec_containers") is not None:
    from packages.containers.tests.engines.containerd import containerd_daemon

    ENGINES: tuple[str, ...] = ("docker", "containerd", "gvisor")
else:
    containerd_daemon = None
    ENGINES = ()
MACHINES = ("qemu",) if find_spec("toolexec_microvms") is not None else ()

KINDS = ("bubblewrap", *ENGINES, *PODS, *MACHINES)
Make = Callable[..., ContainerBackend]
"""Makes a backend of one kind; takes what its configuration takes."""


def maker(kind: str, request: pytest.FixtureRequest) -> Make:
    """Return what makes backends of *kind*, whose daemon runs if it has one; skips, or fails in CI, where it is
    missing.
    """
    image = test_image().name
    match kind:
        case "bubblewrap":
            from toolexec.runtime.containers.bubblewrap import BubblewrapBackend, BubblewrapConfig

            require_bwrap()
            return lambda **settings: BubblewrapBackend(BubblewrapConfig(**{"image": image, **settings}))
        case "docker":
            from toolexec_containers import DockerBackend, DockerConfig

            host = request.getfixturevalue("docker_daemon").host
            return lambda **settings: DockerBackend(DockerConfig(**{"image": image, "host": host, **settings}))
        case "podman":
            from toolexec_containers import DockerBackend, DockerConfig

            host = request.getfixturevalue("podman_service").host
            return lambda **settings: DockerBackend(DockerConfig(**{"image": image, "host": host, **settings}))
        case "containerd":
            from toolexec_containers import ContainerdBackend, ContainerdConfig

            daemon = request.getfixturevalue("containerd_daemon")
            place: dict[str, Any] = {"address": daemon.socket, "snapshotter": daemon.snapshotter, "image": image}
            return lambda **settings: ContainerdBackend(ContainerdConfig(**{**place, **settings}))
        case "kubernetes":
            from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

            cluster = request.getfixturevalue("kube_cluster")
            where: dict[str, Any] = {
                "kubeconfig": str(cluster.kubeconfig),
                "namespace": request.getfixturevalue("kube_namespace"),
                "image": image,
            }
            return lambda **settings: KubernetesBackend(KubernetesConfig(**{**where, **settings}))
        case "qemu":
            from toolexec_microvms import MicrovmBackend, MicrovmConfig

            machine: dict[str, Any] = {"image": require_qemu(), "vmm": "qemu"}
            return lambda **settings: MicrovmBackend(MicrovmConfig(**{**machine, **settings}))
        case _:
            from toolexec_containers import GvisorBackend, GvisorConfig

            require_runsc()
            return lambda **settings: GvisorBackend(GvisorConfig(**{"image": image, **settings}))

"""Container engines as sandboxes: Docker and Podman, containerd, gVisor, and Kata through containerd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import lazy_names

if TYPE_CHECKING:
    from toolexec_containers.containerd.engine import ContainerdBackend, ContainerdConfig, ContainerdEngine
    from toolexec_containers.docker.engine import DockerBackend, DockerConfig, DockerEngine
    from toolexec_containers.gvisor.engine import GvisorBackend, GvisorConfig, GvisorEngine
    from toolexec_containers.kata import KataBackend, KataConfig, KataEngine
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec_containers.containerd.engine": ("ContainerdBackend", "ContainerdConfig", "ContainerdEngine"),
            "toolexec_containers.docker.engine": ("DockerBackend", "DockerConfig", "DockerEngine"),
            "toolexec_containers.gvisor.engine": ("GvisorBackend", "GvisorConfig", "GvisorEngine"),
            "toolexec_containers.kata": ("KataBackend", "KataConfig", "KataEngine"),
        },
        unix_for="sandboxes of containers",
    )

__all__ = [
    "ContainerdBackend",
    "ContainerdConfig",
    "ContainerdEngine",
    "DockerBackend",
    "DockerConfig",
    "DockerEngine",
    "GvisorBackend",
    "GvisorConfig",
    "GvisorEngine",
    "KataBackend",
    "KataConfig",
    "KataEngine",
]

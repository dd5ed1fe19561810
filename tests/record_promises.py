"""Measure what the engines of the tests promise, and record it: `python -m tests.record_promises [KIND...]`.

Each kind is measured with the whole battery as root, or with `KIND:user` as an ordinary user, for those that such
a user can have; without a word all are. See `tests.promises` for the record and the table.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.engines.docker import DockerDaemon
from tests.engines.images import test_image
from tests.engines.microvm import require_qemu
from tests.ordinary import ORDINARY, SMALL, programs_for, run_as_user
from tests.promises import RECORD, merged, read_record, table, write
from tests.served import SERVED

from toolexec.runtime.base import SandboxBackend
from toolexec.testing.escape_battery import Outcome
from toolexec.testing.matrix import measure

ALL: Final = (
    *("wasm", "bubblewrap", "docker", "podman", "containerd", "kubernetes", "gvisor", "qemu"),
    *("remote", "proxmox_lxc"),
    *(f"{kind}:user" for kind in (*ORDINARY, *SERVED)),
)
"""What can be measured on one Linux machine with the engines of `.ci/engines`."""
_SECONDS: Final = 3600.0


def main(kinds: Sequence[str]) -> None:
    """Measure, record and write the table, one kind after the other; all without *kinds*."""
    for each in kinds or ALL:
        kind, _, who = each.partition(":")
        run = run_as_user(kind, "all", seconds=_SECONDS) if who == "user" else asyncio.run(_measured(kind))
        for column in run["sandboxes"]:
            if kind in ("gvisor", "qemu"):  # a user sees it elsewhere
                column["image"] = require_qemu() if kind == "qemu" else test_image().name
            weaker = [outcome for outcome in column["outcomes"] if not outcome["held"]]
            print(each, len(column["outcomes"]), column["reason"], *(f"{x['name']}: {x['evidence']}" for x in weaker))
        record = merged(read_record(), run, kind)
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")
        write(table(record))


async def _measured(kind: str) -> dict[str, Any]:
    def report(backend: SandboxBackend, outcome: Outcome) -> None:
        print(kind, outcome.name, "held" if outcome.held else outcome.evidence, flush=True)

    with ExitStack() as end:
        backend = await asyncio.to_thread(_backend, kind, end)
        try:
            return (await measure([backend], promises=programs_for(kind), on_outcome=report)).to_dict()
        finally:
            await backend.aclose()


def _backend(kind: str, end: ExitStack) -> SandboxBackend:
    """Return a backend of *kind*, whose daemon ends with *end*."""
    match kind:
        case "wasm":
            from toolexec.runtime.wasm.backend import WasmBackend

            return WasmBackend()
        case "bubblewrap":
            from toolexec.runtime.containers.bubblewrap import BubblewrapBackend, BubblewrapConfig

            return BubblewrapBackend(BubblewrapConfig(image=test_image().name))
        case "docker" | "podman":
            from packages.containers.tests.engines.podman import PodmanService

            from toolexec_containers import DockerBackend, DockerConfig

            daemon = PodmanService() if kind == "podman" else DockerDaemon()
            end.callback(daemon.stop)
            daemon.start()
            daemon.load()
            return DockerBackend(DockerConfig(image=test_image().name, host=daemon.host))
        case "containerd":
            from packages.containers.tests.engines.containerd import ContainerdDaemon

            from toolexec_containers import ContainerdBackend, ContainerdConfig

            server = ContainerdDaemon()
            end.callback(server.stop)
            server.start()
            place = {"address": server.socket, "snapshotter": server.snapshotter}
            return ContainerdBackend(ContainerdConfig(image=test_image().name, **place))
        case "kubernetes":
            return _pods(end)
        case "remote":
            return _afar(end)
        case "proxmox_lxc":
            return _clones(end)
        case "qemu":
            from toolexec_microvms import MicrovmBackend, MicrovmConfig

            return MicrovmBackend(MicrovmConfig(image=require_qemu(), vmm="qemu", limits=SMALL))
        case "gvisor":
            from toolexec_containers import GvisorBackend, GvisorConfig

            return GvisorBackend(GvisorConfig(image=test_image().name))
        case _:
            raise SystemExit(f"there is no engine {kind!r} for tests")


def _pods(end: ExitStack) -> SandboxBackend:
    from packages.kubernetes.tests.kube.cluster import KubeCluster

    from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

    cluster = KubeCluster()
    end.callback(cluster.stop)
    cluster.start()
    where = {"kubeconfig": str(cluster.kubeconfig), "namespace": cluster.make_namespace()}
    return KubernetesBackend(KubernetesConfig(image=test_image().name, **where))


def _afar(end: ExitStack) -> SandboxBackend:
    """Return the client of a runtime with containers of bubblewrap, in a process of its own."""
    from packages.remote.tests.processes import RemoteServer, settings_for

    from toolexec_remote import RemoteBackend

    directory = Path(end.enter_context(TemporaryDirectory()))
    server = end.enter_context(RemoteServer(directory, "bubblewrap", image=test_image().name))
    return RemoteBackend(settings_for(server, sandbox="bubblewrap"))


def _clones(end: ExitStack) -> SandboxBackend:
    """Return the client of a runtime in a Linux container of the tests' Proxmox VE, with bubblewrap in it."""
    from packages.remote.tests.pve.cluster import ProxmoxCluster

    from toolexec_remote import ProxmoxBackend

    cluster = ProxmoxCluster()
    end.callback(cluster.stop)
    cluster.start()
    cluster.control("make", vmid=100, sandbox="bubblewrap", template=False)
    return ProxmoxBackend(cluster.settings(vmid=100))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Ends a cluster whose test process is gone: one that was killed stops nothing, and leaves servers, mounts and links.

    python -m packages.kubernetes.tests.kube.guard PID DIRECTORY/

It waits for the end of the process PID, and then removes what there is in and of DIRECTORY.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_ROOT = Path(__file__).parents[4]
_ENDS = 15.0


def start_guard(directory: Path) -> None:
    """Have the cluster in *directory* removed when this process ends without doing so."""
    words = [sys.executable, "-m", "packages.kubernetes.tests.kube.guard", str(os.getpid()), f"{directory}/"]
    given = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "TOOLEXEC_TEST_RUN"))}
    null = subprocess.DEVNULL
    subprocess.run(["setsid", "--fork", *words], stdin=null, stdout=null, stderr=null, check=True, cwd=_ROOT, env=given)


def end_guard(directory: Path) -> None:
    """End it: the cluster is about to be removed."""
    from tests.engines.programs import processes_of

    for process in processes_of(directory):
        if __name__ in process.cmdline():
            process.kill()


def remove_cluster(directory: Path) -> None:
    """End all processes of a cluster, and remove what they have made; blocks."""
    from shutil import rmtree

    from packages.kubernetes.tests.kube.kubelet_node import KubeletNode
    from packages.kubernetes.tests.kube.node import clear_node
    from tests.engines.programs import has_ended, processes_of, wait_until

    for number in (signal.SIGTERM, signal.SIGKILL):
        left = processes_of(directory)
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
        with suppress(TimeoutError):
            wait_until(lambda left=left: all(has_ended(each.pid) for each in left), _ENDS, "it did not end")
    clear_node(directory)
    KubeletNode.clear()
    rmtree(directory, ignore_errors=True)


def main(owner: int, directory: Path) -> None:
    """Wait for the end of the process *owner*, and remove the cluster."""
    with suppress(ProcessLookupError):
        ended = select.poll()
        ended.register(os.pidfd_open(owner), select.POLLIN)
        ended.poll()
    if directory.exists():
        remove_cluster(directory)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))

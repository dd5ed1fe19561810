"""The rows of the container sandboxes, one group for each."""

from __future__ import annotations

from benchmarks.rows import Row

_US = 1e-6
_MS = 1e-3
_RAW = {"bubblewrap": "`bwrap`", "docker": "`docker run`", "containerd": "`ctr run`", "gvisor": "`runsc run`"}
_COLD = {"bubblewrap": 3.0, "docker": 1.5, "containerd": 1.5, "gvisor": 1.5}
_CALL = {"bubblewrap": 150 * _US, "docker": 300 * _US, "containerd": 300 * _US, "gvisor": 600 * _US}
_NOTES = {
    "docker.call": "Each message passes the daemon and its shim, in both directions; waking them up is most of it.",
    "gvisor.gathered": "The guest's own Python is the slower side, on a kernel that is slower than the host's.",
}


def _rows(kind: str) -> tuple[Row, ...]:
    key = f"sandbox.{kind}."
    return (
        Row(key=f"{key}cold", what="a run with one tool call in a new container", beside=(f"{key}raw",)),
        Row(key=f"{key}cold_ratio", what="the same, to the raw start beside it", unit="ratio", bar=_COLD[kind]),
        Row(key=f"{key}warm", what="the same in a guest that waits", bar=5 * _MS),
        Row(key=f"{key}call", what="one more tool call", bar=_CALL[kind], note=_NOTES.get(f"{kind}.call", "")),
        Row(
            key=f"{key}gathered",
            what="one more of 200 gathered calls",
            bar=50 * _US,
            note=_NOTES.get(f"{kind}.gathered", ""),
        ),
        Row(key=f"{key}results_100mb", what="100 MB through ten results of tools", bar=2.0),
        Row(key=f"{key}file_in_100mb", what="a run with a file of 100 MB given to it", bar=2.0),
        Row(key=f"{key}file_out_100mb", what="a run that makes and gives back a file of 100 MB", bar=2.0),
    )


def _many_rows(kind: str) -> tuple[Row, ...]:
    """Tables of their own: it takes ten minutes to fill them, and the others of a kind take one."""
    key = f"sandbox.{kind}."
    return (
        Row(key=f"{key}memory", what="memory that a waiting guest takes", unit="MiB"),
        Row(key=f"{key}left", what="left behind by 500 runs in a row", unit="count", bar=0),
    )


SANDBOX_GROUPS: dict[str, tuple[Row, ...]] = {
    **{f"Code in containers: {kind}": _rows(kind) for kind in _RAW},
    **{f"Many runs in containers: {kind}": _many_rows(kind) for kind in _RAW},
    "Code in pods of a Kubernetes cluster (the API server of the tests, pods in runc)": (
        Row(
            key="sandbox.kubernetes.cold",
            what="a run with one tool call in a new pod",
            beside=("sandbox.kubernetes.raw",),
        ),
        Row(key="sandbox.kubernetes.cold_ratio", what="the same, to the raw start beside it", unit="ratio", bar=1.5),
        Row(key="sandbox.kubernetes.warm", what="the same in a guest that waits", bar=50 * _MS),
        Row(key="sandbox.kubernetes.call", what="one more tool call"),
        Row(key="sandbox.kubernetes.gathered", what="one more of 200 gathered calls"),
        Row(key="sandbox.kubernetes.fifty", what="fifty runs at once, until the last has ended"),
    ),
    "Code in virtual machines of QEMU, in software (TCG), restored from a snapshot": (
        Row(
            key="microvm.qemu.first_output",
            what="from the request to the first output of a program in a new machine",
            bar=500 * _MS,
            beside=("microvm.gvisor.first_output",),
        ),
        Row(key="microvm.qemu.restore", what="of that, the restore of the machine"),
        Row(key="microvm.qemu.cold", what="a run with one tool call", beside=("microvm.gvisor.cold",)),
        Row(key="microvm.qemu.warm", what="the same in a guest that waits", beside=("microvm.gvisor.warm",)),
        Row(key="microvm.qemu.call", what="one more tool call", bar=3 * _MS, beside=("microvm.gvisor.call",)),
    ),
    "The same program on one Docker daemon": (
        Row(
            key="sandbox_peers.cold",
            what="`print(1 + 2)` in a container of its own",
            beside=("sandbox_peers.llm_sandbox_cold", "sandbox_peers.inspect_cold"),
        ),
        Row(
            key="sandbox_peers.warm",
            what="the same, in one that is ready",
            beside=("sandbox_peers.llm_sandbox_warm", "sandbox_peers.inspect_warm"),
        ),
    ),
}
SANDBOX_NAMES = {
    **{f"microvm.gvisor.{name}": "gVisor, in the same image" for name in ("first_output", "cold", "warm", "call")},
    "sandbox.kubernetes.raw": "`runc run` of `python3 -c 1`",
    **{f"sandbox.{kind}.raw": f"{command} of `python3 -c 1`" for kind, command in _RAW.items()},
    "sandbox_peers.llm_sandbox_cold": "llm-sandbox",
    "sandbox_peers.llm_sandbox_warm": "llm-sandbox, in an open session",
    "sandbox_peers.inspect_cold": "inspect-ai",
    "sandbox_peers.inspect_warm": "inspect-ai, in an open sandbox",
}

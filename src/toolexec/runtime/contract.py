"""What each security profile promises, once for all sandboxes: what engines are given to keep it, and what measures it.

`PROMISES` has each promise with the hostile programs that measure it; `toolexec sandbox check` and the documents read
their list here. The constants are what is restated in the options of each engine: bubblewrap, OCI runtimes, Docker and
the jail of virtual machines take theirs from here. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

ISOLATIONS: Final[Mapping[str, frozenset[str]]] = {
    "dev": frozenset({"none", "process", "container", "gvisor", "vm", "wasm"}),
    "standard": frozenset({"container", "gvisor", "vm", "wasm"}),
    "hardened": frozenset({"gvisor", "vm", "wasm"}),
}
"""The isolation that a profile asks for: judged by what surrounds the code in the end, whatever starts it. Under
`hardened` no system call of the code ends in the kernel of the host."""

NOBODY: Final = "65534:65534"
"""The user and group that code runs as, in numbers: an image need not know their names."""
NAMESPACES: Final = ("pid", "network", "ipc", "uts", "mount", "cgroup")
"""What each container has of its own, by the OCI's names. One for users comes with a mapping of them; nothing in a
container may make one."""
NEW_NAMESPACES: Final = 0x7E020000
"""The flags of `clone` that no program may set: CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET."""
SOCKETS: Final[tuple[tuple[int, int | None], ...]] = ((1, None), (2, None), (10, None), (16, 0))
"""The families of sockets that programs may open, each with its only protocol if there is just one: Unix, IPv4, IPv6,
and of netlink the kind that lists addresses. No others: not vsock, which no namespace holds."""
MASKED: Final = (
    "acpi",
    "asound",
    "interrupts",
    "kcore",
    "keys",
    "latency_stats",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
)
"""What of /proc nothing in a container sees."""
READ_ONLY: Final = ("bus", "fs", "irq", "sys", "sysrq-trigger")
"""What of /proc nothing in a container can write to."""
COVERED: Final = ("/sys",)
"""What nothing in a container sees, by its path: an engine that mounts it has it covered."""
DEVICES: Final[Mapping[str, tuple[int, int]]] = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
    "ptmx": (5, 2),
}
"""The devices of a container, each with its numbers; pseudo terminals of its own come beside them."""
CORE_BYTES: Final = 0
"""How large a core file may be: there are none."""
OPEN_FILES: Final = 1024
"""How many files a process may have open."""
HOSTNAME: Final = "sandbox"
"""What a container is called; nothing in it learns the name of the host."""
VMM_NAMESPACES: Final = ("net", "ipc", "uts", "pid", "mount")
"""What the monitor of a virtual machine has of its own, by the options of `unshare`: it is a user of its own in a
directory of its own, so that a guest that breaks out of its machine has nothing."""
VMM_PROCESSES: Final = 128
"""How many threads and processes a monitor may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Something that no program gets under `profiles`; `says` completes "no program".

    `probes` are the programs of the escape battery that try it, by name; a `*` at the end stands for all names that
    begin so. `calls` are system calls that the kernel of the host
    refuses for it, whatever their arguments are.
    """

    name: str
    says: str
    probes: tuple[str, ...]
    calls: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ("standard", "hardened")


PROMISES: Final[tuple[Promise, ...]] = (
    Promise(
        name="network",
        says="reaches a network, or is reached from one",
        probes=("network_connect", "network_datagram", "network_names", "network_listen"),
    ),
    Promise(
        name="files",
        says="reads, lists, links or changes a file of the host",
        probes=("read_host_files", "look_around", "write_host_files", "links_out_of_the_directory"),
    ),
    Promise(
        name="environment",
        says="sees variables, input or modules of the host's process",
        probes=("environment", "read_stdin", "host_modules"),
    ),
    Promise(
        name="processes",
        says="sees, signals or traces a process that it did not start, or leaves one behind",
        probes=(
            "list_processes",
            "kill_processes",
            "leave_a_process_behind",
            "start_programs",
            "native_code",
            "ptrace",
        ),
        calls=("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"),
    ),
    Promise(
        name="rights",
        says="has a capability, root's number or a way to gain rights, or goes without the filter of system calls",
        probes=("privileges",),
    ),
    Promise(
        name="namespaces",
        says="makes or enters a namespace",
        probes=("user_namespaces",),
        calls=("unshare", "setns"),
    ),
    Promise(
        name="sockets",
        says="opens a socket to the hypervisor (vsock), to raw packets or to parts of the kernel",
        probes=("vsock", "packet_sockets", "netlink_sockets", "odd_sockets"),
    ),
    Promise(
        name="io_uring",
        says="has the kernel make its calls behind the filter",
        probes=("io_uring",),
        calls=("io_uring_setup", "io_uring_enter", "io_uring_register"),
    ),
    Promise(
        name="keyring",
        says="reads or adds keys of the kernel",
        probes=("kernel_keys",),
        calls=("keyctl", "add_key", "request_key"),
    ),
    Promise(
        name="mounts",
        says="makes or moves mounts, or opens files behind them",
        probes=("mount_api", "file_handles"),
        calls=(
            *("mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree"),
            *("move_mount", "mount_setattr", "open_by_handle_at"),
        ),
    ),
    Promise(
        name="kernel",
        says="loads code into the kernel, measures what others do with it, or holds it up",
        probes=("kernel_modules", "bpf", "perf", "fanotify", "page_faults"),
        calls=(
            *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "bpf"),
            *("perf_event_open", "fanotify_init", "userfaultfd", "syslog", "reboot"),
        ),
    ),
    Promise(
        name="devices",
        says="has a device of the host, such as a disk, memory, KVM or vsock",
        probes=("host_devices",),
    ),
    Promise(
        name="kernel_files",
        says="reads the kernel's memory and keys in /proc and /sys, or writes to its settings and control groups",
        probes=("kernel_settings", "kernel_secrets"),
    ),
    Promise(
        name="time",
        says="goes on after its time limit, or uses more than its CPU time",
        probes=(
            *("cpu_spin", "sleep_forever", "await_forever", "wait_in_a_tool", "swallow_everything", "ignore_signals"),
            *("one_long_operation", "backtracking", "endless_exception_text", "endless_value", "search_for_ever"),
            *("huge_power", "cpu_budget"),
        ),
    ),
    Promise(
        name="memory",
        says="uses more than its memory, or has the host use it up",
        probes=(
            *("memory_list", "memory_block", "memory_caught", "large_value", "large_error", "error_chain", "tasks"),
            *("output_flood", "output_by_letters", "output_below"),
        ),
    ),
    Promise(
        name="disk",
        says="writes more than its disk, or outside of it",
        probes=("disk_fill", "disk_elsewhere", "file_flood", "sparse_file", "zip_bomb", "deep_directories"),
    ),
    Promise(
        name="pids",
        says="starts more processes and threads than it may",
        probes=("fork_bomb", "threads"),
    ),
    Promise(
        name="tools",
        says="calls a tool that it may not, or more often or with more than it may",
        probes=(
            *("forbidden_tool", "forbidden_tool_by_frames", "exhaust_calls", "exhaust_calls_by_frames"),
            *("many_requests_at_once", "large_requests", "large_frame", "large_strings", "forge_handles"),
            "multiply_handles",
        ),
    ),
    Promise(
        name="results",
        says="forges a result or an answer, or passes for a program that ended well",
        probes=(
            *("forge_value_by_print", "forge_value_on_descriptors", "answer_early", "answer_twice", "forge_answers"),
            *("broken_frame_*", "malformed_requests", "broken_result", "patch_the_guest", "exit_*"),
        ),
    ),
    Promise(
        name="host",
        says="breaks or misleads the host with a value, an error or a depth of its own",
        probes=(
            *("recursion", "recursion_*", "builtins", "frames_and_garbage", "constructors", "prototypes"),
            *("exotic_exceptions", "hostile_value", "odd_text", "odd_value", "odd_argument"),
        ),
    ),
    Promise(
        name="next_run",
        says="leaves something behind for the next one, or goes on after its end",
        probes=("poison", "after_the_end", "tasks_after_the_end", "generators_after_the_end"),
    ),
)
"""All promises, in the order in which they are shown."""


def promise_of(probe: str) -> Promise | None:
    """Return the promise that the hostile program *probe* measures; None for an unknown one.

    >>> promise_of("recursion_json").name
    'host'
    """
    return next((promise for promise in PROMISES if any(fnmatchcase(probe, name) for name in promise.probes)), None)


def promises_of(profile: str) -> tuple[Promise, ...]:
    """Return what *profile* promises; `dev` promises nothing.

    >>> promises_of("dev")
    ()
    """
    return tuple(promise for promise in PROMISES if profile in promise.profiles)

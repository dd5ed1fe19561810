"""A second set of attacks, written without a look at the filters. They say what they got out, as those of `attacks` do."""

import os
import socket
import struct
import time

from tests.held_out.means import LIBC, by_number, ctypes, got, mmap, syscall


def vsock_that_is_closed_on_exec():
    """outside"""
    with socket.socket(40, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
        sock.setblocking(True)
        sock.settimeout(0.3)
        sock.connect((1 << 1, 1 << 10))
        return "it is connected to the hypervisor"


def vsock_by_the_library():
    return got("socket", LIBC.socket(40, 1, 0))


def unshare_time():
    return got("a namespace of time", LIBC.unshare(0x80))


def unshare_control_groups():
    return got("a namespace of control groups", LIBC.unshare(0x02000000))


def unshare_names():
    return got("a namespace of names", LIBC.unshare(0x04000000))


def unshare_queues_with_files():
    return got("a namespace of queues", LIBC.unshare(0x08000000 | 0x400))


def enter_by_a_process():
    child = os.fork()
    if child == 0:
        time.sleep(2)
        os._exit(0)
    handle = os.pidfd_open(child)
    found = LIBC.setns(handle, 0x10000000 | 0x40000000)
    os.kill(child, 9)
    return "it has entered the namespaces of a process" if found == 0 else ""


def ring_without_entries():
    return "it got another answer than no" if syscall(425, 0, 0) in (-22, -14) else ""


def ring_of_registered_files():
    return "a ring can be registered" if syscall(427, 0, 0, 0, 0) in (-95, -22) else ""


def ring_with_polling():
    setup = (ctypes.c_uint32 * 30)()
    setup[2] = 0x1 | 0x2
    return got("a ring that polls", syscall(425, 4, ctypes.pointer(setup)))


def search_the_ring_of_its_user():
    found = syscall(by_number({"x86_64": 250, "aarch64": 219}), 10, -4, ctypes.pointer(ctypes.c_char()), 0, 0)
    return "keys are searched" if found in (-126, -14) or found >= 0 else ""


def number_of_its_session_of_keys():
    return got("the ring of its session", syscall(by_number({"x86_64": 250, "aarch64": 219}), 0, -3, 0))


def keys_of_a_thread():
    return got("a ring of its thread", syscall(by_number({"x86_64": 250, "aarch64": 219}), 0, -1, 1))


def capabilities_of_keys():
    buffer = ctypes.create_string_buffer(8)
    return got("what keys can do", syscall(by_number({"x86_64": 250, "aarch64": 219}), 31, ctypes.pointer(buffer), 8))


def let_any_process_trace_it():
    if LIBC.prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0) != 0:
        return ""
    child = os.fork()
    if child == 0:
        os._exit(0 if LIBC.ptrace(16, os.getppid(), 0, 0) == 0 else 1)
    return "its child has traced it" if os.waitpid(child, 0)[1] == 0 else ""


def write_memory_of_a_child():
    place = mmap.mmap(-1, 4096, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    where = ctypes.addressof(ctypes.c_char.from_buffer(place))
    child = os.fork()
    if child == 0:
        time.sleep(2)
        os._exit(0)
    text = ctypes.create_string_buffer(b"changed")
    ours = struct.pack("QQ", ctypes.addressof(text), 7)
    theirs = struct.pack("QQ", where, 7)
    number = by_number({"x86_64": 311, "aarch64": 271})
    found = syscall(
        number, child, ctypes.pointer(ctypes.create_string_buffer(ours)), 1,
        ctypes.pointer(ctypes.create_string_buffer(theirs)), 1, 0,
    )  # fmt: skip
    os.kill(child, 9)
    return "it wrote to another process" if found == 7 else ""


def memory_of_the_first_process():
    with open("/proc/1/mem", "rb") as file, open("/proc/1/maps") as maps:
        file.seek(int(maps.readline().split("-")[0], 16))
        return "it read the memory of the first process" if os.getpid() != 1 and file.read(4) else ""


def stack_of_the_kernel():
    with open("/proc/self/stack") as file:
        return file.read()[:80]


def count_by_software():
    event = ctypes.create_string_buffer(struct.pack("IIQQ", 1, 128, 1, 1), 128)
    return got("perf", syscall(by_number({"x86_64": 298, "aarch64": 241}), ctypes.pointer(event), 0, -1, -1, 8))


def look_up_maps():
    buffer = ctypes.create_string_buffer(128)
    found = syscall(by_number({"x86_64": 321, "aarch64": 280}), 12, ctypes.pointer(buffer), 8)
    return "maps can be listed" if found >= 0 or found == -2 else ""


def ask_for_a_token_of_bpf():
    found = syscall(
        by_number({"x86_64": 321, "aarch64": 280}), 36, ctypes.pointer(ctypes.create_string_buffer(128)), 16
    )
    return "bpf has taken it" if found in (-9, -22, -95) else ""


def old_filters_on_sockets():
    """outside"""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0x0300) as sock:
        sock.bind(("eth0", 3))
        return "it reads the packets of an interface"


def routes_by_netlink():
    with socket.socket(16, socket.SOCK_RAW, 0) as sock:
        sock.send(struct.pack("IHHIIB3xiII", 32, 16, 0x5, 1, 0, 0, 1, 1, 1))
        answer = sock.recv(4096)
        return "it has set an interface up" if struct.unpack_from("i", answer, 16)[0] == 0 else ""


def rules_of_the_firewall():
    with socket.socket(16, socket.SOCK_RAW, 12) as sock:
        return f"it has a socket to the firewall: {sock.fileno()}"


def audit_by_netlink():
    with socket.socket(16, socket.SOCK_RAW, 9) as sock:
        return f"it has a socket to the audit: {sock.fileno()}"


def watch_all_of_a_mount():
    return got("fanotify", syscall(by_number({"x86_64": 300, "aarch64": 262}), 0x200 | 0x1, 0))


def mount_a_fresh_proc():
    return got("fsopen", LIBC.syscall(430, b"proc", 0))


def pick_a_mount():
    return got("fspick", LIBC.syscall(433, -100, b"/", 0))


def list_mounts():
    request = ctypes.create_string_buffer(struct.pack("IIQQ", 24, 0, 2**64 - 1, 0), 24)
    answer = ctypes.create_string_buffer(800)
    found = syscall(458, ctypes.pointer(request), ctypes.pointer(answer), 100, 0)
    return "mounts are listed by number" if found >= 0 else ""


def programs_of_the_machine():
    """outside"""
    words = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words.append(file.read())
    found = [
        each
        for each in words
        if any(vmm in each for vmm in (b"qemu-system", b"firecracker", b"containerd", b"dockerd"))
    ]
    return f"it sees {found[0][:80]!r}" if found else ""


def root_of_what_runs_it():
    """outside"""
    parent = os.getppid() or 1
    return f"{os.listdir(os.path.join('/proc', str(parent), 'root', 'root'))}"


def type_for_the_terminal():
    import fcntl

    for number in range(4):
        try:
            fcntl.ioctl(number, 0x5412, b"x")
        except OSError:
            continue
        return "it has typed into a terminal"
    return ""


FURTHER = (
    vsock_that_is_closed_on_exec,
    vsock_by_the_library,
    unshare_time,
    unshare_control_groups,
    unshare_names,
    unshare_queues_with_files,
    enter_by_a_process,
    ring_without_entries,
    ring_of_registered_files,
    ring_with_polling,
    search_the_ring_of_its_user,
    number_of_its_session_of_keys,
    keys_of_a_thread,
    capabilities_of_keys,
    let_any_process_trace_it,
    write_memory_of_a_child,
    memory_of_the_first_process,
    stack_of_the_kernel,
    count_by_software,
    look_up_maps,
    ask_for_a_token_of_bpf,
    old_filters_on_sockets,
    routes_by_netlink,
    rules_of_the_firewall,
    audit_by_netlink,
    watch_all_of_a_mount,
    mount_a_fresh_proc,
    pick_a_mount,
    list_mounts,
    programs_of_the_machine,
    root_of_what_runs_it,
    type_for_the_terminal,
)

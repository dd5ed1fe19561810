"""The attacks. Each is a function that returns what it got out, or "" when there was nothing; it may as well raise OSError
or be killed. What one could do where the wall is missing stays in the sandbox and is harmless.

Their source becomes one program: they use nothing but `means` and what they import themselves. `outside` are those that
count in a virtual machine, or on a kernel of gVisor's, too: they reach for something beyond that kernel.
"""

import os
import socket
import struct
import subprocess

from tests.held_out.means import LIBC, MACHINE, X32, address, apart, by_number, ctypes, got, old_call, syscall

NEW_USER, NEW_NS, NEW_NET, NEW_PID, CHILD_ENDED = 0x10000000, 0x20000, 0x40000000, 0x20000000, 17
HERE = -100


# -- vsock ------------------------------------------------------------------------------------------------------


def vsock_to_the_hypervisor():
    """outside"""
    for port in (22, 1024, 2049, 5000, 8080, 9999):
        with socket.socket(40, socket.SOCK_STREAM) as sock:
            sock.settimeout(0.3)
            try:
                sock.connect((2, port))
            except OSError:
                continue
            return f"it is connected to port {port} of the hypervisor"
    return ""


def vsock_loopback():
    with socket.socket(40, socket.SOCK_STREAM) as server, socket.socket(40, socket.SOCK_STREAM) as sock:
        server.bind((0xFFFFFFFF, 0xFFFFFFFF))
        server.listen(1)
        sock.settimeout(0.5)
        sock.connect((1, server.getsockname()[1]))
        return "it is connected to itself by vsock"


def vsock_datagrams():
    socket.socket(40, socket.SOCK_DGRAM).close()
    return "it has a vsock of datagrams"


def vsock_packets_in_order():
    return got("seqpacket", syscall(by_number({"x86_64": 41, "aarch64": 198}), 40, 5 | 0o2000000 | 0o4000, 0))


def vsock_by_the_old_way_in():
    if MACHINE != "x86_64":
        return ""
    low = LIBC.mmap
    low.restype = ctypes.c_long
    place = low(None, ctypes.c_long(4096), 3, 0x22 | 0x40, -1, ctypes.c_long(0))  # where 32 bits reach
    (ctypes.c_uint32 * 3).from_address(place)[:] = [40, 1, 0]
    return apart(
        lambda: got("socketcall", old_call(102, 1, place)),
        lambda: got("socket of 32 bits", old_call(359, 40, 1, 0)),
    )


def vsock_pair():
    both = (ctypes.c_int * 2)()
    return got("socketpair", syscall(by_number({"x86_64": 53, "aarch64": 199}), 40, 1, 0, address(both)))


def vsock_device():
    """outside"""
    with open("/dev/vsock", "rb") as device:
        import fcntl

        return f"its number is {fcntl.ioctl(device, 0x7B9, bytes(4))!r}"


# -- namespaces -------------------------------------------------------------------------------------------------


def unshare_by_the_library():
    done = LIBC.unshare(NEW_USER)
    return f"it has a user namespace: {open('/proc/self/uid_map').read()}" if done == 0 else ""


def unshare_the_program():
    done = subprocess.run(["unshare", "-Ur", "id", "-u"], capture_output=True, timeout=5)
    return "it is root of a namespace" if done.stdout.strip() == b"0" else ""


def unshare_one_by_one():
    kinds = {"mount": NEW_NS, "network": NEW_NET, "uts": 0x4000000, "ipc": 0x8000000, "cgroup": 0x2000000, "time": 0x80}
    done = [name for name, flag in kinds.items() if LIBC.unshare(flag) == 0]
    return f"it has namespaces of its own: {done}" if done else ""


def clone_of_the_third_kind():
    words = (ctypes.c_uint64 * 11)(NEW_USER | NEW_PID, 0, 0, 0, CHILD_ENDED, 0, 0, 0, 0, 0, 0)
    before = os.getpid()
    child = syscall(435, address(words), ctypes.sizeof(words))
    if os.getpid() != before or child == 0:
        os._exit(0)
    if child < 0:
        return ""
    os.waitpid(child, 0)
    return "clone3 has made a user namespace"


def clone_by_number():
    for flag in (NEW_USER, NEW_NS, NEW_NET, NEW_PID):
        child = syscall(by_number({"x86_64": 56, "aarch64": 220}), flag | CHILD_ENDED, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        if child > 0:
            os.waitpid(child, 0)
            return f"clone has made a namespace of {flag:#x}"
    return ""


def enter_the_first_process():
    for kind in ("user", "mnt", "net", "pid", "ipc"):
        try:
            descriptor = os.open(f"/proc/1/ns/{kind}", os.O_RDONLY)
        except OSError:
            continue
        try:
            if LIBC.setns(descriptor, 0) == 0:
                return f"it has entered the {kind} namespace of the first process"
        finally:
            os.close(descriptor)
    return ""


def ask_for_the_namespace_above():
    import fcntl

    for kind, request in (("pid", 0xB702), ("user", 0xB702), ("mnt", 0xB701), ("net", 0xB701)):
        with open(f"/proc/self/ns/{kind}", "rb") as own:
            try:
                above = fcntl.ioctl(own, request)
            except OSError:
                continue
            if LIBC.setns(above, 0) == 0:
                return f"it is in the namespace above its {kind} one"
    return ""


def map_users():
    with open("/proc/self/uid_map", "w") as file:
        file.write("0 0 4294967295\n")
    return "it has mapped all users"


def namespaces_by_other_numbers():
    if MACHINE != "x86_64":
        return ""
    return apart(
        lambda: got("unshare of x32", syscall(X32 | 272, NEW_USER)),
        lambda: got("unshare of 32 bits", old_call(310, NEW_USER)),
    )


# -- io_uring ---------------------------------------------------------------------------------------------------


def ring():
    return got("a ring", syscall(425, 8, address((ctypes.c_uint32 * 30)())))


def ring_with_a_thread_of_the_kernel():
    params = (ctypes.c_uint32 * 30)()
    params[2] = 1 << 1  # IORING_SETUP_SQPOLL
    return got("a polled ring", syscall(425, 1, address(params)))


def ring_by_other_numbers():
    if MACHINE != "x86_64":
        return ""
    low = LIBC.mmap
    low.restype = ctypes.c_long
    place = low(None, ctypes.c_long(4096), 3, 0x22 | 0x40, -1, ctypes.c_long(0))  # where 32 bits reach
    return apart(
        lambda: got("a ring of x32", syscall(X32 | 425, 8, place)),
        lambda: got("a ring of 32 bits", old_call(425, 8, place)),
    )


# -- keys -------------------------------------------------------------------------------------------------------


def add_a_key():
    number = by_number({"x86_64": 248, "aarch64": 217})
    kind, name, text = (ctypes.create_string_buffer(each) for each in (b"user", b"held:out", b"x"))
    for ring in (-1, -2, -3, -4, -5):
        result = syscall(number, address(kind), address(name), address(text), 1, ring)
        if result > 0:
            return f"it has added the key {result} to the ring {ring}"
    return ""


def join_a_session_of_keys():
    number = by_number({"x86_64": 250, "aarch64": 219})
    name = ctypes.create_string_buffer(b"held:out")
    result = syscall(number, 1, address(name)) if number else -1
    return f"it has the ring {result}" if result > 0 else ""


def describe_rings_of_others():
    number = by_number({"x86_64": 250, "aarch64": 219})
    text = ctypes.create_string_buffer(512)
    for ring in (-3, -4, -5, 1, 2, 3):
        if number and syscall(number, 6, ring, address(text), 512) > 0:
            return f"it knows of the ring {ring}: {text.value!r}"
    return ""


def persistent_keys():
    number = by_number({"x86_64": 250, "aarch64": 219})
    result = syscall(number, 22, -1, -3) if number else -1
    return f"it has the lasting ring {result}" if result > 0 else ""


def ask_for_a_key():
    number = by_number({"x86_64": 249, "aarch64": 218})
    kind, name = ctypes.create_string_buffer(b"user"), ctypes.create_string_buffer(b"held:out")
    result = syscall(number, address(kind), address(name), 0, -2) if number else -1
    return f"it was given the key {result}" if result > 0 else ""


def keys_in_proc():
    text = open("/proc/keys").read()
    return f"it has read the keys: {text[:100]}" if text.strip() else ""


def keys_by_other_numbers():
    if MACHINE != "x86_64":
        return ""
    return apart(
        lambda: got("keyctl of x32", syscall(X32 | 250, 0, -3, 1)),
        lambda: got("keyctl of 32 bits", old_call(288, 0, -3, 1)),
    )


# -- tracing ----------------------------------------------------------------------------------------------------


def be_traced():
    return "it is traced by its parent" if LIBC.ptrace(0, 0, 0, 0) == 0 else ""


def seize_a_child():
    child = os.fork()
    if child == 0:
        import time

        time.sleep(5)
        os._exit(0)
    try:
        return "it has seized a child" if LIBC.ptrace(0x4206, child, 0, 0) == 0 else ""
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def read_memory_of_its_parent():
    text, there = ctypes.create_string_buffer(16), id(os)
    local, remote = (ctypes.c_uint64 * 2)(address(text), 16), (ctypes.c_uint64 * 2)(there, 16)
    for number in {"x86_64": (310, 311), "aarch64": (270, 271)}.get(MACHINE, ()):
        if syscall(number, os.getppid(), address(local), 1, address(remote), 1, 0) > 0:
            return f"the call {number} has reached the memory of another process"
    return ""


def take_a_descriptor_of_its_parent():
    opened = syscall(434, os.getppid(), 0)
    if opened < 0:
        return ""
    return got("a descriptor of its parent", syscall(438, opened, 0, 0))


def compare_with_its_parent():
    number = by_number({"x86_64": 312, "aarch64": 272})
    result = syscall(number, os.getpid(), os.getppid(), 1, 0, 0) if number else -1
    return "it can compare what processes have" if result >= 0 else ""


def tracing_by_other_numbers():
    if MACHINE != "x86_64":
        return ""
    return apart(
        lambda: got("ptrace of x32", syscall(X32 | 521, 0, 0, 0, 0)),
        lambda: got("ptrace of 32 bits", old_call(26, 0, 0, 0, 0)),
    )


# -- perf and bpf -----------------------------------------------------------------------------------------------


def count_its_own_time():
    attr = bytearray(128)
    struct.pack_into("<IIQ", attr, 0, 1, 128, 1)  # a software clock
    struct.pack_into("<Q", attr, 40, 1 | 1 << 5 | 1 << 6)  # off, without kernel and hypervisor
    text = (ctypes.c_char * 128).from_buffer(attr)
    return got("a counter", syscall(by_number({"x86_64": 298, "aarch64": 241}), address(text), 0, -1, -1, 8))


def count_the_machine():
    attr = bytearray(128)
    struct.pack_into("<IIQ", attr, 0, 0, 128, 0)  # cycles of a processor, all processes
    text = (ctypes.c_char * 128).from_buffer(attr)
    return got("a counter of all", syscall(by_number({"x86_64": 298, "aarch64": 241}), address(text), -1, 0, -1, 0))


def tracing_files():
    for path in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing", "/sys/bus/event_source/devices", "/sys/fs/bpf"):
        try:
            if os.listdir(path):
                return f"it can list {path}"
        except OSError:
            continue
    return ""


def make_a_map():
    attr = (ctypes.c_uint32 * 32)(2, 4, 4, 1)  # an array with one value
    return got("a map of bpf", syscall(by_number({"x86_64": 321, "aarch64": 280}), 0, address(attr), 128))


def load_a_program():
    code = (ctypes.c_uint64 * 2)(0xB7, 0x95)  # r0 = 0; exit
    licence = ctypes.create_string_buffer(b"GPL")
    attr = bytearray(128)
    struct.pack_into("<IIQQ", attr, 0, 1, 2, address(code), address(licence))  # a filter of sockets
    text = (ctypes.c_char * 128).from_buffer(attr)
    return got("a program of bpf", syscall(by_number({"x86_64": 321, "aarch64": 280}), 5, address(text), 128))


def bpf_by_other_numbers():
    if MACHINE != "x86_64":
        return ""
    attr = (ctypes.c_uint32 * 32)(2, 4, 4, 1)
    return apart(
        lambda: got("a map of x32", syscall(X32 | 321, 0, address(attr), 128)),
        lambda: got("bpf of 32 bits", old_call(357, 11, 0, 0)),
    )


# -- netlink and other sockets ----------------------------------------------------------------------------------


def make_an_interface():
    with socket.socket(16, socket.SOCK_RAW, 0) as sock:
        sock.settimeout(1)
        kind = struct.pack("<HH", 9, 1) + b"dummy\0\0\0"
        body = struct.pack("<BBHiII", 0, 0, 0, 0, 0, 0) + struct.pack("<HH", 4 + len(kind), 18) + kind
        sock.send(struct.pack("<IHHII", 16 + len(body), 16, 5 | 0x600, 1, 0) + body)
        said = sock.recv(4096)
        return "it has made an interface" if struct.unpack_from("<i", said, 16)[0] == 0 else ""


def events_of_devices():
    with socket.socket(16, socket.SOCK_DGRAM, 15) as sock:
        sock.bind((0, 1))
        return "it receives the events of devices"


def netlink_of_all_kinds():
    made = []
    for number in (2, 3, 4, 6, 7, 9, 10, 11, 12, 16, 18, 20, 21, 22):
        for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
            try:
                socket.socket(16, kind, number).close()
                made.append(number)
            except OSError:
                continue
    return f"it has sockets of netlink {sorted(set(made))}" if made else ""


def ciphers_of_the_kernel():
    with socket.socket(38, 5) as sock:
        sock.bind(("hash", "sha256"))
        return "it has a cipher of the kernel"


def packets_of_the_wire():
    made = []
    for family, kind, protocol in ((17, 3, 768), (17, 2, 768), (2, 3, 1), (10, 3, 58), (15, 3, 2), (44, 3, 0)):
        try:
            socket.socket(family, kind, protocol).close()
            made.append((family, kind))
        except OSError:
            continue
    return f"it has raw sockets {made}" if made else ""


def families_that_are_seldom():
    made = []
    for family in (3, 4, 5, 6, 9, 11, 12, 18, 19, 21, 23, 24, 26, 29, 30, 31, 33, 35, 36, 37, 39, 41, 42, 43, 45):
        for kind in (1, 2, 3, 5):
            try:
                socket.socket(family, kind).close()
                made.append(family)
            except OSError:
                continue
    return f"it has sockets of the families {sorted(set(made))}" if made else ""


def sockets_by_other_numbers():
    if MACHINE != "x86_64":
        return ""
    return apart(
        lambda: got("vsock of x32", syscall(X32 | 41, 40, 1, 0)),
        lambda: got("packets of 32 bits", old_call(359, 17, 3, 768)),
    )


# -- files ------------------------------------------------------------------------------------------------------


def watch_files_without_rights():
    number = by_number({"x86_64": 300, "aarch64": 262})
    return got("a group of fanotify", syscall(number, 0x200 | 0x400, 0)) or got("another", syscall(number, 0, 0))


def watch_files_by_other_numbers():
    return "" if MACHINE != "x86_64" else got("fanotify of 32 bits", old_call(338, 0x200, 0))


def mount_a_directory():
    done = LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, None)
    return "it has mounted /tmp" if done == 0 else ""


def mount_by_the_new_calls():
    name = ctypes.create_string_buffer(b"tmpfs")
    return got("a file system", syscall(430, address(name), 1))


def clone_the_tree():
    root = ctypes.create_string_buffer(b"/")
    return got("a tree", syscall(428, HERE, address(root), 1 | 0x8000 | 0o2000000))


def make_the_root_writable():
    root, attr = ctypes.create_string_buffer(b"/"), (ctypes.c_uint64 * 4)(0, 1, 0, 0)
    return got("the attributes of /", syscall(442, HERE, address(root), 0x8000, address(attr), 32))


def remount_the_root():
    return "it may write to /" if LIBC.mount(None, b"/", None, 32 | 4096, None) == 0 else ""


def take_mounts_away():
    done = [path for path in (b"/proc/sys", b"/proc/kcore", b"/sys", b"/dev") if LIBC.umount2(path, 2) == 0]
    return f"it has taken away the mounts {done}" if done else ""


def change_the_root():
    if LIBC.chroot(b"/") == 0:
        return "it may change its root"
    here = ctypes.create_string_buffer(b".")
    return got("pivot_root", syscall(by_number({"x86_64": 155, "aarch64": 41}), address(here), address(here)))


def open_by_handle():
    handle = (ctypes.c_uint32 * 34)(128, 0)
    path, number = ctypes.create_string_buffer(b"/"), ctypes.c_int()
    named = syscall(
        by_number({"x86_64": 303, "aarch64": 264}), HERE, address(path), address(handle), address(number), 0
    )
    if named < 0:
        handle[0], handle[1], handle[2] = 8, 1, 2  # the root of most file systems
    there = os.open("/", os.O_RDONLY)
    try:
        return got("a handle", syscall(by_number({"x86_64": 304, "aarch64": 265}), there, address(handle), 0))
    finally:
        os.close(there)


def mounts_by_other_numbers():
    if MACHINE != "x86_64":
        return ""
    root = ctypes.create_string_buffer(b"tmpfs")
    return apart(
        lambda: got("fsopen of x32", syscall(X32 | 430, address(root), 1)),
        lambda: got("umount of 32 bits", old_call(22, 0)),
    )


# -- the kernel, its files, and what runs the sandbox ---------------------------------------------------------------


def set_the_clock():
    import time

    now = time.time()
    words = (ctypes.c_long * 2)(int(now), int(now % 1 * 1e9))
    return got("the clock", syscall(by_number({"x86_64": 227, "aarch64": 112}), 0, address(words)))


def gain_rights():
    done = [what for what, number in (("setuid", 0), ("setgid", 0)) if getattr(os, what)(number) is None]
    return f"it is root by {done}"


def keep_rights():
    raised = [number for number in range(41) if LIBC.prctl(47, 2, number, 0, 0) == 0]  # ambient
    return f"it has raised the rights {raised}" if raised else ""


def ports_of_the_processor():
    if MACHINE != "x86_64":
        return ""
    return got("iopl", syscall(172, 3)) or got("ioperm", syscall(173, 0x80, 1, 1))


def devices_that_matter():
    """outside"""
    for name in ("kvm", "mem", "port", "vhost-vsock", "vhost-net", "sda"):
        for place in ("/dev", "/proc/1/root/dev", "/proc/self/root/dev"):
            try:
                os.close(os.open(f"{place}/{name}", os.O_RDONLY | os.O_NONBLOCK))
            except OSError:
                continue
            return f"it has opened {place}/{name}"
    return ""


def devices_of_a_kernel():
    for name in ("fuse", "net/tun", "userfaultfd", "kmsg", "uinput", "loop-control", "mapper/control"):
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDWR | os.O_NONBLOCK))
        except OSError:
            continue
        return f"it has opened /dev/{name}"
    return ""


def make_a_device():
    os.mknod("/tmp/held-out", 0o020666, os.makedev(1, 1))
    return "it has made a device"


def programs_around_it():
    """outside"""
    words = ("qemu-system", "firecracker", "jailer", "runsc", "containerd", "conmon", "dockerd", "crun", "podman")
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                line = open(f"/proc/{name}/cmdline", "rb").read().split(b"\0")[0].decode("utf-8", "replace")
                about = line + " " + open(f"/proc/{name}/comm").read()
            except OSError:
                continue
            if any(word in about for word in words):
                return f"it sees {about.strip()}"
    return ""


def files_of_what_runs_it():
    """outside"""
    found = []
    for process in ("1", str(os.getppid())):
        for name in os.listdir(f"/proc/{process}/fd"):
            try:
                target = os.readlink(f"/proc/{process}/fd/{name}")
            except OSError:
                continue
            if target.startswith("/") and not target.startswith(("/dev/", "/work", "/tmp", "/proc", "/usr", "/memfd")):
                found.append(target)
    return f"processes around it have open {found}" if found else ""


def settings_of_the_kernel():
    for path in ("core_pattern", "yama/ptrace_scope", "unprivileged_bpf_disabled", "keys/maxkeys", "overflowuid"):
        try:
            os.close(os.open(f"/proc/sys/kernel/{path}", os.O_WRONLY))
        except OSError:
            continue
        return f"it may set {path}"
    return ""


def outlive_the_shortage():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
    return "the kernel will spare it when memory is short"


def hold_up_the_kernel():
    return got("userfaultfd", syscall(by_number({"x86_64": 323, "aarch64": 282}), 1 | 0o4000))


def swap_and_accounts():
    path = ctypes.create_string_buffer(b"/tmp/none")
    calls = {"swapon": (167, 224), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116)}
    for name, (old, new) in calls.items():
        number = by_number({"x86_64": old, "aarch64": new})
        words = (10, 0, 0) if name == "syslog" else (address(path), 0, 0)
        if syscall(number, *words) >= 0:
            return f"the kernel has done {name}"
    return ""


ATTACKS = (
    vsock_to_the_hypervisor,
    vsock_loopback,
    vsock_datagrams,
    vsock_packets_in_order,
    vsock_by_the_old_way_in,
    vsock_pair,
    vsock_device,
    unshare_by_the_library,
    unshare_the_program,
    unshare_one_by_one,
    clone_of_the_third_kind,
    clone_by_number,
    enter_the_first_process,
    ask_for_the_namespace_above,
    map_users,
    namespaces_by_other_numbers,
    ring,
    ring_with_a_thread_of_the_kernel,
    ring_by_other_numbers,
    add_a_key,
    join_a_session_of_keys,
    describe_rings_of_others,
    persistent_keys,
    ask_for_a_key,
    keys_in_proc,
    keys_by_other_numbers,
    be_traced,
    seize_a_child,
    read_memory_of_its_parent,
    take_a_descriptor_of_its_parent,
    compare_with_its_parent,
    tracing_by_other_numbers,
    count_its_own_time,
    count_the_machine,
    tracing_files,
    make_a_map,
    load_a_program,
    bpf_by_other_numbers,
    make_an_interface,
    events_of_devices,
    netlink_of_all_kinds,
    ciphers_of_the_kernel,
    packets_of_the_wire,
    families_that_are_seldom,
    sockets_by_other_numbers,
    watch_files_without_rights,
    watch_files_by_other_numbers,
    mount_a_directory,
    mount_by_the_new_calls,
    clone_the_tree,
    make_the_root_writable,
    remount_the_root,
    take_mounts_away,
    change_the_root,
    open_by_handle,
    mounts_by_other_numbers,
    set_the_clock,
    gain_rights,
    keep_rights,
    ports_of_the_processor,
    devices_that_matter,
    devices_of_a_kernel,
    make_a_device,
    programs_around_it,
    files_of_what_runs_it,
    settings_of_the_kernel,
    outlive_the_shortage,
    hold_up_the_kernel,
    swap_and_accounts,
)

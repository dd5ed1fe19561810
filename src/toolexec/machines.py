"""What a sandbox of virtual machines is written with, beside `toolexec.sandbox` and `toolexec.containers`.

A monitor of machines (VMM) is a process of this host: it gets a user, a control group and a root of its own, boots the
files of an image, and is talked to through sockets and pipes. toolexec-microvms is written with these names and those
two modules, and with no others of toolexec's inside. See docs/extending.md.

>>> from toolexec.machines import VMM_NAMESPACES
>>> VMM_NAMESPACES
('net', 'ipc', 'uts', 'pid', 'mount')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.errors.extras import unix_needed
    from toolexec.process.caches import cache_directory
    from toolexec.process.cgroup import Cgroups, Group, find_cgroups
    from toolexec.process.child import run_child
    from toolexec.process.lock import lock, try_lock
    from toolexec.process.poll import pauses
    from toolexec.process.private import PrivateDirectory
    from toolexec.process.settling import to_the_end
    from toolexec.process.stream import SocketStream, Stream
    from toolexec.process.tree import ProcessTree
    from toolexec.process.users import UNUSED_USERS, UserClaim, UserClaims
    from toolexec.runtime.containers.bubblewrap.args import HOST, HOST_PATHS, root_args
    from toolexec.runtime.containers.kvm import look_at_kvm
    from toolexec.runtime.containers.launcher import lacking
    from toolexec.runtime.containers.memory import RESERVE, SizedEngine
    from toolexec.runtime.containers.spec import Resources
    from toolexec.runtime.contract import VMM_NAMESPACES, VMM_PROCESSES
    from toolexec.runtime.guest.bundle import settings_of, zygote_bytes
    from toolexec.runtime.guest.machine.messages import CONTROL_VERSION, MAX_LINE
    from toolexec.runtime.host import host_facts, other_host
    from toolexec.runtime.images.store import Hold
    from toolexec.runtime.images.tree import open_to_all, remove_tree
    from toolexec.runtime.images.vm_files import VmFiles
    from toolexec.runtime.sandboxes import SandboxSettings
else:
    _HOMES = {
        "toolexec.errors.extras": ("unix_needed",),
        "toolexec.process.caches": ("cache_directory",),
        "toolexec.process.cgroup": ("Cgroups", "Group", "find_cgroups"),
        "toolexec.process.child": ("run_child",),
        "toolexec.process.lock": ("lock", "try_lock"),
        "toolexec.process.poll": ("pauses",),
        "toolexec.process.private": ("PrivateDirectory",),
        "toolexec.process.settling": ("to_the_end",),
        "toolexec.process.stream": ("SocketStream", "Stream"),
        "toolexec.process.tree": ("ProcessTree",),
        "toolexec.process.users": ("UNUSED_USERS", "UserClaim", "UserClaims"),
        "toolexec.runtime.containers.bubblewrap.args": ("HOST", "HOST_PATHS", "root_args"),
        "toolexec.runtime.containers.kvm": ("look_at_kvm",),
        "toolexec.runtime.containers.launcher": ("lacking",),
        "toolexec.runtime.containers.memory": ("RESERVE", "SizedEngine"),
        "toolexec.runtime.containers.spec": ("Resources",),
        "toolexec.runtime.contract": ("VMM_NAMESPACES", "VMM_PROCESSES"),
        "toolexec.runtime.guest.bundle": ("settings_of", "zygote_bytes"),
        "toolexec.runtime.guest.machine.messages": ("CONTROL_VERSION", "MAX_LINE"),
        "toolexec.runtime.host": ("host_facts", "other_host"),
        "toolexec.runtime.images.store": ("Hold",),
        "toolexec.runtime.images.tree": ("open_to_all", "remove_tree"),
        "toolexec.runtime.images.vm_files": ("VmFiles",),
        "toolexec.runtime.sandboxes": ("SandboxSettings",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, unix_for="what sandboxes of machines are written with")

__all__ = [
    "CONTROL_VERSION",
    "HOST",
    "HOST_PATHS",
    "MAX_LINE",
    "RESERVE",
    "UNUSED_USERS",
    "VMM_NAMESPACES",
    "VMM_PROCESSES",
    "Cgroups",
    "Group",
    "Hold",
    "PrivateDirectory",
    "ProcessTree",
    "Resources",
    "SandboxSettings",
    "SizedEngine",
    "SocketStream",
    "Stream",
    "UserClaim",
    "UserClaims",
    "VmFiles",
    "cache_directory",
    "find_cgroups",
    "host_facts",
    "lacking",
    "lock",
    "look_at_kvm",
    "open_to_all",
    "other_host",
    "pauses",
    "remove_tree",
    "root_args",
    "run_child",
    "settings_of",
    "to_the_end",
    "try_lock",
    "unix_needed",
    "zygote_bytes",
]

"""What a sandbox of containers is written with, beside `toolexec.sandbox`: specs, daemons, guests, images, owners.

A `DaemonLauncher` starts containers that a daemon or a cluster runs, and `spec_for` says what each of them is.
toolexec-containers and toolexec-kubernetes are written with these names, and with no others of toolexec's inside. See
docs/extending.md.

>>> from toolexec.containers import is_orphan, this_owner
>>> is_orphan(this_owner())
False
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
    from toolexec.process.cgroup import CPU_PERIOD, cgroup_cpu_seconds, cpu_quota, group_at, mounted_controllers
    from toolexec.process.members import kill_members, now_of_boot, open_member
    from toolexec.process.owner import OWNER_LABEL, is_orphan, this_owner
    from toolexec.process.settling import uncut
    from toolexec.process.watch import Watch
    from toolexec.runtime.containers.builder import SHARED_MEMORY, spec_for
    from toolexec.runtime.containers.daemon import Daemon, DaemonConfig, DaemonContainer, DaemonLauncher
    from toolexec.runtime.containers.engine import PROCESSES
    from toolexec.runtime.containers.guest import ContainerGuest, Run
    from toolexec.runtime.containers.launcher import run_trial, unavailable
    from toolexec.runtime.containers.network import Network
    from toolexec.runtime.containers.seccomp import default_profile, oci_seccomp, read_profile, seccomp_profile
    from toolexec.runtime.containers.spec import DEFAULT_PATH, WORK, Mount, Security
    from toolexec.runtime.contract import (
        CORE_BYTES,
        COVERED,
        DEVICES,
        HOSTNAME,
        MASKED,
        NAMESPACES,
        NEW_NAMESPACES,
        NOBODY,
        READ_ONLY,
    )
    from toolexec.runtime.failure_patterns import engine_error
    from toolexec.runtime.guest.bundle import GuestSettings, boot_command
    from toolexec.runtime.images.archive import DIGEST_LABEL, image_machine
    from toolexec.runtime.images.resolver import (
        PullPolicy,
        Reference,
        check_pin,
        missing_image,
        next_step,
        parse_reference,
    )
    from toolexec.runtime.images.store import Facts, ImageStore, StoredImage
else:
    _HOMES = {
        "toolexec.model.json_value": ("JSONDict", "JSONObject", "JSONValue"),
        "toolexec.process.cgroup": ("CPU_PERIOD", "cgroup_cpu_seconds", "cpu_quota", "group_at", "mounted_controllers"),
        "toolexec.process.members": ("kill_members", "now_of_boot", "open_member"),
        "toolexec.process.owner": ("OWNER_LABEL", "is_orphan", "this_owner"),
        "toolexec.process.settling": ("uncut",),
        "toolexec.process.watch": ("Watch",),
        "toolexec.runtime.containers.builder": ("SHARED_MEMORY", "spec_for"),
        "toolexec.runtime.containers.daemon": ("Daemon", "DaemonConfig", "DaemonContainer", "DaemonLauncher"),
        "toolexec.runtime.containers.engine": ("PROCESSES",),
        "toolexec.runtime.containers.guest": ("ContainerGuest", "Run"),
        "toolexec.runtime.containers.launcher": ("run_trial", "unavailable"),
        "toolexec.runtime.containers.network": ("Network",),
        "toolexec.runtime.containers.seccomp": ("default_profile", "oci_seccomp", "read_profile", "seccomp_profile"),
        "toolexec.runtime.containers.spec": ("DEFAULT_PATH", "WORK", "Mount", "Security"),
        "toolexec.runtime.contract": (
            "CORE_BYTES",
            "COVERED",
            "DEVICES",
            "HOSTNAME",
            "MASKED",
            "NAMESPACES",
            "NEW_NAMESPACES",
            "NOBODY",
            "READ_ONLY",
        ),
        "toolexec.runtime.guest.bundle": ("GuestSettings", "boot_command"),
        "toolexec.runtime.images.archive": ("DIGEST_LABEL", "image_machine"),
        "toolexec.runtime.images.resolver": (
            "PullPolicy",
            "Reference",
            "check_pin",
            "missing_image",
            "next_step",
            "parse_reference",
        ),
        "toolexec.runtime.images.store": ("Facts", "ImageStore", "StoredImage"),
        "toolexec.runtime.failure_patterns": ("engine_error",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, unix_for="what sandboxes of containers are written with")

__all__ = [
    "CORE_BYTES",
    "COVERED",
    "CPU_PERIOD",
    "DEFAULT_PATH",
    "DEVICES",
    "DIGEST_LABEL",
    "HOSTNAME",
    "MASKED",
    "NAMESPACES",
    "NEW_NAMESPACES",
    "NOBODY",
    "OWNER_LABEL",
    "PROCESSES",
    "READ_ONLY",
    "SHARED_MEMORY",
    "WORK",
    "ContainerGuest",
    "Daemon",
    "DaemonConfig",
    "DaemonContainer",
    "DaemonLauncher",
    "Facts",
    "GuestSettings",
    "ImageStore",
    "JSONDict",
    "JSONObject",
    "JSONValue",
    "Mount",
    "Network",
    "PullPolicy",
    "Reference",
    "Run",
    "Security",
    "StoredImage",
    "Watch",
    "boot_command",
    "cgroup_cpu_seconds",
    "check_pin",
    "cpu_quota",
    "default_profile",
    "engine_error",
    "group_at",
    "image_machine",
    "is_orphan",
    "kill_members",
    "missing_image",
    "mounted_controllers",
    "next_step",
    "now_of_boot",
    "oci_seccomp",
    "open_member",
    "parse_reference",
    "read_profile",
    "run_trial",
    "seccomp_profile",
    "spec_for",
    "this_owner",
    "unavailable",
    "uncut",
]

"""What a sandbox of containers is written with, beside `toolexec.sandbox`: specs, daemons, guests, images, owners.

A `DaemonLauncher` starts containers that a daemon or a cluster runs, and `spec_for` says what each of them is.
toolexec-kubernetes is written with these names, and with no others of toolexec's inside. See docs/extending.md.

>>> from toolexec.containers import is_orphan, this_owner
>>> is_orphan(this_owner())
False
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
    from toolexec.process.owner import OWNER_LABEL, is_orphan, this_owner
    from toolexec.process.settling import uncut
    from toolexec.runtime.containers.builder import spec_for
    from toolexec.runtime.containers.daemon import Daemon, DaemonConfig, DaemonContainer, DaemonLauncher
    from toolexec.runtime.containers.engine import PROCESSES
    from toolexec.runtime.containers.guest import ContainerGuest, Run
    from toolexec.runtime.containers.launcher import unavailable
    from toolexec.runtime.containers.network import Network
    from toolexec.runtime.containers.seccomp import oci_seccomp, seccomp_profile
    from toolexec.runtime.containers.spec import NOBODY, Mount, Security
    from toolexec.runtime.contract import HOSTNAME, NAMESPACES
    from toolexec.runtime.guest.bundle import GuestSettings, boot_command
    from toolexec.runtime.images.resolver import parse_reference
    from toolexec.runtime.images.store import ImageStore, StoredImage
else:
    _HOMES = {
        "toolexec.model.json_value": ("JSONDict", "JSONObject", "JSONValue"),
        "toolexec.process.owner": ("OWNER_LABEL", "is_orphan", "this_owner"),
        "toolexec.process.settling": ("uncut",),
        "toolexec.runtime.containers.builder": ("spec_for",),
        "toolexec.runtime.containers.daemon": ("Daemon", "DaemonConfig", "DaemonContainer", "DaemonLauncher"),
        "toolexec.runtime.containers.engine": ("PROCESSES",),
        "toolexec.runtime.containers.guest": ("ContainerGuest", "Run"),
        "toolexec.runtime.containers.launcher": ("unavailable",),
        "toolexec.runtime.containers.network": ("Network",),
        "toolexec.runtime.containers.seccomp": ("oci_seccomp", "seccomp_profile"),
        "toolexec.runtime.containers.spec": ("NOBODY", "Mount", "Security"),
        "toolexec.runtime.contract": ("HOSTNAME", "NAMESPACES"),
        "toolexec.runtime.guest.bundle": ("GuestSettings", "boot_command"),
        "toolexec.runtime.images.resolver": ("parse_reference",),
        "toolexec.runtime.images.store": ("ImageStore", "StoredImage"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, unix_for="what sandboxes of containers are written with")

__all__ = [
    "HOSTNAME",
    "NAMESPACES",
    "NOBODY",
    "OWNER_LABEL",
    "PROCESSES",
    "ContainerGuest",
    "Daemon",
    "DaemonConfig",
    "DaemonContainer",
    "DaemonLauncher",
    "GuestSettings",
    "ImageStore",
    "JSONDict",
    "JSONObject",
    "JSONValue",
    "Mount",
    "Network",
    "Run",
    "Security",
    "StoredImage",
    "boot_command",
    "is_orphan",
    "oci_seccomp",
    "parse_reference",
    "seccomp_profile",
    "spec_for",
    "this_owner",
    "unavailable",
    "uncut",
]

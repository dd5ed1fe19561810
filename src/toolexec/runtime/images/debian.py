"""A small Debian in a directory: made with debootstrap as root, and with mmdebstrap as any other user."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.process.steps import KILLED, OnStep, run_command
from toolexec.runtime.images.contents import Contents
from toolexec.runtime.images.sources import read_source

_USUAL_SECONDS: Final = 40.0
_CAP_SECONDS: Final = 1800.0
_ALONE: Final = ("--mount", "--pid", "--fork", "--kill-child")
# What goes into the programs that build: where to fetch from and whom to trust, and nothing that could be a secret of
# something else.
_KEPT: Final = re.compile(
    r"PATH|HOME|USER|TMPDIR|SSL_CERT_(?:FILE|DIR)|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE|APT_CONFIG"
    r"|(?i:https?_proxy|ftp_proxy|all_proxy|no_proxy)"
)
_ENTER: Final = """
umask 022
mount -t proc proc "$0/proc"
mount -t tmpfs tmpfs "$0/dev"
for name in null zero urandom; do : > "$0/dev/$name"; mount --bind "/dev/$name" "$0/dev/$name"; done
exec chroot "$0" "$@"
"""


def build_environment(**more: str) -> dict[str, str]:
    """Return the environment variables for programs that build; the same language and no hash seeds on every
    machine.
    """
    kept = {key: value for key, value in os.environ.items() if _KEPT.fullmatch(key)}
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "DEBIAN_FRONTEND": "noninteractive",
        # What is built is kept only when it is complete: dpkg need not wait for the disk (a Debian in 53 s, 71 before).
        "DPKG_FORCE": "unsafe-io",
        **more,
    }


def install_debian(
    root: Path, suite: str, mirror: str, packages: Sequence[str], *, work: Path, progress: OnStep | None
) -> None:
    """Make the directory *root* with a minimal Debian *suite* and *packages* in it; *work* is a directory for logs.
    The lists of what its mirror has stay in it.

    *mirror* is where it is fetched from ("" for the public mirror that the tools know). Nothing that it mounts or
    starts outlives it. Raises ConfigurationError when it cannot be made, with what to do.
    """
    wanted = ",".join(packages)
    where = [mirror] if mirror else []
    if os.geteuid() == 0:
        _need("debootstrap")
        _run(
            ["unshare", *_ALONE, "debootstrap", "--variant=minbase", f"--include={wanted}", suite, str(root), *where],
            work,
            progress,
        )
        return
    program = shutil.which("mmdebstrap")
    if program is None:
        raise ConfigurationError(
            "building an image needs the rights of root, for debootstrap: run it as root (in a virtual machine or a "
            "container if you like); or install what needs them not, with: apt-get install mmdebstrap uidmap"
        )
    made = work / "debian.tar"
    how = ["--mode=unshare", "--variant=minbase", "--format=tar", "--skip=cleanup/apt/lists"]
    merged = Path(program).parents[1] / "share/mmdebstrap/hooks/merged-usr"
    if merged.is_dir():  # as debootstrap does it, or all of Perl is needed for that
        how.append(f"--hook-dir={merged}")
        wanted += ",usr-is-merged"
    _run([program, *how, f"--include={wanted}", suite, str(made), *where], work, progress)
    tree = Contents()
    read_source(made, tree, work)
    tree.write(root)
    made.unlink()


def in_tree(root: Path, command: Sequence[str]) -> list[str]:
    """Return the command that runs *command* in the tree *root*: no network, and nothing of it is left once it has
    ended.
    """
    who = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *who, *_ALONE, "--net", "sh", "-euc", _ENTER, str(root), *command]


def installed(status: str) -> dict[str, str]:
    """Return name → version of the Debian packages in the text of `/var/lib/dpkg/status`."""
    found: dict[str, str] = {}
    for part in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Status", "").endswith(" installed"):
            found[fields.get("Package", "")] = fields.get("Version", "")
    return dict(sorted(found.items()))


def upstream(system: Mapping[str, str], package: str) -> str:
    """Return the version of a package without what Debian adds: `3.11.2`; "" where it is not installed."""
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", system.get(package, ""))
    return match[1] if match is not None else ""


def _need(program: str) -> None:
    for name in (program, "unshare"):
        if shutil.which(name) is None:
            package = "util-linux" if name == "unshare" else name
            raise ConfigurationError(f"building an image needs {name}; install it with: apt-get install {package}")


def _run(command: Sequence[str], work: Path, progress: OnStep | None) -> None:
    code, output = run_command(
        command,
        directory=work,
        environment=build_environment(PATH=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"),
        name="build",
        message="installing Debian",
        usual_seconds=_USUAL_SECONDS,
        cap_seconds=_CAP_SECONDS,
        progress=progress,
    )
    if code != 0:
        why = "it took too long" if code == KILLED else output[-600:] or "it said nothing"
        raise ConfigurationError(f"Debian could not be installed; {why}", details={"output": output})

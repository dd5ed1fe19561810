"""A sandbox as an ordinary user starts it, in a process of its own: `python -m tests.ordinary KIND IMAGE WHAT`; for a kind
that has a server, IMAGE is the place of that.

That process begins as root, which may read this tree, and runs `WHAT` once so that all is imported. Then it becomes a
user without rights, does the same, and prints what came of it as JSON: `wall` and `held_out`, what got out of `tests.wall`
and `tests.held_out`, `both`, the two of these by name, or `all`, the run of a check with the whole battery, for `tests.promises`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.engines.bubblewrap import require_bwrap
from tests.engines.gvisor import require_runsc
from tests.engines.images import seen_at, test_image
from tests.engines.microvm import require_qemu
from tests.held_out.running import escaped
from tests.served import SERVED, USER, sandbox, served
from tests.wall import fallen
from tests.workspace import usable

from toolexec.errors import SandboxUnavailableError
from toolexec.process.caches import cache_directory
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.containers.config import DEFAULT_LIMITS
from toolexec.runtime.images.store import ImageStore
from toolexec.runtime.images.tree import open_to_all
from toolexec.testing.escapes import ESCAPES, Escape
from toolexec.testing.matrix import measure

ORDINARY: Final = (*usable(("wasm", "bubblewrap", "gvisor", "qemu")),)
"""The kinds whose programs run with the rights of who starts them; a daemon has its own (`SERVED`)."""
SMALL: Final = replace(DEFAULT_LIMITS, memory_bytes=128 << 20)
"""The limits of machines in tests."""
_RUNS: Final = {"wall": fallen, "held_out": escaped}
_SLOWER: Final = 4.0
"""How many seconds longer programs may take in a machine whose processor is software."""


def programs_for(kind: str) -> Sequence[Escape]:
    """Return the battery as *kind* is measured with: a processor in software gets more time."""
    return [replace(each, timeout=each.timeout + _SLOWER) for each in ESCAPES] if kind == "qemu" else ESCAPES


def run_as_user(kind: str, what: str, *, seconds: float) -> Any:
    """Return what came of *what* in a sandbox of *kind* that an ordinary user has started, within *seconds*.

    Needs root. Skips, or in CI fails, where the engine is missing.
    """
    directory = Path(tempfile.mkdtemp(prefix="tx-user-", dir="/var/tmp"))  # of which all above can be looked into
    try:
        directory.chmod(0o755)
        for name in ("root", "user"):
            (directory / name).mkdir()
        os.chown(directory / "user", USER, USER)
        with ExitStack() as held:
            if kind in SERVED:
                image, before = json.dumps(held.enter_context(served(kind))), ()
            else:
                image, before = _image(kind, directory, held)
            done = subprocess.run(
                [*before, sys.executable, "-m", "tests.ordinary", kind, image, what],
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
                cwd=Path(__file__).parents[1],
                env=_environment(kind, directory),
            )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _environment(kind: str, directory: Path) -> Mapping[str, str]:
    return {
        "PATH": f"{directory}:{os.environ['PATH']}",
        "HOME": str(directory / "root"),
        "TOOLEXEC_CACHE": str(cache_directory("") if kind == "wasm" else directory / "root"),
        "TOOLEXEC_TEST_PLACE": str(directory / "user"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _image(kind: str, directory: Path, held: ExitStack) -> tuple[str, Sequence[str]]:
    """Return an image that an ordinary user can read, and the words before the command that uses it: root's store is
    closed to others, and so is its `runsc`. What is in use of the store is *held*. Of the embedded sandbox, the user gets
    what was built as a cache of its own."""
    match kind:
        case "wasm":
            built = directory / "user" / "sandbox"
            shutil.copytree(cache_directory("sandbox"), built)
            for path in (built, *built.rglob("*")):
                os.chown(path, USER, USER)
            return "", ()
        case "bubblewrap":
            require_bwrap()
            return "host", ()
        case "gvisor":
            shutil.copy(require_runsc(), directory)
            stored = test_image()
            held.enter_context(ImageStore().hold(stored))
            return str(directory / "image"), seen_at(directory / "image", stored)
        case _:
            image = ImageStore().find(require_qemu())
            assert image is not None
            held.enter_context(ImageStore().hold(image))
            files = ImageStore().vm_files(image)
            copied = shutil.copytree(files.kernel.parent, directory / "image")
            open_to_all(copied)
            return str(copied), ()


def _backend(kind: str, image: str) -> SandboxBackend:
    if kind in SERVED:
        return sandbox(kind, json.loads(image))
    match kind:
        case "wasm":
            from toolexec.runtime.wasm.backend import WasmBackend

            return WasmBackend(pool_size=1)
        case "bubblewrap":
            from toolexec.runtime.containers.bubblewrap import BubblewrapBackend, BubblewrapConfig

            return BubblewrapBackend(BubblewrapConfig(image=image))
        case "gvisor":
            from toolexec_containers import GvisorBackend, GvisorConfig

            return GvisorBackend(GvisorConfig(image=image))
        case _:
            from toolexec_microvms import MicrovmBackend, MicrovmConfig

            return MicrovmBackend(MicrovmConfig(image=image, vmm="qemu", limits=SMALL))


def _main(kind: str, image: str, what: str) -> None:
    _run_once(kind, image)
    if what == "all":  # the battery, too, is imported by who may read it
        asyncio.run(_measured(kind, image, most=1))
    place = os.environ["TOOLEXEC_TEST_PLACE"]
    os.environ.update(HOME=place, TMPDIR=place, TOOLEXEC_CACHE=place)
    tempfile.tempdir = place
    sys.executable = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    os.chdir("/")
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)
    if what == "all":
        print(json.dumps(asyncio.run(_measured(kind, image))))
    else:
        found = {name: asyncio.run(run(_backend(kind, image))) for name, run in _RUNS.items() if what in (name, "both")}
        print(json.dumps(found if what == "both" else found[what]))


def _run_once(kind: str, image: str) -> None:
    """Run `WHAT` as root. A user's Podman reads the filter itself, which root's cache has for itself only."""
    try:
        asyncio.run(fallen(_backend(kind, image)))
    except SandboxUnavailableError:
        if kind != "podman":
            raise
        filters = [*Path(os.environ["TOOLEXEC_CACHE"], "seccomp").glob("*.profile")]
        public = shutil.copy(filters[0], os.environ["TOOLEXEC_TEST_PLACE"])
        Path(public).chmod(0o644)
        asyncio.run(fallen(sandbox(kind, {**json.loads(image), "seccomp": public})))


async def _measured(kind: str, image: str, most: int = len(ESCAPES)) -> dict[str, Any]:
    backend = _backend(kind, image)
    try:
        return (await measure([backend], promises=programs_for(kind)[:most])).to_dict()
    finally:
        await backend.aclose()


if __name__ == "__main__":
    _main(*sys.argv[1:])

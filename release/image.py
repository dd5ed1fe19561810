"""Build the container images from dist/ where no registry and no index is reached: with a base that the engine has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from release.projects import ROOT, ReleaseError, version
from toolexec.runtime.images.store import ImageStore

TARGETS: Final = {"serve": "toolexec", "runtime": "toolexec-runtime"}
"""The stages of the Dockerfile that are images, and what each is called."""

SEALED: Final = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")  # noqa: S108 - one of its own
"""The options of a container that can write to its volumes and /tmp only, and that gets no rights."""

_DOCKERFILE: Final = ROOT / "deploy/Dockerfile"
_BILL: Final = "/opt/toolexec/sbom.cdx.json"


def build_images(dist: Path, base: str, *, python: str = sys.executable, engine: str = "docker") -> list[str]:
    """Build both images from the wheels in *dist*, on the image *base*, and return their names with the version.

    *python* has the minor version of the base's Python, and pip: it fetches what the wheels need, with its own
    settings, and the build has no network. *engine* is the command, such as `podman`. A base that it does not have is
    taken from the images of `toolexec image`. Raises ReleaseError with what a command printed where it fails, where
    there is no such base, and where the two Pythons differ.
    """
    _load(base, engine)
    asked = "import sys; print(*sys.version_info[:2], sep='.')"
    inside = _run(engine, "run", "--rm", "--network", "none", "--entrypoint", "python", base, "-c", asked).strip()
    outside = _run(python, "-c", asked).strip()
    if inside != outside:
        raise ReleaseError(f"the base has Python {inside}, and {python} is {outside}: name one of {inside}")
    made: list[str] = []
    with tempfile.TemporaryDirectory(prefix="toolexec-image-") as name:
        context = Path(name)
        gather(dist, context, python)
        for target, image in TARGETS.items():
            tag = f"{image}:{version()}"
            given = {"BASE": base, "PIP_NO_INDEX": "1", "VERSION": version()}
            arguments = [word for key, value in given.items() for word in ("--build-arg", f"{key}={value}")]
            file = str(context / "deploy/Dockerfile")
            _run(
                engine,
                "build",
                "--network",
                "none",
                *arguments,
                "-f",
                file,
                "--target",
                target,
                "-t",
                tag,
                str(context),
            )
            made.append(tag)
    return made


def gather(dist: Path, into: Path, python: str = sys.executable) -> None:
    """Put everything that the images are made of into a directory: the files that .dockerignore lets through, and the
    wheels of *dist* with all that they need. Raises ReleaseError where one cannot be had.
    """
    for name in _sent():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, into / name)
    (into / "dist").mkdir()
    ours = sorted(dist.glob("toolexec*.whl"))
    core = [path for path in ours if re.match(r"toolexec-\d", path.name)]
    if len(core) != 1:
        raise ReleaseError(f"{dist} has {len(core)} wheels of toolexec, not 1: `make release-check` builds it")
    named = re.findall(r"^ARG EXTRAS=(\S+)$", _DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    extras = sorted({word for each in named for word in each.split(",")})
    wanted = [f"toolexec[{','.join(extras)}] @ {core[0].absolute().as_uri()}"]
    wanted += [str(path) for path in ours if path not in core]
    options = ["--quiet", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    _run(python, "-m", "pip", "wheel", *options, "--wheel-dir", str(into / "dist"), *wanted)


def bill_of(image: str, *, engine: str = "docker") -> dict[str, Any]:
    """Return the bill of materials that an image has inside. Raises ReleaseError where it has none."""
    return json.loads(_run(engine, "run", "--rm", "--network", "none", *SEALED, "--entrypoint", "cat", image, _BILL))


def _load(base: str, engine: str) -> None:
    if _run(engine, "image", "ls", "--quiet", base).strip():
        return
    store = ImageStore()
    found = store.find(base)
    if found is None:
        raise ReleaseError(f"there is no image {base}: `toolexec image build --name {base} --with pip` makes it")
    with store.hold(found):
        _run(engine, "load", "--input", str(store.archive(found)))


def _sent() -> Iterator[str]:
    yield "deploy/Dockerfile"
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!") and "*" not in line:
            yield line[1:]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed:", *(done.stdout + done.stderr).splitlines()[-30:])
    return done.stdout

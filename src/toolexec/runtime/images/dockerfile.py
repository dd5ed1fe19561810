"""Images from a Dockerfile: built by the user's own Docker or Podman, kept there, and brought into the store."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.process.steps import KILLED, OnStep, run_command
from toolexec.runtime.images.import_ import import_image
from toolexec.runtime.images.names import normal_name
from toolexec.runtime.images.store import ImageStore, StoredImage

_PROGRAMS: Final = ("docker", "podman")
_USUAL_SECONDS: Final = 60.0
_CAP_SECONDS: Final = 3600.0
_KEPT: Final = re.compile(
    r"PATH|HOME|USER|TMPDIR|LANG|XDG_[A-Z_]+|SSH_AUTH_SOCK|(?:DOCKER|BUILDKIT|BUILDAH|CONTAINERS?|PODMAN|STORAGE)_[A-Z_]+"
    r"|SSL_CERT_(?:FILE|DIR)|(?i:https?_proxy|no_proxy)"
)


def build_dockerfile(
    store: ImageStore, name: str, dockerfile: Path, *, replace: bool = False, progress: OnStep | None = None
) -> StoredImage:
    """Build the image *name* from *dockerfile*, with the directory it is in as context, and keep it in *store* as well.

    The `docker` or `podman` on the PATH does it, with its own settings (which daemon, which network). Blocks;
    *progress* receives each step and stops the build by raising. Raises ConfigurationError when the build fails, or
    when *store* has an image of that name and *replace* is not set, and SandboxUnavailableError where there is neither
    program.
    """
    name = normal_name(name)
    if not dockerfile.is_file():
        raise ConfigurationError(f"there is no file {dockerfile}; give the path of a Dockerfile")
    if not replace and store.find(name) is not None:
        raise ConfigurationError(f"there is an image {name} already; --replace builds it again")
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        raise SandboxUnavailableError(
            "building from a Dockerfile needs docker or podman, and neither is on the PATH; without --dockerfile an "
            "image is built from Debian's packages alone"
        )
    with store.scratch() as work:
        file = str(dockerfile.absolute())
        _run([program, "build", "--file", file, "--tag", name, str(dockerfile.absolute().parent)], work, progress)
        saved = work / "saved.tar"
        _run([program, "save", "--output", str(saved), name], work, progress)
        return import_image(store, saved, name, progress=progress)


def _run(command: Sequence[str], work: Path, progress: OnStep | None) -> None:
    code, output = run_command(
        command,
        directory=work,
        environment={key: value for key, value in os.environ.items() if _KEPT.fullmatch(key)},
        name="build",
        message="building from the Dockerfile",
        usual_seconds=_USUAL_SECONDS,
        cap_seconds=_CAP_SECONDS,
        progress=progress,
    )
    if code != 0:
        why = "it took too long" if code == KILLED else output[-1000:] or "it said nothing"
        raise ConfigurationError(f"{Path(command[0]).name} {command[1]} failed: {why}", details={"output": output})

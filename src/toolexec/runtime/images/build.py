"""Building images: a small Debian with Python, and if wished node, Go and packages from PyPI, without a registry.

Two builds from the same packages are the same, byte for byte.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.process.steps import BuildStep, OnStep
from toolexec.runtime.images.clean import make_small, settle
from toolexec.runtime.images.debian import install_debian, installed, upstream
from toolexec.runtime.images.lock import Lock
from toolexec.runtime.images.names import normal_name
from toolexec.runtime.images.packages import Pin, Target, compile_packages, install_packages
from toolexec.runtime.images.store import Facts, ImageStore, StoredImage
from toolexec.runtime.images.toolchain import GO_PACKAGE, go_version, install_go
from toolexec.runtime.images.vm import KernelParts, add_init, fetch_kernel, init_digest, make_files, need_programs
from toolexec.runtime.images.vm_files import VM_DIRECTORY
from toolexec.runtime.requirements import normal_requirements

ImageKind: TypeAlias = Literal["container", "vm"]
"""What an image is for: `vm` has a kernel as well, and what else virtual machines boot."""

DEFAULT_SUITE: Final = "bookworm"

_FORMAT: Final = 1
"""Another one for each change here that makes another image of the same recipe."""
_BASE: Final = ("python3", "python-is-python3", "procps", "ca-certificates")
_SUITE: Final = re.compile(r"[a-z][a-z0-9-]{1,40}")
_MIRROR: Final = re.compile(r"(?:https?|file)://[^\s@]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What goes into an image: a Debian *suite* from *mirror* ("" for the public one), Python with *packages* of PyPI,
    and node and Go if wished. *lock* pins the versions of everything. One of the *kind* `vm` also has a kernel.

    Raises ConfigurationError for a suite, mirror or package that cannot be one, and for a lock of something else.
    """

    suite: str = DEFAULT_SUITE
    mirror: str = ""
    packages: tuple[str, ...] = ()
    node: bool = False
    go: bool = False
    lock: Lock | None = None
    kind: ImageKind = "container"

    def __post_init__(self) -> None:
        object.__setattr__(self, "packages", normal_requirements(self.packages))
        if not _SUITE.fullmatch(self.suite):
            raise ConfigurationError(
                f"{self.suite!r} is not a release of Debian; give its name, as in {DEFAULT_SUITE!r}"
            )
        if self.mirror and not _MIRROR.fullmatch(self.mirror):
            raise ConfigurationError(
                "this is no mirror that can be used; give an address without a user's name or password in it, as in "
                "http://…; those belong into ~/.netrc"
            )

        lock = self.lock
        ours = (self.suite, self.packages, self.node, self.go)
        if lock is not None and ours != (lock.suite, lock.requirements, lock.node, lock.go):
            raise ConfigurationError("the lock is that of an image with something else in it; write a new one")

    def to_json(self) -> JSONDict:
        """Return it as JSON-able data, without the lock."""
        return {
            "format": _FORMAT,
            "suite": self.suite,
            "mirror": self.mirror,
            "packages": list(self.packages),
            "node": self.node,
            "go": self.go,
            **({"vm": init_digest()} if self.kind == "vm" else {}),
        }

    def made(self, image: StoredImage) -> bool:
        """Return whether *image* was made from it; with a lock, wherever Debian came from."""
        about, wanted = dict(image.recipe), self.to_json()
        lock = about.pop("lock", "")
        if self.lock is not None:
            about["mirror"] = self.mirror
        return about == wanted and (self.lock is None or self.lock.digest == lock)


def build_image(
    store: ImageStore, name: str, recipe: Recipe, *, replace: bool = False, progress: OnStep | None = None
) -> tuple[StoredImage, Lock | None]:
    """Build an image and keep it as *name*; takes about a minute, and blocks. Gives it, and the versions of everything.

    An image that was made from the same recipe is given as it is, and no versions with it, unless *replace* is set.
    Until the new image is complete, and if that fails, the store has the old one. *progress* receives each step; it
    stops the build by raising.

    Raises ConfigurationError when the image cannot be built, with what to do; when another image has the name and
    *replace* is not set; and when what was fetched is not what the recipe's lock names.
    """
    name = normal_name(name)
    known = store.find(name)
    if known is not None and not replace:
        if recipe.made(known):
            return known, None
        if known.recipe.get("format") in (None, _FORMAT):
            raise ConfigurationError(
                f"there is an image {name} already, made from something else; --replace builds it again as you want it"
            )
    if recipe.kind == "vm":
        need_programs()
    began = int(time.time())  # tars have whole seconds
    with store.scratch() as work:
        root = work / "rootfs"
        try:
            facts, lock, kernel = _make(root, recipe, work, progress)
            _tell(progress, "making it small")
            make_small(root)
            settle(root, began)
            files = make_files(root, kernel, work / VM_DIRECTORY, work, progress) if kernel is not None else None
            _tell(progress, "keeping it")
        except OSError as error:
            raise ConfigurationError(f"the image cannot be built: {error}") from error
        image = store.add(name, root, facts, vm=files, progress=progress)
    _tell(progress, "keeping it", 1.0)
    return image, lock


def _make(root: Path, recipe: Recipe, work: Path, progress: OnStep | None) -> tuple[Facts, Lock, KernelParts | None]:
    names = [*_BASE, *(["nodejs"] if recipe.node else [])]
    install_debian(root, recipe.suite, recipe.mirror, names, work=work, progress=progress)
    system = installed((root / "var/lib/dpkg/status").read_text("utf-8"))
    pins: Mapping[str, Pin] = recipe.lock.packages if recipe.lock is not None else {}
    kernel = fetch_kernel(root, progress=progress) if recipe.kind == "vm" else None
    if kernel is not None:
        add_init(root)
        system = dict(sorted({**system, **kernel.versions}.items()))
    if recipe.lock is not None:
        recipe.lock.check_system(system)
    target = Target(python=_python(root), glibc=upstream(system, "libc6"))
    ours = {name: pin for name, pin in pins.items() if name != GO_PACKAGE}
    found = install_packages(root, recipe.packages, target, pins=ours, work=work, progress=progress)
    if found:
        compile_packages(root, work=work, progress=progress)
    go = install_go(root, target, pin=pins.get(GO_PACKAGE), work=work, progress=progress) if recipe.go else {}
    lock = Lock(
        suite=recipe.suite,
        node=recipe.node,
        go=recipe.go,
        requirements=recipe.packages,
        system=system,
        packages={**found, **go},
    )
    facts = Facts(
        packages={name: pin.version for name, pin in found.items()},
        system=system,
        python=upstream(system, f"python{target.python}-minimal") or target.python,
        node=upstream(system, "nodejs"),
        go=go_version(root),
        recipe={**recipe.to_json(), "lock": lock.digest},
        kernel=kernel.release if kernel is not None else "",
    )
    return facts, lock, kernel


def _python(root: Path) -> str:
    """Return the version of the Python that `python3` is, such as `3.11`."""
    link = root / "usr/bin/python3"
    match = re.fullmatch(r"python(3\.\d+)", link.readlink().name if link.is_symlink() else "")
    if match is None:
        raise ConfigurationError("this release of Debian has no Python that can be used here")
    return match[1]


def _tell(progress: OnStep | None, message: str, fraction: float | None = None) -> None:
    if progress is not None:
        progress(BuildStep(name="compile", fraction=fraction, message=message))

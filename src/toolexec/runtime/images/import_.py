"""Images from elsewhere, brought into the store: an archive or a directory, checked in full before any of it counts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.process.steps import BuildStep, OnStep
from toolexec.runtime.images.contents import Contents, Node
from toolexec.runtime.images.debian import installed, upstream
from toolexec.runtime.images.export import Described, check_file
from toolexec.runtime.images.names import normal_name
from toolexec.runtime.images.sources import Source, read_source
from toolexec.runtime.images.store import Facts, ImageStore, StoredImage

_MAX_TEXT: Final = 16 << 20
_PACKAGE: Final = re.compile(r"(.+)-([^-]+)\.dist-info")
_PYTHON_DIRECTORY: Final = re.compile(r"python3(?:\.\d+)?")
_LIBRARIES: Final = ("usr/lib", "usr/local/lib")


def import_image(
    store: ImageStore, source: Path, name: str, *, digest: str = "", progress: OnStep | None = None
) -> StoredImage:
    """Bring the image in the file or directory *source* into *store*, as *name*; what has the name now is replaced.

    *source* is a tar (also with gzip) of an OCI layout, of `docker save`, or of a root file system; or a directory with
    an OCI layout or a root file system. What `export_image` wrote keeps its recipe and what virtual machines boot,
    and for root its digest. *digest* is that of the file (`sha256:…`), if only that one is to be taken.

    Raises ConfigurationError for what is in another form, is damaged, is for other machines, or has in it what no image
    should have. The store is as before then.
    """
    name = normal_name(name)

    def _report() -> None:
        if progress is not None:
            progress(BuildStep(name="build", fraction=None, message=f"reading {source.name}"))

    if digest:
        check_file(source, digest)
    tree = Contents()
    with store.scratch() as work:
        try:
            found = read_source(source, tree, work, _report)
            _check(tree, source)
            root = work / "rootfs"
            tree.write(root, _report)
            about = Described.read(found.about) if found.about is not None else None
            if about is not None and found.layers != (about.digest,):
                raise ConfigurationError(
                    "the image archive is damaged: its description is of another image; get it again"
                )
            vm = about.vm_files(found.files, work) if about is not None else None
            if about is not None:
                about.restore(root)
        except OSError as error:
            raise ConfigurationError(f"{source} cannot be imported: {error.strerror or error}") from error
        facts = _facts(tree, found, source)
        if about is None:
            return store.add(name, root, facts, progress=progress)
        facts = replace(facts, recipe=about.recipe, kernel=about.kernel)
        whole = about.digest if os.geteuid() == 0 else ""  # others cannot give files to their owners
        return store.add(name, root, facts, vm=vm, digest=whole, progress=progress)


def _check(tree: Contents, source: Path) -> None:
    if not any(tree.find(name) is not None for name in ("bin/sh", "usr/bin/sh", "usr/bin", "bin")):
        raise ConfigurationError(f"{source} has no root file system: there is neither /bin nor /usr/bin in it")


def _facts(tree: Contents, source: Source, path: Path) -> Facts:
    """Return what can be found without running anything of it."""
    system = installed(_text(tree, "var/lib/dpkg/status"))
    packages: dict[str, str] = {}
    pythons: set[str] = set()
    for directory, name, node in _python_directories(tree):
        version = re.search(r'PY_VERSION\s+"([0-9.]+)', _text(tree, f"{directory[:-3]}include/{name}/patchlevel.h"))
        pythons |= {version[1]} if version is not None else {name.removeprefix("python")} - {"3"}
        for place in ("dist-packages", "site-packages"):
            inner = node.children.get(place)
            for match in map(_PACKAGE.fullmatch, inner.children if inner is not None else ()):
                if match is not None:
                    packages[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
    numbers = re.findall(
        r"#define NODE_(?:MAJOR|MINOR|PATCH)_VERSION (\d+)", _text(tree, "usr/local/include/node/node_version.h")
    )
    return Facts(
        packages=dict(sorted(packages.items())),
        system=system,
        python=max(pythons, key=_key, default="") if not system.get("python3") else upstream(system, "python3"),
        node=".".join(numbers[:3]) or upstream(system, "nodejs"),
        go=_text(tree, "usr/local/go/VERSION").partition("\n")[0].removeprefix("go"),
        env=source.env,
        recipe={"source": path.name, "form": source.form},
    )


def _python_directories(tree: Contents) -> Iterator[tuple[str, str, Node]]:
    for directory in _LIBRARIES:
        node = tree.find(directory)
        for name, child in sorted(node.children.items()) if node is not None else ():
            if _PYTHON_DIRECTORY.fullmatch(name) and child.kind == "directory":
                yield directory, name, child


def _text(tree: Contents, path: str) -> str:
    """Return a file of the tree as text; "" where there is none, or one that is far too long."""
    node = tree.find(path)
    if node is None or node.content is None or node.content.size > _MAX_TEXT:
        return ""
    return b"".join(node.content.chunks(lambda: None)).decode("utf-8", "replace")


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())

"""Images as files for other machines: a tar that Docker, Podman and containerd load too, with what only this store has.

Beside the OCI layout there is a description, with the digests and the recipe, and what virtual machines boot. The same
image gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.runtime.images.archive import DESCRIPTION, VM_MEMBERS, write_archive
from toolexec.runtime.images.contents import PLACES, Contents
from toolexec.runtime.images.region import Region
from toolexec.runtime.images.store import ImageStore, StoredImage
from toolexec.runtime.images.tree import open_to_all, walk
from toolexec.runtime.images.vm_files import VM_DIRECTORY, VmFiles

_FORM: Final = 1
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def export_image(store: ImageStore, image: StoredImage, target: Path) -> str:
    """Write *image* of *store* to the new file *target* and return the digest of that file (`sha256:…`).

    Everything is compared with the digests that the image was kept with. Blocks: some seconds for each 100 MB. Raises
    ConfigurationError when the file exists or cannot be written, SandboxUnavailableError when the image was removed
    meanwhile, or was changed on the disk.
    """
    if target.exists() or target.is_symlink():
        raise ConfigurationError(f"{target} exists; remove it, or give another file")
    about: JSONDict = {  # what is not as it was kept shows in the digests
        "form": _FORM,
        "digest": image.digest,
        "vm_digest": image.vm_digest,
        "kernel": image.kernel,
        "recipe": dict(image.recipe),
        "directories": [*_unusual(image.root)],
    }
    new = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        with store.hold(image):
            more: dict[str, bytes | Path] = {DESCRIPTION: json.dumps(about, sort_keys=True).encode()}
            if image.vm_digest:
                files = VmFiles.in_directory(image.root.with_name(VM_DIRECTORY))
                if files.digest != image.vm_digest:
                    raise ValueError("what machines boot has changed since it was stored")
                more |= {f"{VM_MEMBERS}{path.name}": path for path in files.paths()}
            write_archive(new, image.root, image.digest, image.layer_bytes, image.parts(), more=more)
        with new.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        new.rename(target)
    except ValueError as error:
        raise SandboxUnavailableError(
            f"the image {image.name} was changed on the disk: {error}; remove it and make it again"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        new.unlink(missing_ok=True)
    return f"sha256:{digest}"


def check_file(path: Path, digest: str) -> None:
    """Raise ConfigurationError unless *digest* (`sha256:…`) is that of the file *path*."""
    try:
        with path.open("rb") as file:
            found = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    if found != digest:
        raise ConfigurationError(f"{path} has the digest {found}, not {digest}; get it again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the description in an exported image says of it; nothing of it is trusted but what the digests prove.

    `digest` is of its root file system, `vm_digest` of what machines boot, "" for an image without that. `directories`
    are those that an import makes otherwise, each with its mode and time.
    """

    digest: str
    vm_digest: str
    kernel: str
    recipe: JSONObject
    directories: tuple[tuple[str, int, int], ...]

    @classmethod
    def read(cls, found: JSONObject) -> Described:
        """Return what *found* says. Raises ConfigurationError for another form."""
        recipe, given = found.get("recipe"), found.get("directories")
        strings = [found.get(name) for name in ("digest", "vm_digest", "kernel")]
        rows = [_row(each) for each in cast("list[JSONValue]", given)] if isinstance(given, list) else [None]
        directories = tuple(row for row in rows if row is not None)
        is_whole = isinstance(recipe, dict) and all(isinstance(text, str) for text in strings) and None not in rows
        if found.get("form") != _FORM or not is_whole:
            raise ConfigurationError("the image was exported by another version of toolexec; export it again with this")
        digest, vm_digest, kernel = map(str, strings)
        return cls(
            digest=digest,
            vm_digest=vm_digest,
            kernel=kernel[:200],
            recipe=cast("JSONDict", recipe),
            directories=directories,
        )

    def restore(self, root: Path) -> None:
        """Give the directories of the new tree *root* the modes and times that they had, and none that was not there.
        Raises OSError."""
        for name in PLACES.keys() - {path for path, _, _ in self.directories}:
            (root / name).rmdir()
        for path, mode, mtime in self.directories:
            directory = os.open(root, _DIRECTORY)
            try:
                for part in path.split("/"):
                    inner = os.open(part, _DIRECTORY, dir_fd=directory)
                    os.close(directory)
                    directory = inner
                os.fchmod(directory, mode & 0o3777)
                os.utime(directory, (mtime, mtime))
            finally:
                os.close(directory)

    def vm_files(self, members: Mapping[str, Region], work: Path) -> VmFiles | None:
        """Write what machines boot from *members*, by their names, to a directory of *work*; None for an image without.

        Raises ConfigurationError when it is not what the description says, and OSError.
        """
        if not self.vm_digest:
            return None
        directory = work / VM_DIRECTORY
        directory.mkdir()
        for path in VmFiles.in_directory(directory, self.vm_digest).paths():
            region = members.get(path.name)
            if region is None:
                raise ConfigurationError(f"the image archive is damaged: {path.name} is missing; get it again")
            with path.open("xb") as file:
                for data in region.chunks(lambda: None):
                    file.write(data)
        open_to_all(directory)
        files = VmFiles.in_directory(directory)
        if files.digest != self.vm_digest:
            raise ConfigurationError("the image archive is damaged: what machines boot is another one; get it again")
        return files


def _unusual(root: Path) -> Iterator[list[JSONValue]]:
    """Yield the directories that an import makes itself, and those with a bit that it does not take from a layer."""
    for path, status in walk(root):
        name = path.relative_to(root).as_posix()
        if stat.S_ISDIR(status.st_mode) and (status.st_mode & stat.S_ISGID or Contents.is_covered(name)):
            yield [name, stat.S_IMODE(status.st_mode), max(0, int(status.st_mtime))]


def _row(found: JSONValue) -> tuple[str, int, int] | None:
    match found:
        case [str(path), int(mode), int(mtime)] if mode >= 0 and mtime >= 0:
            parts = path.split("/")
            return (path, mode, mtime) if parts and not {"", ".", ".."} & {*parts} and "\0" not in path else None
        case _:
            return None

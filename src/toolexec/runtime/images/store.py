"""The images of a user, and those of the machine: root file systems that sandboxes run in, each kept in full or not at
all.

An image is a description, which names a generation, and that generation: a directory with the root file system. A new
image of the same name gets a new generation, so that what runs in the old one goes on; a generation that no image names
any more is deleted once no process holds it.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.process.caches import cache_directory
from toolexec.process.lock import lock, try_lock
from toolexec.process.owner import is_orphan, this_owner
from toolexec.process.private import PrivateDirectory
from toolexec.process.steps import OnStep
from toolexec.runtime.images.archive import ArchiveParts, describe, write_archive
from toolexec.runtime.images.layer import measure_layer
from toolexec.runtime.images.names import file_name, name_of_file, normal_name, split_pin
from toolexec.runtime.images.tree import open_to_all, remove_tree, tree_size
from toolexec.runtime.images.vm_files import VM_DIRECTORY, VmFiles

__all__ = ["MACHINE_DIRECTORY", "Facts", "Hold", "ImageStore", "StoredImage", "default_directory"]

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)

MACHINE_DIRECTORY: Final = Path("/var/lib/toolexec/images")
"""Where the images are that root has shared with all users of this machine; see `shared.share_image`."""
_PATIENCE: Final = 10.0
_PAUSE: Final = 0.1
_GENERATIONS: Final = "generations"
_SCRATCH: Final = "new"
_ROOT: Final = "rootfs"
_LEASE: Final = "lease"
_ARCHIVE: Final = "image.tar"
_GENERATION: Final = re.compile(r"[0-9a-f]{24}")
_TRASH: Final = ".trash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known about the content of an image.

    `packages` are those of Python, `system` those of the Linux distribution, each name → version. `python`, `node` and
    `go` are versions, and so is `kernel`, of an image that virtual machines can boot. `env` is for the programs in it.
    `recipe` is what it was made from, as JSON-able data.
    """

    packages: Mapping[str, str] = field(default_factory=dict[str, str])
    system: Mapping[str, str] = field(default_factory=dict[str, str])
    python: str = ""
    node: str = ""
    go: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    recipe: JSONObject = field(default_factory=JSONDict)
    kernel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An image of the store: `root` is its root file system, not to be written to.

    `digest` is that of the whole content (`sha256:…`), `size_bytes` what it takes on the disk. For `packages`,
    `python`, `node` and the rest see `Facts`.
    """

    name: str
    digest: str
    root: Path
    created: datetime
    size_bytes: int
    packages: Mapping[str, str]
    python: str
    node: str
    go: str = ""
    system: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    recipe: JSONObject = field(default_factory=JSONDict)
    layer_bytes: int = 0
    """The size of the tar that `digest` is of."""
    kernel: str = ""
    vm_digest: str = ""
    """Of the files that a virtual machine boots (`sha256:…`); "" for an image without them."""

    @property
    def image_id(self) -> str:
        """What Docker and Podman call the image once they have loaded its archive (`sha256:…`)."""
        return self.parts().image_id

    def parts(self) -> ArchiveParts:
        """Return all of its archive but the layer."""
        labels = {f"toolexec.{key}": text for key in ("python", "node", "go") if (text := str(getattr(self, key)))}
        return describe(self.name, self.digest, self.layer_bytes, env=self.env, labels=labels)


_ALWAYS: Final = tuple(name for name in Facts.__slots__ if name != "kernel")
"""What the description of every image has; images of earlier versions lack the rest."""


class Hold:
    """Keeps the root file system of an image where it is, until it is closed or this process ends; a context manager.

    A process that is to outlive this one can inherit `descriptor`, and then keeps it as well.
    """

    def __init__(self, root: Path, descriptor: int) -> None:
        self.root = root
        self.descriptor = descriptor

    def close(self) -> None:
        """Release it. Twice is fine."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor: int = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def default_directory() -> Path:
    """Return the directory `images` in the user's cache: `$TOOLEXEC_CACHE/images`, `~/.cache/toolexec/images` or
    the like.

    Raises ConfigurationError when there is no such directory.
    """
    return cache_directory("images")


class ImageStore:
    """The images in *directory*, for any number of processes and threads at once.

    Without one they are in `default_directory()`, and those that root has shared with all users of this machine are
    found as well. *shared* says that it is such a directory itself: only root writes there, and all users read.
    All methods block on the disk, and raise ConfigurationError when the directory cannot be used.
    """

    def __init__(self, directory: Path | None = None, *, shared: bool = False) -> None:
        self.directory: Path = directory or default_directory()
        self._shared = shared
        self._machine = ImageStore(MACHINE_DIRECTORY, shared=True) if directory is None else None

    def _opened(self) -> PrivateDirectory:
        return PrivateDirectory(self.directory, shared=self._shared)

    def find(self, name: str) -> StoredImage | None:
        """Return the image *name*, or `name@sha256:…` if it has that digest; None if it is not here, whatever the name
        is.
        """
        try:
            plain, pin = split_pin(name)
        except ConfigurationError:
            return None
        image = None
        if self.directory.exists():
            with self._opened() as directory:
                image = self._read(directory, plain)
        if image is not None and pin in ("", image.digest):
            return image
        return self._of_machine(lambda machine: machine.find(name), None)

    def _of_machine(self, ask: Callable[[ImageStore], T], otherwise: T) -> T:
        """Return what the images of the machine give; *otherwise* where they are not to be used, which is logged."""
        if self._machine is None:
            return otherwise
        try:
            return ask(self._machine)
        except ConfigurationError as error:
            logger.warning("the images in %s are left out: %s", self._machine.directory, error)
            return otherwise

    def owns(self, image: StoredImage) -> bool:
        """Return whether *image* is one of this directory, and not of the machine."""
        return image.root.is_relative_to(self.directory)

    def missing(self, name: str, options: str = "") -> SandboxUnavailableError:
        """Return the error for an image that is not here, with the command that makes it: *options* are those before
        its name."""
        remedy = f"toolexec image build {options}--name {name.partition('@')[0]}"
        reason = (
            f"there is no image {name} here, in {self.directory}, where those are that this user has built, or in "
            f"{MACHINE_DIRECTORY}, where those are that root has shared; root and other users have their own"
        )
        return SandboxUnavailableError(
            f"{reason}; make it with: {remedy}", details={"image": name, "reason": reason, "remedy": remedy}
        )

    def list(self) -> list[StoredImage]:
        """Return all images, by name; one of the machine only where this user has none of its name."""
        found = {image.name: image for image in self._of_machine(lambda machine: machine.list(), [])}
        if self.directory.exists():
            with self._opened() as directory:
                own = [self._read(directory, name_of_file(file.name)) for file in directory.files()]
            found |= {image.name: image for image in own if image is not None}
        return sorted(found.values(), key=lambda image: image.name)

    @contextmanager
    def scratch(self) -> Generator[Path]:
        """Yield a private directory on the disk of the store, for the making of an image; it is gone after the
        block.
        """
        with self._opened() as directory, directory.locked():
            self._collect(directory)
        place = self.directory / _SCRATCH / f"{this_owner()}.{secrets.token_hex(6)}"
        try:
            place.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise self._refusal(error) from error
        try:
            yield place
        finally:
            _clear(place)

    def add(
        self,
        name: str,
        root: Path,
        facts: Facts,
        *,
        vm: VmFiles | None = None,
        digest: str = "",
        progress: OnStep | None = None,
    ) -> StoredImage:
        """Keep the directory *root*, of a `scratch`, as the image *name*, in place of the one that has the name now.

        *vm* are files for virtual machines, in a directory of their own of the same scratch. *digest* is what the
        content must have, if that is known.

        Readers see the old image, or the new one in full. Raises ConfigurationError for an invalid name, and for
        a tree with something in it that is not a file, directory or link, or with another digest.
        """
        name = normal_name(name)
        try:
            found, layer_bytes = measure_layer(root)
            size = tree_size(root) + (tree_size(vm.kernel.parent) if vm is not None else 0)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{root} cannot be kept as an image: {error}") from error
        if digest not in ("", found):
            raise ConfigurationError(f"the image {name} has the digest {found}, not {digest}; get it again")
        generation = secrets.token_hex(12)
        about = {
            **{key: dict(value) if isinstance(value, Mapping) else value for key, value in asdict(facts).items()},
            "name": name,
            "digest": found,
            "generation": generation,
            "created": datetime.now(UTC).isoformat(),
            "size_bytes": size,
            "layer_bytes": layer_bytes,
            "vm_digest": vm.digest if vm is not None else "",
        }
        with self._opened() as directory, directory.locked(progress):
            self._move_in(root, generation, vm.kernel.parent if vm is not None else None)
            directory.store(file_name(name), b"", about)
            self._collect(directory)
            image = self._read(directory, name)
        if image is None:
            raise ConfigurationError(f"{self.directory} does not keep what is written to it; set TOOLEXEC_CACHE=/path")
        return image

    def remove(self, name: str) -> int:
        """Forget the image *name*; gives the bytes that this sets free, now or once nothing runs in it any more.

        Raises ConfigurationError for an invalid name; a missing image is not an error.
        """
        plain = normal_name(name)
        if not self.directory.exists():
            return 0
        with self._opened() as directory, directory.locked():
            image = self._read(directory, plain)
            archive = 0
            if image is not None:
                with suppress(OSError):
                    archive = image.root.with_name(_ARCHIVE).stat().st_size
            directory.remove(file_name(plain))
            self._collect(directory)
        return 0 if image is None else image.size_bytes + archive

    def hold(self, image: StoredImage) -> Hold:
        """Keep the root file system of *image* from being deleted, though the image be removed or replaced meanwhile.

        Raises SandboxUnavailableError when it is gone already; `find` gives what has the name now.
        """
        lease = image.root.with_name(_LEASE)
        try:
            descriptor = os.open(lease, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _gone(image) from error
        try:
            lock(descriptor, shared=True)
            # Who deletes has the lock alone and moves the directory away first.
            if os.fstat(descriptor).st_ino != lease.stat().st_ino:
                raise _gone(image)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise _gone(image) from error
            raise
        return Hold(image.root, descriptor)

    def vm_files(self, image: StoredImage) -> VmFiles:
        """Return what a virtual machine boots of *image*; hold it while they are used.

        Raises SandboxUnavailableError for an image without them, with the command that makes one.
        """
        if not image.vm_digest:
            raise SandboxUnavailableError(
                f"the image {image.name} has no kernel, which a virtual machine needs; build one that has with: "
                "toolexec image build --kind vm",
                details={"image": image.name},
            )
        return VmFiles.in_directory(image.root.with_name(VM_DIRECTORY), image.vm_digest)

    def archive(self, image: StoredImage) -> Path:
        """Return one tar of *image* that is an OCI layout and what `docker load` takes; it is made at the first call.

        It goes away with the image: hold the image while the archive is read. Raises SandboxUnavailableError when the
        image is gone or was changed on the disk.
        """
        made = image.root.with_name(_ARCHIVE)
        with self.hold(image):
            if made.exists():
                return made
            new = made.with_name(f".{secrets.token_hex(6)}.tar")
            try:
                write_archive(new, image.root, image.digest, image.layer_bytes, image.parts())
                if self._shared:
                    new.chmod(0o644)
                new.rename(made)
            except ValueError as error:
                raise SandboxUnavailableError(
                    f"the image {image.name} was changed on the disk; remove it and make it again"
                ) from error
            except OSError as error:
                raise self._refusal(error) from error
            finally:
                new.unlink(missing_ok=True)
        return made

    def _move_in(self, root: Path, generation: str, vm: Path | None) -> None:
        place = self.directory / _GENERATIONS / generation
        try:
            place.mkdir(mode=0o700, parents=True)
            if self._shared:
                place.parent.chmod(0o755)
            (place / _LEASE).touch(mode=0o600)
            (place / _LEASE).chmod(0o644 if self._shared else 0o600)
            if vm is not None:
                if self._shared:
                    open_to_all(vm)
                vm.rename(place / VM_DIRECTORY)
            root.rename(place / _ROOT)
            place.chmod(0o755 if self._shared else 0o700)
        except OSError as error:
            shutil.rmtree(place, ignore_errors=True)
            raise self._refusal(error) from error

    def _read(self, directory: PrivateDirectory, name: str) -> StoredImage | None:
        image = self._described(directory, name)
        while image is not None and not image.root.is_dir():  # it was replaced meanwhile, or its files are gone
            now = self._described(directory, name)
            image = None if now == image else now
        return image

    def _described(self, directory: PrivateDirectory, name: str) -> StoredImage | None:
        """Return the image as its description has it; None for a description of another version, or none."""
        about = directory.about(file_name(name))
        try:
            if about is None or not _GENERATION.fullmatch(about["generation"]):
                return None
            return StoredImage(
                name=name,
                root=self.directory / _GENERATIONS / about["generation"] / _ROOT,
                created=datetime.fromisoformat(about["created"]),
                **{key: about[key] for key in ("digest", "size_bytes", "layer_bytes", *_ALWAYS)},
                kernel=about.get("kernel", ""),
                vm_digest=about.get("vm_digest", ""),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def _collect(self, directory: PrivateDirectory) -> None:
        """Delete generations that no image names and no process holds, and what dead makers have left; while locked.

        What cannot be deleted now is left to the next time.
        """
        named = {str(file.about.get("generation")) for file in directory.files()}
        for place in _directories(self.directory / _GENERATIONS):
            if place.name.startswith(_TRASH):
                with suppress(OSError):
                    remove_tree(place)
            elif place.name not in named:
                _discard(place)
        for place in _directories(self.directory / _SCRATCH):
            if is_orphan(place.name.partition(".")[0]):
                with suppress(OSError):
                    remove_tree(place)

    def _refusal(self, error: OSError) -> ConfigurationError:
        why = error.strerror or error
        return ConfigurationError(
            f"the image directory {self.directory} is not writable: {why}; give another one with TOOLEXEC_CACHE=/path",
            details={"directory": str(self.directory)},
        )


def _directories(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _clear(place: Path) -> None:
    """Delete a scratch directory, in which programs that were killed may write for a moment more."""
    ends = time.monotonic() + _PATIENCE
    while True:
        try:
            return remove_tree(place)
        except OSError as error:
            if time.monotonic() > ends:
                logger.warning("the directory %s cannot be removed now (%s); the next build does it", place, error)
                return None
        time.sleep(_PAUSE)


def _discard(place: Path) -> None:
    """Delete a generation, unless a process holds it."""
    with suppress(OSError):
        lease = os.open(place / _LEASE, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not try_lock(lease):
                return
            trash = place.with_name(f"{_TRASH}{place.name}")
            place.rename(trash)
        finally:
            os.close(lease)
        remove_tree(trash)


def _gone(image: StoredImage) -> SandboxUnavailableError:
    return SandboxUnavailableError(f"the image {image.name} was removed or replaced meanwhile; run it again")

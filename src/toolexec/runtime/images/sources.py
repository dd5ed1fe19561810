"""Reading images from files: an OCI layout, what `docker save` wrote, a tar or a directory with a root file system.

Nothing in them is trusted: sizes are bounded, digests compared, and paths left to `contents`.
"""

from __future__ import annotations

import gzip
import json
import os
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.runtime.images.archive import DESCRIPTION, VM_MEMBERS, image_machine
from toolexec.runtime.images.contents import MAX_BYTES, MAX_ENTRIES, Contents, Node
from toolexec.runtime.images.region import Region
from toolexec.runtime.images.tree import walk
from toolexec.runtime.images.vm_files import VM_NAMES

_MAX_DOCUMENT: Final = 4 << 20
_MAX_LAYERS: Final = 130
_MAX_VARIABLES: Final = 200
_MAX_NUMBER: Final = 2**32 - 2
_CHUNK: Final = 1 << 20
_MAGIC: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}

_DIGEST: Final = "sha256:"

_Find = Callable[[str], Region | None]
_Report = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What was found: in which form, and the environment variables that the image sets.

    `layers` are the digests of its unpacked layers. `about` is the description of an exported image, with `files` that
    machines boot; None for another one.
    """

    form: str
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    layers: tuple[str, ...] = ()
    about: JSONObject | None = None
    files: Mapping[str, Region] = field(default_factory=dict[str, Region])


def read_source(path: Path, tree: Contents, work: Path, report: _Report = lambda: None) -> Source:
    """Put all that the file or directory *path* has into *tree*, which reads from it and from *work* later.

    *report* is called now and then, and may raise. Raises ConfigurationError for what is not an image, is damaged or is
    not acceptable, and OSError.
    """
    reader = _Reader(tree, work, report)
    if path.is_dir():
        if (path / "oci-layout").is_file():
            return reader.layout(lambda name: Region.of_file(path / name))
        reader.directory(path)
        return Source(form="directory")
    region = Region.of_file(path.resolve())
    if region is None:
        raise ConfigurationError(f"{path} is neither a file nor a directory; give an archive, or an unpacked tree")
    try:
        return reader.archive(reader.unpacked(region, path.name))
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, OverflowError, UnicodeError) as error:
        raise ConfigurationError(f"{path} is not a tar, or is damaged: {error}") from error


class _Reader:
    def __init__(self, tree: Contents, work: Path, report: _Report) -> None:
        self._tree = tree
        self._work = work
        self._report = report
        self._made = 0

    def directory(self, path: Path) -> None:
        """Take in a tree of the disk; sockets and the like are left out."""
        for number, (inner, status) in enumerate(walk(path)):
            if number > MAX_ENTRIES:
                raise ConfigurationError(f"{path} has more than {MAX_ENTRIES} files")
            name = inner.relative_to(path).as_posix()
            node = _node_of(status)
            if node is None or self._tree.is_covered(name):
                continue
            if node.kind == "link":
                node.link = str(inner.readlink())
            elif node.kind == "file":
                node.content = Region(inner, 0, status.st_size)
            self._tree.put(name, node)
            self._report()

    def archive(self, region: Region) -> Source:
        """Take in a tar of whatever form."""
        found = {_plain(entry.name): entry for entry in self._entries(region)}
        find = partial(_find_member, region, found)
        if {"oci-layout", "index.json"} <= found.keys():
            return self.layout(find)
        if "manifest.json" in found and "etc" not in found:
            return self._docker(find)
        self._layer(region)
        return Source(form="tar")

    def layout(self, find: _Find) -> Source:
        """Take in an OCI layout, from an archive or a directory."""
        manifest = self._manifest(find, _document(_needed(find, "index.json")))
        config = _object(_document(self._blob(find, _object(manifest.get("config")))))
        layers = _items(manifest.get("layers"))
        digests = self._layers([self._blob(find, layer) for layer in layers], config)
        about, files = find(DESCRIPTION), {name: find(f"{VM_MEMBERS}{name}") for name in VM_NAMES}
        return Source(
            form="oci",
            env=_environment(config),
            layers=digests,
            about=_object(_document(about)) if about is not None else None,
            files={name: region for name, region in files.items() if region is not None},
        )

    def _docker(self, find: _Find) -> Source:
        images = _items(_document(_needed(find, "manifest.json")))
        if len(images) != 1:
            raise ConfigurationError(f"the archive has {len(images)} images; save the one that you want by itself")
        config = _object(_document(_needed(find, str(images[0].get("Config")))))
        names = images[0].get("Layers")
        if not isinstance(names, list):
            raise _damaged("the list of layers is missing")
        self._layers([_needed(find, str(name)) for name in cast("list[JSONValue]", names)], config)
        return Source(form="docker", env=_environment(config))

    def _manifest(self, find: _Find, index: JSONValue) -> JSONDict:
        """Return the one image for this machine in an index, or in an index in it."""
        for _ in range(3):
            fits = [item for item in _items(_object(index).get("manifests")) if _fits(item)]
            if len({item.get("digest") for item in fits}) != 1:
                raise ConfigurationError(
                    f"the archive has {len(fits)} images for this kind of machine (linux, {image_machine()}); "
                    "it must be one"
                )
            found = _object(_document(self._blob(find, fits[0])))
            if "manifests" not in found:
                return found
            index = found
        raise _damaged("its indexes go on and on")

    def _blob(self, find: _Find, described: JSONObject) -> Region:
        digest = described.get("digest")
        name = digest.removeprefix(_DIGEST) if isinstance(digest, str) else ""
        if f"{_DIGEST}{name}" != digest or len(name) != 64 or not name.isalnum():
            raise _damaged(f"{str(digest)[:100]!r} is no digest")
        blob = _needed(find, f"blobs/sha256/{name}")
        if blob.digest(self._report) != digest:
            raise _damaged(f"the content of {digest} is another one")
        return blob

    def _layers(self, layers: list[Region], config: JSONObject) -> tuple[str, ...]:
        """Put the layers on top of each other, each checked against what the image says about it; gives their
        digests."""
        given = config.get("architecture")
        if given not in (None, "", image_machine()):
            raise ConfigurationError(f"the image is for {str(given)[:50]}, and this machine is {image_machine()}")
        known = _object(config.get("rootfs")).get("diff_ids")
        if (
            not isinstance(known, list)
            or len(cast("list[JSONValue]", known)) != len(layers)
            or len(layers) > _MAX_LAYERS
        ):
            raise _damaged("its layers are not those that it names")
        for number, (layer, digest) in enumerate(zip(layers, cast("list[JSONValue]", known), strict=True)):
            plain = self.unpacked(layer, f"layer {number + 1}")
            if plain.digest(self._report) != digest:
                raise _damaged(f"the content of layer {number + 1} is another one")
            self._tree.next_layer()
            self._layer(plain)
        return tuple(map(str, cast("list[JSONValue]", known)))

    def _layer(self, region: Region) -> None:
        for entry in self._entries(region):
            self._put(region, entry)

    def _entries(self, region: Region) -> Iterator[tarfile.TarInfo]:
        """Yield all entries of a tar, which must end as one does: what was cut off would go unnoticed."""
        with region.open() as file, tarfile.open(fileobj=file, mode="r:", errorlevel=2) as tar:
            for count, entry in enumerate(tar):
                self._report()
                if count >= MAX_ENTRIES:
                    raise ConfigurationError(f"the archive has more than {MAX_ENTRIES} entries")
                yield entry
            file.seek(tar.offset)
            if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError("its end is missing")

    def _put(self, region: Region, entry: tarfile.TarInfo) -> None:
        if entry.islnk():
            self._tree.put_hard_link(entry.name, entry.linkname)
            return
        kinds = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK}
        if entry.isreg() and not entry.issparse():
            kind = stat.S_IFREG
        elif entry.type in kinds:
            kind = kinds[entry.type]
        elif self._tree.is_covered(entry.name):
            return
        else:
            raise ConfigurationError(
                f"the image cannot be used: {entry.name[:200]!r} is not a file, directory or link, but a device or a "
                "file with holes, and those are not taken"
            )
        node = Node(
            kind="file" if kind == stat.S_IFREG else "directory" if kind == stat.S_IFDIR else "link",
            mode=entry.mode & 0o7777,
            uid=_number(entry.uid),
            gid=_number(entry.gid),
            mtime=_number(int(entry.mtime)),
            link=entry.linkname if kind == stat.S_IFLNK else "",
            content=region.part(entry.offset_data, entry.size) if kind == stat.S_IFREG else None,
        )
        self._tree.put(entry.name, node)

    def unpacked(self, region: Region, what: str) -> Region:
        """Return the region itself, or a file with what it holds when it is compressed."""
        with region.open() as file:
            start = file.read(6)
            packing = next((name for magic, name in _MAGIC.items() if start.startswith(magic)), "")
            if not packing:
                return region
            if packing != "gzip":
                raise ConfigurationError(f"{what} is compressed with {packing}; only gzip is read: unpack it first")
            file.seek(0)
            self._made += 1
            made = self._work / f"unpacked-{self._made}.tar"
            size = 0
            with gzip.GzipFile(fileobj=file) as source, made.open("xb") as target:
                while data := source.read(_CHUNK):
                    self._report()
                    size += len(data)
                    if size > MAX_BYTES:
                        raise ConfigurationError(f"{what} holds more than {MAX_BYTES >> 30} GiB")
                    target.write(data)
        return Region(made, 0, size)


def _plain(name: str) -> str:
    return name.removeprefix("./").strip("/")


def _find_member(region: Region, found: Mapping[str, tarfile.TarInfo], name: str) -> Region | None:
    """Return a file of the archive; `docker save` has links to layers that two images share."""
    entry = found.get(_plain(name))
    if entry is not None and entry.issym():
        entry = found.get(posixpath.normpath(posixpath.join(posixpath.dirname(_plain(name)), entry.linkname)))
    if entry is None or not entry.isreg() or entry.issparse():
        return None
    return region.part(entry.offset_data, entry.size)


def _needed(find: _Find, name: str) -> Region:
    region = find(name)
    if region is None:
        raise _damaged(f"{name[:200]!r} is missing")
    return region


def _document(region: Region) -> JSONValue:
    if region.size > _MAX_DOCUMENT:
        raise _damaged("a description is too long")
    with region.open() as file:
        text = file.read()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged("a description is not JSON") from error


def _object(value: JSONValue) -> JSONDict:
    if not isinstance(value, dict):
        raise _damaged("a description lacks a part")
    return cast("JSONDict", value)


def _items(value: JSONValue) -> list[JSONDict]:
    if not isinstance(value, list):
        raise _damaged("a description lacks a part")
    return [_object(item) for item in cast("list[JSONValue]", value)]


def _fits(item: JSONObject) -> bool:
    """Return whether an index has this for our kind of machine; what it does not say is taken to fit."""
    place = item.get("platform")
    if not isinstance(place, dict):
        return True
    found = cast("JSONDict", place)
    return found.get("os") in (None, "linux") and found.get("architecture") in (None, image_machine())


def _environment(config: JSONObject) -> dict[str, str]:
    inner = config.get("config")
    given = cast("JSONDict", inner).get("Env") if isinstance(inner, dict) else None
    if not isinstance(given, list):
        return {}
    pairs = [item.split("=", 1) for item in cast("list[JSONValue]", given)[:_MAX_VARIABLES] if isinstance(item, str)]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0]}


def _node_of(status: os.stat_result) -> Node | None:
    kinds = {stat.S_IFDIR: "directory", stat.S_IFLNK: "link", stat.S_IFREG: "file"}
    kind = kinds.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return None
    own = status.st_uid == os.geteuid()  # as an archive made by this user would have it
    return Node(
        kind=cast("Any", kind),
        mode=stat.S_IMODE(status.st_mode),
        uid=0 if own else status.st_uid,
        gid=0 if status.st_gid == os.getegid() else status.st_gid,
        mtime=int(status.st_mtime),
    )


def _number(value: int) -> int:
    return min(max(0, value), _MAX_NUMBER)


def _damaged(why: str) -> ConfigurationError:
    return ConfigurationError(f"the image archive is damaged: {why}; get it again")

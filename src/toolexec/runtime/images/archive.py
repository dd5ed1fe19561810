"""An image as one tar that `docker load`, `podman load` and `ctr images import` take: an OCI layout, and more."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final

from toolexec.model.json_value import JSONValue
from toolexec.runtime.containers.spec import WORK
from toolexec.runtime.contract import NOBODY
from toolexec.runtime.images.layer import write_layer

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for in an image that says nothing else."""
DIGEST_LABEL: Final = "toolexec.digest"
"""The label that says what an image of an engine was made from: the digest that the store has for it."""

DESCRIPTION: Final = "toolexec/image.json"
VM_MEMBERS: Final = "toolexec/vm/"
"""What an exported image has beside its layout: a description, and, by their names, the files that machines boot."""

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_LONG_AGO: Final = "1970-01-01T00:00:00Z"
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_END: Final = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveParts:
    """Everything in an archive but its layer, as bytes; the same bytes for the same image."""

    config: bytes
    manifest: bytes
    index: bytes
    docker: bytes

    @property
    def image_id(self) -> str:
        """What Docker and Podman call the image: the digest of its configuration."""
        return _digest(self.config)


def image_machine() -> str:
    """Return the processor of this machine as images name it, such as `amd64`."""
    name = os.uname().machine
    return _MACHINES.get(name, name)


def describe(
    name: str, digest: str, layer_bytes: int, *, env: Mapping[str, str], labels: Mapping[str, str]
) -> ArchiveParts:
    """Return the parts for the image *name*, whose only layer has this digest and size."""
    tagged = name if ":" in name else f"{name}:latest"
    config = _json(
        {
            "created": _LONG_AGO,  # a moment would make each build another image
            "architecture": image_machine(),
            "os": "linux",
            "config": {
                "User": NOBODY,
                "Env": [f"{key}={value}" for key, value in ({"PATH": PATH} | dict(env)).items()],
                "WorkingDir": WORK,
                "Labels": {**labels, DIGEST_LABEL: digest},
            },
            "rootfs": {"type": "layers", "diff_ids": [digest]},
            "history": [{"created": _LONG_AGO, "created_by": "toolexec image"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": _digest(config), "size": len(config)},
            "layers": [{"mediaType": _LAYER, "digest": digest, "size": layer_bytes}],
        }
    )
    annotations = {
        "io.containerd.image.name": _full_name(tagged),
        "org.opencontainers.image.ref.name": tagged.rpartition(":")[2],
    }
    found = {"mediaType": _MANIFEST, "digest": _digest(manifest), "size": len(manifest), "annotations": annotations}
    return ArchiveParts(
        config=config,
        manifest=manifest,
        index=_json({"schemaVersion": 2, "manifests": [found]}),
        docker=_json([{"Config": _blob(_digest(config)), "RepoTags": [tagged], "Layers": [_blob(digest)]}]),
    )


def write_archive(
    target: Path,
    root: Path,
    digest: str,
    layer_bytes: int,
    parts: ArchiveParts,
    *,
    more: Mapping[str, bytes | Path] = MappingProxyType({}),
) -> None:
    """Write the archive of the tree *root* to the new file *target*, piece by piece, and *more* by name.

    Raises ValueError when the tree is not what *digest* was made of, and OSError; *target* is of no use then.
    """
    with target.open("xb") as file:
        _add(file, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(file, "index.json", parts.index)
        _add(file, "manifest.json", parts.docker)
        for name, content in more.items():
            if isinstance(content, bytes):
                _add(file, name, content)
            else:
                _add_file(file, name, content)
        for directory in ("blobs", "blobs/sha256"):
            _head(file, directory, 0, tarfile.DIRTYPE)
        for data in (parts.config, parts.manifest):
            _add(file, _blob(_digest(data)), data)
        _head(file, _blob(digest), layer_bytes)
        if write_layer(root, file) != (digest, layer_bytes):
            raise ValueError(f"{root} has changed since it was stored")
        file.write(bytes(-layer_bytes % tarfile.BLOCKSIZE) + _END)
        file.flush()
        os.fsync(file.fileno())


def _full_name(tagged: str) -> str:
    """As containerd spells it: with a host, and with `library/` for a plain name."""
    first, slash, _ = tagged.partition("/")
    if slash and ("." in first or first == "localhost"):
        return tagged
    return f"docker.io/{tagged}" if slash else f"docker.io/library/{tagged}"


def _head(file: IO[bytes], name: str, size: int, kind: bytes = tarfile.REGTYPE) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.mode = size, kind, 0o755 if kind == tarfile.DIRTYPE else 0o644
    file.write(entry.tobuf(tarfile.PAX_FORMAT))


def _add(file: IO[bytes], name: str, data: bytes) -> None:
    _head(file, name, len(data))
    file.write(data + bytes(-len(data) % tarfile.BLOCKSIZE))


def _add_file(file: IO[bytes], name: str, path: Path) -> None:
    with path.open("rb") as source:
        size = os.fstat(source.fileno()).st_size
        _head(file, name, size)
        shutil.copyfileobj(source, file, 1 << 20)
    file.write(bytes(-size % tarfile.BLOCKSIZE))


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: JSONValue) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

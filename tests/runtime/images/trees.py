"""Small root file systems, and archives of them, for the tests of images."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from toolexec.runtime.images.archive import image_machine

Entry = tarfile.TarInfo | tuple[str, bytes]


def make_tree(root: Path, **files: str) -> Path:
    """A directory that could be a root file system: a shell, a link, a hard link, and *files* in `/etc`."""
    for name in ("usr/bin", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "usr/bin/sh").write_bytes(b"#!shell\n" * 10)
    (root / "usr/bin/sh").chmod(0o755)
    (root / "bin").symlink_to("usr/bin")
    os.link(root / "usr/bin/sh", root / "usr/bin/dash")
    for name, text in files.items():
        (root / "etc" / name).write_text(text)
    return root


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", **more: Any) -> tarfile.TarInfo:
    """The header of an entry without content."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o755
    for key, value in more.items():
        setattr(info, key, value)
    return info


def tar_of(entries: Iterable[Entry]) -> bytes:
    """A tar with headers, and files given as name and content."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for item in entries:
            if isinstance(item, tarfile.TarInfo):
                tar.addfile(item)
            else:
                info = entry(item[0])
                info.size = len(item[1])
                tar.addfile(info, io.BytesIO(item[1]))
    return made.getvalue()


SHELL: tuple[Entry, ...] = (entry("bin", tarfile.DIRTYPE), ("bin/sh", b"shell"))


def digest(data: bytes) -> str:
    """As images name content."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def oci_files(
    layers: Iterable[bytes], *, packed: Iterable[bytes] | None = None, config: Mapping[str, Any] | None = None
) -> dict[str, bytes]:
    """The files of an OCI layout with these layers; *packed* is what is stored for them, if that is something else."""
    plain = [*layers]
    blobs = [*(packed if packed is not None else plain)]
    about = {
        "architecture": image_machine(),
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in plain]},
        **(config or {}),
    }
    config_blob = json.dumps(about).encode()
    manifest = json.dumps(
        {
            "config": {"digest": digest(config_blob), "size": len(config_blob)},
            "layers": [{"digest": digest(blob), "size": len(blob)} for blob in blobs],
        }
    ).encode()
    index = json.dumps({"manifests": [{"digest": digest(manifest), "size": len(manifest)}]}).encode()
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": index}
    return files | {f"blobs/{digest(blob).replace(':', '/')}": blob for blob in (*blobs, config_blob, manifest)}


def docker_files(layers: Mapping[str, bytes], **more: Any) -> dict[str, bytes]:
    """The files of an archive as older versions of `docker save` write it; *layers* by name."""
    config = {
        "architecture": image_machine(),
        "rootfs": {"diff_ids": [digest(layer) for layer in layers.values()]},
        **more,
    }
    manifest = [{"Config": "config.json", "RepoTags": ["a:b"], "Layers": [*layers]}]
    return {"manifest.json": json.dumps(manifest).encode(), "config.json": json.dumps(config).encode(), **layers}

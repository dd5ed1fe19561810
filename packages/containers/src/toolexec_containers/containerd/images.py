"""Images of containerd's: found, unpacked into snapshots, and taken in from an archive of our own store."""

from __future__ import annotations

import hashlib
import json
import secrets
import tarfile
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Final, TypeAlias

from google.protobuf.field_mask_pb2 import FieldMask

from toolexec.containers import DIGEST_LABEL, OWNER_LABEL, JSONDict, JSONObject, image_machine, this_owner
from toolexec.errors import SandboxUnavailableError
from toolexec_containers.containerd.api import (
    content_pb2,
    descriptor_pb2,
    diff_pb2,
    images_pb2,
    leases_pb2,
    snapshots_pb2,
)
from toolexec_containers.containerd.client import Calls, Client, status_of

_CHUNK: Final = 1 << 20
_MOST_JSON: Final = 4 << 20
_UNPACKS: Final = 600.0
_LEASE_HOLDS: Final = timedelta(hours=1)
_REFERS: Final = "containerd.io/gc.ref."
_Blob: TypeAlias = JSONObject
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedImage:
    """An image that containerd has: its name there, its digest, its labels, and what it points to."""

    name: str
    digest: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    media_type: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layers:
    """The root file system of an image: its layers as they are stored, and the digests of what is in them."""

    blobs: Sequence[_Blob]
    contents: Sequence[str]
    config: str

    def chain(self) -> list[str]:
        """Return the names of the snapshots that the layers make, one on top of the other, as containerd has them."""
        names: list[str] = []
        for content in self.contents:
            below = f"{names[-1]} {content}".encode() if names else b""
            names.append(f"sha256:{hashlib.sha256(below).hexdigest()}" if names else content)
        return names


class Images:
    """The images of one namespace, for one snapshotter."""

    def __init__(self, client: Client, snapshotter: str) -> None:
        self._client = client
        self._snapshotter = snapshotter

    async def find(self, names: Sequence[str]) -> ResolvedImage | None:
        """Return the first of *names* that is there. Raises SandboxUnavailableError as `Client.call` does."""
        for name in names:
            try:
                answer = await self._client.call(Calls.get_image, images_pb2.GetImageRequest(name=name))
            except SandboxUnavailableError as error:
                if status_of(error) == "NOT_FOUND":
                    continue
                raise
            target = answer.image.target
            return ResolvedImage(
                name=name,
                digest=target.digest,
                labels=dict(answer.image.labels),
                media_type=target.media_type,
                size=target.size,
            )
        return None

    async def unpacked(self, image: ResolvedImage) -> str:
        """Return the snapshot with the root file system of *image*, which is made if it is not there.

        Raises SandboxUnavailableError for an image that is not complete, or not for this machine.
        """
        layers = await self._layers(image)
        top = layers.chain()[-1]
        if not await self._has_snapshot(top):
            async with self._lease() as lease:
                await self._unpack(layers, lease)
        return top

    async def take_in(self, name: str, archive: Path, digest: str) -> ResolvedImage:
        """Return the image in *archive*, an OCI layout as one tar, under the name *name*; *digest* becomes a label.

        Raises SandboxUnavailableError for an archive that is damaged, and as `Client.call` does.
        """
        async with self._lease() as lease:
            target = await self._client.in_thread(lambda stop: self._upload(archive, lease, stop))
            labels = {DIGEST_LABEL: digest}
            image = images_pb2.Image(name=name, labels=labels, target=_descriptor(target))
            try:
                await self._client.call(Calls.create_image, images_pb2.CreateImageRequest(image=image), lease=lease)
            except SandboxUnavailableError as error:
                if status_of(error) != "ALREADY_EXISTS":
                    raise
                await self._client.call(Calls.update_image, images_pb2.UpdateImageRequest(image=image), lease=lease)
            found = ResolvedImage(
                name=name,
                digest=str(target["digest"]),
                labels=labels,
                media_type=str(target["mediaType"]),
                size=int(target["size"]),
            )
            await self._unpack(await self._layers(found), lease)
            return found

    async def _layers(self, image: ResolvedImage) -> _Layers:
        """Return what an image is made of; of one for several machines, the one for this."""
        document = await self._json(image.digest, image.name)
        if image.media_type in _INDEXES or "manifests" in document:
            fitting = [entry for entry in document.get("manifests", ()) if _fits(entry.get("platform"))]
            if not fitting:
                raise SandboxUnavailableError(
                    f"the image {image.name} is not for this machine (linux/{image_machine()}); pull one that is"
                )
            document = await self._json(str(fitting[0]["digest"]), image.name)
        config = str(document["config"]["digest"])
        contents = (await self._json(config, image.name)).get("rootfs", {}).get("diff_ids", ())
        if not contents:
            raise SandboxUnavailableError(f"the image {image.name} is empty: there is nothing to run in it")
        return _Layers(blobs=document["layers"], contents=[*map(str, contents)], config=config)

    async def _json(self, digest: str, name: str) -> JSONDict:
        try:
            data = await self._client.in_thread(lambda _: self._blob(digest))
            document = json.loads(data)
            if not isinstance(document, dict):
                raise ValueError("it is not an object")
        except ValueError as error:
            raise SandboxUnavailableError(f"the image {name} is damaged: {error}; pull or import it again") from error
        except SandboxUnavailableError as error:
            if status_of(error) == "NOT_FOUND":
                raise SandboxUnavailableError(
                    f"the image {name} is not complete: containerd lacks {digest}; pull or import it again",
                    details={"image": name},
                ) from error
            raise
        return document

    def _blob(self, digest: str) -> bytes:
        data = b""
        for part in self._client.stream(Calls.read_blob, content_pb2.ReadContentRequest(digest=digest), seconds=60):
            data += part.data
            if len(data) > _MOST_JSON:
                raise ValueError(f"{digest} is over {_MOST_JSON} bytes")
        return data

    async def _has_snapshot(self, name: str) -> bool:
        asked = snapshots_pb2.StatSnapshotRequest(snapshotter=self._snapshotter, key=name)
        try:
            await self._client.call(Calls.stat_snapshot, asked)
        except SandboxUnavailableError as error:
            if status_of(error) == "NOT_FOUND":
                return False
            raise
        return True

    async def _unpack(self, layers: _Layers, lease: str) -> None:
        parent = ""
        for blob, content, name in zip(layers.blobs, layers.contents, layers.chain(), strict=True):
            if not await self._has_snapshot(name):
                await self._apply(blob, content, name, parent, lease)
            parent = name
        await self._refer(layers.config, {f"{_REFERS}snapshot.{self._snapshotter}": parent}, lease)

    async def _apply(self, blob: _Blob, content: str, name: str, parent: str, lease: str) -> None:
        """Unpack one layer onto the snapshot *parent* as the snapshot *name*, unless another process is faster."""
        key = f"toolexec-unpack-{secrets.token_hex(8)}"
        prepare = snapshots_pb2.PrepareSnapshotRequest(
            snapshotter=self._snapshotter, key=key, parent=parent, labels={OWNER_LABEL: this_owner()}
        )
        try:
            prepared = await self._client.uncut(Calls.prepare_snapshot, prepare, lease=lease)
            applied = await self._client.call(
                Calls.apply_layer,
                diff_pb2.ApplyRequest(diff=_descriptor(blob), mounts=prepared.mounts),
                seconds=_UNPACKS,
                lease=lease,
            )
            if applied.applied.digest != content:
                raise SandboxUnavailableError(
                    f"a layer of the image is not what it should be: {applied.applied.digest} instead of {content}"
                )
            commit = snapshots_pb2.CommitSnapshotRequest(snapshotter=self._snapshotter, name=name, key=key)
            await self._client.uncut(Calls.commit_snapshot, commit, lease=lease)
        except BaseException as error:
            remove = snapshots_pb2.RemoveSnapshotRequest(snapshotter=self._snapshotter, key=key)
            with suppress(SandboxUnavailableError):
                await self._client.uncut(Calls.remove_snapshot, remove)
            if not (isinstance(error, SandboxUnavailableError) and status_of(error) == "ALREADY_EXISTS"):
                raise

    async def _refer(self, digest: str, labels: Mapping[str, str], lease: str) -> None:
        """Have the blob *digest* keep what *labels* name from being collected."""
        await self._client.call(
            Calls.update_blob,
            content_pb2.UpdateRequest(
                info=content_pb2.Info(digest=digest, labels=dict(labels)),
                update_mask=FieldMask(paths=[f"labels.{name}" for name in labels]),
            ),
            lease=lease,
        )

    @asynccontextmanager
    async def _lease(self) -> AsyncGenerator[str]:
        """Keeps what is made meanwhile from being collected, for an hour at most: then the host is dead."""
        expires = (datetime.now(UTC) + _LEASE_HOLDS).strftime("%Y-%m-%dT%H:%M:%SZ")
        id = f"toolexec-{this_owner()}-{secrets.token_hex(6)}"
        labels = {OWNER_LABEL: this_owner(), "containerd.io/gc.expire": expires}
        try:
            await self._client.uncut(Calls.create_lease, leases_pb2.CreateRequest(id=id, labels=labels))
            yield id
        finally:
            with suppress(SandboxUnavailableError):
                await self._client.uncut(Calls.delete_lease, leases_pb2.DeleteRequest(id=id))

    def _upload(self, archive: Path, lease: str, stop: threading.Event) -> _Blob:
        """Give containerd what it lacks of *archive*; gives the descriptor of the image in it."""
        try:
            with tarfile.open(archive, "r:") as tar:
                index = json.loads(_member(tar, "index.json", _MOST_JSON))
                target = next(entry for entry in index["manifests"] if _fits(entry.get("platform")))
                manifest = json.loads(_member(tar, _path(target["digest"]), _MOST_JSON))
                blobs = [manifest["config"], *manifest["layers"]]
                for blob in blobs:
                    self._send(tar, blob, {}, lease, stop)
                refers = {f"{_REFERS}content.{number}": str(blob["digest"]) for number, blob in enumerate(blobs)}
                self._send(tar, target, refers, lease, stop)
        except (OSError, tarfile.TarError, ValueError, KeyError, TypeError, StopIteration) as error:
            raise SandboxUnavailableError(
                f"the archive {archive} of an image is damaged: {error}; remove the image and make it again"
            ) from error
        return target

    def _send(
        self,
        tar: tarfile.TarFile,
        blob: _Blob,
        labels: Mapping[str, str],
        lease: str,
        stop: threading.Event,
    ) -> None:
        """Write one blob, unless it is there; containerd checks it against its digest."""
        digest, size = str(blob["digest"]), int(blob["size"])
        reference = f"toolexec-{digest}-{secrets.token_hex(4)}"
        file = tar.extractfile(_path(digest))
        if file is None:
            raise ValueError(f"{digest} is not a file")

        def parts() -> Iterator[content_pb2.WriteContentRequest]:
            request = content_pb2.WriteContentRequest
            yield request(action=content_pb2.STAT, ref=reference, total=size, expected=digest)
            offset = 0
            for data in _chunks(file):
                if stop.is_set():
                    return
                yield request(action=content_pb2.WRITE, ref=reference, offset=offset, data=data)
                offset += len(data)
            yield request(
                action=content_pb2.COMMIT,
                ref=reference,
                total=size,
                expected=digest,
                offset=offset,
                labels=dict(labels),
            )

        try:
            for _ in self._client.exchange(Calls.write_blob, parts(), lease=lease):
                pass
        except SandboxUnavailableError as error:
            if status_of(error) != "ALREADY_EXISTS":
                raise


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while data := file.read(_CHUNK):
        yield data


def _member(tar: tarfile.TarFile, path: str, most: int) -> bytes:
    file = tar.extractfile(path)
    data = file.read(most + 1) if file is not None else b""
    if not data or len(data) > most:
        raise ValueError(f"{path} is empty or too large")
    return data


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _fits(platform: JSONObject | None) -> bool:
    """Return whether what is for *platform* runs on this machine; what says nothing of it does."""
    return not platform or (platform.get("os") == "linux" and platform.get("architecture") == image_machine())


def _descriptor(blob: _Blob) -> descriptor_pb2.Descriptor:
    return descriptor_pb2.Descriptor(
        media_type=str(blob["mediaType"]), digest=str(blob["digest"]), size=int(blob["size"])
    )

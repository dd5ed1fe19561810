"""From the name of an image to the image that containerd has of it, taken in from our store if it has none."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from toolexec.containers import (
    DIGEST_LABEL,
    ImageStore,
    PullPolicy,
    Reference,
    StoredImage,
    check_pin,
    missing_image,
    next_step,
    parse_reference,
)
from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.sandbox import Image
from toolexec_containers.containerd.client import Client
from toolexec_containers.containerd.images import Images, ResolvedImage

_HOLDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Known:
    image: Image
    parent: str
    until: float


class Resolver:
    """Resolves names of images for one namespace of one daemon. What was found holds for ten seconds."""

    def __init__(self, client: Client, snapshotter: str, policy: PullPolicy, store: ImageStore | None = None) -> None:
        self._client = client
        self._images = Images(client, snapshotter)
        self._policy: PullPolicy = policy
        self._store = store
        self._known: dict[str, _Known] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def resolve(self, name: str) -> Image:
        """Return the image *name*. Raises SandboxUnavailableError."""
        return (await self._find(name)).image

    async def parent(self, image: Image) -> str:
        """Return the snapshot with the root file system of *image*. Raises SandboxUnavailableError."""
        known = self._known.get(image.name)
        if known is None or known.image != image:
            known = await self._find(image.name)
        return known.parent

    def forget(self, image: Image) -> None:
        """Note that an image is not there any more."""
        self._known.pop(image.name, None)

    async def _find(self, name: str) -> _Known:
        async with self._locks.setdefault(name, asyncio.Lock()):
            known = self._known.get(name)
            if known is None or monotonic() >= known.until:
                found = await self._resolve(name)
                parent = await self._images.unpacked(found)
                image = Image(name=name, reference=found.name, digest=found.digest)
                known = self._known[name] = _Known(image, parent, monotonic() + _HOLDS)
            return known

    async def _resolve(self, name: str) -> ResolvedImage:
        try:
            reference = parse_reference(name)
        except ConfigurationError as error:
            raise SandboxUnavailableError(error.message, details={"image": name}) from error
        if not reference.can_be_pulled:
            raise missing_image(name, "containerd has images by name only; give the name, as in 'name@sha256:…'")
        found = await self._images.find(_names(reference, name))
        stored = await asyncio.to_thread(self._stored, reference)
        if found is not None and reference.digest and stored is not None and reference.digest not in _digests(found):
            found = None  # another one of that name; ours is the right one
        label = found.labels.get(DIGEST_LABEL, "") if found is not None else ""
        outdated = bool(label) and stored is not None and stored.digest != label
        step = next_step(self._policy, present=found is not None, stored=stored is not None, outdated=outdated)
        if step == "load":
            assert stored is not None
            found = await self._load(reference, stored)
        elif step != "use" or found is None:
            raise self._absent(reference, name)
        check_pin(reference, _digests(found), name)
        return found

    async def _load(self, reference: Reference, stored: StoredImage) -> ResolvedImage:
        """Take in the archive of an image of our store, which is kept from being removed meanwhile."""
        assert self._store is not None
        hold = await asyncio.to_thread(self._store.hold, stored)
        try:
            store = self._store
            archive = await self._client.in_thread(lambda _: store.archive(stored))
            return await self._images.take_in(_names(reference, "")[-1], archive, stored.digest)
        finally:
            hold.close()

    def _stored(self, reference: Reference) -> StoredImage | None:
        """Return the image as our store has it, which knows no registries."""
        if reference.registry:
            return None
        with suppress(ConfigurationError, OSError):
            self._store = self._store or ImageStore()
            return self._store.find(f"{reference.plain}@{reference.digest}" if reference.digest else reference.plain)
        return None

    def _absent(self, reference: Reference, name: str) -> SandboxUnavailableError:
        command = f"ctr -a {self._client.address} -n {self._client.namespace} images pull {reference.full}"
        return missing_image(
            name,
            f"containerd has none in its namespace {self._client.namespace}, and leaves pulling to its clients: "
            f"pull it with `{command}`",
        )


def _names(reference: Reference, given: str) -> list[str]:
    """Return what containerd could call an image: as it was given, pinned, and by its tag."""
    tagged = Reference(path=reference.path, registry=reference.registry, tag=reference.tag).full
    return [*dict.fromkeys(name for name in (given, given.partition("@")[0], reference.full, tagged) if name)]


def _digests(found: ResolvedImage) -> set[str]:
    """Return the digests that an image can be pinned to: containerd's, and that of our store."""
    return {found.digest, found.labels.get(DIGEST_LABEL, "")} - {""}

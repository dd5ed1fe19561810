"""Images of a Docker daemon: found there, loaded from our store, or pulled; and really the ones that were asked for."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from aiodocker import DockerError

from toolexec.containers import (
    DIGEST_LABEL,
    ImageStore,
    JSONDict,
    JSONObject,
    JSONValue,
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
from toolexec_containers.docker.api import DockerAPI
from toolexec_containers.docker.host import unreachable

_HOLDS: Final = 10.0
_HUB: Final = "https://index.docker.io/v1/"


@dataclass(frozen=True, slots=True)
class _Found:
    image: Image
    volumes: tuple[str, ...]
    until: float


class DockerImages:
    """Resolves names of images for one daemon. What was found holds for ten seconds.

    With the policy `always` an image is pulled once, when it is first asked for.
    """

    def __init__(self, api: DockerAPI, policy: PullPolicy, platform: str, store: ImageStore | None = None) -> None:
        self._api = api
        self._policy: PullPolicy = policy
        self._platform = platform
        self._store = store
        self._found: dict[str, _Found] = {}
        self._pulled: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}

    async def resolve(self, name: str) -> Image:
        """Return the image *name*, by whatever way it is to be had. Raises SandboxUnavailableError."""
        known = self._found.get(name)
        if known is not None and monotonic() < known.until:
            return known.image
        async with self._locks.setdefault(name, asyncio.Lock()):
            known = self._found.get(name)
            if known is None or monotonic() >= known.until:
                try:
                    known = self._found[name] = await self._resolve(name)
                except DockerError as error:
                    raise missing_image(name, f"the daemon says {error.message[:500]}") from error
                except OSError as error:
                    raise unreachable(self._api.host, error) from error
            return known.image

    def volumes(self, image: Image) -> tuple[str, ...]:
        """Return the paths that an image wants volumes for."""
        known = self._found.get(image.name)
        return known.volumes if known is not None else ()

    def forget(self, image: Image) -> None:
        """Note that an image is not there any more."""
        self._found.pop(image.name, None)

    async def _resolve(self, name: str) -> _Found:
        try:
            reference = parse_reference(name)
        except ConfigurationError as error:
            raise SandboxUnavailableError(error.message) from error
        data = await self._local(reference)
        stored = await asyncio.to_thread(self._stored, reference)
        outdated = (
            data is not None and stored is not None and _is_ours(data) and stored.digest not in _layer_digests(data)
        )
        policy: PullPolicy = "missing" if name in self._pulled and self._policy == "always" else self._policy
        step = next_step(policy, present=data is not None, stored=stored is not None, outdated=outdated)
        if step == "load":
            assert stored is not None
            await self._load(stored)
        elif step == "pull":
            await self._pull(reference, name)
        elif step == "refuse":
            raise missing_image(name, "the daemon has none, and may not pull any (pull='never')")
        if step != "use":
            data = await self._local(reference)
        if data is None:
            raise missing_image(name, "the daemon has none, though it has just been fetched")
        self._pulled.add(name)
        return _describe(reference, name, data)

    async def _local(self, reference: Reference) -> JSONDict | None:
        """Return what the daemon knows of the image, by the pinned name or by the plain one; None for another
        platform's."""
        data = None
        if reference.path and reference.digest:
            data = await self._api.image(reference.full)
        if data is None:
            data = await self._api.image(reference.plain)
            if data is not None and reference.path and reference.digest and reference.digest not in _digests(data):
                return None  # another one of that name
        if data is None or not self._platform:
            return data
        there = (str(data.get("Os")), str(data.get("Architecture")))
        return data if there == (*self._platform.split("/"), "", "")[:2] else None

    def _stored(self, reference: Reference) -> StoredImage | None:
        """Return the image as our store has it, which knows no registries."""
        if not reference.path or reference.registry:
            return None
        with suppress(ConfigurationError, OSError):
            self._store = self._store or ImageStore()
            found = self._store.find(reference.plain)
            return found if found is None or reference.digest in ("", found.digest) else None
        return None

    async def _load(self, stored: StoredImage) -> None:
        assert self._store is not None
        try:
            archive = await asyncio.to_thread(self._store.archive, stored)
        except (OSError, ConfigurationError) as error:
            raise missing_image(stored.name, f"it cannot be read from the store: {error}") from error
        await self._api.load(archive)

    async def _pull(self, reference: Reference, name: str) -> None:
        if not reference.can_be_pulled:
            raise missing_image(name, "the daemon has none with this ID, and no registry can be asked for an ID")
        login = await asyncio.to_thread(login_for, reference)
        try:
            await self._api.pull(reference.full, self._platform, login)
        except DockerError as error:
            raise missing_image(name, f"the daemon cannot pull it: {error.message[:500]}") from error


def login_for(reference: Reference, home: Path | None = None) -> dict[str, str] | None:
    """Return what `docker login` has kept in its file for the registry of an image; None for nothing. Reads a file.

    What a credential helper keeps is not asked for.
    """
    registry = reference.full.partition("/")[0]
    try:
        data: JSONValue = json.loads(((home or Path.home()) / ".docker/config.json").read_bytes())
        kept: JSONValue = data["auths"][_HUB if registry == "docker.io" else registry]
        secret = str(kept["auth"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return {"auth": secret} if secret else None


def _describe(reference: Reference, name: str, data: JSONObject) -> _Found:
    digests = _digests(data)
    check_pin(reference, digests, name)
    config: JSONObject = data.get("Config") or {}
    identity = str(data["Id"])
    own = reference.digest or next(iter(_repository_digests(data)), "")
    layers = _layer_digests(data)
    digest = own or (layers[0] if _is_ours(data) and len(layers) == 1 else identity)
    image = Image(name=name, reference=identity, digest=digest)
    return _Found(image, tuple(sorted(config.get("Volumes") or {})), monotonic() + _HOLDS)


def _digests(data: JSONObject) -> set[str]:
    """Return all digests that an image can be pinned to: that of its manifest, that of its configuration, which is its
    ID, and that of its only layer, which is what the store calls its digest. The daemon has checked each against the
    content."""
    layers = _layer_digests(data)
    return {*_repository_digests(data), str(data["Id"]), *(layers if len(layers) == 1 else ())}


def _repository_digests(data: JSONObject) -> list[str]:
    return [str(each).partition("@")[2] for each in data.get("RepoDigests") or ()]


def _layer_digests(data: JSONObject) -> list[str]:
    return [str(each) for each in (data.get("RootFS") or {}).get("Layers") or ()]


def _is_ours(data: JSONObject) -> bool:
    return DIGEST_LABEL in ((data.get("Config") or {}).get("Labels") or {})

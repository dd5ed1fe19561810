"""Names of images: what they mean, when one is fetched, and whether it is the one that was asked for. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolexec.errors import ConfigurationError, SandboxUnavailableError

PullPolicy: TypeAlias = Literal["never", "missing", "always"]
"""When an image is fetched from its registry: `never`, when it is `missing` here, or `always`."""

Step: TypeAlias = Literal["use", "load", "pull", "refuse"]
"""How to come by an image: use the engine's own, load it from our store, pull it from its registry, or not at all."""

_MAX_LENGTH: Final = 400
_PART: Final = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_PATH: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_HUB: Final = "docker.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The name of an image, taken apart.

    `registry` is "" where none was given, `tag` and `digest` likewise. An image that is named by its ID alone, as in
    `sha256:…`, has nothing but that as its `digest`.
    """

    path: str = ""
    registry: str = ""
    tag: str = ""
    digest: str = ""

    @property
    def plain(self) -> str:
        """The name without the digest that it is pinned to, with a tag: `py:latest`; the ID of one that is an ID."""
        if not self.path:
            return self.digest
        host = f"{self.registry}/" if self.registry else ""
        return f"{host}{self.path}:{self.tag or 'latest'}"

    @property
    def full(self) -> str:
        """With nothing left to guess, as containerd wants it: `docker.io/library/py:latest`, pinned if it was.

        A pinned name has no tag here: the digest says it all.
        """
        if not self.path:
            return self.digest
        registry = self.registry or _HUB
        path = f"library/{self.path}" if registry == _HUB and "/" not in self.path else self.path
        return f"{registry}/{path}@{self.digest}" if self.digest else f"{registry}/{path}:{self.tag or 'latest'}"

    @property
    def can_be_pulled(self) -> bool:
        """Whether a registry could have it: an ID says nothing of where its image comes from."""
        return bool(self.path)


def parse_reference(text: str) -> Reference:
    """Return the parts of `name`, `name:tag`, `host:port/path/name:tag@sha256:…` or `sha256:…`.

    Raises ConfigurationError for an invalid name.
    """
    if len(text) > _MAX_LENGTH:
        raise _no_name(text)
    if _DIGEST.fullmatch(text):
        return Reference(digest=text)
    rest, pinned, digest = text.partition("@")
    if pinned and not _DIGEST.fullmatch(digest):
        raise ConfigurationError(
            f"the image {text!r} is pinned to no digest; give one as in 'name@sha256:' and 64 characters of 0-9 and a-f"
        )
    registry = ""
    first, slash, behind = rest.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, rest = first, behind
        if not _HOST.fullmatch(registry):
            raise _no_name(text)
    path, tagged, tag = rest.partition(":")
    if not _PATH.fullmatch(path) or (tagged and not _TAG.fullmatch(tag)):
        raise _no_name(text)
    return Reference(path=path, registry=registry, tag=tag, digest=digest)


def next_step(policy: PullPolicy, *, present: bool, stored: bool = False, outdated: bool = False) -> Step:
    """Return what to do about an image that the engine has (*present*) or not, and our store has (*stored*) or not.

    *outdated* says that what the engine has came from our store, and that the store has another one by now. What our
    store has is where it comes from: whatever the policy, there is nothing to pull then.
    """
    if stored and (outdated or not present):
        return "load"
    if present and (stored or policy != "always"):
        return "use"
    return "refuse" if policy == "never" else "pull"


def check_pin(reference: Reference, digests: Collection[str], name: str) -> None:
    """Raise SandboxUnavailableError unless *reference* is pinned to none or to one of *digests* of the image."""
    if reference.digest and reference.digest not in digests:
        there = ", ".join(sorted(digests)) or "none"
        raise SandboxUnavailableError(
            f"the image {name} is not the one that it is pinned to; its digests are: {there}. Pin one of these if it "
            "is the right image, else fetch the other one",
            details={"image": name, "digests": sorted(digests)},
        )


def missing_image(name: str, why: str) -> SandboxUnavailableError:
    """Return the error for an image that cannot be had."""
    return SandboxUnavailableError(
        f"there is no image {name}: {why}. Make one with `toolexec image build` as this user, since images that root "
        "or another user has built are not seen; or name another",
        details={"image": name},
    )


def _no_name(text: str) -> ConfigurationError:
    return ConfigurationError(
        f"{text[:_MAX_LENGTH]!r} is not a name of an image; give one as in 'python:3.12-slim', "
        "'registry.example:5000/team/tools:2' or 'tools@sha256:…'"
    )

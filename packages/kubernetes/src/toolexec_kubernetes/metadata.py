"""The labels and annotations that an operator gives to pods: what may be one, and which are not theirs to set. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from toolexec.errors import ConfigurationError

OURS: Final = "toolexec.io"
"""The domain of what we say of our pods ourselves; see `spec`."""

_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RESERVED_LABELS: Final = (OURS, "app.kubernetes.io/managed-by", "batch.kubernetes.io", "controller-uid", "job-name")
_RESERVED_ANNOTATIONS: Final = (
    OURS,
    "kubernetes.io/psp",
    "apparmor.security.beta.kubernetes.io",
    "seccomp.security.alpha.kubernetes.io",
    "unsafe.sysctls.kubernetes.io",
    "cni.cncf.io",  # more networks, which NetworkPolicies do not hold
    "gvisor.dev",
    "dev.gvisor",
    "io.katacontainers",
    "katacontainers.io",
    "io.kubernetes.cri",
    "io.kubernetes.cri-o",  # user namespaces, devices, and the size of /dev/shm
    "cri-o.io",
    "io.containerd",
    "run.oci",
    "cdi.k8s.io",  # devices
    "nri.io",
)
"""What would change what surrounds the code: settings of their own decide that."""
_MOST: Final = 64
_MOST_BYTES: Final = 64 << 10


def check_labels(given: Mapping[str, str]) -> None:
    """Raise ConfigurationError for *given* that cannot all be labels of a pod, or that has one of ours."""
    _check("labels", given, _RESERVED_LABELS)
    for key, value in given.items():
        if not _VALUE.fullmatch(value):
            raise ConfigurationError(f"labels: {value[:80]!r} of {key} is not a value of a label in Kubernetes")


def check_annotations(given: Mapping[str, str]) -> None:
    """Raise ConfigurationError for *given* that cannot all be annotations of a pod, or that would change what surrounds
    the code in it."""
    _check("annotations", given, _RESERVED_ANNOTATIONS)
    size = sum(len(key) + len(value.encode("utf-8", "surrogatepass")) for key, value in given.items())
    if size > _MOST_BYTES:
        raise ConfigurationError(f"annotations: {size} bytes are too many; {_MOST_BYTES} are allowed")
    for key, value in given.items():
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ConfigurationError(f"annotations: the value of {key} is not text")


def _check(setting: str, given: Mapping[str, str], reserved: tuple[str, ...]) -> None:
    if len(given) > _MOST:
        raise ConfigurationError(f"{setting}: {len(given)} are too many; {_MOST} are allowed")
    for key in given:
        domain, slash, name = key.rpartition("/")
        if not _NAME.fullmatch(name) or (slash and not _DOMAIN.fullmatch(domain)):
            raise ConfigurationError(f"{setting}: {key[:80]!r} is not a name of one in Kubernetes")
        if any(_is_of(domain, key, each) for each in reserved):
            raise ConfigurationError(f"{setting}: {key} is not yours to set")


def _is_of(domain: str, key: str, reserved: str) -> bool:
    """Return whether *key* is the *reserved* one, or belongs to that domain or one within it, in either order of its
    words."""
    return key == reserved or domain == reserved or domain.endswith(f".{reserved}") or key.startswith(f"{reserved}.")

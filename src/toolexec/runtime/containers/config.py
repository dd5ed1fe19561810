"""The settings that all container sandboxes share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from toolexec.code.limits import Limits
from toolexec.errors import ConfigurationError
from toolexec.model.settings import checked

if TYPE_CHECKING:
    from toolexec.runtime.egress.policy import Egress

DEFAULT_IMAGE: Final = "toolexec-sandbox"
"""The image that `toolexec image build` makes."""
DEFAULT_LIMITS: Final = Limits(memory_bytes=512 << 20, pids=128, disk_bytes=256 << 20)
"""What a container gets when neither the operator nor the request says something else."""


@checked("ContainerConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """How a container sandbox is set up.

    `image` is what programs run in. `limits` are the bounds of a container whose request has none; a request can
    raise them up to the runtime's own limits. `max_running` is how many containers run at once: a run that
    finds no room waits for it, within its time limit. `warm` is how many guests are kept started for each way to run
    (image, profile, limits, language), for at most `warm_kinds` ways; each is used once. `seccomp` is "default", or the
    path of a profile in Docker's JSON format. `egress` says which hosts code may reach; None means no host.

    Raises ConfigurationError for numbers that are too small.
    """

    image: str = DEFAULT_IMAGE
    limits: Limits = field(default_factory=lambda: DEFAULT_LIMITS)
    max_running: int = 32
    warm: int = 0
    warm_kinds: int = 4
    seccomp: str = "default"
    egress: Egress | None = None

    def __post_init__(self) -> None:
        if not self.image:
            raise ConfigurationError("a container sandbox needs the name of an image")
        for name, least in (("max_running", 1), ("warm", 0), ("warm_kinds", 1)):
            if getattr(self, name) < least:
                raise ConfigurationError(f"{name} must be {least} or more, not {getattr(self, name)!r}")

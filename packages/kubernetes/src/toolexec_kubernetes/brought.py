"""The Python that a pod brings along for an image without one: a first container copies it from another image. Pure."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from toolexec.containers import JSONDict

BRINGER: Final = "bring-python"
"""The name of the container that copies it, and of the volume that it is in."""
BRINGER_MEMORY: Final = 128 << 20
"""The least bound on the memory of that container, which has ended before the guest begins."""
BROUGHT: Final = "/toolexec"
"""Where it is in a pod: the same for the container that copies it and for the guest, which cannot write to it."""
BROUGHT_BYTES: Final = 512 << 20
"""The largest size that it may have with its packages, on the disk of the node."""


def with_brought(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return *command* with the Python that was brought along in the place of `python3`."""
    return tuple(f"{BROUGHT}/bin/python3" if word == "python3" else word for word in command)


def brought_volumes(image: str) -> list[JSONDict]:
    """Return what a pod has as its `volumes` for the Python of *image*; nothing without one."""
    return [{"name": BRINGER, "emptyDir": {"sizeLimit": str(BROUGHT_BYTES)}}] if image else []


def brought_mounts(image: str) -> list[JSONDict]:
    """Return what the guest has as its `volumeMounts` for it."""
    return [{"name": BRINGER, "mountPath": BROUGHT, "readOnly": True}] if image else []


def bringer_bodies(image: str, guest: JSONDict) -> list[JSONDict]:
    """Return what a pod has as its `initContainers`: one with the rights and the bounds of *guest*,
    and the memory that the copy takes."""
    if not image:
        return []
    return [
        {
            "name": BRINGER,
            "image": image,
            "command": ["python3", "-I", "-S", "-B", "-c", _text().replace("$", "$$"), BROUGHT],
            "volumeMounts": [{"name": BRINGER, "mountPath": BROUGHT}],
            "terminationMessagePolicy": "FallbackToLogsOnError",  # so that the pod itself says what is wrong
            "resources": {kind: _enough(bounds) for kind, bounds in guest["resources"].items()},
            **{name: guest[name] for name in ("imagePullPolicy", "securityContext")},
        }
    ]


def _enough(bounds: JSONDict) -> JSONDict:
    memory = {"memory": str(max(int(bounds["memory"]), BRINGER_MEMORY))} if "memory" in bounds else {}
    return {**bounds, **memory}


@cache
def _text() -> str:
    return files("toolexec_kubernetes").joinpath("carry.py").read_text("utf-8")

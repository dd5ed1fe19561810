"""Whether an image is still what was kept: everything in it is read again, and compared with the digest from then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolexec.runtime.images.layer import measure_layer
from toolexec.runtime.images.store import ImageStore, StoredImage
from toolexec.runtime.images.vm_files import VM_DIRECTORY, VmFiles

_MOST_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What reading an image again has shown.

    `problems` has a sentence for each thing that is wrong; none: the image is as it was kept. `changed` names files, by
    their path in the image, that were written to since, at most 20: no digest of single files is kept, and who restores
    the time of a change hides it from this list, but never from the digest.
    """

    image: StoredImage
    problems: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify_image(store: ImageStore, image: StoredImage) -> Verdict:
    """Read all of *image* and return whether it is as it was kept. Blocks: about a second of CPU time for each 100 MB.

    What runs in it may go on. Raises SandboxUnavailableError when the image was removed meanwhile.
    """
    problems: list[str] = []
    with store.hold(image):
        try:
            digest, _ = measure_layer(image.root)
            if digest != image.digest:
                problems.append(f"its files have the digest {digest}, and were kept with {image.digest}")
        except (OSError, ValueError) as error:
            problems.append(f"its files cannot be read as they were kept: {error}")
        if image.vm_digest:
            try:
                found = VmFiles.in_directory(image.root.with_name(VM_DIRECTORY)).digest
                if found != image.vm_digest:
                    problems.append(f"what machines boot has the digest {found}, and was kept with {image.vm_digest}")
            except OSError as error:
                problems.append(f"what machines boot cannot be read: {error}")
        changed = tuple(_changed(image)) if problems else ()
    return Verdict(image=image, problems=tuple(problems), changed=changed)


def _changed(image: StoredImage) -> list[str]:
    """Return what was changed since the image was kept, by the time that the kernel notes and no program can set."""
    since = image.created.timestamp()
    places = [
        (image.root, ""),
        *([(image.root.with_name(VM_DIRECTORY), f"{VM_DIRECTORY}/")] if image.vm_digest else []),
    ]
    found: list[str] = []
    for place, prefix in places:
        for path in _below(place):
            try:
                is_newer = path.lstat().st_ctime > since
            except OSError:
                continue
            if is_newer:
                found.append(f"{prefix}{path.relative_to(place)}")
                if len(found) == _MOST_NAMED:
                    return found
    return found


def _below(place: Path) -> Iterator[Path]:
    for directory, inner, files in os.walk(place):
        inner.sort()
        yield from (Path(directory) / name for name in sorted([*inner, *files]))

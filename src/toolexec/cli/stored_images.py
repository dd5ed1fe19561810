"""What `toolexec image` does with an image that is there: export, share and verify it, or say that there is none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from toolexec.cli.exit_codes import FAILED, OK
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolexec.cli.session import Session
    from toolexec.runtime.images.store import ImageStore, StoredImage
    from toolexec.runtime.images.verify import Verdict


def no_image(name: str, purpose: str, store: ImageStore, there: Iterable[StoredImage]) -> ConfigurationError:
    """Return the error for an image that is not *there*, in *store*; *purpose* says what it was to do."""
    names = [entry.name for entry in there]
    hint = did_you_mean(name, names, otherwise=f"in {store.directory} there is: {', '.join(names) or 'none'}")
    return ConfigurationError(f"there is no image {name!r} to {purpose}; {hint}")


async def export(session: Session, name: str, target: Path) -> int:
    """Write the image *name* to the file *target*, and print the digest of that file.

    Raises ConfigurationError for an image that is not there, and for a file that is, or cannot be written.
    """
    from toolexec.cli.sandbox import size_text
    from toolexec.runtime.images.export import export_image
    from toolexec.runtime.images.store import ImageStore

    store = ImageStore()
    found = await asyncio.to_thread(store.find, name)
    if found is None:
        raise no_image(name, "export", store, await asyncio.to_thread(store.list))
    digest = await asyncio.to_thread(export_image, store, found, target)
    size = (await asyncio.to_thread(target.stat)).st_size
    if session.screen.as_json:
        image = {"name": found.name, "digest": found.digest}
        session.screen.document({"file": str(target), "sizeBytes": size, "fileDigest": digest, "image": image})
    else:
        session.screen.value(Text.assemble((found.name, "cyan"), f" is in {target}: {size_text(size)}"))
        session.screen.value(Text(digest, style="dim"))
    return OK


async def share(session: Session, name: str, *, end: bool) -> int:
    """Share the image *name* with all users of this machine, or with *end* no longer.

    Raises ConfigurationError for another user than root, and for an image that is not there or was changed on the disk.
    """
    from toolexec.runtime.images.shared import machine_store, share_image
    from toolexec.runtime.images.store import ImageStore

    machine, store = machine_store(), ImageStore()
    place = machine if end else store
    found = await asyncio.to_thread(place.find, name)
    if found is None or not place.owns(found):
        purpose = "share no longer" if end else "share"
        raise no_image(name, purpose, place, await asyncio.to_thread(place.list))
    if end:
        await asyncio.to_thread(machine.remove, found.name)
    else:
        found = await asyncio.to_thread(share_image, store, found)
    if session.screen.as_json:
        data = {"name": found.name, "digest": found.digest, "shared": not end}
        session.screen.document({"directory": str(machine.directory), "image": data})
    else:
        word = "is not shared any more" if end else "is shared with all users"
        session.screen.value(Text.assemble((found.name, "cyan"), f" {word}: {found.digest} in {machine.directory}"))
    return OK


async def verify(session: Session, name: str) -> int:
    """Read the image *name* again, or all of them for "", and show whether each is as it was kept.

    The exit code is 1 if one is not. Raises ConfigurationError for an image that is not there.
    """
    from toolexec.runtime.images.store import ImageStore
    from toolexec.runtime.images.verify import verify_image

    store = ImageStore()
    found = await asyncio.to_thread(store.list)
    if name:
        known = await asyncio.to_thread(store.find, name)
        if known is None:
            raise no_image(name, "verify", store, found)
        found = [known]
    verdicts = [await asyncio.to_thread(verify_image, store, image) for image in found]
    if session.screen.as_json:
        session.screen.document(
            {
                "directory": str(store.directory),
                "images": [
                    {
                        "name": each.image.name,
                        "digest": each.image.digest,
                        "ok": each.ok,
                        "problems": [*each.problems],
                        "changed": [*each.changed],
                    }
                    for each in verdicts
                ],
            }
        )
    else:
        for each in verdicts:
            _show(session, each)
        if not verdicts:
            session.screen.note(f"no images in {store.directory}")
    return OK if all(each.ok for each in verdicts) else FAILED


def _show(session: Session, found: Verdict) -> None:
    screen, name = session.screen, visible_line(found.image.name)
    if found.ok:
        screen.value(Text.assemble(("✓ ", "green"), (name, "cyan"), f" is as it was kept: {found.image.digest}"))
        return
    screen.value(
        Text.assemble(("✗ ", "bold red"), (name, "cyan"), " was changed on the disk; remove it and make it again")
    )
    for line in (*found.problems, *(f"changed: {path}" for path in found.changed)):
        screen.value(Text(f"  {visible_line(line)}", style="red"))

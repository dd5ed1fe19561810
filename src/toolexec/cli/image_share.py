"""`toolexec image share`: images of root for all users of this machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rich.text import Text

from toolexec.cli.exit_codes import OK
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean

if TYPE_CHECKING:
    from toolexec.cli.session import Session

__all__ = ["share"]


async def share(session: Session, name: str, *, end: bool) -> int:
    """Share the image *name* with all users of this machine, or with *end* no longer.

    Raises ConfigurationError for another user than root, and for an image that is not there or was changed on the disk.
    """
    from toolexec.runtime.images.shared import machine_store, share_image
    from toolexec.runtime.images.store import ImageStore

    machine, store = machine_store(), ImageStore()
    found = await asyncio.to_thread((machine if end else store).find, name)
    if found is None or not (machine if end else store).owns(found):
        names = [entry.name for entry in await asyncio.to_thread((machine if end else store).list)]
        where = (machine if end else store).directory
        hint = did_you_mean(name, names, otherwise=f"in {where} there is: {', '.join(names) or 'none'}")
        raise ConfigurationError(f"there is no image {name!r} to share{' no longer' if end else ''}; {hint}")
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

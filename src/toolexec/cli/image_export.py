"""`toolexec image export`: an image as a file, for other machines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from toolexec.cli.exit_codes import OK
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean

if TYPE_CHECKING:
    from toolexec.cli.session import Session

__all__ = ["export"]


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
        names = [entry.name for entry in await asyncio.to_thread(store.list)]
        hint = did_you_mean(name, names, otherwise=f"in {store.directory} there is: {', '.join(names) or 'none'}")
        raise ConfigurationError(f"there is no image {name!r} to export; {hint}")
    digest = await asyncio.to_thread(export_image, store, found, target)
    size = (await asyncio.to_thread(target.stat)).st_size
    if session.screen.as_json:
        image = {"name": found.name, "digest": found.digest}
        session.screen.document({"file": str(target), "sizeBytes": size, "fileDigest": digest, "image": image})
    else:
        session.screen.value(Text.assemble((found.name, "cyan"), f" is in {target}: {size_text(size)}"))
        session.screen.value(Text(digest, style="dim"))
    return OK

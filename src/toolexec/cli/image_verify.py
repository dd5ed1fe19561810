"""`toolexec image verify`: whether images are still what was kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rich.text import Text

from toolexec.cli.exit_codes import FAILED, OK
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.runtime.images.verify import Verdict

__all__ = ["verify"]


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
            names = [entry.name for entry in found]
            hint = did_you_mean(name, names, otherwise=f"in {store.directory} there is: {', '.join(names) or 'none'}")
            raise ConfigurationError(f"there is no image {name!r} to verify; {hint}")
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

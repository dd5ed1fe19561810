"""Writing files that people keep: a full disk or a crash leaves what was there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import copymode

__all__ = ["replace_files"]


def replace_files(contents: Mapping[Path, str]) -> None:
    """Write files, all or none: each is complete on the disk, beside its place, before the first one takes it.

    A file that is there keeps its mode, and a link goes on leading to it. Raises OSError.
    """
    new: dict[Path, Path] = {}
    try:
        for path, text in contents.items():
            target = path.resolve()
            new[target] = temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
            with temporary.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                copymode(target, temporary)
        for target, temporary in new.items():
            temporary.replace(target)
    except BaseException:
        for temporary in new.values():
            with suppress(OSError):
                temporary.unlink()
        raise

"""Files that are replaced as a whole: a full disk or a crash leaves what was there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import copymode


def replace_files(contents: Mapping[Path, str | bytes], *, mode: int | None = None) -> None:
    """Write files, all or none: each is complete on the disk, beside its place, before the first one takes it.

    Strings are written as UTF-8. A file gets *mode*; without one, a file that is there keeps its own, and a new one has
    that of any new file. A link goes on leading to its target. Raises OSError.
    """
    new: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            target = path.resolve()
            new[target] = temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            with os.fdopen(os.open(temporary, flags, 0o666 if mode is None else mode), "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            if mode is None and target.exists():
                copymode(target, temporary)
        for target, temporary in new.items():
            temporary.replace(target)
    except BaseException:
        for temporary in new.values():
            with suppress(OSError):
                temporary.unlink()
        raise

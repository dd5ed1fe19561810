"""Where the text of each module of the guests is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_OF_THE_HOST: Final = {
    Path(__file__).parent / "python" / "forms.py": Path(__file__).parents[2] / "model" / "json_forms.py"
}


def source_of(path: Path) -> Path:
    """Return the file that a guest gets as the module *path*: that one, or the module of the host that it stands for.

    A guest has no `toolexec`, and what both decide alike has one text.
    """
    return _OF_THE_HOST.get(path, path)

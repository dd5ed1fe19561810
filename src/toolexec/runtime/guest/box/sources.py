"""The strings of programs, for tracebacks, without the module that keeps them: to import it takes long."""

from __future__ import annotations

import sys
from typing import Any

_kept: dict[str, Any] = {}


def keep(filename: str, entry: Any) -> None:
    """Have `linecache` know a text: now, or as soon as it is imported."""
    linecache: Any = sys.modules.get("linecache")
    if linecache is not None:
        if isinstance(linecache.cache, dict):  # a program may have made something else of it
            linecache.cache[filename] = entry
        return
    _kept[filename] = entry
    if not any(isinstance(finder, _Filling) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Filling())  # type: ignore[arg-type]


class _Filling:
    """Finds `linecache` like everybody else, and fills it when it has been loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return what imports ask for."""
        if name != "linecache":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                _fill_after(spec.loader)
                return spec
        return None


def _fill_after(loader: Any) -> None:
    """Have *loader* fill the module that it loads next."""
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        del loader.exec_module
        run(module)
        module.cache.update(_kept)
        _kept.clear()

    loader.exec_module = exec_module

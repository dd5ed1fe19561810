# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportUntypedBaseClass=false
"""The program inside of the component: everything is imported once, when the component is built, and frozen with it.

This file runs in the component only, never on the host. Beside it lie copies of `stdlib.py`, `bundle.py` and the guest
program, and in `toolexec_packages` the added packages; see `component.py`.
"""

from __future__ import annotations

import codecs
import encodings
import gc
import importlib
import json
import pkgutil
import sys
import zoneinfo
from pathlib import Path
from types import ModuleType

import toolexec_guest
import toolexec_stdlib
import wit_world
from toolexec_bundle import Bundle, Refusals

_HERE = Path(__file__).parent


def _preload() -> None:
    for name in (*toolexec_stdlib.INTERNAL, *toolexec_stdlib.STDLIB):
        importlib.import_module(name)
    for package in (toolexec_guest, *(sys.modules[name] for name in toolexec_stdlib.STDLIB)):
        _import_all_of(package)  # what functions import when they are called must be there, too
    for module in pkgutil.iter_modules(encodings.__path__):
        try:
            codecs.lookup(module.name)  # loads the codec's module, which could not be found later
        except LookupError:
            continue  # of another system, or of a library that is not there
    bundle = Bundle.read(_HERE / "toolexec_packages")
    sys.meta_path.insert(0, bundle)
    failed = bundle.preload()
    report = {"python": sys.version.split()[0], "failed": failed}
    (_HERE / "report.json").write_text(json.dumps(report), "utf-8")
    if any("." not in name for name in failed):
        raise ImportError(f"a package cannot be imported: {failed}")  # whoever builds it reads the report


def _import_all_of(package: ModuleType) -> None:
    if package.__name__ in {"encodings", "multiprocessing"}:
        return  # encodings come by their names, and processes not at all
    for module in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
        if not module.name.endswith(".__main__") and module.name not in toolexec_stdlib.UNAVAILABLE:
            _import_all_of(importlib.import_module(module.name))


def _settle() -> None:
    """Forget what was only there while the component was built: there is no such folder later."""
    sys.path.clear()
    sys.path_importer_cache.clear()
    zoneinfo.reset_tzpath(to=())
    sys.meta_path.insert(0, Refusals(toolexec_stdlib.UNAVAILABLE))  # before anybody looks for files
    gc.collect()
    gc.freeze()  # what is here stays; collecting it again would touch, and so copy, all of the shared memory


def _answer(frame: str) -> str:
    """A host for the warm-up: there is none while the component is built."""
    answers = [{"type": "response", "id": message["id"], "payload": {"structured": 1}} for message in json.loads(frame)]
    return json.dumps(answers)


class WitWorld(wit_world.WitWorld):
    """What the host can call."""

    def start(self, frame: str) -> str:
        """Run what *frame* says; the guest program sets what belongs to one run, such as the random seed."""
        return toolexec_guest.start(frame, wit_world.exchange, wit_world.post)


_preload()
toolexec_guest.start(json.dumps({"type": "warm"}), _answer, _answer)  # no run has to do that again
_settle()

"""Builds the sandbox's component into wheels, so that an installed toolexec needs nothing else to run code.

Editable installs get none: there it is built at the first use. `TOOLEXEC_SKIP_COMPONENT=1` leaves it out of a wheel,
which makes building one a matter of a second. `TOOLEXEC_COMPILED=DIRECTORY` compiles it, too, into a file of that
directory: `sandbox-wheel/` makes a wheel of the file, and this wheel has its digest and needs that wheel on machines of
this kind. One that is built without it fits no such wheel, and needs none. `TOOLEXEC_COMPONENT=DIRECTORY`
keeps the component there, and takes it again for further wheels of the same sources: it is an image of a Python's
memory, no two of which are the same, so two builds give the same wheel only with the same component.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILDER = ("componentize-py>=0.25.1,<0.26", "tzdata")
PACKAGE = "toolexec.runtime.wasm"
SKIP = "TOOLEXEC_SKIP_COMPONENT"
COMPILED = "TOOLEXEC_COMPILED"
KEPT = "TOOLEXEC_COMPONENT"
COMPILER = ("wasmtime>=49,<51",)


class ComponentHook(BuildHookInterface[Any]):
    """Adds `python.wasm` and its description, `python.json`, to the wheel."""

    _directory: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """What a build needs beside hatchling."""
        # The only sign that this is for an editable install is the name of the step, among the front end's arguments.
        if _skipped() or "get_requires_for_build_editable" in sys.argv:
            return []
        return [*BUILDER, *(COMPILER if os.environ.get(COMPILED) else ())]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the component, unless *version* is "editable" or it is not wanted."""
        if self.target_name != "wheel" or version == "editable" or _skipped():
            return
        _stand_in_for_packages(Path(self.root) / "src")
        self._directory = tempfile.TemporaryDirectory(prefix="toolexec-wheel-")
        directory = Path(self._directory.name)
        self.app.display_info("Building the component of the sandbox ...")
        described = _component(directory / "python.wasm")
        if target := os.environ.get(COMPILED):
            self.app.display_info("Compiling it ...")
            described["compiled"] = _compile(directory / "python.wasm", Path(target))
            system, _, machine = next(iter(described["compiled"])).partition("-")
            marker = f"sys_platform == '{system}' and platform_machine == '{machine}'"
            build_data["dependencies"].append(f"toolexec-sandbox=={self.metadata.version}; {marker}")
        (directory / "python.json").write_text(json.dumps(described, indent=1), "utf-8")
        for name in ("python.wasm", "python.json"):
            build_data["force_include"][str(directory / name)] = f"{PACKAGE.replace('.', '/')}/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what `initialize` has built, now that it is in the wheel."""
        if self._directory is not None:
            self._directory.cleanup()


def _skipped() -> bool:
    return os.environ.get(SKIP, "") not in ("", "0")


def _component(target: Path) -> dict[str, Any]:
    """Write the component into *target*, the one that is kept or a new one; returns its description."""
    building = importlib.import_module(f"{PACKAGE}.component")
    kept = Path(os.environ[KEPT], "python.wasm") if os.environ.get(KEPT) else None
    if kept is None:
        return building.build_component(target).to_json()
    description = kept.with_suffix(".json")
    if kept.is_file() and description.is_file():
        found = json.loads(description.read_text("utf-8"))
        same = (found["inputs"], found["builder"]) == (building.inputs_digest(), building.builder_version())
        if same and hashlib.sha256(kept.read_bytes()).hexdigest() == found["sha256"]:
            shutil.copy(kept, target)
            return found
    described = building.build_component(target).to_json()
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(target, kept)
    description.write_text(json.dumps(described), "utf-8")
    return described


def _compile(component: Path, target: Path) -> dict[str, Any]:
    """Write the code for machines of this kind into *target*; returns what the description says of it."""
    engine = importlib.import_module(f"{PACKAGE}.engine")
    machine = importlib.import_module(f"{PACKAGE}.precompiled").machine()
    code = engine.compile_component(component.read_bytes(), portable=True)
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{machine}.cwasm").write_bytes(code)
    return {machine: {"fingerprint": engine.engine_fingerprint(), "sha256": hashlib.sha256(code).hexdigest()}}


def _stand_in_for_packages(source: Path) -> None:
    """Make the modules of the sandbox importable without what the packages around them need when they are imported: a
    build environment does not have the dependencies of toolexec."""
    sys.path.insert(0, str(source))
    name, path = "", source
    for part in PACKAGE.split("."):
        name, path = f"{name}.{part}".lstrip("."), path / part
        package = ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package

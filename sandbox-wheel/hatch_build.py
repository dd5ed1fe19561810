"""Puts the code that the build of toolexec's own wheel has compiled into a wheel for this kind of machine."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = "TOOLEXEC_COMPILED"
PACKAGE = "toolexec_sandbox"


class CodeHook(BuildHookInterface[Any]):
    """Adds the file for this machine, and names the machine in the wheel's tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Take the file from the directory `TOOLEXEC_COMPILED`; raises FileNotFoundError when it is not there."""
        machine = platform.machine().lower()
        path = Path(os.environ.get(COMPILED, ""), f"{sys.platform}-{machine}.cwasm")
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not there: build toolexec's own wheel with the same {COMPILED} first")
        build_data["force_include"][str(path)] = f"{PACKAGE}/{path.name}"
        build_data["pure_python"] = False
        # No part of it is linked with a C library: whichever the machine has, its pip is to find this wheel.
        systems = ("manylinux2014", "manylinux_2_17", "musllinux_1_1")
        build_data["tag"] = f"py3-none-{'.'.join(f'{system}_{machine}' for system in systems)}"

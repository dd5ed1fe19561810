"""Print what is installed beside this Python, as a bill of materials: CycloneDX 1.6, in JSON. `python sbom.py NAME`"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import sys
import uuid
from typing import Any


def component(found: importlib.metadata.Distribution) -> dict[str, Any]:
    """Return what the bill says of one distribution."""
    name = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
    purl = f"pkg:pypi/{name}@{found.version}"
    made: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": found.version, "purl": purl}
    if summary := found.metadata.get("Summary"):
        made["description"] = summary
    if licence := found.metadata.get("License-Expression"):
        made["licenses"] = [{"expression": licence}]
    return made


def bill(name: str) -> dict[str, Any]:
    """Return the bill of all distributions; the same ones make the same bill."""
    every = {each["purl"]: each for each in map(component, importlib.metadata.distributions())}
    parts = [every[purl] for purl in sorted(every)]
    version = platform.python_version()
    parts.append({"type": "application", "bom-ref": f"cpython@{version}", "name": "cpython", "version": version})
    own = next((each["version"] for each in parts if each["name"] == "toolexec"), "")
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([name, parts], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": name, "name": name, "version": own}},
        "components": parts,
    }


if __name__ == "__main__":
    json.dump(bill(sys.argv[1]), sys.stdout, indent=1)

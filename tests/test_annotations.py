"""Types say what values are: `Any` is for what libraries without types give, and for what users pass."""

from __future__ import annotations

import re
from pathlib import Path

import toolexec

MOST = 15
"""How often `Any` may stand in a thousand lines; JSON has names of its own in `toolexec.model.json_value`."""


def test_few_types_are_any() -> None:
    """Count the word in all files, as the names of JSON say more and are checked no less."""
    files = [path.read_text() for path in Path(toolexec.__file__).parent.rglob("*.py")]
    found, lines = sum(len(re.findall(r"\bAny\b", file)) for file in files), sum(file.count("\n") for file in files)
    assert 1000 * found / lines <= MOST, "say what the value is: JSONValue, JSONDict, JSONObject, object, a protocol"

"""`error.value` in code is the value itself, however large: see `test_large_results.py` for what that means."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from toolexec import Exec, Tool
from toolexec.runtime.unsafe_host import UnsafeHostBackend

PYTHON = """
try:
    tools.kit.rows()
except ToolError as error:
    rows = error.value
    return [type(rows).__name__, len(rows), rows[7], [row["id"] for row in rows][-2:], error.value is rows, rows]
"""
JAVASCRIPT = """
try {
  await tools.kit.rows();
} catch (error) {
  const rows = error.value;
  return ["list", rows.length, rows[7], rows.map((row) => row.id).slice(-2), error.value === rows, rows];
}
"""
ROWS = [{"id": number, "tags": ["a", "b"]} for number in range(300)]
_NODE = pytest.mark.skipif(
    shutil.which("node") is None and os.environ.get("CI") != "true", reason="node is not installed; `bash .ci/run` does"
)
NODE = pytest.param("unsafe_host", "javascript", marks=[pytest.mark.full, _NODE])


@pytest.mark.parametrize("budget", [1, 1 << 30])
@pytest.mark.parametrize(
    ("kind", "language"), [("wasm", "python"), ("unsafe_host", "python"), ("wasm", "javascript"), NODE]
)
async def test_the_value_of_an_error_is_what_it_stands_for(kind: str, language: str, budget: int) -> None:
    """A tool ran and broke its output schema: its rows can be used, with any budget for results."""
    own: dict[str, Any] = {}
    if kind == "unsafe_host":
        own = {"runtime_backends": [UnsafeHostBackend()], "security_profile": "dev", "unsafe_opt_in": True}
    tool = Tool(name="rows", namespace="kit", input_schema={"type": "object"}, output_schema={"type": "string"})
    async with Exec(result_bytes=budget, **own) as ex:
        ex.add(tool, handler=lambda _: ROWS)
        result = await ex.execute_code(PYTHON if language == "python" else JAVASCRIPT, language=language, timeout=60)
    assert result.error is None, result.error
    assert result.value == ["list", 300, ROWS[7], [298, 299], True, ROWS]

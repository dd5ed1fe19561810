"""Run in the environment of `environment.py`: tools of LlamaIndex are called as they are."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from llama_index.core.tools import FunctionTool

sys.path.insert(0, str(Path(__file__).parent))

from toolexec import Exec
from toolexec.errors import InputValidationError


def multiply(a: int, b: int = 2) -> int:
    """Multiply off the event loop."""
    return a * b if threading.current_thread() is not threading.main_thread() else -1


async def later(n: int) -> dict[str, int]:
    """Give the argument back."""
    return {"n": n}


def fails(n: int) -> int:
    """Fail."""
    raise ValueError("no")


# The provider below reads them from this module.
provided = [FunctionTool.from_defaults(function) for function in (multiply, fails)]
provided.append(FunctionTool.from_defaults(async_fn=later))


def test_tools_are_called_as_they_are() -> None:
    """Gives their raw output as the value, checks their schema, and reports what they raise as an error."""
    with Exec().sync as ex:
        assert ex.add_python("py", "check_llamaindex:provided").tools == 3
        assert ex.run_tool("py:multiply", {"a": 3}).value == 6
        assert ex.run_tool("py:multiply", {"a": 3, "b": 5}).value == 15
        assert ex.run_tool("py:later", {"n": 1}).value == {"n": 1}
        assert "no" in str(ex.run_tool("py:fails", {"n": 1}).error)
        with pytest.raises(InputValidationError, match="a"):
            ex.run_tool("py:multiply", {"b": 1})

"""What a Result can do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolexec.errors import HandlerError, Violation
from toolexec.model import Tool, ToolReply

ANY = {"type": "object"}
NUMBER = {"type": "integer"}


class TestResultType:
    """What a Result can do."""

    async def test_raise_for_error(self, workshop: Any) -> None:
        """Raises the error, or returns the result."""
        workshop.add(lambda: 1, "good")
        workshop.add(lambda: 1 / 0, "bad")
        good = await workshop.run("good")
        assert good.raise_for_error() is good
        with pytest.raises(HandlerError, match="ZeroDivisionError"):
            (await workshop.run("bad")).raise_for_error()

    async def test_as_json(self, workshop: Any) -> None:
        """A failed and a successful result are JSON, without the exception object."""
        workshop.add(lambda: 1, "good")
        workshop.add(lambda: 1 / 0, "bad")
        good = json.loads(json.dumps((await workshop.run("good")).to_dict()))
        assert (good["ok"], good["toolId"], good["value"]) == (True, "good", 1)
        assert good["binding"] == {"kind": "local", "local": {"name": "good"}}
        bad = json.loads(json.dumps((await workshop.run("bad")).to_dict()))
        assert (bad["ok"], bad["error"]["code"]) == (False, "handler_failed")

    async def test_as_json_with_warnings_and_images(self, workshop: Any) -> None:
        """Warnings and parts that are no text are part of it."""
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        reply = ToolReply(content=[{"type": "text", "text": "hi"}, image])
        workshop.add_tool(Tool(name="t", input_schema=ANY, output_schema=NUMBER), lambda args: reply)
        data = (await workshop.run("t", validate_output="warn")).to_dict()
        assert data["content"] == [image]
        assert data["warnings"][0]["keyword"] == "type"

    def test_violations_are_values(self) -> None:
        """Two equal violations are equal."""
        assert Violation(path="/a", keyword="k", message="m") == Violation(path="/a", keyword="k", message="m")

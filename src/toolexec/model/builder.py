"""A chainable way to write a `Tool` by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toolexec.model.json_value import JSONObject
from toolexec.model.schema import SchemaLike
from toolexec.model.tool import Icon, Tool, ToolAnnotations


class ToolBuilder:
    """Collects the parts of a tool; every method returns the builder, `build` checks them all at once.

    >>> ToolBuilder("ping").namespace("net").input_schema({"type": "object"}).read_only().build().id
    'net:ping'
    """

    def __init__(self, name: str) -> None:
        self._parts: dict[str, Any] = {"name": name}
        self._annotations = ToolAnnotations()

    def _put(self, **parts: object) -> ToolBuilder:
        self._parts |= parts
        return self

    def namespace(self, namespace: str) -> ToolBuilder:
        """Set the part of the ID before the name."""
        return self._put(namespace=namespace)

    def version(self, version: str) -> ToolBuilder:
        """Set the part of the ID after the name; needs a namespace."""
        return self._put(version=version)

    def title(self, title: str) -> ToolBuilder:
        """Set the name shown to people."""
        return self._put(title=title)

    def description(self, description: str) -> ToolBuilder:
        """Set what the tool does, in words that a search can find."""
        return self._put(description=description)

    def tags(self, *tags: str) -> ToolBuilder:
        """Words to find the tool by; they are normalised."""
        return self._put(tags=tags)

    def input_schema(self, schema: SchemaLike) -> ToolBuilder:
        """Set what the arguments must look like; required."""
        return self._put(input_schema=schema)

    def output_schema(self, schema: SchemaLike) -> ToolBuilder:
        """Set what the result looks like."""
        return self._put(output_schema=schema)

    def icons(self, *icons: Icon) -> ToolBuilder:
        """Pictures for the tool."""
        return self._put(icons=icons)

    def meta(self, meta: JSONObject) -> ToolBuilder:
        """Free metadata; it must be JSON."""
        return self._put(meta=meta)

    def annotations(self, annotations: ToolAnnotations) -> ToolBuilder:
        """Set all behaviour hints at once; the methods below change single ones."""
        self._annotations = annotations
        return self

    def read_only(self) -> ToolBuilder:
        """Say that the tool has no side effects."""
        return self.annotations(replace(self._annotations, read_only=True))

    def idempotent(self) -> ToolBuilder:
        """Repeating a call changes nothing more."""
        return self.annotations(replace(self._annotations, idempotent=True))

    def destructive(self, destructive: bool = True) -> ToolBuilder:
        """Say that the tool may destroy data, or surely does not."""
        return self.annotations(replace(self._annotations, destructive=destructive))

    def open_world(self, open_world: bool = True) -> ToolBuilder:
        """Say that the tool touches things outside of its own world, or surely does not."""
        return self.annotations(replace(self._annotations, open_world=open_world))

    def build(self) -> Tool:
        """Return the tool; raises InvalidToolError or InvalidSchemaError as `Tool` does."""
        parts: dict[str, Any] = {"input_schema": None, **self._parts, "annotations": self._annotations}
        return Tool(**parts)

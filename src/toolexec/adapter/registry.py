"""All forms that a tool can have, by name, and the way from one to another."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from toolexec.adapter.a2a import A2AAdapter
from toolexec.adapter.anthropic import AnthropicAdapter
from toolexec.adapter.base import Adapter, Converted, FormOptions, converting
from toolexec.adapter.gemini import GeminiAdapter
from toolexec.adapter.mcp import MCPAdapter
from toolexec.adapter.names import NameMap
from toolexec.adapter.openai import OpenAIAdapter
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean


class AdapterRegistry:
    """Adapters by name. Safe to use from several threads at once.

    >>> entry = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    >>> default_adapters().convert(entry, "openai", "anthropic").form
    {'name': 'add', 'input_schema': {'type': 'object'}}
    """

    def __init__(self, adapters: Iterable[Adapter] = ()) -> None:
        """Raises ConfigurationError as `register` does."""
        self._adapters: dict[str, Adapter] = {}
        self._lock = threading.Lock()
        for adapter in adapters:
            self.register(adapter)

    def register(self, adapter: Adapter) -> None:
        """Add an adapter. Raises ConfigurationError for an empty name, and for one that is taken: the first stays."""
        name = adapter.name
        if not name:
            raise ConfigurationError("an adapter needs a name")
        with self._lock:
            if name in self._adapters:
                raise ConfigurationError(f"an adapter named {name} is there already; unregister it first")
            self._adapters[name] = adapter

    def unregister(self, name: str) -> None:
        """Take an adapter out; raises ConfigurationError when there is none of that name."""
        with self._lock:
            if self._adapters.pop(name, None) is None:
                raise self._unknown(name)

    def get(self, name: str) -> Adapter:
        """Return the adapter of that name; raises ConfigurationError, with the names that there are."""
        with self._lock:
            found = self._adapters.get(name)
            if found is None:
                raise self._unknown(name)
            return found

    def list(self) -> list[str]:
        """Return all names in alphabetical order."""
        with self._lock:
            return sorted(self._adapters)

    def convert(
        self,
        form: object,
        source: str,
        target: str,
        *,
        options: FormOptions | None = None,
        names: NameMap | None = None,
    ) -> Converted:
        """*form*, which is in the form *source*, in the form *target*, with warnings for all that is lost.

        Raises ConfigurationError for a name that is unknown, and ConversionError, which names the adapter that failed,
        when either cannot be done.
        """
        reader, writer = self.get(source), self.get(target)
        tool = converting(source, "to_tool", lambda: reader.to_tool(form, names=names))
        chosen = replace(options or FormOptions(), source=source)
        return converting(target, "from_tool", lambda: writer.from_tool(tool, chosen), tool_id=tool.id)

    def _unknown(self, name: str) -> ConfigurationError:
        return ConfigurationError(f"no adapter named {name!r:.100}; {did_you_mean(name, sorted(self._adapters))}")


def default_adapters() -> AdapterRegistry:
    """Return a registry of its own with all adapters of this package: a2a, anthropic, gemini, mcp, openai,
    openai-responses."""
    return AdapterRegistry(
        [
            OpenAIAdapter(),
            OpenAIAdapter("responses"),
            AnthropicAdapter(),
            GeminiAdapter(),
            MCPAdapter(),
            A2AAdapter(),
        ]
    )

"""What is configured, and where each part of it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.config.blocks import KEYS, Settings
from toolexec.config.formats import Place
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

if TYPE_CHECKING:
    from toolexec.backend.mcp import MCPServer
    from toolexec.config.endpoints import Endpoint
    from toolexec.config.providers import ConfiguredProvider
    from toolexec.config.tools import ConfiguredTool
    from toolexec.discovery.toolset import Toolset
    from toolexec.durable.queues import Queue
    from toolexec.model.transform import ToolTransform


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The value of a key, and where it comes from; `layer` is default, file, environment or flag.

    `where` names the place of each item of a list that came from a file.
    """

    value: JSONValue
    layer: str = "default"
    origin: str = "default"
    where: Callable[[Place], str] = field(default=lambda _: "", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """What files, environment and flags say together.

    `settings` has every setting with its value, `values` also where each comes from. `servers` are the MCP servers,
    `server_origins` says by name where they come from, and `entries` has them as they are written. `providers` are the
    other providers of tools, by name. `tools` are those that are composed of others, by name. `toolsets` and
    `toolset_origins` are the same for toolsets, `endpoints` are those of a server beside the main one, `queues` and
    `queue_origins` for queues of durable runs. `transforms` say how tools are shown, by their own IDs. `journals` has
    the settings of each kind of journal that is set up, of a package or a plugin, by name: all of them, also the
    defaults. `python` are the Python files and modules, `skills` the files of skills and directories of them, `files`
    all that were named. `moved` are the settings of sandboxes of packages that stand under old keys, by kind; `hints`
    say what to write for those.
    """

    settings: Settings
    values: Mapping[str, Value]
    servers: tuple[MCPServer, ...] = ()
    server_origins: Mapping[str, str] = field(default_factory=dict[str, str])
    entries: JSONObject = field(default_factory=JSONDict, repr=False)
    providers: Mapping[str, ConfiguredProvider] = field(default_factory=dict[str, "ConfiguredProvider"])
    tools: Mapping[str, ConfiguredTool] = field(default_factory=dict[str, "ConfiguredTool"])
    toolsets: Mapping[str, Toolset] = field(default_factory=dict[str, "Toolset"])
    toolset_origins: Mapping[str, str] = field(default_factory=dict[str, str])
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict[str, "Endpoint"])
    queues: Mapping[str, Queue] = field(default_factory=dict[str, "Queue"])
    queue_origins: Mapping[str, str] = field(default_factory=dict[str, str])
    transforms: Mapping[str, ToolTransform] = field(default_factory=dict[str, "ToolTransform"])
    journals: Mapping[str, Mapping[str, Value]] = field(default_factory=dict[str, "Mapping[str, Value]"])
    python: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    moved: Mapping[str, JSONObject] = field(default_factory=dict[str, "JSONObject"])
    hints: tuple[str, ...] = ()

    @property
    def origins(self) -> Mapping[str, str]:
        """Where the value of each key comes from: `default`, a file and line, a variable, a flag."""
        found = {path: value.origin for path, value in self.values.items()}
        for kind, values in self.journals.items():
            found |= {f"durable.{kind}.{name}": value.origin for name, value in values.items()}
        return found

    def has(self, block: str) -> bool:
        """Return whether a file, the environment or a flag sets a key of this block."""
        return any(value.layer != "default" for path, value in self.values.items() if KEYS[path].block == block)

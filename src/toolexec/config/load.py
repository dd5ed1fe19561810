"""Everything that is configured: from files, environment and flags to checked settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.config.blocks import Settings
from toolexec.config.documents import OWN_SUFFIXES, Document, read_document
from toolexec.config.layers import Layers, folded
from toolexec.config.loaded import LoadedConfig
from toolexec.config.mistakes import Mistakes
from toolexec.config.parts import check_parts
from toolexec.config.providers import ProviderEntry, is_openapi, openapi_entry, read_providers
from toolexec.config.queues import read_queues
from toolexec.config.tools import read_tools
from toolexec.config.toolsets import check_served, read_toolsets
from toolexec.config.transforms import read_transforms
from toolexec.errors import ConfigurationError, SecretError
from toolexec.model.json_value import JSONDict

if TYPE_CHECKING:
    from toolexec.backend.mcp import MCPServer
    from toolexec.backend.secrets import SecretResolver
    from toolexec.config.endpoints import Endpoint

__all__ = ["LoadedConfig", "SetFlag", "load_settings", "parse_set", "secret_resolver"]

logger: logging.Logger = logging.getLogger(__name__)


def load_settings(
    paths: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    flag_names: Mapping[str, str] | None = None,
    serving: bool = False,
) -> LoadedConfig:
    """Read *paths* (TOML, YAML, JSON, Python files with tools, and skills), then *environment*, then *flags*.

    A later file counts more than an earlier one, a variable `TOOLEXEC_BLOCK__KEY` more than any file, and a flag more
    than all of them. *flags* maps paths of keys to strings or values, *flag_names* the same paths to what was typed.
    With *serving* it is for a server: then what would leave that open is a mistake, too. References to secrets in the
    servers' settings are read as such then, and when one of the files is for toolexec; else they are left alone, as
    other programs' files may mean something else.

    An OpenAPI document among *paths* is a provider with the name of its file. Raises one ConfigurationError with all
    that is wrong, and MissingExtraError for YAML without PyYAML.
    """
    mistakes = Mistakes()
    paths = [*{Path(path).resolve(): Path(path) for path in paths}.values()]
    specs = [path for path in paths if is_openapi(path)]
    documents, python, skills = _read_all([path for path in paths if path not in specs], mistakes)
    layers = Layers(mistakes)
    for document in documents:
        if document.strict:
            layers.add_file(document)
    layers.add_environment(environment or {})
    layers.add_flags(flags or {}, flag_names or {})
    settings = Settings.of({path: value.value for path, value in layers.values.items()})
    strict = serving or any(document.strict for document in documents)
    secrets = secret_resolver(settings) if strict or layers.provider_entries else None
    servers = _Servers(secrets if strict else None, mistakes)
    for document in documents:
        servers.add_document(document)
    for document in _included(layers, mistakes):
        servers.add_document(document)
    for name, (entry, variable) in layers.server_entries.items():
        servers.override(name, entry, variable)
    providers = read_providers(_with_specs(layers, specs, mistakes), servers.origins, secrets, mistakes)
    loaded = LoadedConfig(
        settings=settings,
        values=layers.values,
        servers=tuple(servers.found.values()),
        server_origins=servers.origins,
        entries=servers.entries,
        providers=providers,
        tools=read_tools(layers.tool_entries, mistakes),
        toolsets=read_toolsets(layers.toolset_entries, mistakes),
        endpoints=_endpoints(layers, mistakes),
        queues=read_queues(layers.queue_entries, mistakes),
        queue_origins={name: entry.origin for name, entry in layers.queue_entries.items()},
        transforms=read_transforms(layers.transform_entries, mistakes),
        journals=layers.journal_values,
        toolset_origins={name: entry.origin for name, entry in layers.toolset_entries.items()},
        python=tuple(dict.fromkeys((*python, *settings.sources.python))),
        skills=tuple(dict.fromkeys((*skills, *settings.sources.skills))),
        files=tuple(paths),
        moved=layers.moved,
        hints=tuple(layers.hints),
    )
    for hint in loaded.hints:
        logger.warning("%s", hint)
    _check_programs(loaded, mistakes)
    if serving:
        check_served(loaded, layers.toolset_entries, mistakes)
    check_parts(loaded, mistakes, serving=serving)
    if serving and loaded.endpoints:
        _check_endpoints(loaded, mistakes)
    mistakes.check()
    return loaded


def _endpoints(layers: Layers, mistakes: Mistakes) -> dict[str, Endpoint]:
    if not layers.endpoint_entries:
        return {}
    from toolexec.config.endpoints import read_endpoints

    return read_endpoints(layers.endpoint_entries, layers.toolset_entries, mistakes)


def _check_endpoints(loaded: LoadedConfig, mistakes: Mistakes) -> None:
    from toolexec.config.endpoints import check_served as check_served_endpoints

    check_served_endpoints(loaded, mistakes)


def _read_all(paths: Sequence[str | Path], mistakes: Mistakes) -> tuple[list[Document], list[str], list[str]]:
    """Return the documents, and the names of Python files and of skills, which are read when they are used."""
    documents: list[Document] = []
    programs: dict[str, list[str]] = {".py": [], ".workflow": []}
    for path in map(Path, paths):
        if path.suffix in programs:
            programs[path.suffix].append(str(path))
            continue
        document = read_document(path, mistakes)
        if document is None:
            continue
        documents.append(document)
        if not document.strict and not isinstance(document.servers()[1], Mapping):
            mistakes.add("", f'{path} has no "mcpServers" object')
    return documents, programs[".py"], programs[".workflow"]


def _included(layers: Layers, mistakes: Mistakes) -> list[Document]:
    """Return the files of other programs that `sources.include` names."""
    value = layers.values["sources.include"]
    found: list[Document] = []
    for number, name in enumerate(value.value):
        place = value.where((number,))
        path = Path(name)
        document = read_document(path, mistakes, place=place) if path.suffix != ".py" else None
        if path.suffix == ".py":
            mistakes.add(place, f"{name} is a Python file; name it in sources.python")
        elif document is not None and document.strict and path.suffix not in OWN_SUFFIXES:
            mistakes.add(place, f"{name} has settings of toolexec; give it with -c, too, instead of including it")
        elif document is not None and not isinstance(document.servers()[1], Mapping):
            mistakes.add(place, f'{name} has no "mcpServers" object')
        elif document is not None:
            found.append(document)
    return found


def _with_specs(layers: Layers, specs: Sequence[Path], mistakes: Mistakes) -> dict[str, ProviderEntry]:
    """Return the providers of all files, with those that OpenAPI documents are by themselves."""
    found = dict(layers.provider_entries)
    for path in specs:
        name, entry = openapi_entry(path)
        if name in found:
            mistakes.add(str(path), f"a provider named {name} is there already, from {found[name].origin}; rename one")
        else:
            found[name] = entry
    return found


def secret_resolver(settings: Settings) -> SecretResolver:
    """Return what fills in the references of servers and providers, with the sources that the settings allow."""
    from toolexec.backend.secrets import SecretResolver

    def refuse(_: str) -> str:
        raise SecretError("secrets.providers does not allow this provider")

    allowed = settings.secrets.providers
    refused = {name: refuse for name in ("env", "file", "command", "keyring") if name not in allowed}
    return SecretResolver(refused, strict=settings.secrets.strict)


class _Servers:
    """The MCP servers of all files."""

    def __init__(self, secrets: SecretResolver | None, mistakes: Mistakes) -> None:
        self.found: dict[str, MCPServer] = {}
        self.origins: dict[str, str] = {}
        self.entries: JSONDict = {}
        self._secrets = secrets
        self._mistakes = mistakes

    def add_document(self, document: Document) -> None:
        """Add the servers of a file."""
        from toolexec.backend.mcp.files import misspelt_keys

        place, table = document.servers()
        if table is None:
            return
        if not isinstance(table, Mapping):
            self._mistakes.add(document.where(place), f"{'.'.join(map(str, place))} must be a table of servers")
            return
        for name, entry in table.items():
            here = (*place, str(name))
            where = document.where(here) if document.strict else str(document.file)
            own = dict(entry) if isinstance(entry, Mapping) else entry
            for key, close in (misspelt_keys(own) if isinstance(own, dict) else {}).items():
                del own[key]
                self._mistakes.add(
                    document.where((*here, key)) if document.strict else where,
                    f"server {name!r} has the unknown key {key!r}; did you mean {close!r}?",
                )
            self._add(str(name), own, where, document.origin(here), document.file.parent)

    def override(self, name: str, entry: object, variable: str) -> None:
        """Take a server from a variable in place of the one with this name, whatever its case; or add it."""
        known = next((each for each in self.found if folded(each) == folded(name)), name.lower())
        self.found.pop(known, None)
        self._add(known, entry, variable, variable, Path())

    def _add(self, name: str, entry: object, where: str, origin: str, directory: Path) -> None:
        from toolexec.backend.mcp.files import read_mcp_server

        try:
            server = read_mcp_server(name, entry, where=where, directory=directory, secrets=self._secrets)
        except ConfigurationError as error:
            self._mistakes.add("", error.message)
            return
        if server.name in self.found:
            self._mistakes.add(
                where,
                f"a backend named {server.name} is there already, from {self.origins[server.name]}; rename one of them",
            )
            return
        self.found[server.name] = server
        self.origins[server.name] = origin
        self.entries[server.name] = entry


def _check_programs(loaded: LoadedConfig, mistakes: Mistakes) -> None:
    """Add what `sources.python` and `sources.skills` name and is not there."""
    value = loaded.values["sources.python"]
    for number, name in enumerate(value.value):
        if name.endswith(".py") and not Path(name).is_file():
            mistakes.add(value.where((number,)), f"cannot read {name}: no such file")
    value = loaded.values["sources.skills"]
    for number, name in enumerate(value.value):
        if not Path(name).exists():
            mistakes.add(value.where((number,)), f"cannot read {name}: no such file or directory")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFlag:
    """One `--set KEY=VALUE` of the command line."""

    path: str
    text: str


def parse_set(words: Sequence[str]) -> list[SetFlag]:
    """Read `KEY=VALUE` words, such as `limits.call_timeout=5`; raises ConfigurationError for one without a `=`."""
    found: list[SetFlag] = []
    for word in words:
        path, equals, text = word.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {word}: write it as KEY=VALUE, such as --set limits.call_timeout=5")
        found.append(SetFlag(path=path.strip(), text=text))
    return found

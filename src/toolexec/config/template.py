"""The settings as people read them: a commented file to start from, values as TOML, and what is set without secrets."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final
from urllib.parse import urlsplit

from toolexec.config.blocks import BLOCKS, KEYS, Key, keys_of
from toolexec.config.declared import Block
from toolexec.config.journals import BLOCK, journal_keys
from toolexec.config.loaded import LoadedConfig
from toolexec.model.json_value import JSONDict
from toolexec.model.redaction import REDACTED, redactor

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH: Final = 100
_HEAD: Final = """\
# Settings of toolexec. Lines that begin with # show defaults; uncomment to change.
# Environment variables (TOOLEXEC_SERVER__PORT=9000) override this file; flags (--port 9000) override both.
# toolexec config validate checks this file, toolexec config show --origin says where each value comes from.
"""
_NO_SERVERS: Final = """\
# MCP servers, as in the mcpServers of other programs. Secrets: ${VAR}, or secretref:env:VAR,
# secretref:file:PATH, secretref:command:COMMAND, secretref:keyring:SERVICE/NAME.
# [mcpServers.time]
# command = "uvx"
# args = ["mcp-server-time"]"""
_NO_TOOLS: Final = """\
# Tools composed of others, by a workflow or the steps of a chain (docs/workflow.md).
# [tools.late-orders]
# description = "Lists the orders that are late"
# inputs = ['days: integer = 30 "How late"']
# steps = [{ tool = "shop:orders", args = { older_than = { "$ref" = "inputs.days" } } }]"""
_NO_TOOLSETS: Final = """\
# Toolsets: named parts of all tools, for server.toolsets and toolexec serve --toolset.
# [toolsets.safe-read]
# read_only = true
# deny = ["secrets:*"]"""
_NO_ENDPOINTS: Final = """\
# Endpoints: more than one server in one process, each with tools and callers of its own (docs/serve.md).
# [endpoints.team-a]
# toolsets = ["safe-read"]
# auth = { api_keys = [{ id = "ann", sha256 = "..." }] }"""
_NO_QUEUES: Final = """\
# Queues of durable runs, for toolexec runs enqueue and toolexec runs work (docs/queues.md).
# [queues.mail]
# concurrency = 5          # runs at once, in all processes together; 0: any number
# worker_concurrency = 8   # runs at once in one process
# rate = [10, 1.0]         # how many begin within how many seconds"""
_NO_PROVIDERS: Final = """\
# Providers: other tools, by their kind (docs/providers.md). Secrets as for servers.
# [providers.github]
# kind = "openapi"
# spec = "github.yaml"
# auth = { bearer = "${GITHUB_TOKEN}" }"""
_EXAMPLES: Final = {
    "sources": ['python = ["app.py"]', 'include = ["~/.cursor/mcp.json"]', 'skills = ["skills"]'],
    "policy": ['rules = [{ effect = "deny", tools = ["github:delete_*"], reason = "nothing is deleted here" }]'],
    "auth": ['api_keys = [{ id = "ann", sha256 = "...", roles = ["admin"] }]'],
}


def toml_value(value: object) -> str:
    """Return a JSON value as TOML on one line; raises TypeError for None, which TOML does not have."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool | int | float):
        return f"{value:.15g}" if isinstance(value, float) else json.dumps(value)
    if isinstance(value, Mapping):
        pairs = [f"{toml_key(str(key))} = {toml_value(item)}" for key, item in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, value))}]"
    raise TypeError(f"TOML has no {type(value).__name__}")


def toml_key(name: str) -> str:
    """Return a key as TOML; in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else toml_value(name)


def render_server(name: str, entry: Mapping[str, object], notes: Sequence[str] = ()) -> str:
    """Return one server as a TOML table, with *notes* above it as comments."""
    return _render("mcpServers", name, entry, notes)


def render_toolset(name: str, entry: Mapping[str, object], notes: Sequence[str] = ()) -> str:
    """Return one toolset as a TOML table, with *notes* above it as comments."""
    return _render("toolsets", name, entry, notes)


def render_tool(name: str, entry: Mapping[str, object], notes: Sequence[str] = ()) -> str:
    """Return one composed tool as a TOML table, with *notes* above it as comments."""
    return _render("tools", name, entry, notes)


def render_endpoint(name: str, entry: Mapping[str, object], notes: Sequence[str] = ()) -> str:
    """Return one endpoint as a TOML table, with *notes* above it as comments."""
    return _render("endpoints", name, entry, notes)


def render_queue(name: str, entry: Mapping[str, object], notes: Sequence[str] = ()) -> str:
    """Return one queue as a TOML table, with *notes* above it as comments."""
    return _render("queues", name, entry, notes)


def render_provider(name: str, entry: Mapping[str, object], notes: Sequence[str] = ()) -> str:
    """Return one provider as a TOML table, with *notes* above it as comments."""
    return _render("providers", name, entry, notes)


def render_transform(tool_id: str, entry: Mapping[str, object]) -> str:
    """Return how one tool is shown as a TOML table."""
    return _render("transforms", tool_id, entry, ())


def _render(block: str, name: str, entry: Mapping[str, object], notes: Sequence[str]) -> str:
    lines = [f"# {line}" for note in notes for line in (textwrap.wrap(note, _WIDTH) or [""])]
    lines.append(f"[{block}.{toml_key(name)}]")
    lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in entry.items()]
    return "\n".join(lines)


def template(servers: Sequence[str] = ()) -> str:
    """Return a file that says what every setting is; *servers* are tables of servers, as text."""
    parts = [_HEAD.rstrip()]
    for block, kind in BLOCKS.items():
        about = textwrap.wrap(inspect.getdoc(kind) or "", _WIDTH)
        lines = [f"# {line}" for line in about] + [f"[{block}]"]
        for key in KEYS.values():
            if key.block != block:
                continue
            lines += [f"# {line}" for line in textwrap.wrap(f"{key.name}: {key.help}", _WIDTH)]
            examples = [each for each in _EXAMPLES.get(block, []) if each.startswith(f"{key.name} =")]
            lines.append(f"# {examples[0] if examples else f'{key.name} = {toml_value(key.default)}'}")
        parts.append("\n".join(lines))
    own = servers or [_NO_SERVERS]
    return "\n\n".join([*parts, _NO_TOOLS, _NO_TOOLSETS, _NO_ENDPOINTS, _NO_QUEUES, _NO_PROVIDERS, *own]) + "\n"


def key_table() -> str:
    """Return all settings as a Markdown table: name, kind, default, what it is."""
    lines = ["| Key | Kind | Default | |", "|---|---|---|---|"]
    for key in KEYS.values():
        kind = key.kind.name.replace("|", "\\|")
        lines.append(f"| `{key.path}` | {kind} | `{toml_value(key.default)}` | {key.help} |")
    return "\n".join(lines)


# -- without secrets ------------------------------------------------------------------------------------------------

_REFERENCE: Final = re.compile(r"(?:[A-Za-z]+ )?(?:\$\{[^{}]*\}|secretref:\S.*)")
_SECRET_TABLES: Final = ("auth", "credentials", "env", "headers", "metadata", "proxy_auth", "query", "spec_headers")
_URLS: Final = ("base_url", "proxy", "url", "serverUrl", "httpUrl")


def shown_settings(loaded: LoadedConfig) -> JSONDict:
    """Return every setting by its path, as JSON-able data."""
    found: JSONDict = {}
    for path, key in KEYS.items():
        found[path] = _shown(key, loaded.settings.get(path))
    for kind, values in loaded.journals.items():
        for name, key in journal_keys(kind).items():
            found[f"{BLOCK}.{kind}.{name}"] = _shown(key, values[name].value)
    return found


def _shown(key: Key, value: Any) -> Any:
    if key.secret and value:
        value = REDACTED if isinstance(value, str) else [_without_secret(each) for each in value]
    return redactor.value(list(value) if isinstance(value, tuple) else value)


def _without_secret(entry: object) -> Any:
    """Return one entry of a secret setting: of a table (an API key) all but its hash, of anything else nothing."""
    if not isinstance(entry, Mapping):
        return REDACTED
    return {name: REDACTED if name == "sha256" else value for name, value in entry.items()}


def shown_servers(loaded: LoadedConfig) -> JSONDict:
    """Return every server as it is written, by its name: what may be secret only where it is a reference."""
    return {name: _server(entry) for name, entry in loaded.entries.items()}


def shown_providers(loaded: LoadedConfig) -> JSONDict:
    """Return every provider as it is written, by its name: what may be secret only where it is a reference."""
    return {name: _server(provider.entry) for name, provider in loaded.providers.items()}


def shown_tools(loaded: LoadedConfig) -> JSONDict:
    """Return the composed tools as they are written, by name: what is sent under a name for secrets is left out."""
    return {name: redactor.value(dict(composed.entry)) for name, composed in loaded.tools.items()}


def shown_endpoints(loaded: LoadedConfig) -> JSONDict:
    """Return what is set of every endpoint, by its name, without what is secret."""
    return {name: _shown_table(endpoint.block) for name, endpoint in loaded.endpoints.items()}


def _shown_table(block: Block) -> JSONDict:
    """Return what is set of a table that users name themselves."""
    keys = {key.name: key for key in keys_of("", type(block))}
    found: JSONDict = {}
    for name in block.names():
        if name in block.model_fields_set:
            value = getattr(block, name)
            found[name] = _shown_table(value) if isinstance(value, Block) else _shown(keys[name], value)
    return found


def shown_transforms(loaded: LoadedConfig) -> JSONDict:
    """Return how tools are shown, by their own IDs: what is sent to a tool under a name for secrets is left out."""
    return {
        tool_id: {
            part: value if isinstance(value, str) else redactor.value(value)
            for part in (each.name for each in fields(transform))
            if (value := getattr(transform, part))
        }
        for tool_id, transform in loaded.transforms.items()
    }


def _server(entry: Mapping[str, object]) -> JSONDict:
    found: JSONDict = {}
    for name, value in entry.items():
        if name in _SECRET_TABLES and isinstance(value, Mapping):
            found[name] = {key: _only_references(item) for key, item in value.items()}
        elif isinstance(value, str) and (name in _URLS or (name == "spec" and "://" in value)):
            found[name] = _address(value)
        elif name == "key_password":
            found[name] = _only_references(value)
        else:
            found[name] = redactor.value(value)
    return found


def _only_references(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _only_references(item) for key, item in value.items()}
    return value if isinstance(value, str) and _REFERENCE.fullmatch(value) else REDACTED


def _address(url: str) -> str:
    """Return the address without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return REDACTED
    if not host:
        return url if _REFERENCE.fullmatch(url) else REDACTED
    rest = f"?{REDACTED}" if parts.query or parts.fragment else ""
    return redactor.text(f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}{rest}")

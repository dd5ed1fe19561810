"""Settings that do not fit are refused where their class is made, by their names."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

from toolexec import Exec, Gate, InMemoryIndex, Options, Policy, Rule
from toolexec.backend.mcp import MCPServer
from toolexec.backend.providers.command.config import CommandProvider, CommandTool
from toolexec.backend.providers.http.config import HTTPProvider, HTTPTool
from toolexec.backend.providers.openapi.settings import OpenAPIProvider
from toolexec.code.executor import CodeConfig
from toolexec.code.limits import Limits
from toolexec.discovery.bm25 import BM25Config
from toolexec.errors import ToolExecError
from toolexec.exec.embedded import EmbeddedEngine
from toolexec.net import HTTPClient
from toolexec.run.code_shares import CodeShares
from toolexec.run.layers.approval import Approval
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.breaker import Breaker
from toolexec.run.layers.budget import Budget
from toolexec.run.layers.bulkhead import Bulkhead
from toolexec.run.layers.cache import Cache
from toolexec.run.layers.ledger import Ledger
from toolexec.run.layers.rate_limit import Rate
from toolexec.run.layers.retry import Retry
from toolexec.run.pinning import Pins
from toolexec.run.results import ResultStore
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.egress import Egress
from toolexec.runtime.remote.keys import SigningKey
from toolexec.runtime.remote.proxmox_settings import ProxmoxSettings
from toolexec.runtime.remote.server_settings import RuntimeServerSettings
from toolexec.runtime.remote.settings import RemoteSettings
from toolexec.runtime.sandboxes import SandboxSettings
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.server.http.settings import HttpSettings
from toolexec.server.settings import ServeSettings, TaskSettings

WRONG: dict[str, tuple[object, ...]] = {
    "int": ("3", [], -1, math.nan, 1.5),
    "float": ("3", [], -1, math.nan, -math.inf),
    "bool": ("no", 5, []),
    "str": (5, [], b"x"),
}
WRONG |= {"Seconds": WRONG["float"], "Bytes": WRONG["int"]}
"""For each kind of setting values of others, and of no sense."""

ALONE: tuple[type, ...] = (
    *(Options, Limits, Gate, Policy, Retry, Breaker, Bulkhead, Cache, BM25Config, HTTPClient, Egress),
    *(ContainerConfig, SandboxSettings, WasmConfig, ServeSettings, HttpSettings, TaskSettings),
)
"""The classes of settings that need none."""

RUNTIME = {"runtime": "https://{ip}:8090/v1/execute", "key_id": "a", "runtime_token": "k" * 32}

NEEDED: Mapping[type, Mapping[str, Any]] = {
    Approval: {"decide": lambda request: True},
    Audit: {"path": "/nowhere/audit.jsonl"},
    Budget: {"store": ResultStore()},
    CodeConfig: {"index": InMemoryIndex(), "run": Exec().runner, "engine": EmbeddedEngine()},
    CodeShares: {"per_caller": 1},
    CommandProvider: {"name": "far", "tools": [CommandTool(name="do", argv=["true"])]},
    CommandTool: {"name": "do", "argv": ["true"]},
    HTTPProvider: {"name": "far", "base_url": "http://far.test", "tools": [HTTPTool(name="get", path="/")]},
    HTTPTool: {"name": "get", "path": "/"},
    Ledger: {"ledger": "/nowhere/ledger.db"},
    MCPServer: {"name": "far", "command": "true"},
    OpenAPIProvider: {"name": "far", "spec": "nowhere.json"},
    Pins: {"path": None},
    ProxmoxSettings: {
        "url": "https://pve.test:8006",
        "node": "pve",
        "vmid": 100,
        "token_id": "a@pve!b",
        "token_secret": "c",
        **RUNTIME,
    },
    Rate: {"per_second": 1, "burst": 1},
    RemoteSettings: {"endpoints": ["https://runtime.test/v1/execute"], "key_id": "a", "token": "k" * 32},
    Rule: {"effect": "allow"},
    RuntimeServerSettings: {"keys": [SigningKey(id="a", token="k" * 32)]},
}
"""The others, each with what it is not made without."""


def cases() -> list[Any]:
    """Return each number, word and text among the settings, with values that do not fit."""
    found: list[Any] = []
    for kind, needed in ({kind: {} for kind in ALONE} | {**NEEDED}).items():
        for setting in inspect.signature(kind).parameters.values():
            annotation = str(setting.annotation).removesuffix(" | None")
            for value in WRONG.get(annotation, ()):
                name = f"{kind.__name__}.{setting.name}"
                found.append(pytest.param(kind, {**needed, setting.name: value}, setting.name, id=f"{name}-{value!r}"))
    return found


def test_how_many_are_tried() -> None:
    """The classes are those of an Exec, its code, its gate, its sandboxes, its server and its providers."""
    assert len(cases()) > 700


@pytest.mark.parametrize(("kind", "given", "name"), cases())
def test_what_does_not_fit_is_refused(kind: type, given: Mapping[str, Any], name: str) -> None:
    """The error names the setting."""
    with pytest.raises(ToolExecError) as caught:
        kind(**given)
    assert re.search(rf"\b{name}\b", caught.value.message), caught.value.message


@pytest.mark.parametrize(
    ("kind", "given", "hint"),
    [
        (Options, {"journl": "x"}, "journal"),
        (Limits, {"max_tool_call": 1}, "max_tool_calls"),
        (SandboxSettings, {"max_runing": 1}, "max_running"),
        (ServeSettings, {"page_sise": 1}, "page_size"),
        (ContainerConfig, {"max_runing": 1}, "max_running"),
        (Breaker, {"failure": 1}, "failures"),
    ],
)
def test_the_nearest_name(kind: type, given: Mapping[str, Any], hint: str) -> None:
    """A name that is unknown is answered with the one that it is near to."""
    with pytest.raises(ToolExecError, match=hint):
        kind(**given)

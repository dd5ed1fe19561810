"""The modules of the reference. A name is described on the page of the first module that exports it; those of later
modules lead there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Final


@dataclass(frozen=True, slots=True)
class APIPage:
    """A page of the reference: its title, its path in the site, what its modules are for, and these modules."""

    title: str
    path: str
    about: str
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A public name: the module that exports it, and the module on whose page it is described."""

    name: str
    module: str
    home: str

    @property
    def identifier(self) -> str:
        """The name by which it is described, which is its anchor as well."""
        return f"{self.home}.{self.name}"

    @property
    def definition(self) -> str:
        """Where those who read the code without running it find it: its identifier, unless a module has that name."""
        if self.name not in _names_of_modules():
            return self.identifier
        value = getattr(import_module(self.home), self.name)
        return f"{value.__module__}.{value.__qualname__}"


def _page(name: str, about: str, *modules: str) -> APIPage:
    title = name if name.startswith("toolexec") else f"toolexec.{name}"
    return APIPage(title, f"reference/api/{name}.md", about, modules)


API_PAGES: Final = (
    _page("toolexec", "Start here: the names that most programs need.", "toolexec"),
    _page("errors", "Catch what can go wrong, by class or by code.", "toolexec.errors"),
    _page("exec", "Hold tools, chains, code and durable runs in one object.", "toolexec.exec"),
    _page(
        "model",
        "Declare tools, and read what a tool, a call and a caller are.",
        "toolexec.model",
        "toolexec.model.version",
        "toolexec.model.origin",
        "toolexec.model.content",
    ),
    _page(
        "discovery",
        "Find tools: indexes, searchers, filters and documentation.",
        "toolexec.discovery",
        "toolexec.discovery.search",
        "toolexec.discovery.semantic",
        "toolexec.discovery.catalogue",
    ),
    _page(
        "backend",
        "Connect tools from Python, MCP servers and your own hosts.",
        "toolexec.backend",
        "toolexec.backend.mcp",
        "toolexec.backend.secrets",
    ),
    _page(
        "run",
        "Run one call: runners, the gate and its rules, results.",
        "toolexec.run",
        "toolexec.run.gate",
        "toolexec.run.policy",
        "toolexec.run.approvals",
        "toolexec.run.effects",
        "toolexec.run.results",
        "toolexec.run.layers",
        "toolexec.run.layers.approval",
        "toolexec.run.layers.audit",
        "toolexec.run.layers.budget",
        "toolexec.run.layers.rate_limit",
        "toolexec.run.layers.scan",
        "toolexec.run.layers.telemetry",
        "toolexec.run.scanners",
        "toolexec.run.quarantine",
        "toolexec.run.audit",
    ),
    _page("code", "Run code that calls tools: limits, results, stubs.", "toolexec.code", "toolexec.code.stubs"),
    _page(
        "workflow",
        "Read, check, format and record workflows.",
        "toolexec.workflow.parser",
        "toolexec.workflow.checker",
        "toolexec.workflow.formatter",
        "toolexec.workflow.graph",
        "toolexec.workflow.plan",
        "toolexec.workflow.recording",
        "toolexec.workflow.saved",
    ),
    _page(
        "runtime",
        "Choose where code runs: sandboxes, their settings, what each enforces.",
        "toolexec.runtime",
        "toolexec.runtime.sandboxes",
        "toolexec.runtime.wasm",
        "toolexec.runtime.unsafe_host",
        "toolexec.runtime.egress",
    ),
    _page("cassette", "Record the calls of a session, and replay them.", "toolexec.cassette"),
    _page("adapter", "Pass tools to the APIs of models, and run their calls.", "toolexec.adapter"),
    _page(
        "integrations",
        "Use an Exec as the toolset of another framework.",
        "toolexec.integrations.openai_agents",
        "toolexec.integrations.pydantic_ai",
        "toolexec.integrations.langchain",
        "toolexec.integrations.google_adk",
        "toolexec.integrations.claude_agent_sdk",
        "toolexec.integrations.llama_index",
        "toolexec.integrations.smolagents",
        "toolexec.integrations.toolset",
    ),
    _page(
        "server",
        "Serve an Exec as an MCP server from a program of your own.",
        "toolexec.server.app",
        "toolexec.server.settings",
        "toolexec.server.http",
        "toolexec.server.auth",
        "toolexec.server.tasks",
    ),
    _page(
        "config",
        "Read settings, build what they describe, and reload it while it is served.",
        "toolexec.config.load",
        "toolexec.config.build",
        "toolexec.config.reload",
    ),
    _page("net", "Bound which hosts may be reached.", "toolexec.net"),
    _page("provider", "Write a kind of provider of your own.", "toolexec.provider"),
    _page("sandbox", "Write a sandbox of your own.", "toolexec.sandbox"),
    _page("containers", "Write a container engine of your own.", "toolexec.containers"),
    _page("machines", "Write sandboxes of virtual machines.", "toolexec.machines"),
    _page("remote", "Write sandboxes of other machines.", "toolexec.remote"),
    _page("journal", "Write a journal of durable runs of your own.", "toolexec.journal"),
    _page("state", "Write a store of the state of servers.", "toolexec.state"),
    _page(
        "testing",
        "Test your tools, agents and parts with fakes and contract suites.",
        "toolexec.testing",
        "toolexec.testing.escapes",
        "toolexec.testing.escape_battery",
        "toolexec.testing.sandbox_suite",
        "toolexec.testing.scripted_sandbox",
    ),
    _page(
        "toolexec_containers",
        "Run code in containers of Docker, containerd, gVisor or Kata.",
        "toolexec_containers",
    ),
    _page("toolexec_grpc", "Make tools of gRPC services.", "toolexec_grpc"),
    _page("toolexec_kubernetes", "Run code in pods of a cluster.", "toolexec_kubernetes"),
    _page("toolexec_microvms", "Run code in virtual machines.", "toolexec_microvms"),
    _page(
        "toolexec_remote",
        "Run code in the sandboxes of other machines.",
        "toolexec_remote",
        "toolexec_remote.server",
        "toolexec_remote.signature",
    ),
    _page("toolexec_temporal", "Have Temporal keep durable runs.", "toolexec_temporal"),
    _page("toolexec_valkey", "Share the state of servers on many machines.", "toolexec_valkey"),
)
"""The pages of the API, in their order."""


@cache
def entries() -> dict[str, tuple[Entry, ...]]:
    """Return the public names of each module of the reference, in the order of the pages."""
    homes: dict[tuple[str, int], str] = {}
    found: dict[str, tuple[Entry, ...]] = {}
    for module in _modules():
        here = import_module(module)
        found[module] = tuple(
            Entry(name, module, homes.setdefault((name, id(getattr(here, name))), module)) for name in here.__all__
        )
    return found


@cache
def _names_of_modules() -> frozenset[str]:
    """Return the exported names that are names of modules beside them, too, such as `tool`."""
    return frozenset(
        name
        for module in _modules()
        for name in import_module(module).__all__
        if hasattr(import_module(module), "__path__") and find_spec(f"{module}.{name}") is not None
    )


def _modules() -> Iterator[str]:
    for page in API_PAGES:
        yield from page.modules

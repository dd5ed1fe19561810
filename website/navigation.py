"""The order of the pages. Every page of the site is named here, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from website.modules import API_PAGES


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the navigation: pages, as a title and a path in the site, and further sections."""

    title: str
    entries: tuple[tuple[str, str] | Section, ...]


NAVIGATION: Final = (
    Section(
        "Start",
        (
            ("Documentation", "index.md"),
            ("Start", "start.md"),
            ("Tour", "tour.md"),
            ("Coming from elsewhere", "migration.md"),
        ),
    ),
    Section(
        "Concepts",
        (
            ("Tool", "concepts/tool.md"),
            ("Backend", "concepts/backend.md"),
            ("Call", "concepts/call.md"),
            ("Gate", "concepts/gate.md"),
            ("Search", "concepts/search.md"),
            ("Code", "concepts/code.md"),
            ("Sandbox", "concepts/sandbox.md"),
            ("Run", "concepts/run.md"),
            ("Server", "concepts/server.md"),
            ("Cassette", "concepts/cassette.md"),
        ),
    ),
    Section(
        "Tasks",
        (
            ("Put my MCP servers behind one gateway", "tasks/gateway.md"),
            ("Let a model write code over my API", "tasks/code-over-api.md"),
            ("Ask before deletes", "tasks/ask-before-deletes.md"),
            ("Run it on Kubernetes", "tasks/kubernetes.md"),
            ("See what happened yesterday", "tasks/audit.md"),
            ("Search 1,000 tools", "tasks/search.md"),
            ("Resume after a crash", "tasks/resume.md"),
            ("Test an agent without a network", "tasks/test-offline.md"),
            ("Call an HTTP API", "tasks/http-api.md"),
            ("Give each caller their own tools", "tasks/tools-per-caller.md"),
            Section(
                "Guides",
                (
                    ("Code mode", "code-mode.md"),
                    ("Workflows", "workflow.md"),
                    ("Durable runs", "durable.md"),
                    ("Queues and schedules", "queues.md"),
                    ("Replay, fork and compare runs", "replay.md"),
                    ("Testing agents", "testing-agents.md"),
                    ("Providers", "providers.md"),
                    ("gRPC services", "packages/grpc.md"),
                    ("Search", "search.md"),
                    ("Toolsets", "toolsets.md"),
                    ("Catalogue", "catalogue.md"),
                    ("Context", "context.md"),
                    ("Tool-call adapters", "adapters.md"),
                    ("Agent frameworks", "integrations.md"),
                    ("Your own parts", "integration.md"),
                    ("Extending", "extending.md"),
                ),
            ),
        ),
    ),
    Section(
        "Reference",
        (
            ("Commands", "reference/commands.md"),
            ("Settings", "reference/settings.md"),
            ("Errors", "reference/errors.md"),
            ("Error handling", "error-handling.md"),
            ("Stability", "stability.md"),
            ("Examples", "reference/examples.md"),
            Section("API", tuple((page.title, page.path) for page in API_PAGES)),
        ),
    ),
    Section(
        "Operations",
        (
            ("Serving", "serve.md"),
            ("Containers and Kubernetes", "deploy.md"),
            ("Configuration", "config.md"),
            ("Policy", "policy.md"),
            ("Resilience", "resilience.md"),
            ("Telemetry", "telemetry.md"),
            ("Scale", "scale.md"),
            ("Security", "security.md"),
            Section(
                "Sandboxes",
                (
                    ("Choose a sandbox", "sandboxes.md"),
                    ("Security profiles", "security-profiles.md"),
                    ("Container engines", "packages/containers.md"),
                    ("Docker and Podman", "packages/docker.md"),
                    ("gVisor", "packages/gvisor.md"),
                    ("Virtual machines", "packages/microvms.md"),
                    ("Kubernetes", "packages/kubernetes.md"),
                    ("Remote runtimes", "packages/remote.md"),
                    ("Proxmox", "packages/proxmox.md"),
                ),
            ),
            ("Temporal", "packages/temporal.md"),
            ("Valkey", "packages/valkey.md"),
            ("Benchmarks", "benchmarks.md"),
        ),
    ),
    Section(
        "Contributing",
        (
            ("Contributing", "contributing.md"),
            ("Architecture", "architecture.md"),
            ("Reading the code", "reading.md"),
            Section(
                "Decisions",
                (
                    ("Decisions", "decisions/index.md"),
                    ("One gate", "decisions/0001-one-gate.md"),
                    ("Attempts", "decisions/0002-attempts.md"),
                    ("Outcomes", "decisions/0003-outcomes.md"),
                    ("WebAssembly by default", "decisions/0004-wasm-by-default.md"),
                    ("Replay", "decisions/0005-replay.md"),
                    ("Three tiers", "decisions/0006-three-tiers.md"),
                    ("No wall clock", "decisions/0007-no-wall-clock.md"),
                    ("An index of its own", "decisions/0008-own-index.md"),
                    ("Lazy imports", "decisions/0009-lazy-imports.md"),
                    ("JSON only", "decisions/0010-json-only.md"),
                    ("Packages", "decisions/0011-packages.md"),
                ),
            ),
            ("Reporting a vulnerability", "security-reports.md"),
            ("Changelog", "changelog.md"),
        ),
    ),
)


def as_nav(sections: tuple[Any, ...] = NAVIGATION) -> list[dict[str, Any]]:
    """Return the navigation as the site generator takes it."""
    nav: list[dict[str, Any]] = []
    for each in sections:
        if isinstance(each, Section):
            nav.append({each.title: as_nav(each.entries)})
        else:
            nav.append({each[0]: each[1]})
    return nav


def page_titles(sections: tuple[Any, ...] = NAVIGATION, above: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield each page in its order: the top section that it is in, its title, its path."""
    for each in sections:
        if isinstance(each, Section):
            yield from page_titles(each.entries, above or each.title)
        else:
            yield above, *each

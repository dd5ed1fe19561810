"""`toolexec backends`: states, figures and reading again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.backend.providers.service import Service, serving

from toolexec.backend.base import BackendStatus
from toolexec.cli.tables import backends_table


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One service for the tests of this file."""
    with serving() as running:
        yield running


@pytest.fixture
def config(service: Service, tmp_path: Path) -> Path:
    """Settings with a provider."""
    path = tmp_path / "toolexec.toml"
    path.write_text(
        f'[providers.shop]\nkind = "http"\nbase_url = "{service.url}"\n[providers.shop.tools.items]\npath = "/items"\n'
    )
    return path


def test_refresh(cli: Any, config: Path) -> None:
    """One or all are read again and shown."""
    for words in (["shop"], []):
        done = cli("backends", "refresh", *words, "-c", config)
        assert done.exit_code == 0
        assert "shop" in done.stdout
        assert "http" in done.stdout
    data = json.loads(cli("backends", "refresh", "shop", "-c", config, "--json").stdout)
    assert [(each["name"], each["available"], each["tools"]) for each in data["backends"]] == [("shop", True, 1)]


def test_refresh_of_what_is_not_there(cli: Any, config: Path) -> None:
    """An unknown name is an error with what was meant."""
    done = cli("backends", "refresh", "shp", "-c", config)
    assert done.exit_code == 3
    assert "did you mean shop" in " ".join(done.stderr.split())


def test_refresh_that_fails(cli: Any, tmp_path: Path) -> None:
    """A provider that cannot be read is shown with its reason, and gives an exit code for scripts."""
    path = tmp_path / "toolexec.toml"
    path.write_text(
        '[providers.shop]\nkind = "http"\nbase_url = "https://a.test"\nauth = { bearer = "${NO_SUCH_TOKEN}" }\n'
    )
    done = cli("backends", "refresh", "-c", path)
    assert done.exit_code == 3
    assert "NO_SUCH_TOKEN" in done.stdout
    assert cli("backends", "-c", path).exit_code == 0


def test_figures_in_the_table() -> None:
    """Calls, errors, latency, restarts, the last error and the end of stderr, for servers and providers alike."""
    from rich.console import Console

    info = {
        "restarts": 2,
        "calls": 12,
        "errors": 1,
        "latency_ms": 3.4,
        "last_error": "no paper",
        "stderr": "one\ntwo\nthree\nfour",
    }
    statuses = [
        BackendStatus(name="printer", kind="mcp", info={"transport": "stdio", **info}),
        BackendStatus(name="shop", kind="provider", info={"provider": "openapi", **info}),
    ]
    console = Console(width=160)
    with console.capture() as capture:
        console.print(backends_table(statuses))
    shown = capture.get()
    assert shown.count("restarted 2 times \u00b7 12 calls, 1 failed \u00b7 3.4 ms") == 2
    assert shown.count("last error: no paper") == 2
    assert shown.count("stderr: four") == 2
    assert "stderr: one" not in shown
    assert "openapi" in shown


def test_config_shows_providers(cli: Any, config: Path) -> None:
    """`config show` and `config validate` know them."""
    assert "[providers.shop]" in cli("config", "show", "--origin", "-c", config).stdout
    assert "1 provider" in cli("config", "validate", "-c", config).stdout
    data = json.loads(cli("config", "show", "--json", "--origin", "-c", config).stdout)
    assert data["providers"]["shop"]["kind"] == "http"
    assert data["origins"]["providers.shop"].endswith("toolexec.toml:1")


def test_run(cli: Any, config: Path, service: Service) -> None:
    """A tool of a provider is run as any other."""
    done = cli("run", "shop:items", "-c", config, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["value"]["total"] == 3

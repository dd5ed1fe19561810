"""`toolexec bench`: what the catalogue costs a model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Tool
from toolexec.cli.bench import bench
from toolexec.cli.session import perform
from toolexec.model.origin import Origin
from toolexec.run.gate import Gate
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner
from toolexec.server.tools.catalogue import beside, meta_tools, room_for_tools

SCHEMA = {
    "type": "object",
    "properties": {
        name: {"type": "string", "description": f"The {name} of the issue, as people write it in the tracker."}
        for name in ("title", "body", "owner", "repository", "label", "milestone")
    },
    "required": ["title"],
}


def catalogue(size: int, namespaces: int = 5, **options: Any) -> Exec:
    """An Exec with so many tools of a usual length."""
    ex = Exec(**options)
    for number in range(size):
        tool = Tool(
            name=f"create_issue_{number}",
            namespace=f"space{number % namespaces}",
            title="Create an issue",
            description=f"Creates issue number {number} in the tracker and gives its number and address back.",
            input_schema=SCHEMA,
            output_schema={"type": "object"},
        )
        ex.add(tool, handler=lambda args: args)
    return ex


def size(definition: Any) -> int:
    """Return how many bytes of compact JSON a definition has."""
    return len(json.dumps(definition, ensure_ascii=False, separators=(",", ":")).encode())


def data(capsys: pytest.CaptureFixture[str], make: Callable[[], Exec]) -> dict[str, Any]:
    assert perform(bench, as_json=True, make=make) == 0
    return json.loads(capsys.readouterr().out)


def test_five_hundred_tools_cost_a_model_a_twentieth(capsys: pytest.CaptureFixture[str]) -> None:
    """Behind a server a model reads at least 95 % less at the start; bytes are those of the real definitions."""
    shown = data(capsys, lambda: catalogue(500))
    expose = shown["expose"]
    own = [tool.to_mcp() for tool in beside(meta_tools("meta", code_enabled=True))]
    assert [tool["name"] for tool in own] == ["execute_code", "read_result"]
    assert expose["direct"]["tools"] == 502
    alone = sum(entry["bytes"] for entry in shown["namespaces"])
    assert expose["direct"]["bytes"] == alone + sum(map(size, own))
    assert expose["direct"]["tokens"] == round(expose["direct"]["bytes"] / 4)
    assert expose["meta"]["savedPercent"] >= 95
    assert expose["code"]["savedPercent"] >= 95
    definitions = [tool.to_mcp() for tool in meta_tools("meta", code_enabled=True)]
    at_least = sum(map(size, definitions))
    assert at_least < expose["meta"]["bytes"] < at_least + 1300
    assert set(shown["medianMs"]) == {"search", "describe"}


def test_a_server_that_lists_all_is_measured_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `list_all` in the settings the figures are those of all of the server's own tools."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text("from toolexec import tool\n@tool\ndef f() -> int:\n    return 1\n")
    figures: list[dict[str, Any]] = []
    for word in ("false", "true"):
        (tmp_path / "t.toml").write_text(f"[server]\nlist_all = {word}\n")
        assert perform(bench, as_json=True, config=[tmp_path / "tools.py", tmp_path / "t.toml"]) == 0
        figures.append(json.loads(capsys.readouterr().out)["expose"])
    assert [shown["meta"]["tools"] for shown in figures] == [5, 12]
    assert figures[0]["code"]["bytes"] < figures[1]["code"]["bytes"]


def test_people_see_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --json there is a table by namespace, one by way to expose, and the times."""
    monkeypatch.setenv("COLUMNS", "100")
    assert perform(bench, make=lambda: catalogue(60, 2)) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("space")] == ["space0", "space1"]
    assert "toolexec serve --expose code" in out
    assert " %" in out
    assert "median time: search" in out


def test_tools_without_a_namespace_and_code_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    """One namespace needs no table of its own; without code there is no way to expose it."""

    def make() -> Exec:
        ex = Exec(enable_code_execution=False)
        ex.add(lambda a: a, "plain")
        return ex

    shown = data(capsys, make)
    assert [entry["namespace"] for entry in shown["namespaces"]] == [""]
    assert set(shown["expose"]) == {"direct", "meta"}
    assert perform(bench, make=make) == 0
    assert "Namespace" not in capsys.readouterr().out


def test_an_empty_catalogue_saves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Where there are no tools there is no share to tell, and nothing to time."""
    shown = data(capsys, Exec)
    assert shown["expose"]["direct"] == {"tools": 0, "bytes": 0, "tokens": 0}
    assert "savedPercent" not in shown["expose"]["meta"]
    assert shown["medianMs"] == {}
    assert perform(bench, make=Exec) == 0
    assert "median time" not in capsys.readouterr().out


class _Hiding:
    """A rule that hides one namespace."""

    def wrap(self, inner: Runner, find: Find) -> Runner:
        return inner

    def shows(self, entry: Any, origin: Origin) -> bool:
        return entry.tool.namespace != "space1"


def test_what_the_gate_hides_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    """Only tools that the caller may know of are counted."""
    shown = data(capsys, lambda: catalogue(10, 2, gate=Gate(policy=_Hiding())))
    assert [entry["namespace"] for entry in shown["namespaces"]] == ["space0"]


def test_backends_that_are_down_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Tools of a server that cannot be reached are missing from the figures, and that is said."""

    def make() -> Exec:
        ex = catalogue(3)
        ex.add_mcp("dead", command="no-such-command-anywhere")
        return ex

    assert [entry["backend"] for entry in data(capsys, make)["unavailable"]] == ["dead"]
    assert perform(bench, make=make) == 0
    assert "unavailable: dead" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize(
    ("size", "advice"),
    [
        (0, "there are no tools yet"),
        (2, "so toolexec serve shows them as they are"),
        (500, "as with --expose code, saves about"),
    ],
)
def test_it_advises(capsys: pytest.CaptureFixture[str], size: int, advice: str) -> None:
    """Gives advice for few tools and for many; a loss is never shown as a saving."""
    assert advice in data(capsys, lambda: catalogue(size))["advice"]
    assert perform(bench, make=lambda: catalogue(size)) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert advice in out
    assert not re.search(r"-\d[\d.,]* ?%", out)


@pytest.mark.parametrize("code", [True, False])
def test_the_advice_is_what_the_server_does(capsys: pytest.CaptureFixture[str], code: bool) -> None:
    """Advises to find tools from that size on at which `auto` does so."""
    for size in (2, 20, 60, 200):
        shown = data(capsys, lambda size=size: catalogue(size, enable_code_execution=code))
        few = sum(entry["bytes"] for entry in shown["namespaces"]) <= room_for_tools(code_enabled=code)
        assert ("shows them as they are" in shown["advice"]) is few
        assert (f"as with --expose {'code' if code else 'meta'}, saves" in shown["advice"]) is not few

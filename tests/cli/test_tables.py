"""Answers as tables and lines."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from toolexec.backend import BackendStatus
from toolexec.cli.arguments import read_args
from toolexec.cli.manual import manual
from toolexec.cli.tables import (
    backends_table,
    chain_table,
    command_line,
    content_lines,
    duration_text,
    hints_text,
    value_text,
)
from toolexec.discovery import ToolDoc
from toolexec.exec import ChainResult
from toolexec.model import ToolAnnotations
from toolexec.run import StepResult


def shown(thing: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0000042, "4.2 µs"), (0.000042, "42 µs"), (0.0421, "42.1 ms"), (4.2, "4.20 s")],
)
def test_a_duration_has_a_fitting_unit(seconds: float, text: str) -> None:
    """A duration has a fitting unit, and only significant digits."""
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, []),
        ({"a": 1, "b": "it's", "c": True, "d": 1.5}, ["a=1", "b=it's", "c=true", "d=1.5"]),
        ({"text": "42"}, ["text=42"]),
        ({"a": "42"}, ['{"a": "42"}']),
        ({"text": 42}, ['{"text": 42}']),
        ({"a": None}, ["a=null"]),
        ({"-c": 1}, ['{"-c": 1}']),
        ({"a": ["ü"]}, ['{"a": ["ü"]}']),
        ({"a=b": 1}, ['{"a=b": 1}']),
        ({"a:": 1}, ['{"a:": 1}']),
    ],
)
def test_a_command_is_ready_for_a_shell(args: dict[str, Any], words: list[str]) -> None:
    """A printed command parses back to the same call."""
    schema = {"properties": {"text": {"type": "string"}}}
    line = command_line("ns:name", args, schema, [Path("my app.py")])
    assert shlex.split(line) == ["toolexec", "run", "ns:name", "-c", "my app.py", *words]
    assert read_args(words, schema) == args


def test_hints_in_words() -> None:
    """Only what the tool's author states."""
    assert hints_text(ToolAnnotations(read_only=True, idempotent=True)) == "read-only, idempotent"
    assert hints_text(ToolAnnotations(destructive=True)) == "destructive"
    assert hints_text(ToolAnnotations()) == ""


def test_content_is_listed_with_type_and_size() -> None:
    """Every kind, also unknown ones; text is shown elsewhere."""
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "x"},
        {"type": "image", "mimeType": "image/png", "data": "eHh4"},
        {"type": "audio", "mimeType": "audio/wav", "data": "A" * 4_000_000},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "ü" * 1000}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "eHg="}},
        {"type": "resource_link", "uri": "https://x", "name": "x\x1b[31m"},
        {"type": "hologram\x1b[31m"},
        {"type": "resource", "resource": "odd"},
    ]
    assert content_lines(parts) == [
        "[image] image/png, 3 bytes",
        "[audio] audio/wav, 3.0 MB",
        "[resource] file:///a, 2.0 kB",
        "[resource] file:///b, 2 bytes",
        "[resource_link] https://x",
        "[hologram\\x1b[31m]",
        "[resource]",
    ]


def test_a_manual_may_know_only_the_documentation() -> None:
    """Of a tool that is described but not registered."""
    text = shown(manual(ToolDoc(id="far:away", level="summary", summary="Far away.\x1b[31m")))
    assert text.split() == ["far:away", "Far", "away.\\x1b[31m"]


def test_values_are_cleaned() -> None:
    """Text as text, anything else as JSON."""
    assert value_text("a\x1b[31mb\n").plain == "a\\x1b[31mb"
    assert value_text({"a": "\x9b31mü"}).plain == '{\n  "a": "\\x9b31mü"\n}'
    assert value_text(None).plain == "null"


def test_a_backend_shows_what_matters() -> None:
    """Restarts, addresses, tools that were left out, and being switched off."""
    statuses = [
        BackendStatus(
            name="git",
            kind="mcp",
            tools=3,
            skipped={"bad\x1b[31m name": "it is odd"},
            info={"transport": "http", "restarts": 2, "restarts_left": 3, "server": "git 1", "protocol": "2026-07-28"},
        ),
        BackendStatus(
            name="api",
            kind="provider",
            available=False,
            reason="no route",
            info={"provider": "openapi", "readings": 3, "failed_readings": 2, "retries_left": 9},
        ),
        BackendStatus(name="off", kind="provider", enabled=False, available=False, reason="switched off"),
    ]
    text = shown(backends_table(statuses))
    assert "git 1 · protocol 2026-07-28 · restarted 2 times" in text
    assert "3 attempts left" in text
    assert "no route2 of" not in text
    assert "2 of 3 readings failed · 9 attempts left" in text
    assert "left out bad\\x1b[31m name: it is odd" in text
    assert "○ switched off" in text
    assert "provider" in text


def test_a_step_shows_its_attempts() -> None:
    """If there was more than one."""
    steps = [StepResult(index=0, tool_id="a", value={"x": 1}, attempts=3)]
    text = shown(chain_table(ChainResult(value=1, steps=steps)))
    assert "✓ ok (3 attempts)" in text
    assert '{"x": 1}' in text

"""Cassettes as files: edited by hand, cut off, forged, and recorded by two at once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec import Exec, Tool
from toolexec.cassette import Cassette
from toolexec.cassette.text import read_text, write_text
from toolexec.cli.sources import build_from
from toolexec.errors import CassetteError, CassetteMissError, ConfigurationError

ANY = {"type": "object"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A cassette with two calls."""
    made = tmp_path / "session.yaml"
    with Exec(cassette=made, cassette_mode="record").sync as ex:
        ex.add(Tool(name="say", namespace="t", input_schema=ANY), handler=lambda args: f"{args['to']}\nand more\n")
        ex.run_tool("t:say", {"to": "ann"})
        ex.run_tool("t:say", {"to": "bob"})
    return made


def test_the_file_reads_well(path: Path) -> None:
    """The file has the format first, then the tools by ID, then the calls in their order, and ends with three dots."""
    lines = path.read_text().splitlines()
    assert lines[0] == "toolexec_cassette: 1"
    assert lines[-1] == "..."
    assert "    to: ann" in lines
    assert "  value: |" in lines


@given(JSON)
def test_what_is_written_is_read_back(value: Any) -> None:
    """Any JSON comes back as it was, whatever YAML would make of it."""
    data = {"toolexec_cassette": 1, "calls": [value]}
    assert json.dumps(read_text(write_text(data, "x"), "x")) == json.dumps(data)


@pytest.mark.parametrize(
    "text",
    ["1e5", "0x1f", "012", "1:30", "on", "~", "2020-01-01", "=", "<<", ".5", "a: b", "- x"]
    + ["\x85", "a\x85b", "a\nb\x85", "\u2028", " \u2029\n", "\r\n", "\ufeff"],
)
def test_strings_stay_strings(text: str) -> None:
    """Strings that YAML may take for another type, or for several lines, come back as they were."""
    assert read_text(write_text({"toolexec_cassette": 1, "x": text}, "x"), "x")["x"] == text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("\n...\n", "\n", "cut off"),
        (
            "toolexec_cassette: 1",
            "toolexec_cassette: 2",
            "format 2, and this toolexec reads formats up to 1; update it",
        ),
        ("toolexec_cassette: 1", "toolexec_cassette: one", "format 'one'"),
        ("toolexec_cassette: 1", "cassette: 1", "not a cassette"),
        ("id: t:say", "id: t:talk", "call 1 is of t:say, which is not among the recorded tools"),
        ("id: t:say", "id: 't:say:'", "tool 1"),
        ("type: object", "type: array", "not those that were recorded"),
        ("type: object", "type: 7", "tool 1"),
        ("kind: local", "kind: remote", "unknown binding kind"),
        ("  args:", "  arguments:", "call 1 has the unknown key arguments"),
        ("  value: |", "  reply: |", "call 1.reply must be a mapping"),
        ("  seconds: 0", "  seconds: -1\n  # 0", "seconds"),
        ("  value: |", "  error: {class: SystemExit, code: x, outcome: done}\n  value: |", "not an error of toolexec"),
        ("  value: |", "  error: {class: PolicyError, code: x, outcome: gone}\n  value: |", "outcome"),
        (
            "  value: |",
            "  error: {class: PolicyError, code: x, outcome: done, more: {to_dict: 1}}\n  value: |",
            "needs for itself",
        ),
        ("calls:\n", "calls: &all\n", ""),
        ("calls:\n", "extra: 1\ncalls:\n", "unknown key extra"),
        ("    to: ann", "    to: !!python/name:os.system", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_is_refused_with_its_place(path: Path, old: str, new: str, reason: str) -> None:
    """Each mistake is named, before anything runs."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if not reason:
        Cassette(path)
        return
    with pytest.raises(CassetteError, match=reason):
        Exec(cassette=path)


def test_a_file_that_ends_anywhere_is_refused(path: Path) -> None:
    """However much of it is there."""
    text = path.read_text()
    for length in range(1, len(text) - 2, 7):
        path.write_text(text[:length])
        with pytest.raises(CassetteError):
            Cassette(path)


def test_aliases_that_multiply_are_refused() -> None:
    """A few lines cannot become gigabytes."""
    bomb = "toolexec_cassette: 1\na: &a [x, x]\nb: &b [*a, *a]\ncalls: [*b, *b]\n...\n"
    with pytest.raises(CassetteError, match="anchors and aliases"):
        read_text(bomb, "x")


def test_an_edited_answer_is_what_comes_back(path: Path) -> None:
    """A cassette is there to be edited by hand, too."""
    path.write_text(path.read_text().replace("and more", "and less", 1))
    with Exec(cassette=path).sync as ex:
        assert ex.run_tool("t:say", {"to": "ann"}).value == "ann\nand less\n"


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    """No reader waits for a pipe, and a directory has no calls."""
    os.mkfifo(tmp_path / "pipe")
    for name, mode in (("pipe", "replay"), ("pipe", "auto"), (".", "replay")):
        with pytest.raises(CassetteError, match="is not a file"):
            Cassette(tmp_path / name, mode)  # type: ignore[arg-type]


def test_a_cassette_that_could_not_be_read_again_is_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of reading is that of writing, and the file stays as it was."""
    before = path.read_text()
    monkeypatch.setattr("toolexec.cassette.text._MAX_BYTES", len(before) + 100)
    ex = Exec(cassette=path, cassette_mode="auto")
    ex.add(Tool(name="say", namespace="t", input_schema=ANY), handler=lambda args: "x" * 200)
    with pytest.raises(CassetteError, match=r"is larger than .* split the session"), ex.sync as session:
        session.run_tool("t:say", {"to": "eve"})
    assert path.read_text() == before


def test_a_missing_file_says_how_to_record_it(tmp_path: Path) -> None:
    """Only a replay needs the file."""
    with pytest.raises(CassetteError, match="cassette_mode='record'"):
        Exec(cassette=tmp_path / "none.yaml")
    with Exec(cassette=tmp_path / "none.yaml", cassette_mode="auto").sync:
        pass
    assert list(tmp_path.iterdir()) == []


def test_one_records_at_a_time(path: Path) -> None:
    """A second one is refused until the first has ended, and nothing is left beside the file."""
    before = path.read_text()
    first = Cassette(path, "refresh")
    with pytest.raises(CassetteError, match="being recorded by another process") as caught:
        Cassette(path, "record")
    assert (caught.value.code, caught.value.retryable) == ("cassette_busy", True)
    assert len(Cassette(path).calls) == 2, "a replay needs no right"
    first._right.release()
    assert path.read_text() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_auto_does_not_overwrite_what_another_one_recorded(path: Path) -> None:
    """The second writer finds that the file is not what it read."""
    with Exec(cassette=path, cassette_mode="auto").sync as one, Exec(cassette=path, cassette_mode="auto").sync as two:
        for ex in (one, two):
            ex.add(Tool(name="say", namespace="t", input_schema=ANY), handler=lambda args: args["to"])
        one.run_tool("t:say", {"to": "eve"})
        with pytest.raises(CassetteError, match="being recorded"):
            two.run_tool("t:say", {"to": "dan"})
        one.close()
        with pytest.raises(CassetteError, match="since it was read"):
            two.run_tool("t:say", {"to": "dan"})
    assert [call.args["to"] for call in Cassette(path).calls] == ["ann", "bob", "eve"]


def test_an_unknown_mode_is_refused(path: Path) -> None:
    """With the modes that there are."""
    with pytest.raises(Exception, match="replay"):
        Exec(cassette=path, cassette_mode="once")  # type: ignore[arg-type]


def test_a_file_of_settings_names_a_cassette(tmp_path: Path) -> None:
    """Its path counts from the directory of the settings; a Python file's own Exec has it, too."""
    (tmp_path / "app.py").write_text("from toolexec import Exec\nex = Exec()\nex.add(lambda a: a, 't:same')\n")
    for mode in ("record", "replay"):
        settings = tmp_path / f"{mode}.toml"
        settings.write_text(f'[sources]\npython = ["app.py"]\n[cassette]\npath = "s.yaml"\nmode = "{mode}"\n')
        built = build_from([settings])
        with built.ex.sync as ex:
            assert ex.run_tool("t:same", {"a": 1}).value == 1
            assert ex.cassette is not None
            assert (ex.cassette.mode, ex.cassette.path, len(ex.cassette.calls)) == (mode, tmp_path / "s.yaml", 1)
        built.close()


def test_equal_arguments_match_in_any_order(tmp_path: Path) -> None:
    """The order of names does not count, that of list items does."""
    path = tmp_path / "x.yaml"
    with Exec(cassette=path, cassette_mode="record").sync as ex:
        ex.add(Tool(name="any", namespace="t", input_schema=ANY), handler=lambda args: 1)
        ex.run_tool("t:any", {"a": 1, "b": {"x": [1, 2], "y": None}})
    with Exec(cassette=path).sync as ex:
        with pytest.raises(CassetteMissError, match=r"b\.x\[0\] is 2, and was 1"):
            ex.run_tool("t:any", {"a": 1, "b": {"x": [2, 1], "y": None}})
        assert ex.run_tool("t:any", {"b": {"y": None, "x": [1, 2]}, "a": 1}).value == 1


def test_a_mode_needs_a_cassette() -> None:
    """A mode that would record is refused where there is no file to record into."""
    for mode in ("record", "auto", "refresh"):
        with pytest.raises(ConfigurationError, match=f"cassette_mode is '{mode}', and there is no cassette"):
            Exec(cassette_mode=mode)

"""Output schemas that are learned from results."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema_rs import validator_for

from toolexec import Tool
from toolexec.discovery.learned import INFERRED, LearnedOutputs
from toolexec.errors import ConfigurationError

TOOL = Tool(name="user", namespace="hub", input_schema={"type": "object"})
NAMES = st.text("abcxyz_", min_size=1, max_size=4) | st.text(max_size=4)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def learned(*values: Any, tool: Tool = TOOL) -> dict[str, Any]:
    """Return what is learned of a tool that answers *values*, without the note of where it is from."""
    outputs = LearnedOutputs()
    for value in values:
        outputs.add(tool, value)
    schema = outputs.schema(tool)
    assert schema is not None
    assert schema.pop(INFERRED) == len(values)
    assert schema.pop("description").startswith("Inferred from ")
    return schema


@pytest.mark.parametrize(
    ("values", "schema"),
    [
        ([1], {"type": "integer"}),
        ([1, 2.5], {"type": "number"}),
        (["a", None], {"type": ["null", "string"]}),
        ([[]], {"type": "array", "items": {}}),
        ([[1], ["a"]], {"type": "array", "items": {"type": ["integer", "string"]}}),
        (
            [{"id": 1, "tags": ["x"]}, {"id": 2, "email": None}],
            {
                "type": "object",
                "properties": {
                    "id": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "email": {"type": "null"},
                },
                "required": ["id"],
            },
        ),
        ([{}], {"type": "object", "properties": {}, "required": []}),
    ],
)
def test_names_and_types_are_learned(values: list[Any], schema: dict[str, Any]) -> None:
    """Members of all results are required, what some have is there, and types are put together."""
    assert learned(*values) == schema


def test_keys_that_are_data_are_not_kept() -> None:
    """An object with a key that is not a plain name, or with very many, is a mapping."""
    assert learned({"ann@example.com": 7}) == {"type": "object", "additionalProperties": {"type": "integer"}}
    many = {f"k{number}": 1 for number in range(101)}
    assert learned({"a": "x"}, many)["additionalProperties"] == {"type": ["integer", "string"]}


@given(st.lists(VALUES, min_size=1, max_size=6))
@example([{"__": {"_": None}, "_": {"": False}, "": None}])
def test_each_result_fits_what_was_learned(values: list[Any]) -> None:
    """A schema accepts all that it was learned from, and survives its file."""
    outputs = LearnedOutputs()
    for value in values:
        outputs.add(TOOL, value)
    schema = outputs.schema(TOOL)
    check = validator_for(schema)
    assert all(map(check.is_valid, values))
    assert TOOL.replace(output_schema=schema).output_schema is not None


def test_a_result_of_any_size_is_taken_in() -> None:
    """Lists are sampled, and nesting has an end."""
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    schema = learned(deep, [{"a": number} for number in range(100_000)])
    assert len(json.dumps(schema)) < 2000


def test_results_cannot_make_it_grow() -> None:
    """Names within names, other ones each time, end in mappings."""
    outputs = LearnedOutputs()
    for seed in range(6):
        inner = {f"c{seed}_{number}": number for number in range(50)}
        outputs.add(TOOL, {f"a{first}": {f"b{second}": inner for second in range(30)} for first in range(30)})
    assert outputs._tools[TOOL.id].shape.count() < 10_000


def test_what_cannot_be_written_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk loses nothing and leaves no half-written file."""
    path = tmp_path / "outputs.json"
    outputs = LearnedOutputs(path)
    outputs.add(TOOL, 1)
    with monkeypatch.context() as full:
        full.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            outputs.save()
    assert [*tmp_path.iterdir()] == []
    outputs.save()
    assert LearnedOutputs(path).schema(TOOL) is not None


def test_a_declared_schema_counts_alone() -> None:
    """Nothing is learned of a tool that says what it answers."""
    outputs = LearnedOutputs()
    declared = TOOL.replace(output_schema={"type": "string"})
    outputs.add(declared, 1)
    assert outputs.schema(declared) is None
    assert outputs.with_output(declared) is declared
    assert outputs.with_output(TOOL) is TOOL


def test_another_definition_is_learned_again() -> None:
    """Answers of an older definition do not count for a new one."""
    outputs = LearnedOutputs()
    outputs.add(TOOL, {"old": 1})
    changed = TOOL.replace(description="another one")
    assert outputs.schema(changed) is None
    outputs.add(changed, {"new": 1})
    assert list((outputs.schema(changed) or {})["properties"]) == ["new"]
    assert outputs.schema(TOOL) is None


def test_further_results_are_sampled() -> None:
    """After 20 results every sixteenth is taken in."""
    outputs = LearnedOutputs()
    for number in range(84):
        outputs.add(TOOL, number)
    assert (outputs.schema(TOOL) or {})[INFERRED] == 20 + 4


def test_tools_have_a_most() -> None:
    """The one that was not called for the longest time goes first."""
    outputs = LearnedOutputs(max_tools=2)
    tools = [TOOL.replace(name=name) for name in "abc"]
    for tool in (tools[0], tools[1], tools[0], tools[2]):
        outputs.add(tool, 1)
    assert [outputs.schema(tool) is not None for tool in tools] == [True, False, True]
    with pytest.raises(ConfigurationError, match="max_tools"):
        LearnedOutputs(max_tools=0)


def test_it_is_kept_in_a_file(tmp_path: Path) -> None:
    """Another process goes on from there; only the owner may read it."""
    path = tmp_path / "state" / "outputs.json"
    outputs = LearnedOutputs(path)
    outputs.save()
    assert not path.exists()
    outputs.add(TOOL, {"id": 1, "people": {"a b": [True]}})
    outputs.save()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = LearnedOutputs(path)
    assert again.schema(TOOL) == outputs.schema(TOOL)
    again.add(TOOL, {"name": "x"})
    assert (again.schema(TOOL) or {})["required"] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"tools": 1}',
        '{"tools": {"a": {"shape": {"types": ["odd"]}}}}',
        '{"tools": {"a": {}}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_begun_again(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file is not worth a failure."""
    path = tmp_path / "outputs.json"
    path.write_text(text)
    assert LearnedOutputs(path).schema(TOOL) is None
    assert "begun again" in caplog.text


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """A file that cannot be read would be written over."""
    with pytest.raises(ConfigurationError, match="cannot be read"):
        LearnedOutputs(tmp_path)

"""Changes to a JSON file of a person."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.config.formats import UnreadableError, parse_json
from toolexec.config.json_edit import append_item, remove_item, remove_member, set_member

SETTINGS = """// My settings
{
    "theme": "dark", // at night
    /* servers */
    "servers": {
        // mine
        "git": { "command": "git-mcp" }, // "quoted, } in a comment"
    },
    "url": "https://example.com/x//y", // the last one
}
"""


def test_a_member_is_added_in_the_style_of_the_file() -> None:
    """The comments, the indentation and the trailing commas stay as they were."""
    changed = set_member(SETTINGS, ["servers", "new"], {"command": "a", "args": []})
    assert changed == SETTINGS.replace(
        'in a comment"\n',
        'in a comment"\n        "new": {\n            "command": "a",\n            "args": []\n        },\n',
    )


def test_a_value_is_replaced_where_it_is() -> None:
    """Nothing beside the value moves."""
    assert set_member(SETTINGS, ["theme"], "light") == SETTINGS.replace('"dark"', '"light"')
    assert set_member(SETTINGS, ["servers", "git", "command"], "x") == SETTINGS.replace("git-mcp", "x")


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ("{\n}\n", '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("{ // none yet\n}\n", '{ // none yet\n  "a": {\n    "b": 1\n  }\n}\n'),
        ('{"x": 1}', '{"x": 1, "a": {"b": 1}}'),
        ('{\r\n\t"x": 1\r\n}\r\n', '{\r\n\t"x": 1,\r\n\t"a": {\r\n\t\t"b": 1\r\n\t}\r\n}\r\n'),
        ('{\n  "x": 1 // one\n}', '{\n  "x": 1, // one\n  "a": {\n    "b": 1\n  }\n}'),
        ('{\n  "x": 1 }', '{\n  "x": 1,\n  "a": {\n    "b": 1\n  } }'),
        ('{"a": {}}', '{"a": {\n  "b": 1\n}}'),
    ],
)
def test_objects_on_the_path_are_added(text: str, changed: str) -> None:
    """An empty file's object, one on one line, and one with Windows line ends keep their style."""
    assert set_member(text, ["a", "b"], 1) == changed


@pytest.mark.parametrize(
    ("text", "path", "changed"),
    [
        ('{\n  "a": 1,\n  "b": 2\n}\n', ["b"], '{\n  "a": 1\n}\n'),
        ('{\n  "a": 1, // one\n  "b": 2 // two\n}\n', ["b"], '{\n  "a": 1 // one\n}\n'),
        ('{\n  "a": 1,\n  "b": 2,\n}\n', ["b"], '{\n  "a": 1,\n}\n'),
        ('{\n  "a": 1,\n  "b": 2\n}\n', ["a"], '{\n  "b": 2\n}\n'),
        ('{"a": 1, "b": 2}', ["b"], '{"a": 1}'),
        ('{"a": {"b": 1}}', ["a", "b"], '{"a": {}}'),
        ('{"a": 1}', ["z"], '{"a": 1}'),
    ],
)
def test_a_member_is_removed_with_its_comma_and_line(text: str, path: list[str], changed: str) -> None:
    """The comments of the other members stay."""
    assert remove_member(text, path) == changed


def test_items_are_added_and_removed() -> None:
    """A list that is not there yet is added."""
    text = append_item('{\n  "inputs": [\n    {"id": "a"} // first\n  ]\n}\n', "inputs", {"id": "b"})
    assert text == '{\n  "inputs": [\n    {"id": "a"}, // first\n    {\n      "id": "b"\n    }\n  ]\n}\n'
    assert remove_item(text, "inputs", {"id": "b"}) == '{\n  "inputs": [\n    {"id": "a"} // first\n  ]\n}\n'
    assert json.loads(append_item("{}", "inputs", 1)) == {"inputs": [1]}
    assert remove_item("{}", "inputs", 1) == "{}"


@pytest.mark.parametrize(
    ("text", "line"), [('{\n"a": 1', 2), ('{\n"a" 1}', 2), ("[]", 1), ('{\n"a": []}', 2), ("{} x", 1), ("", 1)]
)
def test_what_cannot_be_changed_is_refused_with_its_line(text: str, line: int) -> None:
    """A broken text, and a value that is not an object where one must be."""
    with pytest.raises(UnreadableError) as caught:
        set_member(text, ["a", "b"], 1)
    assert caught.value.line == line


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=3), _VALUES, max_size=4),
    st.sampled_from([None, 0, 2, "\t"]),
    st.text(max_size=3),
    _VALUES,
)
def test_any_object_says_what_it_should_after_a_change(
    data: dict[str, object], indent: int | str | None, key: str, value: object
) -> None:
    """Whatever it holds and however it is laid out, a member is set, and removed again."""
    text = json.dumps(data, indent=indent)
    changed = set_member(text, [key], value)
    assert parse_json(changed).data == {**data, key: value}
    rest = {name: item for name, item in data.items() if name != key}
    assert parse_json(remove_member(changed, [key])).data == rest

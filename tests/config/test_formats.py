"""TOML, YAML and JSON, each key with its line."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from toolexec.config.formats import Parsed, UnreadableError, parse_json, parse_toml, parse_yaml
from toolexec.errors import MissingExtraError

Parse = Callable[[str], Parsed]

JSON = r"""{
  // a comment
  "server": {
    "name": "a \"b\" // no comment", /* over
    lines */ "port": 1
  },
  "rules": [
    {"effect": "deny",
     "when": {"x": null}},
    -1.5e3, true,
  ],
}"""
TOML = """\
# a comment
title = "x"
[server] # more
name = \"""over # no comment
"two" lines\"""
"quoted key" = "it's"
other.inner = { a = 1, "b" = [1,
  2, # two
  { c = 3 }] }
date = 2027-01-31 07:00:00

[[rules]]
effect = "deny"
  [rules.when]
  x = '''a
'b'''
[[rules]]
effect = "allow"
[rules.deep."very deep"]
y = 1
"""
YAML = """\
# a comment
server:
  name: "x"
  port: 1
rules:
  - effect: deny
    when: &w {x: 1,
      y: 2}
  - when: *w
    since: 2027-01-31
"""


def test_json_with_comments_is_read() -> None:
    """Comments and trailing commas, as VS Code allows them; what looks like one in a text is none."""
    parsed = parse_json(JSON)
    assert parsed.data == {
        "server": {"name": 'a "b" // no comment', "port": 1},
        "rules": [{"effect": "deny", "when": {"x": None}}, -1500.0, True],
    }
    lines = {("server",): 3, ("server", "name"): 4, ("server", "port"): 5, ("rules",): 7, ("rules", 0): 8}
    lines |= {("rules", 0, "when"): 9, ("rules", 0, "when", "x"): 9, ("rules", 1): 10, ("rules", 2): 10}
    assert {place: parsed.line(place) for place in lines} == lines
    assert parsed.line(("server", "name", "deeper")) == 4
    assert parsed.line(("unknown",)) is None


def test_toml_has_lines() -> None:
    """Of keys in tables, lists of tables, inline tables and lists; strings over many lines hide nothing."""
    parsed = parse_toml(TOML)
    lines = {
        ("title",): 2,
        ("server",): 3,
        ("server", "name"): 4,
        ("server", "quoted key"): 6,
        ("server", "other", "inner"): 7,
        ("server", "other", "inner", "a"): 7,
        ("server", "other", "inner", "b", 1): 8,
        ("server", "other", "inner", "b", 2, "c"): 9,
        ("server", "date"): 10,
        ("rules",): 12,
        ("rules", 0, "effect"): 13,
        ("rules", 0, "when"): 14,
        ("rules", 0, "when", "x"): 15,
        ("rules", 1, "effect"): 18,
        ("rules", 1, "deep", "very deep", "y"): 20,
    }
    assert {place: parsed.line(place) for place in lines} == lines


def test_yaml_has_lines() -> None:
    """Of keys and items, also where an alias stands for them."""
    parsed = parse_yaml(YAML)
    assert parsed.data["rules"][1]["when"] == {"x": 1, "y": 2}
    lines = {("server", "port"): 4, ("rules", 0): 6, ("rules", 0, "when"): 7, ("rules", 1, "when"): 9}
    assert {place: parsed.line(place) for place in lines} == lines
    assert parse_yaml("").data == {}


def test_keys_that_are_there_again_are_told() -> None:
    """With the line of the later one."""
    assert parse_json('{"a": 1,\n"a": 2}').twice == ((("a",), 2),)
    assert parse_yaml("a: 1\nb:\n  c: 1\n  c: 2\n").twice == ((("b", "c"), 4),)


@pytest.mark.parametrize(
    ("parse", "text", "line", "reason"),
    [
        (parse_json, "", 1, "a value is missing"),
        (parse_json, '{"a":\n}', 2, "a value is missing"),
        (parse_json, '{"a" 1}', 1, "a : is missing"),
        (parse_json, '{"a": 1\n"b": 2}', 2, "a comma or }"),
        (parse_json, "{a: 1}", 1, "a key in quotes"),
        (parse_json, "[1,,]", 1, "a value is missing"),
        (parse_json, '{"a": "x\n"}', 1, "control character"),
        (parse_json, '{"a": NaN}', 1, "no value"),
        (parse_json, "1" * 500, 1, "no value"),
        (parse_json, "{}\n{}", 2, "more after"),
        (parse_json, "{} /* x", 1, "no end"),
        (parse_json, "[" * 100, 1, "levels deep"),
        (parse_toml, "a = 1\nb = \n", 2, "Invalid value"),
        (parse_toml, "a = 1\na = 2\n", 2, "overwrite"),
        (parse_toml, f"a = {'[' * 80}{']' * 80}", 1, "levels deep"),
        (parse_yaml, "a: [1\nb: 2", 2, "expected"),
        (parse_yaml, "a: 1\n---\nb: 2\n", 2, "single document"),
        (parse_yaml, "a: &x\n  b: 1\nc:\n  <<: *x\n", 4, "merge keys"),
        (parse_yaml, "a: !!python/object/apply:os.system [x]\n", 1, "tag"),
        (parse_yaml, "a: !own b\n", 1, "the tag !own is not allowed"),
        (parse_yaml, "a: 1\non: 2\n", 2, "a key is not text"),
        (parse_yaml, "a: 2027-02-31\n", 1, "no value"),
        (parse_yaml, "a: &a [*a]\n", 1, "levels deep"),
        (parse_yaml, "a: \x00b", None, "does not allow"),
        (parse_yaml, "a: *unknown\n", 1, "undefined alias"),
    ],
)
def test_what_is_not_of_the_format_is_told_with_its_line(
    parse: Parse, text: str, line: int | None, reason: str
) -> None:
    """The reason is for people to read."""
    with pytest.raises(UnreadableError) as caught:
        parse(text)
    assert reason in caught.value.reason
    assert caught.value.line == line


def test_a_bomb_of_aliases_does_not_go_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine levels of ten aliases each would be a thousand million values."""
    monkeypatch.setattr("toolexec.config.formats._MAX_VALUES", 10_000)  # of a million, to be there sooner
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(UnreadableError, match="too large"):
        parse_yaml("\n".join(lines))


def test_yaml_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML is not a part of every installation."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"toolexec\[serve\]"):
        parse_yaml("a: 1")


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind < 6:
        return rng.choice([0, -5, 2.5, True, False, "x", "", 'q"\\\n\t', "ü€😀", "[a]", "# no", "a = 1", "'''", '"""'])
    if kind == 6:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["a", "b c", "d.e", 'q"', "ü"]): _value(rng, depth + 1) for _ in range(rng.randrange(4))}


@pytest.mark.parametrize("seed", range(40))
def test_any_data_comes_back_from_each_format(seed: int) -> None:
    """Written by machines or people, read the same; every key has a line."""
    import yaml

    from toolexec.config.template import toml_key, toml_value

    rng = random.Random(seed)
    data = {f"k{n}": _value(rng, 0) for n in range(5)}
    toml = "\n".join(f"{toml_key(key)} = {toml_value(value)}" for key, value in data.items())
    strings = {parse_json: json.dumps(data, indent=2), parse_yaml: yaml.safe_dump(data), parse_toml: toml}
    for parse, text in strings.items():
        parsed = parse(text)
        assert parsed.data == data
        assert set(parsed.lines) == set(_places(data, ()))


def _places(data: Any, place: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [found for key, value in items for found in [(*place, key), *_places(value, (*place, key))]]


@pytest.mark.parametrize("seed", range(60))
def test_garbage_is_refused_and_nothing_else_is_raised(seed: int) -> None:
    """Refuses even a valid document after a few of its characters were changed."""
    rng = random.Random(seed)
    for parse, text in ((parse_json, JSON), (parse_toml, TOML), (parse_yaml, YAML)):
        signs = list(text)
        for _ in range(rng.randrange(1, 6)):
            signs[rng.randrange(len(signs))] = rng.choice("{}[]\"'#:,=-\n\\ *&!\x07ü")
        with suppress(UnreadableError):
            parse("".join(signs))

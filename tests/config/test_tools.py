"""Tools that a file of settings composes of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.config.commands import call

from toolexec.config.build import build
from toolexec.config.changes import changes_between
from toolexec.config.load import load_settings
from toolexec.errors import ConfigurationError, ExecutionError, InvalidChainError
from toolexec.run.steps import Step
from toolexec.workflow.from_chain import from_chain

SHOP = """
[providers.shop]
kind = "command"
[providers.shop.tools.say]
argv = ["echo", "{text}"]
read_only = true
open_world = false
[providers.shop.tools.other]
argv = ["echo", "other"]
"""
FLOW = '''
[tools.greet]
description = "Greets a person"
tags = ["polite"]
workflow = """
input who: string "Whom"
return run("shop:say", {text: "Hello ${who}"})
"""
'''
CHAIN = """
[tools.twice]
description = "Says it, and says that again"
inputs = ['what: string', 'mark: string = "!"']
steps = [
    { name = "first", tool = "shop:say", args = { text = { "$ref" = "inputs.what" } } },
    { tool = "shop:say", args = { text = { "$ref" = "first" } } },
    { tool = "shop:say", args = { text = { "$literal" = "${x}" } }, stop_on_error = false },
    { tool = "shop:say", args = { text = { "$ref" = "inputs.mark" } } },
]
"""


def written(directory: Path, *tables: str) -> Path:
    """Return a file with these tables."""
    path = directory / "toolexec.toml"
    path.write_text("".join(tables))
    return path


def test_a_workflow_and_a_chain_are_tools(tmp_path: Path) -> None:
    """Both are found, described and called as any other, and their hints follow from the tools that they call."""
    built = build(load_settings([written(tmp_path, SHOP, FLOW, CHAIN)], environment={}))
    with built.ex.sync as ex:
        found = ex.get_tool_doc("skill:twice", "schema").tool
        assert found is not None
        assert found.input_schema.to_json()["required"] == ["what"]
        assert found.input_schema.to_json()["properties"]["mark"] == {"type": "string", "default": "!"}
        assert ex.search_tools("greets a person")[0].id == "skill:greet"
        assert ex.run_tool("skill:greet", {"who": "Ann"}).value == "Hello Ann"
        assert ex.run_tool("skill:twice", {"what": "a"}).value == "!"
        assert ex.run_tool("skill:twice", {"what": "a", "mark": "?"}).value == "?"
        found = ex.get_tool_doc("skill:twice", "schema").tool
        assert found is not None
        assert found.annotations.read_only


def test_each_of_its_calls_passes_the_rules(tmp_path: Path) -> None:
    """A tool that a caller may not call stays closed behind one that it may, and no other tool is called."""
    rule = 'tools = "shop:say"\nreason = "not said"\nwhen = { text = { matches = ".*Ann" } }\n'
    file = written(tmp_path, SHOP, FLOW, f'[[policy.rules]]\neffect = "deny"\n{rule}')
    with build(load_settings([file], environment={})).ex.sync as ex:
        result = ex.run_tool("skill:greet", {"who": "Ann"})
        assert isinstance(result.error, ExecutionError)
        assert "not said" in result.error.message
        assert ex.run_tool("skill:greet", {"who": "Bob"}).value == "Hello Bob"
    file = written(tmp_path, SHOP, FLOW, '[[policy.rules]]\neffect = "deny"\ntools = "skill:greet"\n')
    with build(load_settings([file], environment={})).ex.sync as ex:
        assert "skill:greet" not in [each.id for each in ex.search_tools("greets a person")]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "it needs a description"),
        ('description = "x"', "it needs either a workflow or steps"),
        ('description = "x"\nworkflow = "return 1"\nsteps = []', "it needs either a workflow or steps"),
        ('description = "x"\nsteps = []', "it has no steps"),
        ('description = "x"\nworkflow = "return 1"\ninputs = ["a: any"]', "inputs are for steps"),
        ('description = "x"\nworkflow = "return 1"\nname = "y"', "take name away"),
        ('description = "x"\nworkflow = "return 1"\nmax_step = 1', "has no setting 'max_step'; did you mean max_steps"),
        ('description = "x"\nworkflow = "return 1"\ntimeout = -1', "timeout of a skill must be 0 or more"),
        ('description = "x"\nworkflow = "return ("', "tools.bad: "),
        ('description = "x"\nsteps = [{ tool = "a:b" }]\ninputs = ["a: any\\nreturn 1"]', "each of its inputs"),
        ('description = "x"\nsteps = [{ tool = "a:b", args = { c = { "$ref" = "inputs.d" } } }]', "no earlier step"),
        (
            'description = "x"\ninputs = ["e: any"]\nsteps = [{ tool = "a:b", args = { c = { "$ref" = "inputs.d" } } }]',
            "refers to no input; there are e",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(table: str, message: str, tmp_path: Path) -> None:
    """A wrong one is a mistake of the file, at its line."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings([written(tmp_path, "[tools.bad]\n", table)], environment={})
    assert message in caught.value.message
    assert "line 1" in caught.value.message


def test_they_are_shown_checked_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`config show` lists them, `check` names them, and a change of one is one of the tools; that of its line is none."""
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, SHOP, FLOW, CHAIN)
    shown = json.loads(call("config", "show", "--json", "--origin", "-c", file.name).stdout)
    assert shown["tools"]["greet"]["tags"] == ["polite"]
    assert shown["origins"]["tools.greet"].startswith(file.name)
    assert "[tools.twice]" in call("config", "show", "-c", file.name).stdout
    before = load_settings([file], environment={})
    assert not changes_between(before, before, load_settings([written(tmp_path, "\n", SHOP, FLOW, CHAIN)])).tools
    after = load_settings([written(tmp_path, SHOP, FLOW.replace("Hello", "Hi"), CHAIN)])
    changes = changes_between(before, before, after)
    assert (len(changes.tools), changes.restart) == (1, ())
    assert changes_between(before, before, after, shows=False).restart == ("tools",)


def test_a_chain_with_inputs_becomes_a_workflow() -> None:
    """Inputs keep their names, whatever steps are called; a step that is called `inputs` is what its name means."""
    steps = [Step("a:what", {"x": {"$ref": "inputs.what[0].id"}}), Step("a:b", {"y": {"$ref": "steps.0"}})]
    assert from_chain(steps, ["what"]).splitlines()[0] == 'what_2 := run("a:what", {x: what?[0]?.id})'
    named = [Step("a:b", name="inputs"), Step("a:c", {"x": {"$ref": "inputs.what"}})]
    assert "{x: inputs?.what}" in from_chain(named, ["what"])
    with pytest.raises(InvalidChainError, match="refers to no input"):
        from_chain([Step("a:b", {"x": {"$ref": "inputs"}})], ["what"])

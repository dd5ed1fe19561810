"""Tools composed of others in settings: a workflow, or a chain, which becomes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict, cast

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONObject
from toolexec.model.settings import check_settings
from toolexec.run.steps import read_chain_steps
from toolexec.workflow.from_chain import from_chain
from toolexec.workflow.parser import parse
from toolexec.workflow.skill import Skill, SkillHeader, skill_tests

_OWN: Final = ("workflow", "steps", "inputs")


class _Composition(TypedDict, total=False):
    workflow: str
    steps: Sequence[JSONObject]
    inputs: Sequence[str]


def composed_skill(name: str, given: object) -> Skill:
    """Return the skill that a table describes: by its `workflow`, or by the `steps` of a chain and its `inputs`, with
    all that a skill's front matter may say beside them.

    An input is written as a workflow has it (`days: integer = 30 "How many"`); an argument of a step is a reference to
    it as to a step: `{"$ref": "inputs.days"}`.

    Raises ConfigurationError, InvalidChainError and WorkflowSyntaxError for what makes no sense.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"it must be a table, not a {type(given).__name__}")
    settings = cast("JSONObject", given)
    check_settings("it", _Composition, {key: settings[key] for key in _OWN if key in settings})
    rest = {key: value for key, value in settings.items() if key not in _OWN}
    if "name" in rest:
        raise ConfigurationError("its name is that of the table; take name away")
    if not rest.get("description"):
        raise ConfigurationError("it needs a description, by which it is found")
    header = SkillHeader(name=name, **rest)
    source = _source(settings)
    workflow = parse(source)
    if workflow.front_matter is not None:
        raise ConfigurationError("its workflow has a front matter; the keys of that stand in the table")
    return Skill(source=source, workflow=workflow, header=header, tests=skill_tests(workflow))


def _source(settings: JSONObject) -> str:
    if ("workflow" in settings) == ("steps" in settings):
        raise ConfigurationError("it needs either a workflow or steps")
    if "workflow" in settings:
        if "inputs" in settings:
            raise ConfigurationError(
                'inputs are for steps; a workflow has its own: input days: integer = 30 "How many"'
            )
        return settings["workflow"]
    if not settings["steps"]:
        raise ConfigurationError("it has no steps")
    lines = [f"input {each}" for each in settings.get("inputs", ())]
    declared = parse("\n".join([*lines, "return null"]))
    if len(declared.inputs) != len(lines) or len(declared.statements) != 1:
        raise ConfigurationError('each of its inputs must be one, such as: days: integer = 30 "How many"')
    body = from_chain(read_chain_steps(settings["steps"]), [each.name for each in declared.inputs])
    return "\n".join([*lines, body])

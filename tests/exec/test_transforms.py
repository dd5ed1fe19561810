"""Tools that are shown in another form than their own, of every kind and on every path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.backend.providers.service import Service, serving
from tests.server.harness import ERAS, connect
from tests.server.harness import serving as serving_tools

from toolexec import DocEntry, Exec, Gate, Policy, Rule, Step, Tool, ToolExample, tool
from toolexec.config.build import build
from toolexec.config.load import load_settings
from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError, InputValidationError, PolicyError
from toolexec.model import LocalBinding, ToolAnnotations, ToolTransform
from toolexec.model.transform import ShownTool
from toolexec.run.audit import AuditLog, read_last
from toolexec.run.layers.audit import Audit
from toolexec.run.pinning import definition_of

SHOWN = {
    "name": "forecast",
    "description": "Says what the weather will be.",
    "arguments": {
        "q": {"name": "place", "description": "The name of a town."},
        "days": {"default": 3},
        "units": {"value": "metric"},
        "debug": {"hide": True},
    },
}


@tool(namespace="weather")
def fetch(q: str, days: int, units: str, debug: bool = False) -> dict[str, Any]:
    """Fetches raw data."""
    return {"q": q, "days": days, "units": units, "debug": debug}


@tool(namespace="weather")
def count(to: int, step: int) -> Any:
    """Counts."""
    yield from range(0, to, step)


def made(gate: Gate | None = None) -> Exec:
    """Return an Exec with the tools above, shown in another form."""
    stream = {"arguments": {"to": {"name": "until"}, "step": {"value": 2}}}
    ex = Exec(transforms={"weather:fetch": SHOWN, "weather:count": stream}, gate=gate)
    ex.add(fetch)
    ex.add(count)
    return ex


SENT = {"q": "Rome", "days": 3, "units": "metric", "debug": False}


async def test_the_model_sees_the_new_form() -> None:
    """Searches, descriptions and schemas know nothing of what is hidden; the tool's own name is not there."""
    async with made() as ex:
        doc = await ex.get_tool_doc("weather:forecast", "schema")
        assert doc.tool is not None
        assert doc.tool.description == "Says what the weather will be."
        schema = doc.tool.input_schema.to_json()
        assert list(schema["properties"]) == ["place", "days"]
        assert schema["properties"]["place"]["description"] == "The name of a town."
        assert schema["required"] == ["place"]
        assert (await ex.search_tools("weather of a town"))[0].id == "weather:forecast"
        assert ex.index.find("weather:fetch") is None


async def test_every_path_sends_the_tools_own_arguments() -> None:
    """A call, a chain, a stream and code; a given value takes the place of a default."""
    async with made() as ex:
        assert (await ex.run_tool("weather:forecast", {"place": "Rome"})).value == SENT
        assert (await ex.run_tool("weather:forecast", {"place": "Rome", "days": 1})).value == {**SENT, "days": 1}
        chain = await ex.run_chain([Step("weather:forecast", {"place": "Rome"}), Step("weather:count", {"until": 5})])
        assert [step.value for step in chain.steps] == [SENT, [0, 2, 4]]
        events = [event.data async for event in ex.stream_tool("weather:count", {"until": 5})]
        assert events == [0, 2, 4, [0, 2, 4]]
        code = await ex.execute_code('return tools.weather.forecast(place="Rome")')
        assert code.value == SENT


def test_calls_without_an_event_loop() -> None:
    """The blocking counterpart maps arguments, too."""
    with made().sync as ex:
        assert ex.run_tool("weather:forecast", {"place": "Rome"}).value == SENT


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({}, ""),
        ({"place": 5}, "/place"),
        ({"place": "Rome", "units": "imperial"}, ""),
        ({"place": "Rome", "debug": True}, ""),
        ({"q": "Rome"}, ""),
    ],
    ids=str,
)
async def test_errors_speak_of_arguments_as_they_are_shown(args: dict[str, Any], path: str) -> None:
    """Hidden arguments, and the own names of renamed ones, are not arguments."""
    async with made() as ex:
        with pytest.raises(InputValidationError) as caught:
            await ex.run_tool("weather:forecast", args)
    assert path in [each.path for each in caught.value.violations]


async def test_hidden_arguments_are_refused_where_any_argument_is_taken() -> None:
    """A schema that is open does not open what is hidden or fixed."""
    taken: list[Any] = []
    async with Exec(transforms={"a:b": {"arguments": {"x": {"value": 1}, "y": {"hide": True}}}}, gate=None) as ex:
        schema = {"type": "object", "properties": {"x": {}, "y": {}}}
        ex.add(Tool(name="b", namespace="a", input_schema=schema), handler=lambda args: taken.append(args))
        await ex.run_tool("a:b", {"z": 3})
        for hidden in ("x", "y"):
            with pytest.raises(InputValidationError, match=f"/{hidden}: it is not an argument"):
                await ex.run_tool("a:b", {hidden: 2})
    assert taken == [{"z": 3, "x": 1}]


async def test_rules_and_records_see_what_is_sent(tmp_path: Path) -> None:
    """A policy decides by the tool's own arguments, the fixed ones among them, and the audit log has them."""
    log = tmp_path / "audit.jsonl"
    rules = [Rule("deny", tools="weather:forecast", when={"units": {"equals": "metric"}, "q": {"equals": "Rome"}})]
    audit = AuditLog.open(log, args="redacted", state=tmp_path / "state")
    async with made(gate=Gate(policy=Policy(rules, default="allow"), audit=Audit(audit))) as ex:
        with pytest.raises(PolicyError):
            await ex.run_tool("weather:forecast", {"place": "Rome"})
        assert (await ex.run_tool("weather:forecast", {"place": "Oslo"})).ok
        with pytest.raises(InputValidationError, match="/place"):
            await ex.run_tool("weather:forecast", {"place": 5})
    audit.close()
    records = [each for each in read_last(log, 100) if each["kind"] == "call" and "outcome" in each]
    assert [each["outcome"] for each in records] == ["policy_denied", "ok", "validation_input"]
    assert records[1]["args"] == {"q": "Oslo", "days": 3, "units": "metric"}


@pytest.fixture(scope="module")
def service() -> Any:
    """Run one service for providers."""
    with serving() as running:
        yield running


async def test_tools_of_providers(service: Service) -> None:
    """An endpoint and a program are shown in another form as functions are; refreshing keeps it."""
    transforms: dict[str, Any] = {
        "api:get": ToolTransform(name="look", arguments={"id": {"name": "item"}, "lang": {"value": "en"}}),
        "cmd:echo": {"arguments": {"text": {"name": "words"}, "mark": {"default": "!"}}},
    }
    tools = {"get": {"path": "/x/{id}", "query": {"lang": "{{lang}}"}}}
    async with Exec(transforms=transforms, gate=None) as ex:
        await ex.add_http("api", service.url, tools=tools)
        await ex.add_commands("cmd", tools={"echo": {"argv": ["echo", "{text}", "{mark}"]}})
        for _ in range(2):
            seen = (await ex.run_tool("api:look", {"item": "7"})).value
            assert (seen["path"], seen["query"]) == ("/x/7", "lang=en")
            assert (await ex.run_tool("cmd:echo", {"words": "hi"})).value == "hi !"
            await ex.refresh()
        with pytest.raises(InputValidationError, match="/item"):
            await ex.run_tool("api:look", {"item": ".."})


async def test_a_transform_that_does_not_fit_withholds_the_tool(service: Service) -> None:
    """A tool is never shown as it is where it should be changed."""
    with pytest.raises(ConfigurationError, match="no argument 'qq'; did you mean q"):
        Exec(transforms={"weather:fetch": {"arguments": {"qq": {}}}}).add(fetch)
    with pytest.raises(ConfigurationError, match="'q' is required, so it cannot be hidden without a value"):
        Exec(transforms={"weather:fetch": {"arguments": {"q": {"hide": True}}}}).add(fetch)
    with pytest.raises(ConfigurationError, match="two arguments are called 'days'"):
        Exec(transforms={"weather:fetch": {"arguments": {"q": {"name": "days"}}}}).add(fetch)
    with pytest.raises(ConfigurationError, match="weather:fetch has no setting 'nmae'; did you mean name"):
        Exec(transforms={"weather:fetch": {"nmae": "x"}})
    with pytest.raises(ConfigurationError, match="is hidden, so it has no name"):
        ToolTransform(arguments={"q": {"hide": True, "name": "x"}})
    async with Exec(transforms={"api:get": {"arguments": {"no": {}}}}, gate=None) as ex:
        await ex.add_http("api", service.url, tools={"get": {"path": "/x"}})
        assert ex.index.find("api:get") is None


def test_pins_cover_the_tools_own_definition() -> None:
    """A change of what is hidden is a change of the tool."""

    def pinned(description: str) -> str:
        schema = {"type": "object", "properties": {"x": {"description": description}, "y": {}}}
        own = Tool(name="b", namespace="a", input_schema=schema)
        shown = ShownTool(own, ToolTransform(arguments={"x": {"value": 1}})).tool
        return definition_of(Registered(shown, (LocalBinding("a:b"),), LocalBinding("a:b")))

    assert pinned("one") == pinned("one")
    assert pinned("one") != pinned("two")


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_shows_and_calls_them(era: str) -> None:
    """Clients describe and run the tool as it is shown."""
    async with serving_tools(made()) as server, connect(server, era) as client:
        described = await client.call_tool("describe_tool", {"tool_id": "weather:forecast", "detail_level": "schema"})
        text = json.dumps(described.model_dump(mode="json"))
        assert "place" in text
        assert "debug" not in text
        reply = await client.call_tool("run_tool", {"tool_id": "weather:forecast", "args": {"place": "Rome"}})
        assert "metric" in json.dumps(reply.model_dump(mode="json"))


def test_a_file_declares_transforms(tmp_path: Path) -> None:
    """Its settings are those of Python; a mistake has its line."""
    file = tmp_path / "toolexec.toml"
    text = """
        [providers.cmd]
        kind = "command"
        [providers.cmd.tools.echo]
        argv = ["echo", "{text}", "{mark}"]
        [transforms."cmd:echo"]
        name = "say"
        arguments = { text = { name = "words" }, mark = { value = "!" } }
    """
    file.write_text(text)
    with build(load_settings([file], environment={})).ex.sync as ex:
        assert ex.run_tool("cmd:say", {"words": "hi"}).value == "hi !"
    file.write_text(text.replace("value =", "valeu ="))
    with pytest.raises(
        ConfigurationError, match=r"line 6: transforms\.cmd:echo: argument 'mark' has no setting 'valeu'"
    ):
        load_settings([file], environment={})


async def test_transforms_stay_as_they_are() -> None:
    """Tools that are there would not follow a change."""
    async with made() as ex:
        with pytest.raises(ConfigurationError, match="transforms cannot be changed"):
            ex.reconfigure(transforms={})


async def test_other_hints_and_examples() -> None:
    """Rules go by the hints of a transform, those that it leaves out stay; its examples are shown in place of others."""
    example = {"title": "Tomorrow", "args": {"place": "Rome", "days": 1}, "result_hint": "sun"}
    shown = {**SHOWN, "annotations": {"read_only": True, "destructive": False}, "examples": [example]}
    own = Tool(
        name="fetch",
        namespace="weather",
        input_schema=fetch.tool.input_schema,
        annotations=ToolAnnotations(idempotent=True, destructive=True, title="Own"),
    )
    gate = Gate(policy=Policy([Rule("allow", read_only=True)], default="deny"))
    async with Exec(transforms={"weather:fetch": shown}, gate=gate) as ex:
        doc = DocEntry(notes="Kept.", examples=(ToolExample(title="Own", args={"q": "Rome"}),))
        tool = ex.add(own, handler=dict, doc=doc)
        assert tool.annotations == ToolAnnotations(read_only=True, idempotent=True, destructive=False, title="Own")
        assert (await ex.run_tool("weather:forecast", {"place": "Rome"})).ok
        described = await ex.get_tool_doc("weather:forecast")
        assert described.notes == "Kept."
        assert [each.to_dict() for each in described.examples] == [
            {"title": "Tomorrow", "description": "", "args": {"place": "Rome", "days": 1}, "resultHint": "sun"}
        ]


async def test_examples_of_tools_of_providers_are_shown_and_must_fit() -> None:
    """An example with arguments that callers cannot give withholds the tool, and the status says why."""
    tools = {"echo": {"argv": ["echo", "{text}"]}}
    for args, fits in (({"words": "hi"}, True), ({"text": "hi"}, False)):
        shown = {"arguments": {"text": {"name": "words"}}, "examples": [{"args": args}]}
        async with Exec(transforms={"cmd:echo": shown}, gate=None) as ex:
            await ex.add_commands("cmd", tools=tools)
            if fits:
                assert [each.args for each in (await ex.get_tool_doc("cmd:echo")).examples] == [args]
            else:
                assert ex.index.find("cmd:echo") is None
                [status] = [each for each in ex.backend_statuses() if each.name == "cmd"]
                assert "example 1 does not fit" in status.skipped["cmd:echo"]


def test_hints_and_examples_that_are_none_are_refused() -> None:
    """The message says what is wrong, and what there is."""
    with pytest.raises(ConfigurationError, match="annotations has no setting 'readonly'; did you mean read_only"):
        ToolTransform(annotations={"readonly": True})
    with pytest.raises(ConfigurationError, match="example 1 has no setting 'arg'; did you mean args"):
        ToolTransform.from_settings("transforms.a:b", {"examples": [{"arg": {}}]})


async def test_a_skill_keeps_its_form_when_its_tools_change() -> None:
    """Hints that follow from its tools are found again, and its transform counts more than those."""
    source = '+++\nname = "twice"\ndescription = "Runs."\n+++\ninput n: integer\nreturn run("weather:count", {to: n, step: 2})'
    shown = {"name": "double", "annotations": {"read_only": True}}
    async with Exec(transforms={"skill:twice": shown}, gate=None) as ex:
        ex.add_skill(source)
        ex.add(count)
        found = ex.index.find("skill:double")
        assert found is not None
        assert found.tool.annotations.read_only
        assert (await ex.run_tool("skill:double", {"n": 5})).value == [0, 2, 4]

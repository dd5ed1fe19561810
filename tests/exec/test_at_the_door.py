"""What does not fit is refused where it comes in, by its name, and with nothing done."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, InMemoryIndex, Options, Step, Tool
from toolexec.backend.mcp import MCPSettings
from toolexec.discovery import InMemoryDocStore
from toolexec.durable.queues import Queue
from toolexec.errors import ToolExecError
from toolexec.exec.code import CodeSettings, WorkflowSettings
from toolexec.exec.providers import AddedCommands, AddedHTTP, AddedOpenAPI, AddedPython
from toolexec.exec.runs import Runs
from toolexec.exec.schedules import Schedules
from toolexec.exec.sync import SyncExec, SyncRuns, SyncSchedules
from toolexec.model.resources import Prompt

SETTINGS: Mapping[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(CodeSettings, WorkflowSettings, MCPSettings),
        *(AddedCommands, AddedHTTP, AddedOpenAPI, AddedPython),
    )
}

FITTING: Mapping[str, Any] = {
    "tool_id": "t:echo",
    "query": "echo",
    "goal": "t:echo",
    "steps": [Step("t:echo")],
    "code": "return 1",
    "source": "return 1",
    "name": "far",
    "path": "nowhere.json",
    "skill": "nowhere.md",
    "format": "openai",
    "spec": "nowhere.json",
    "message": {},
    "run_id": "run",
    "queue": "mail",
    "states": [],
    "run_a": "a",
    "run_b": "b",
    "uri": "toolexec://far/file:///a.md",
    "ref": Prompt(id="far:a:+prompt", name="far:a", own_name="a", backend="far"),
    "argument": "a",
    "transforms": {},
}
"""Values for the parameters without a default."""
NUMBERS = ("3", [], {}, math.nan, -math.inf, -1)
WRONG: Mapping[str, tuple[object, ...]] = {
    "bool": ("no", 5, []),
    "int": (*NUMBERS, 1.5),
    "float": NUMBERS,
    "str": (5, [], {}, b"x"),
    "JSONObject": (5, "x", [1]),
    "Sequence": (5, {}),
    "Collection": (5,),
    "ProgressCallback": (5, "x"),
    "EventCallback": (5, "x"),
    "WaitsCallback": (5, "x"),
    "Callable": (5, [1]),
    "DocEntry": (5, "x", {}, []),
    "Filters": (5, "x", [], {}),
    "ToolSearch": (5, "x", []),
    "VendorTools": (5, "x", [1]),
    "Binding": (5, "x"),
    "Handler": (5, "x"),
    "Prompt": (5, "x"),
}
"""For the first name of each part of an annotation values of other kinds, and of no sense."""
NAMED = {
    "args": "args|arguments",
    "tool_id": "tool_id|tool ID",
    "goal": "goal|tool ID",
    "durable": "durable|ID of a run",
    "backends": "a backend",
    "binding": "binding",
}
"""What errors call a parameter, where that is not its name alone."""
OTHER_NAMES = {
    **dict.fromkeys(("DetailLevel", "Missed", "OnError", "VendorFormat", "Path", "Unknown"), "str"),
    "Mapping": "JSONObject",
    "JSONDict": "JSONObject",
    "NameMap": "VendorTools",
    "Skill": "str",
    "FunctionTool": "Callable",
    "Tool": "Callable",
    "ResourceTemplate": "Prompt",
}
ANYTHING = {"answer", "message", "payload"}
"""Parameters that take every value, or are refused by their content."""
OWNERS: Mapping[str, type] = {"ex": Exec, "ex.runs": Runs, "ex.schedules": Schedules}


def heads(annotation: str) -> list[str]:
    """The names of the kinds that an annotation admits, without what is in brackets."""
    flat, before = re.sub(r"\[[^\[\]]*\]", "", annotation), annotation
    while flat != before:
        flat, before = re.sub(r"\[[^\[\]]*\]", "", flat), flat
    names = [part.strip() for part in flat.split("|")]
    return [OTHER_NAMES.get(name, name) for name in names if name != "None"]


def methods(owner: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public methods of a class."""
    for name, method in inspect.getmembers(owner, inspect.isfunction):
        if not name.startswith("_"):
            yield name, method


def parameters() -> Iterator[tuple[str, str, inspect.Parameter]]:
    """Yield each parameter of each public method, with the method and what has it; settings by name are not among
    them, as each set has a class of its own that checks them."""
    for owner, kind in OWNERS.items():
        for method, function in methods(kind):
            for parameter in inspect.signature(function).parameters.values():
                if parameter.name not in ("self", *ANYTHING) and parameter.kind is not parameter.VAR_KEYWORD:
                    yield owner, method, parameter


def cases() -> Iterator[Any]:
    """Yield each parameter of each method, with values that do not fit it."""
    for owner, method, parameter in parameters():
        admitted = heads(str(parameter.annotation))
        if not {*admitted} <= {*WRONG}:
            continue
        wrong = [value for value in WRONG[admitted[0]] if not any(fits(value, name) for name in admitted[1:])]
        for value in wrong:
            if parameter.name in ("before", "priority") and value == -1:  # a moment before 1970, an urgent run
                continue
            yield pytest.param(owner, method, parameter.name, value, id=f"{owner}.{method}-{parameter.name}-{value!r}")


def fits(value: object, kind: str) -> bool:
    """Say whether a value is of a further kind that is admitted."""
    return not any(value is other or (type(value) is type(other) and value == other) for other in WRONG[kind])


def test_every_parameter_is_tried() -> None:
    """A new parameter whose kind the tables do not know is added to them, or to those that take anything."""
    unknown = {
        f"{owner}.{method}({parameter.name}: {parameter.annotation})"
        for owner, method, parameter in parameters()
        if not {*heads(str(parameter.annotation))} <= {*WRONG} and parameter.name != "backends"
    }
    assert unknown == set()
    assert len([*cases()]) > 300


@pytest.mark.parametrize("blocking", [SyncExec, SyncRuns, SyncSchedules])
def test_blocking_methods_pass_on_what_they_get(blocking: type) -> None:
    """Each has the parameters of the method behind it, which checks the values."""
    behind = {"SyncExec": Exec, "SyncRuns": Runs, "SyncSchedules": Schedules}[blocking.__name__]
    for name, method in methods(blocking):
        other = getattr(behind, name, None)
        if other is None or name == "start":
            continue
        taken = {
            each.name for each in inspect.signature(other).parameters.values() if each.kind is not each.VAR_KEYWORD
        }
        own = {each.name for each in inspect.signature(method).parameters.values() if each.kind is not each.VAR_KEYWORD}
        assert own <= taken, name


@pytest.mark.parametrize(("owner", "method", "name", "value"), [*cases()])
async def test_what_does_not_fit_is_refused(owner: str, method: str, name: str, value: object, tmp_path: Path) -> None:
    """The error names the parameter, the tool was not called, and no tool was added."""
    called: list[object] = []

    def echo(value: object = 1) -> object:
        called.append(value)
        return value

    async with Exec(Options(journal=str(tmp_path / "journal.db"), queues={"mail": Queue()})) as ex:
        ex.add(echo, "t:echo")
        before = len(ex.index)
        function = getattr({"ex": ex, "ex.runs": ex.runs, "ex.schedules": ex.schedules}[owner], method)
        needed = {
            each.name: FITTING.get(each.name, echo)
            for each in inspect.signature(function).parameters.values()
            if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
        }
        if name == "binding":  # of a tool that has no handler
            needed["tool"] = Tool(name="far", namespace="t", description="", input_schema={})
        with pytest.raises(ToolExecError) as caught:
            made: Any = function(**{**needed, name: value})
            if isinstance(made, AsyncGenerator):
                made = made.__anext__()
            if inspect.isawaitable(made):
                async with asyncio.timeout(30):
                    made = await made
            if getattr(made, "error", None) is not None:
                raise made.error
        assert len(ex.index) == before
    assert called == []
    said = caught.value.message
    assert re.search(rf"\b({NAMED.get(name, name)})\b", said), said


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("session", {}),
        ("execute_code", {"code": "return 1"}),
        ("stream_code", {"code": "return 1"}),
        ("run_workflow", {"source": "return 1"}),
        ("add_mcp", {"name": "far", "command": "true"}),
        ("add_http", {"name": "far", "base_url": "http://far.test", "tools": {"get": {"path": "/"}}}),
        ("add_commands", {"name": "far", "tools": {"do": {"argv": ["true"]}}}),
        ("add_python", {"name": "far", "target": "json:dumps"}),
        ("add_openapi", {"name": "far", "spec": {"openapi": "3.1.0", "info": {"title": "x"}, "paths": {}}}),
    ],
)
async def test_settings_by_name_are_refused_by_their_names(method: str, given: Mapping[str, Any]) -> None:
    """Each number that a method takes as a setting is refused below 0, and as a string, before anything is done."""
    settings = inspect.signature(getattr(Exec, method)).parameters["settings"].annotation
    names = {
        name: str(getattr(kind, "__forward_arg__", kind))
        for name, kind in settings_of(SETTINGS[re.sub(r"Unpack\[(\w+)\]", r"\1", settings)]).items()
    }
    numbers = [name for name, kind in names.items() if re.fullmatch(r"(int|float)( \| None)?", kind)]
    for name in numbers:
        for value in ("3", [], math.nan, *(() if name == "seed" else (-1,))):
            async with Exec() as ex:
                with pytest.raises(ToolExecError, match=rf"\b{name}\b"):
                    made: Any = getattr(ex, method)(**{**given, name: value})
                    if isinstance(made, AsyncGenerator):
                        made = made.__anext__()
                    if inspect.isawaitable(made) and not method.startswith("add_"):
                        made = await made
                    if getattr(made, "error", None) is not None:
                        raise made.error


def settings_of(kind: Any) -> dict[str, Any]:
    """Return the names and kinds of a TypedDict, with those that it inherits."""
    found: dict[str, Any] = {}
    for base in getattr(kind, "__orig_bases__", ()):
        found |= settings_of(base) if hasattr(base, "__annotations__") else {}
    return {**found, **inspect.get_annotations(kind)}


async def test_what_fits_is_let_in(tmp_path: Path) -> None:
    """Functions, mappings and lists are taken for what their annotations say, however these are written."""

    def ignore(*_: object) -> None: ...

    async with Exec(Options(journal=str(tmp_path / "journal.db"), queues={"mail": Queue()})) as ex:
        ex.add(lambda value=1: value, "t:echo")
        assert ex.needs_approval("t:echo", {"value": 2}) is False
        with ex.approved("t:echo", {"value": 2}):
            pass
        assert await ex.runs.list(["done"], caller="a", limit=0, before=0.5) == []
        assert await ex.runs.resume_due(0) == {}
        with pytest.raises(ToolExecError, match="there is no run nothing"):
            await ex.runs.follow("nothing", on_waits=ignore, on_progress=ignore, on_event=ignore)
        with pytest.raises(ToolExecError, match="there is no run nothing"):
            await ex.runs.signal("nothing", "go", {"a": [1, None]}, id="once")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await ex.runs.work(idle=0, on_result=ignore)
        with pytest.raises(ToolExecError, match="whose runs it works on"):
            ex.worker(isolations=["vm"], max_activities=1, patience=0)


async def test_other_values_are_refused_by_their_names() -> None:
    """Values that are empty, or whose range a class has, do not pass for the default."""
    with pytest.raises(ToolExecError, match="meta"):
        Tool(name="far", namespace="t", description="", input_schema={}, meta=0)  # type: ignore[arg-type]
    with pytest.raises(ToolExecError, match="max_examples"):
        InMemoryDocStore(InMemoryIndex(), max_examples=-1)
    with pytest.raises(ToolExecError, match="max_media_bytes"):
        async with Exec() as ex:
            await ex.handle_openai_tool_calls([], max_media_bytes=-1)
    for name in ("retries", "retry_pause", "timeout"):
        async with Exec() as ex:
            with pytest.raises(ToolExecError, match=rf"step 0: {name} must be"):
                await ex.run_chain([Step("t:echo", **{name: -1})])

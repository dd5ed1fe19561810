"""The door is closed to what is wrong: every public setting is checked before anything starts, whatever is given."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import math
import pkgutil
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolexec
from toolexec import Exec, Limits, Options, Step, tool
from toolexec.backend.mcp.config import MCPServer, MCPSettings
from toolexec.code.types import ExecuteRequest
from toolexec.errors import ConfigurationError, InvalidChainError, InvalidToolError, ToolExecError
from toolexec.exec.code import CodeSettings
from toolexec.exec.options import ExecSettings
from toolexec.model.settings import SettingsGuard, guards
from toolexec.runtime.wasm.config import WasmConfig, WasmSettings

OPTIONAL = ("toolexec.runtime.wasm.app", "toolexec.runtime.guest.", "toolexec.testing", "toolexec.integrations")
for _info in pkgutil.walk_packages(toolexec.__path__, "toolexec."):
    if not _info.name.startswith(OPTIONAL) and "__main__" not in _info.name:
        importlib.import_module(_info.name)

GUARDS = {
    guard.what: guard
    for guard in guards()
    if guard.function.__module__.startswith("toolexec")
    or (guard.owner is not None and guard.owner.__module__.startswith("toolexec"))
}
CLASSES = {what: guard for what, guard in GUARDS.items() if guard.owner is not None}
CHECKED = {guard.owner for guard in CLASSES.values()}
SETTINGS = [(what, name) for what, guard in sorted(CLASSES.items()) for name in guard.names]


def _default(guard: SettingsGuard, name: str) -> Any:
    """The default of a setting; it says what family of values the setting takes, without a look at the annotation."""
    if dataclasses.is_dataclass(guard.owner):
        for part in dataclasses.fields(guard.owner):
            if part.name == name and part.default_factory is not dataclasses.MISSING:
                return part.default_factory()
    return inspect.signature(guard.function).parameters[name].default


JUNK = st.one_of(
    st.booleans(),
    st.integers(-5, 5),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.lists(st.integers(), min_size=1, max_size=2),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.integers(), st.integers(), min_size=1, max_size=2),
    st.builds(object),
)


def _is_of_another_family(default: Any, value: Any, floating: bool) -> bool:
    """Return whether *value* is certainly wrong for a setting with this *default*."""
    match default:
        case int() if floating:
            return isinstance(value, bool) or not isinstance(value, int | float)
        case bool():
            return not isinstance(value, bool | str) or (isinstance(value, str) and value not in ("", "strict"))
        case int():
            return not isinstance(value, int) or isinstance(value, bool)
        case float():
            return isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)
        case str():
            return not isinstance(value, str | Path)
        case bytes():
            return not isinstance(value, bytes)
        case tuple() | list():
            return isinstance(value, str | bytes | int | float | dict)
        case dict():
            return not isinstance(value, Mapping) or (bool(value) and default == {} and not all(map(_is_text, value)))
        case _:
            return False


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


TYPED = [
    (what, name)
    for what, name in SETTINGS
    if isinstance(_default(CLASSES[what], name), bool | int | float | str | bytes | tuple | list | dict)
    and name not in ("allow_refs", "auth", "workers", "wasm_workers")  # one of two kinds: a word or a mapping, say
    and what not in ("Rule", "Toolset", "Filters")  # they take more than their annotations say; see their own tests
    and name not in CLASSES[what]._leave  # these are checked later, with an error of their own; see their own tests
]


def test_there_is_something_to_check() -> None:
    """The sweeps below see the classes that matter, and hundreds of settings."""
    assert {
        "Exec",
        "CodeConfig",
        "ExecuteRequest",
        "Limits",
        "a step",
        "Gate",
        "Rule",
        "Policy",
        "ServeSettings",
    } <= set(CLASSES)
    assert len(TYPED) > 150


@pytest.mark.full
@settings(max_examples=1500, deadline=None, derandomize=True)
@given(place=st.sampled_from(TYPED), value=JUNK)
def test_values_of_wrong_types_are_refused(place: tuple[str, str], value: Any) -> None:
    """A value of another family than the default's is refused by name, in every setting of every class."""
    what, name = place
    guard = CLASSES[what]
    assert guard.owner is not None
    floating = "float" in str(inspect.signature(guard.owner).parameters[name].annotation)
    if not _is_of_another_family(_default(guard, name), value, floating):
        return
    with pytest.raises(ToolExecError, match=name):
        guard.owner(**{name: value})


@pytest.mark.full
@settings(max_examples=600, deadline=None, derandomize=True)
@given(place=st.sampled_from(SETTINGS), at=st.integers(0, 30), how=st.sampled_from(["drop", "double", "swap", "case"]))
def test_misspelt_names_are_refused(place: tuple[str, str], at: int, how: str) -> None:
    """Whatever slip of the finger: the setting is refused, and the one that was probably meant is named."""
    what, name = place
    guard = CLASSES[what]
    assert guard.owner is not None
    at %= len(name)
    changed = {
        "drop": name[:at] + name[at + 1 :],
        "double": name[: at + 1] + name[at:],
        "swap": name[:at] + name[at : at + 2][::-1] + name[at + 2 :],
        "case": name.upper(),
    }[how]
    if changed in guard.names or len(changed) < 3:
        return
    with pytest.raises(ToolExecError, match="has no setting") as caught:
        guard.owner(**{changed: None})
    assert "did you mean" in str(caught.value)


@pytest.mark.full
@settings(max_examples=300, deadline=None, derandomize=True)
@given(name=st.sampled_from(sorted(CodeSettings.__annotations__)), value=JUNK)
def test_settings_of_code(name: str, value: Any) -> None:
    """Checks the options of a run before its backends start: nothing is accepted that its type refuses."""
    fits = {
        "language": str, "profile": str, "stdin": bytes, "best_effort": bool, "unsafe_opt_in": bool, "seed": int,
        "timeout": (int, float), "now": (int, float), "max_tool_calls": int, "limits": Limits, "metadata": dict,
        "on_error": (), "dry_run": bool,
        "env": dict, "files": dict, "args": list, "allowed_tools": (list, dict), "on_event": (),
    }[name]  # fmt: skip
    wrong = not isinstance(value, fits) or (isinstance(value, bool) and fits is not bool)

    async def attempt() -> None:
        ex = Exec()
        started = False

        async def start() -> None:
            nonlocal started
            started = True

        ex._parts.sources.start = start  # type: ignore[method-assign]
        ex._parts.sources.pending = [object()]  # type: ignore[list-item]
        try:
            with pytest.raises(ConfigurationError, match=name):
                await ex.execute_code("1", **{name: value})  # type: ignore[misc]
            with pytest.raises(ConfigurationError, match=name):
                ex.session(**{name: value})  # type: ignore[misc]
            with pytest.raises(ConfigurationError, match=name):
                await anext(ex.stream_code("1", **{name: value}))  # type: ignore[misc]
        finally:
            assert not started
            ex._parts.sources.pending = []

    if wrong:
        asyncio.run(attempt())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exec(enable_code_execution="no"), "enable_code_execution must be true or false, not 'no'"),
        (lambda: Exec(enable_code_execution=0), "enable_code_execution must be true or false, not 0"),
        (lambda: Exec(unsafe_opt_in="false"), "unsafe_opt_in must be true or false"),
        (lambda: Exec(securty_profile="dev"), "did you mean security_profile?"),
        (lambda: Exec(security_profile="standrad"), "did you mean standard?"),
        (lambda: Exec({"default_timeout": 3}), "Exec takes Options"),
        (
            lambda: Exec(code_limits={"pids": 3}),
            "code_limits must be a Limits, not a mapping; Limits.from_dict reads one",
        ),
        (lambda: Exec(Options(), layers="x"), "layers must be a list of functions"),
        (lambda: Step("a:b", stop_on_error=None), "stop_on_error must be true or false, not None"),
        (lambda: Step("a:b", stop_on_err=True), "did you mean stop_on_error?"),
        (
            lambda: Step.from_dict({"tool": "a:b", "stop_on_error": None}),
            "stop_on_error must be true or false, not None",
        ),
        (lambda: Step.from_dict({"tool": "a:b", "retires": 2}), "did you mean retries?"),
        (lambda: Step.from_dict({"tool": "a:b", "retries": True}), "retries must be an integer, not True"),
        (lambda: Limits(max_tool_call=3), "did you mean max_tool_calls?"),
        (lambda: Limits.from_dict({"max_tool_call": 3}), "did you mean max_tool_calls?"),
        (lambda: Limits(pids=True), "pids must be an integer, not True"),
        (lambda: ExecuteRequest(code="1", allowed_tools="math:*"), "allowed_tools must be a list of strings or None"),
        (lambda: tool(read_only="yes"), "read_only must be true or false"),
        (lambda: tool(readonly=True), "did you mean read_only?"),
        (lambda: tool(tags="abc"), "tags must be a list of strings, not a string"),
        (lambda: Exec().add_mcp("x", url="http://localhost", header={}), "did you mean headers?"),
        (lambda: Exec().add_mcp("x", url="http://localhost", enabled="no"), "enabled must be true or false"),
        (lambda: Exec().add_mcp("x", url="http://localhost", transport="tcp"), "transport must be one of auto, stdio"),
        (lambda: Exec().sync.add_mcp("x", command="x", conect_timeout=3), "did you mean connect_timeout?"),
        (lambda: MCPServer(name="x", url="http://localhost", transport="htp"), "did you mean http?"),
        (lambda: WasmConfig(packages="numpy"), "packages must be a list of strings, not a string"),
    ],
)
def test_what_used_to_slip_through(make: Any, message: str) -> None:
    """Each is refused with a message that says what to do."""
    with pytest.raises(ToolExecError) as caught:
        make()
    assert message in str(caught.value)


async def test_a_timeout_of_one_call() -> None:
    """A timeout is checked on each path to a call."""
    async with Exec() as ex:
        ex.add(lambda: 1, "a:one")
        for wrong in ("3", True, math.nan, 0, [3]):
            for call in (ex.run_tool("a:one", timeout=wrong), anext(ex.stream_tool("a:one", timeout=wrong))):
                with pytest.raises(ToolExecError, match="timeout"):
                    await call
        with pytest.raises(InvalidChainError, match="timeout must be a number or None"):
            await ex.run_chain([{"tool": "a:one", "timeout": "3"}])


def _types(cls: type) -> dict[str, Any]:
    """Return the types of the fields, those that their module imports on first use among them."""
    module = importlib.import_module(cls.__module__)
    return get_type_hints(cls, vars(module) | {name: getattr(module, name) for name in dir(module)})


@pytest.mark.parametrize(
    ("typed", "cls", "beside"),
    [
        (ExecSettings, Options, set[str]()),
        (WasmSettings, WasmConfig, set[str]()),
        (MCPSettings, MCPServer, {"name", "command", "args", "url"}),
        (
            CodeSettings,
            ExecuteRequest,
            {"code", "gateway", "output", "origin", "names", "note", "-max_tool_calls", "-unsafe_opt_in"},
        ),
    ],
)
def test_what_type_checkers_see_is_what_is_checked(typed: type, cls: type, beside: set[str]) -> None:
    """The TypedDict of each class has its fields, with the same types."""
    shown = _types(typed)
    real = {name: kind for name, kind in _types(cls).items() if name not in beside}
    extra = {name.removeprefix("-") for name in beside if name.startswith("-")}
    assert {name: kind for name, kind in shown.items() if name not in extra} == {
        name: kind for name, kind in real.items() if name in {part.name for part in dataclasses.fields(cls)}
    }


def test_every_public_dataclass_of_settings_is_checked() -> None:
    """A class whose name says that it holds settings has a guard."""
    ends = ("Config", "Settings", "Options", "Params", "Limits")
    found = {
        cls
        for info in pkgutil.walk_packages(toolexec.__path__, "toolexec.")
        if not info.name.startswith((*OPTIONAL, "toolexec.cli", "toolexec.config")) and "__main__" not in info.name
        for cls in vars(importlib.import_module(info.name)).values()
        if isinstance(cls, type) and str(cls.__module__).startswith("toolexec") and dataclasses.is_dataclass(cls)
        and cls.__name__.endswith(ends) and not cls.__name__.startswith("_")
    }  # fmt: skip
    inside = {"GuestSettings", "InstanceSettings"}
    assert {cls.__name__ for cls in found - CHECKED} == inside


def test_no_public_settings_are_any() -> None:
    """No public method of an Exec takes `**settings: Any`, which would hide misspelt options from type checkers."""
    for cls in (Exec, type(Exec().sync)):
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            for part in inspect.signature(method).parameters.values():
                if part.kind is part.VAR_KEYWORD and not name.startswith("_"):
                    assert "Unpack[" in str(part.annotation), f"{cls.__name__}.{name}"
    assert typing.is_typeddict(ExecSettings)
    with pytest.raises(InvalidToolError):
        tool(3)  # type: ignore[call-overload]

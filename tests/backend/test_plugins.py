"""Plugins of other distributions: kinds of providers and sandboxes, loaded when they are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.distributions import install, run

PLUGIN = """
    from collections.abc import Mapping

    from toolexec import Tool
    from toolexec.provider import Definition, ProvidedTool
    from toolexec.errors import ConfigurationError
    from toolexec.runtime.plugin import SandboxPlugin
    from toolexec.runtime.wasm import WasmBackend, WasmConfig

    print("imported")


    class Fortune:
        kind = "fortune"

        def __init__(self, say):
            self.say = say

        async def load(self):
            async def call(call):
                return self.say

            tool = Tool(name="say", namespace="fortune", input_schema={"type": "object"})
            return Definition(tools=[ProvidedTool(tool, call)])

        async def aclose(self):
            pass

        def info(self):
            return {}


    def make(name, settings, *, secrets=None):
        if settings.get("fail"):
            raise RuntimeError("it failed")
        return Fortune(settings["say"]) if "say" in settings else object()


    class Sandbox(WasmBackend):
        kind = "cell"


    def plugin(make, **fields):
        given = {"kind": "cell", "api": 1, "settings": WasmConfig, "profiles": {"standard": 15}, **fields}
        return SandboxPlugin(make=make, **given)


    cell = plugin(lambda settings, context: Sandbox(settings))
    odd = plugin(lambda settings, context: 3, kind="odd")


    number = 3
"""
ENTRIES = """
    [toolexec.backends]
    fortune = fortune_plugin:make
    broken = fortune_plugin:no_such_name
    missing = no_such_module:make
    number = fortune_plugin:number
    command = no_such_module:make

    [toolexec.sandboxes]
    cell = fortune_plugin:cell
    odd = fortune_plugin:odd
    ruined = no_such_module:make
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory with the plugin."""
    install(tmp_path, "fortune-plugin", ENTRIES, {"fortune_plugin": PLUGIN})
    return tmp_path


def test_a_kind_of_provider_is_loaded_when_it_is_named(installed: Path) -> None:
    """Naming it imports it, and nothing else does; then it is as good as one of our own."""
    program = """
        import asyncio
        from toolexec import Exec
        from toolexec.provider import SourceBackend
        from toolexec.backend.providers.kinds import provider_kinds, source_of

        print({"fortune", "broken", "command"} <= {*provider_kinds()})
        print("fortune_plugin" in __import__("sys").modules)

        async def main():
            async with Exec() as ex:
                await ex.add_backends(SourceBackend("f", source_of("fortune", "f", {"say": "rain"})))
                print((await ex.run_tool("fortune:say")).value)

        asyncio.run(main())
        """
    assert run(installed, program) == ["True", "False", "imported", "rain"]


def test_a_broken_plugin_is_named_and_harms_no_other(installed: Path) -> None:
    """Its failure is the error of those who ask for it; a kind of our own cannot be replaced."""
    program = """
        from toolexec.backend.providers.kinds import source_of
        from toolexec.errors import ConfigurationError

        for kind, settings in [("broken", {}), ("missing", {}), ("number", {}), ("fortune", {"fail": 1}),
                               ("fortune", {}), ("fortun", {})]:
            try:
                source_of(kind, "x", settings)
            except ConfigurationError as error:
                print(error)
        print(type(source_of("command", "x", {"tools": {}})).__name__)
        """
    lines = run(installed, program)
    assert lines[0] == "imported"
    assert "the plugin 'broken' of fortune-plugin 1.0 (fortune_plugin:no_such_name) cannot be loaded" in lines[1]
    assert "the plugin 'missing' of fortune-plugin 1.0" in lines[2]
    assert "ModuleNotFoundError" in lines[2]
    assert "must be a function, not int" in lines[3]
    assert "the plugin for fortune failed: RuntimeError: it failed" in lines[4]
    assert "made object, not a Source" in lines[5]
    assert "did you mean fortune" in lines[6]
    assert lines[7] == "CommandSource"


def test_two_distributions_with_one_name_are_refused(installed: Path) -> None:
    """The error names both, as toolexec cannot choose."""
    install(installed, "other-plugin", "[toolexec.backends]\nfortune = other:make\n")
    program = """
        from toolexec.backend.providers.kinds import source_of
        try:
            source_of("fortune", "x", {})
        except Exception as error:
            print(error)
        """
    (line,) = run(installed, program)
    assert "in several distributions: fortune-plugin 1.0, other-plugin 1.0" in line


def test_a_sandbox_is_loaded_when_it_is_named(installed: Path) -> None:
    """In the order of `use`, in a settings file, too; the default uses none of them, and a broken one is named."""
    (installed / "toolexec.toml").write_text('[sandboxes]\nuse = ["cell", "wasm"]\n')
    program = """
        import asyncio
        from pathlib import Path

        from toolexec import Exec
        from toolexec.config.load import load_settings
        from toolexec.config.parts import sandbox_settings
        from toolexec.errors import ConfigurationError
        from toolexec.runtime.sandboxes import SandboxSettings, make_runtime

        print([backend.kind for backend in make_runtime().backends if backend.kind == "cell"])
        print([backend.kind for backend in make_runtime(SandboxSettings(use=("cell", "wasm"))).backends])
        for kind in ("ruined", "odd", "cel"):
            try:
                make_runtime(SandboxSettings(use=(kind,)))
            except ConfigurationError as error:
                print(error)

        async def main():
            async with Exec(runtime_backends=SandboxSettings(use=("cell",))) as ex:
                result = await ex.execute_code("return 6 * 7")
                print(result.value)

        asyncio.run(main())
        settings = load_settings([Path(sys.path[0], "toolexec.toml")])
        print(settings.settings.sandboxes.use)
        print([backend.kind for backend in make_runtime(sandbox_settings(settings)).backends])
        """
    lines = run(installed, program)
    assert lines[7:] == ["('cell', 'wasm')", "['cell', 'wasm']"]
    assert lines[:3] == ["[]", "imported", "['cell', 'wasm']"]
    assert "the plugin 'ruined' of fortune-plugin 1.0 (no_such_module:make) cannot be loaded" in lines[3]
    assert "the plugin for the sandbox odd made int, which is not a sandbox of that kind" in lines[4]
    assert "did you mean cell" in lines[5]
    assert lines[6] == "42"

"""Sandboxes of other distributions: what is wrong with one is named, and the others work."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.distributions import install, run

HEAD = """
    import asyncio
    from dataclasses import dataclass, replace

    from toolexec.model.settings import checked
    from toolexec.runtime.plugin import DoctorAdvice, SandboxPlugin
    from toolexec.runtime.wasm import WasmBackend, WasmConfig


    def plugin(kind, backend=WasmBackend, **fields):
        class Backend(backend):
            def __init__(self):
                super().__init__()
                self.kind = kind

        given = {"api": 1, "settings": WasmConfig, "profiles": {"standard": 15}, **fields}
        return SandboxPlugin(kind=kind, make=lambda settings, context: Backend(), **given)
"""
GOOD = """
    import sys
    from dataclasses import dataclass

    from toolexec.model.settings import checked
    from toolexec.runtime.plugin import DoctorAdvice, DoctorPackage, SandboxPlugin
    from toolexec.runtime.wasm import WasmBackend


    @checked("CellSettings")
    @dataclass(frozen=True, kw_only=True)
    class CellSettings:
        level: int = 1
        token: str = ""
        warm: int = 0


    class Cell(WasmBackend):
        kind = "cell"

        def __init__(self, settings):
            super().__init__()
            print("settings", settings.level, settings.warm)


    def commands():
        import typer

        app = typer.Typer(help="Looks after cells.")

        @app.command()
        def ping() -> None:
            "Say that it is there."
            print("pong")

        @app.command()
        def pong() -> None:
            "Say that it is there."

        return app


    PLUGIN = SandboxPlugin(
        kind="cell",
        api=1,
        settings=CellSettings,
        make=lambda settings, context: Cell(settings),
        profiles={"standard": 15},
        doctor=DoctorAdvice(packages=(DoctorPackage(name="no-such-cell", purpose="cells", install="cell[all]"),)),
        cli=commands,
    )
"""
LOOK = """
import asyncio

from toolexec import Exec
from toolexec.errors import ConfigurationError
from toolexec.runtime.doctor import examine
from toolexec.runtime.sandboxes import SandboxSettings, make_runtime


async def main():
    async with make_runtime(SandboxSettings(use=("wasm",))) as runtime:
        for finding in await examine(runtime, measure=False):
            if finding.kind == {kind!r}:
                print(finding.state, finding.reason, [*finding.to_dict().values()][-1], sep=" | ")
    try:
        make_runtime(SandboxSettings(use=({kind!r}, "wasm")))
    except ConfigurationError as error:
        print(error)
    async with Exec(runtime_backends=SandboxSettings(use=("wasm",))) as ex:
        print((await ex.execute_code("return 6 * 7")).value)


asyncio.run(main())
"""


def looked_at(path: Path, kind: str) -> list[str]:
    """The lines that a doctor, a runtime with this kind and a program in another sandbox give."""
    return run(path, LOOK.replace("{kind!r}", repr(kind)))


BROKEN = {
    "another_api": ('PLUGIN = plugin("cell", api=2)', "is written for the plugin API 2, and this toolexec has 1"),
    "an_older_api": ('PLUGIN = plugin("cell", api=0)', "update the plugin"),
    "a_function": ("PLUGIN = plugin", "must be a SandboxPlugin, not function"),
    "another_kind": ('PLUGIN = plugin("sell")', "is one of the kind 'sell'; both names must be the same"),
    "no_profile": ('PLUGIN = plugin("cell", profiles={"safe": 1})', "cannot serve the profile 'safe'"),
    "import_error": ("from toolexec.runtime import NoSuchName", "ImportError"),
    "raises": ('raise RuntimeError("out of order")', "RuntimeError: out of order"),
    "exits": ("raise SystemExit(3)", "SystemExit"),
}

FULL = ("an_older_api", "no_profile", "import_error", "exits")
"""What is like another one of them."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * (name in FULL)) for name in BROKEN])
def test_a_plugin_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    """The doctor shows it with its distribution and why, naming it is an error with the same, and the rest works."""
    text, reason = BROKEN[name]
    module = f"{HEAD}\n    {text}\n"
    install(tmp_path, "cell-plugin", "[toolexec.sandboxes]\ncell = cell_plugin:PLUGIN\n", {"cell_plugin": module})
    found, error, value = looked_at(tmp_path, "cell")
    assert found.startswith("failed | the plugin 'cell' of cell-plugin 1.0 (cell_plugin:PLUGIN)")
    assert found.endswith("| update it, or uninstall it")
    assert reason in found
    assert reason in error
    assert "cell-plugin 1.0" in error
    assert value == "42"


def test_two_plugins_of_one_kind_are_refused(tmp_path: Path) -> None:
    """Both distributions are named, as toolexec cannot choose."""
    module = f'{HEAD}\n    PLUGIN = plugin("cell")\n'
    install(tmp_path, "cell-plugin", "[toolexec.sandboxes]\ncell = cell_plugin:PLUGIN\n", {"cell_plugin": module})
    install(tmp_path, "other-plugin", "[toolexec.sandboxes]\ncell = other_plugin:PLUGIN\n")
    found, error, value = looked_at(tmp_path, "cell")
    assert "in several distributions: cell-plugin 1.0, other-plugin 1.0; uninstall one" in found
    assert found.startswith("failed")
    assert "in several distributions: cell-plugin 1.0, other-plugin 1.0" in error
    assert value == "42"


def test_a_kind_of_toolexec_cannot_be_replaced(tmp_path: Path) -> None:
    """The plugin is never imported, and the doctor says so."""
    install(tmp_path, "wasm-plugin", "[toolexec.sandboxes]\nwasm = wasm_plugin:PLUGIN\n", {"wasm_plugin": "print(1)"})
    found, value = [line for line in looked_at(tmp_path, "wasm") if "ready" not in line and "unavailable" not in line]
    assert found == "failed | wasm-plugin 1.0 has a plugin for it, which is not used: it is one of ours | uninstall it"
    assert value == "42"


HUNG = f"""
{HEAD}

    class Hung(WasmBackend):
        async def check_language(self, language):
            await asyncio.Event().wait()


    PLUGIN = plugin("cell", Hung, doctor=DoctorAdvice(patience=0.2))
"""


def test_a_check_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """A program goes to the next sandbox when its time for the check is over, and the doctor goes on to the next."""
    install(tmp_path, "cell-plugin", "[toolexec.sandboxes]\ncell = cell_plugin:PLUGIN\n", {"cell_plugin": HUNG})
    program = """
        import asyncio

        from toolexec import Exec
        from toolexec.runtime.doctor import examine
        from toolexec.runtime.sandboxes import SandboxSettings, make_runtime


        async def main():
            settings = SandboxSettings(use=("cell", "wasm"))
            async with make_runtime(settings) as runtime:
                for finding in await examine(runtime, measure=False):
                    if finding.language == "python":
                        print(finding.kind, finding.state, finding.reason)
            async with Exec(runtime_backends=settings) as ex:
                result = await ex.execute_code("return 6 * 7", timeout=1)
                print(result.value, result.backend.kind)


        asyncio.run(main())
        """
    assert run(tmp_path, program) == [
        "cell unavailable its check did not end within 0.2 s",
        "wasm ready ",
        "42 wasm",
    ]


def test_a_check_that_raises_is_a_reason(tmp_path: Path) -> None:
    """The next sandbox is taken, as for any that is not available."""
    module = HUNG.replace("await asyncio.Event().wait()", 'raise OSError("no cells left")')
    install(tmp_path, "cell-plugin", "[toolexec.sandboxes]\ncell = cell_plugin:PLUGIN\n", {"cell_plugin": module})
    program = """
        import asyncio, logging

        from toolexec import Exec
        from toolexec.runtime.sandboxes import SandboxSettings

        logging.disable()


        async def main():
            async with Exec(runtime_backends=SandboxSettings(use=("cell", "wasm"))) as ex:
                print((await ex.execute_code("return 6 * 7")).backend.kind)
            async with Exec(runtime_backends=SandboxSettings(use=("cell",))) as ex:
                try:
                    await ex.execute_code("return 6 * 7")
                except Exception as error:
                    print(type(error).__name__, error)


        asyncio.run(main())
        """
    first, second = run(tmp_path, program)
    assert first == "wasm"
    assert second.startswith("SandboxUnavailableError")
    assert "OSError: no cells left" in second


LIAR = f"""
{HEAD}

    class Liar(WasmBackend):
        async def execute(self, request):
            if request.limits.disk_bytes:  # what it claims to bound
                request = replace(request, code="return 1", limits=replace(request.limits, disk_bytes=0))
            return await super().execute(request)


    PLUGIN = plugin("cell", Liar)
"""


@pytest.mark.full
def test_a_limit_that_is_claimed_and_does_not_hold_is_found(tmp_path: Path) -> None:
    """The doctor calls it beta and says which limit, results from then on say beta, too, and the suite fails."""
    install(tmp_path, "cell-plugin", "[toolexec.sandboxes]\ncell = cell_plugin:PLUGIN\n", {"cell_plugin": LIAR})
    program = """
        import asyncio
        from contextlib import asynccontextmanager

        from toolexec.runtime.doctor import examine
        from toolexec.runtime.sandboxes import SandboxSettings, make_runtime
        from toolexec.testing.sandbox_suite import run_sandbox_check

        settings = SandboxSettings(use=("cell",))


        @asynccontextmanager
        async def made():
            async with make_runtime(settings) as runtime:
                yield runtime.backends[0]


        async def main():
            async with make_runtime(settings) as runtime:
                finding = next(each for each in await examine(runtime) if each.language == "python")
                print(finding.state, finding.measurement.readiness, *finding.measurement.reasons, sep=" | ")
            try:
                await run_sandbox_check(made, "claimed_limits_are_real")
            except AssertionError as error:
                print(error)


        asyncio.run(main())
        """
    doctor, suite = run(tmp_path, program)
    assert doctor.startswith("ready | beta | the limit on disk is not enforced here")
    assert "it says that it enforces the limit on disk, and a program that went over it went on" in doctor
    assert suite.startswith("disk is said to be limited, but a program got past it")


def test_a_plugin_has_settings_of_its_own(tmp_path: Path) -> None:
    """Those of a file are checked by its class; fields that all sandboxes have come from there."""
    install(tmp_path, "cell-plugin", "[toolexec.sandboxes]\ncell = cell_plugin:PLUGIN\n", {"cell_plugin": GOOD})
    file = tmp_path / "toolexec.toml"
    file.write_text('[sandboxes]\nuse = ["cell"]\nwarm = 2\n[[sandboxes.plugins]]\nkind = "cell"\nlevel = 3\n')
    program = """
        from pathlib import Path

        from toolexec.config.load import load_settings
        from toolexec.config.parts import sandbox_settings
        from toolexec.errors import ConfigurationError
        from toolexec.runtime.sandboxes import SandboxSettings, make_runtime

        file = Path(sys.path[0], "toolexec.toml")
        runtime = make_runtime(sandbox_settings(load_settings([file])))
        print({profile: len(runtime.candidates(profile)) for profile in ("dev", "standard", "hardened")})
        wrong = [{"cell": {"levle": 3}}, {"cell": {"level": "hunter2"}}, {"docker": {}}, {"cel": {}}]
        for plugins in wrong:
            try:
                make_runtime(SandboxSettings(use=("cell",), plugins=plugins))
            except ConfigurationError as error:
                print(error)
        for text in ('level = 3', 'kind = "cell"\\n[[sandboxes.plugins]]\\nkind = "cell"'):
            file.write_text(f"[[sandboxes.plugins]]\\n{text}\\n")
            try:
                sandbox_settings(load_settings([file]))
            except ConfigurationError as error:
                print(error)
        """
    lines = run(tmp_path, program)
    assert lines[:2] == ["settings 3 2", "{'dev': 0, 'standard': 1, 'hardened': 0}"]
    for line, words in zip(
        lines[2:],
        ("did you mean level", "level", "names of their own", "did you mean cell", "needs the kind", "two tables"),
        strict=True,
    ):
        assert words in line


@pytest.mark.full
def test_a_plugin_has_a_row_and_commands(tmp_path: Path) -> None:
    """`toolexec doctor` shows what it needs, and `toolexec sandbox` has the commands that it brings."""
    install(tmp_path, "cell-plugin", "[toolexec.sandboxes]\ncell = cell_plugin:PLUGIN\n", {"cell_plugin": GOOD})
    program = """
        import contextlib, io
        from toolexec.cli.app import main

        for line in ("sandbox cell ping", "sandbox --help", "sandbox sell", "sandbox list --json", "doctor --quick"):
            sys.argv = ["toolexec", *line.split()]
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
                try:
                    main()
                except SystemExit as end:
                    print("ended", end.code or 0)
            print(out.getvalue(), file=sys.__stdout__)
        """
    text = "\n".join(run(tmp_path, program))
    assert "pong" in text
    assert "Looks after cells." in text
    assert "No such command 'sell'" in text
    assert "name it in use of [sandboxes]" in text

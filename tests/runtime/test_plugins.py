"""Sandboxes of other distributions: what is wrong with one is named, and the others work."""

from __future__ import annotations

import json
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
import json
import sys

from toolexec import Exec
from toolexec.errors import ConfigurationError
from toolexec.runtime.doctor import examine
from toolexec.runtime.sandboxes import SandboxSettings, make_runtime

seen = {kind: [] for kind in KINDS}


async def main():
    async with make_runtime(SandboxSettings(use=("wasm",))) as runtime:
        for finding in await examine(runtime, measure=False):
            if finding.kind in seen:
                seen[finding.kind].append(" | ".join([finding.state, finding.reason, str([*finding.to_dict().values()][-1])]))
    for kind, said in seen.items():
        try:
            make_runtime(SandboxSettings(use=(kind, "wasm")))
        except ConfigurationError as error:
            said.append(str(error))
    async with Exec(runtime_backends=SandboxSettings(use=("wasm",))) as ex:
        value = (await ex.execute_code("return 6 * 7")).value
    print(json.dumps({kind: [*said, str(value)] for kind, said in seen.items()}))


asyncio.run(main())
"""


def looked_at(path: Path, *kinds: str) -> dict[str, list[str]]:
    """What a doctor, a runtime with each kind and a program in another sandbox give, by kind, in one process."""
    (line,) = run(path, LOOK.replace("KINDS", repr(kinds)))
    return json.loads(line)


BROKEN = {
    "another_api": (
        'PLUGIN = plugin("another_api", api=2)',
        "is written for the plugin API 2, and this toolexec has 1",
    ),
    "an_older_api": ('PLUGIN = plugin("an_older_api", api=0)', "update the plugin"),
    "a_function": ("PLUGIN = plugin", "must be a SandboxPlugin, not function"),
    "another_kind": ('PLUGIN = plugin("sell")', "is one of the kind 'sell'; both names must be the same"),
    "no_profile": ('PLUGIN = plugin("no_profile", profiles={"safe": 1})', "cannot serve the profile 'safe'"),
    "import_error": ("from toolexec.runtime import NoSuchName", "ImportError"),
    "raises": ('raise RuntimeError("out of order")', "RuntimeError: out of order"),
    "exits": ("raise SystemExit(3)", "SystemExit"),
}
"""Modules with a plugin that cannot be used, by the kind that they are installed as, each with the reason."""


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What is said where all plugins of `BROKEN` are, and two of the kind `twice`: the start of a process is dear."""
    directory = tmp_path_factory.mktemp("broken")
    twice = f'{HEAD}\n    PLUGIN = plugin("twice")\n'
    for kind, module in {
        **{kind: f"{HEAD}\n    {text}\n" for kind, (text, _) in BROKEN.items()},
        "twice": twice,
    }.items():
        entry = f"[toolexec.sandboxes]\n{kind} = {kind}_plugin:PLUGIN\n"
        install(directory, f"{kind}-plugin", entry, {f"{kind}_plugin": module})
    install(directory, "other-plugin", "[toolexec.sandboxes]\ntwice = other_plugin:PLUGIN\n")
    return looked_at(directory, *BROKEN, "twice")


@pytest.mark.parametrize("kind", BROKEN)
def test_a_plugin_that_cannot_be_used_is_named(looks: dict[str, list[str]], kind: str) -> None:
    """The doctor shows it with its distribution and why, naming it is an error with the same, and the rest works."""
    reason = BROKEN[kind][1]
    found, error, value = looks[kind]
    assert found.startswith(f"failed | the plugin '{kind}' of {kind}-plugin 1.0 ({kind}_plugin:PLUGIN)")
    assert found.endswith("| update it, or uninstall it")
    assert reason in found
    assert reason in error
    assert f"{kind}-plugin 1.0" in error
    assert value == "42"


def test_two_plugins_of_one_kind_are_refused(looks: dict[str, list[str]]) -> None:
    """Both distributions are named, as toolexec cannot choose."""
    found, error, value = looks["twice"]
    assert "in several distributions: other-plugin 1.0, twice-plugin 1.0; uninstall one" in found
    assert found.startswith("failed")
    assert "in several distributions: other-plugin 1.0, twice-plugin 1.0" in error
    assert value == "42"


def test_a_kind_of_toolexec_cannot_be_replaced(tmp_path: Path) -> None:
    """The plugin is never imported, and the doctor says so."""
    install(tmp_path, "wasm-plugin", "[toolexec.sandboxes]\nwasm = wasm_plugin:PLUGIN\n", {"wasm_plugin": "print(1)"})
    lines = looked_at(tmp_path, "wasm")["wasm"]
    found, value = [line for line in lines if "ready" not in line and "unavailable" not in line]
    assert found == "failed | wasm-plugin 1.0 has a plugin for it, which is not used: it is one of ours | uninstall it"
    assert value == "42"


UNWELL = f"""
{HEAD}

    class Hung(WasmBackend):
        async def check_language(self, language):
            await asyncio.Event().wait()


    class Failing(WasmBackend):
        async def check_language(self, language):
            raise OSError("no cells left")


    HUNG = plugin("hung", Hung, doctor=DoctorAdvice(patience=0.2))
    FAILING = plugin("failing", Failing)
"""
CHECKED = """
    import asyncio
    import json
    import logging

    from toolexec import Exec
    from toolexec.runtime.doctor import examine
    from toolexec.runtime.sandboxes import SandboxSettings, make_runtime

    logging.disable()


    async def hung():
        settings = SandboxSettings(use=("hung", "wasm"))
        async with make_runtime(settings) as runtime:
            for finding in await examine(runtime, measure=False):
                if finding.language == "python" and finding.kind in ("hung", "wasm"):
                    yield f"{finding.kind} {finding.state} {finding.reason}"
        async with Exec(runtime_backends=settings) as ex:
            result = await ex.execute_code("return 6 * 7", timeout=1)
            yield f"{result.value} {result.backend.kind}"


    async def failing():
        async with Exec(runtime_backends=SandboxSettings(use=("failing", "wasm"))) as ex:
            yield (await ex.execute_code("return 6 * 7")).backend.kind
        async with Exec(runtime_backends=SandboxSettings(use=("failing",))) as ex:
            try:
                await ex.execute_code("return 6 * 7")
            except Exception as error:
                yield f"{type(error).__name__} {error}"


    async def main():
        print(json.dumps({"hung": [each async for each in hung()], "failing": [each async for each in failing()]}))


    asyncio.run(main())
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What comes of sandboxes whose check does not end well, by kind."""
    directory = tmp_path_factory.mktemp("unwell")
    entries = "[toolexec.sandboxes]\nhung = unwell_plugin:HUNG\nfailing = unwell_plugin:FAILING\n"
    install(directory, "unwell-plugin", entries, {"unwell_plugin": UNWELL})
    (line,) = run(directory, CHECKED)
    return json.loads(line)


def test_a_check_that_hangs_holds_up_no_other(checked: dict[str, list[str]]) -> None:
    """A program goes to the next sandbox when its time for the check is over, and the doctor goes on to the next."""
    assert checked["hung"] == [
        "hung unavailable its check did not end within 0.2 s",
        "wasm ready ",
        "42 wasm",
    ]


def test_a_check_that_raises_is_a_reason(checked: dict[str, list[str]]) -> None:
    """The next sandbox is taken, as for any that is not available."""
    first, second = checked["failing"]
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

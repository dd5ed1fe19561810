"""docs/extending.md: its plugins are short, and work from outside as distributions of their own."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.distributions import install, run

import toolexec.containers
import toolexec.journal
import toolexec.machines
import toolexec.provider
import toolexec.remote
import toolexec.sandbox
import toolexec.state

CONSTANTS = ("PLUGIN_API", "JOURNAL_API", "NOBODY", "OWNER_LABEL", "PROCESSES", "GREETING", "TOOK", "SETTLE_QUESTION")
GUIDE = (Path(__file__).parent.parent / "docs/extending.md").read_text()
PLUGINS = dict(re.findall(r"<!-- file: (\w+)\.py -->\n```python\n(.*?)```", GUIDE, re.DOTALL))
ENTRIES = "\n".join(re.findall(r"```toml\n\[project\.entry-points\.(.*?)```", GUIDE, re.DOTALL))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory with both plugins as one distribution, whose entry points are those of the guide."""
    entries = re.sub(r'^"(toolexec\.\w+)"\]', r"[\1]", ENTRIES, flags=re.MULTILINE)
    install(tmp_path, "our-plugins", entries.replace('"', ""), PLUGINS)
    return tmp_path


@pytest.mark.parametrize("name", ["cell_plugin", "fortune_plugin"])
def test_a_plugin_is_short(name: str) -> None:
    """A sandbox and a provider have 60 lines at most, and need nothing of toolexec that is not documented there."""
    text = PLUGINS[name]
    assert len(text.splitlines()) <= 60
    used = {*re.findall(r"^from (toolexec[\w.]*) import", text, re.MULTILINE)}
    assert used <= {"toolexec", "toolexec.sandbox", "toolexec.errors", "toolexec.provider"}


@pytest.mark.parametrize(
    "module",
    [
        toolexec.sandbox,
        toolexec.containers,
        toolexec.machines,
        toolexec.remote,
        toolexec.provider,
        toolexec.journal,
        toolexec.state,
    ],
)
def test_every_name_is_explained(module: ModuleType) -> None:
    """The guide has a row for each name, each is there, and each says what it is."""
    table = GUIDE.partition(f"## The names of {module.__name__}\n")[2].partition("## ")[0]
    listed = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert listed == {*module.__all__}
    for name in module.__all__:
        found = getattr(module, name)
        is_type = not (inspect.isclass(found) or inspect.isroutine(found))
        assert is_type or name in CONSTANTS or len(found.__doc__ or "") > 20, name


def test_they_work_once_they_are_installed(installed: Path) -> None:
    """Settings name them, and nothing else does; a sandbox that isolates nothing needs the opt-in."""
    (installed / "toolexec.toml").write_text(
        '[sandboxes]\nuse = ["cell"]\n[[sandboxes.plugins]]\nkind = "cell"\nmax_running = 4\n'
    )
    program = """
        import asyncio
        from pathlib import Path

        from toolexec import Exec
        from toolexec.provider import SourceBackend
        from toolexec.backend.providers.kinds import source_of
        from toolexec.config.load import load_settings
        from toolexec.config.parts import sandbox_settings


        async def main():
            settings = sandbox_settings(load_settings([Path(sys.path[0], "toolexec.toml")]))
            async with Exec(runtime_backends=settings) as ex:
                await ex.add_backends(SourceBackend("wise", source_of("fortune", "wise", {"lines": ["Measure."]})))
                code = "return tools.wise.say(number=0)"
                print((await ex.execute_code(code, profile="dev", unsafe_opt_in=True)).value)
                for profile in ("dev", "standard"):
                    try:
                        await ex.execute_code(code, profile=profile)
                    except Exception as error:
                        print(type(error).__name__, error)
                print(ex.runtime.backends[0].settings.max_running)


        asyncio.run(main())
        """
    value, without, standard, size = run(installed, program)
    assert value == "Measure."
    assert without.startswith("SandboxDeniedError")
    assert "needs an opt-in" in without
    assert standard.startswith("SandboxUnavailableError")
    assert size == "4"


@pytest.mark.full
def test_the_sandbox_keeps_the_contract(installed: Path) -> None:
    """The installed sandbox passes every check of the shared suite."""
    program = """
        import asyncio
        from contextlib import asynccontextmanager

        from toolexec.runtime.sandboxes import SandboxSettings, make_sandbox
        from toolexec.testing import check_sandbox


        @asynccontextmanager
        async def fresh():
            backend = make_sandbox("cell", SandboxSettings(use=("cell",)))
            try:
                yield backend
            finally:
                await backend.aclose()


        asyncio.run(check_sandbox(fresh))
        print("kept")
        """
    assert run(installed, program) == ["kept"]

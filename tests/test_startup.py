"""What the start of a program may import: whoever pays for a module at each start has to need it then."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from tests import exports

import toolexec

ROOT = Path(toolexec.__file__).parent
FRONT = {
    "toolexec",
    "toolexec.exec",
    "toolexec.exec.facade",
    "toolexec.exec.resource_access",
    "toolexec.exec.tool_finding",
    "toolexec.exec.tool_sources",
    "toolexec.exec.vendor_messages",
    "toolexec.lazy",
    "toolexec.model",
    "toolexec.model.bound",
    "toolexec.model.call",
    "toolexec.model.declared",
    "toolexec.model.json_forms",
    "toolexec.model.json_value",
    "toolexec.model.origin",
    "toolexec.model.secret_keys",
    "toolexec.model.settings",
    "toolexec.model.tree_size",
    "toolexec.version",
}
"""All that `from toolexec import Exec` loads, beside `toolexec.errors`."""

CALL = """
import asyncio
from toolexec import Exec
ex = Exec()
ex.add(lambda a, b: a + b, "math:add")
assert asyncio.run(ex.run_tool("math:add", {"a": 5, "b": 3})).value == 8
"""
NOT_FOR_A_CALL = (
    "hashlib",
    "pydantic.fields",
    "pydantic.types",
    "toolexec.adapter",
    "toolexec.backend.mcp",
    "toolexec.backend.offers",
    "toolexec.backend.secrets",
    "toolexec.cli",
    "toolexec.code.executor",
    "toolexec.code.gateway",
    "toolexec.code.tools",
    "toolexec.config",
    "toolexec.discovery.bm25",
    "toolexec.discovery.docs",
    "toolexec.discovery.examples",
    "toolexec.discovery.links",
    "toolexec.discovery.toolset",
    "toolexec.exec.chain",
    "toolexec.exec.code",
    "toolexec.exec.finding",
    "toolexec.exec.vendor_calls",
    "toolexec.integrations",
    "toolexec.process.workers",
    "toolexec.run.chain",
    "toolexec.run.gate",
    "toolexec.run.settings",
    "toolexec.run.steps",
    "toolexec.runtime",
    "toolexec.server",
)
"""What an Exec with a Python function does not load for a call, each with its submodules."""

SEARCH = """
import asyncio
from toolexec import Exec, InMemoryIndex, LocalBinding, Tool
index = InMemoryIndex()
index.register(Tool(name="add", namespace="m", input_schema={"type": "object"}), LocalBinding("m:add"))
assert asyncio.run(Exec(index=index).search_tools("adding"))
"""

RUN = """
import asyncio
from toolexec import Exec
async def main():
    async with Exec() as ex:
        ex.add(lambda a, b: a + b, "math:add")
        assert (await ex.execute_code("tools.math.add(a=5, b=3)")).value == 8
asyncio.run(main())
"""
NOT_FOR_A_PROGRAM = (
    "toolexec.code.repair.advice",
    "toolexec.code.repair.arguments",
    "toolexec.code.repair.javascript_reads",
    "toolexec.code.repair.python_reads",
    "toolexec.code.repair.results",
    "toolexec.runtime.containers.backend",
    "toolexec.runtime.containers.bubblewrap.engine",
    "toolexec.runtime.containers.config",
    "toolexec.runtime.egress",
    "toolexec.runtime.images",
    "toolexec.runtime.unsafe_host.backend",
    "toolexec_containers.containerd.engine",
    "toolexec_containers.docker.engine",
    "toolexec_containers.gvisor.engine",
    "toolexec_containers.kata",
    "toolexec_kubernetes.config",
    "toolexec_kubernetes.engine",
    "toolexec_microvms.config",
    "toolexec_microvms.engine",
    "toolexec_remote.backend",
    "toolexec_remote.proxmox.backend",
)
"""What a program in the embedded sandbox, which does not fail, does not load, each with its submodules."""
TOOL_FILE = "from toolexec import tool\n\n@tool\ndef add(a: int, b: int) -> int:\n    return a + b\n"
NOT_FOR_A_COMMAND = (
    "toolexec.adapter",
    "toolexec.backend.mcp",
    "toolexec.cli.audit",
    "toolexec.cli.image",
    "toolexec.cli.serve",
    "toolexec.discovery.bm25",
    "toolexec.discovery.toolset",
    "toolexec.exec.chain",
    "toolexec.exec.code",
    "toolexec.integrations",
    "toolexec.run.gate",
    "toolexec.model.redaction",
    "toolexec.run.layers.rate_limit",
    "toolexec.run.outline",
    "toolexec.run.pinning",
    "toolexec.run.reading",
    "toolexec.run.results",
    "toolexec.server",
)
"""What `toolexec run` of a tool in a Python file does not load, each with its submodules."""
DECLARATIONS = {
    "toolexec.server",
    "toolexec.server.auth",
    "toolexec.server.auth.credentials",
    "toolexec.server.auth.settings",
    "toolexec.server.auth.sign_in_settings",
    "toolexec.server.http",
    "toolexec.server.http.replies",
    "toolexec.server.http.settings",
    "toolexec.server.settings",
}
"""What it loads of those: the modules that declare settings, and packages that load nothing by themselves."""

DOOR = """
from typing import TYPE_CHECKING
from toolexec.errors import ToolExecError as Own
from toolexec.lazy import lazy_names
if TYPE_CHECKING:
    from house.room import LIMIT, Room
    from house.sound import knock
else:
    __getattr__, __dir__ = lazy_names(__name__, {"house.room": ("Room", "Gone")})
__all__ = ["Gone", "Own", "Room"]
"""
ADVICE = "import it where it is first used, or under TYPE_CHECKING, or put it into the list in tests/test_startup.py"


def loaded_by(program: str, *args: str) -> set[str]:
    """The modules that a fresh interpreter has loaded by the program, without those that it begins with: where coverage
    is measured, they are more."""
    code = f"import sys\nbefore = {{*sys.modules}}\n{program}\nprint('loaded:', *sorted({{*sys.modules}} - before))"
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.rpartition("loaded:")[2].split())


def foreign(modules: set[str]) -> set[str]:
    """The packages among them that are neither ours nor of the standard library."""
    return {name.partition(".")[0] for name in modules if "__" not in name} - sys.stdlib_module_names - {"toolexec"}


def within(modules: set[str], packages: tuple[str, ...]) -> list[str]:
    """Those of the modules that are one of the packages, or in one."""
    return sorted(name for name in modules if any(f"{name}.".startswith(f"{package}.") for package in packages))


def test_importing_exec_loads_only_this() -> None:
    """The front door, the facade, what makes a call and what checks settings; no other package at all."""
    loaded = loaded_by("from toolexec import Exec")
    ours = {name for name in loaded if name.partition(".")[0] == "toolexec"}
    more = sorted(name for name in ours - FRONT if not name.startswith("toolexec.errors"))
    assert more == [], f"`from toolexec import Exec` loads more than it did; {ADVICE}"
    assert sorted(FRONT - ours) == [], "the list has modules that are not loaded any more; take them out"
    assert foreign(loaded) & {"pydantic", "typer", "rich", "mcp", "anyio", "wasmtime"} == set()


def test_a_call_of_a_function_loads_no_more_than_it_needs() -> None:
    """No sandbox, no server, no chain, no provider's form."""
    loaded = loaded_by(CALL)
    assert within(loaded, NOT_FOR_A_CALL) == [], f"a call of a Python function loads more than it did; {ADVICE}"
    assert foreign(loaded) & {"typer", "rich", "mcp", "anyio", "wasmtime", "jmespath"} == set()


def test_a_first_search_loads_no_more_than_it_needs() -> None:
    """The first search of a program imports the ranking, but neither pydantic nor what reads and writes snapshots, nor
    what only an event loop, a cursor or a misspelt ID needs."""
    program = """
from toolexec import InMemoryIndex, LocalBinding, Tool
index = InMemoryIndex()
index.register(Tool(name="add", namespace="m", input_schema={"type": "object"}), LocalBinding("m:add"))
assert index.search("adding")
"""
    loaded = loaded_by(program)
    assert "toolexec.discovery.ranking.ranker" in loaded
    unneeded = ("pydantic_core", "importlib.resources", "tempfile", "toolexec.discovery.ranking.snapshot")
    unneeded += ("asyncio", "difflib", "hashlib", "secrets", "ssl", "subprocess", "toolexec.process")
    assert within(loaded, unneeded) == []


def test_the_first_search_of_an_exec_loads_no_more_than_it_needs() -> None:
    """The parts of an Exec are loaded by then, but neither what declares functions, nor documentation, nor what
    chains, code, gates and offers are."""
    loaded = loaded_by(SEARCH)
    assert "toolexec.discovery.ranking.ranker" in loaded
    unneeded = tuple(
        name for name in NOT_FOR_A_CALL if name not in ("toolexec.discovery.bm25", "toolexec.exec.finding")
    )
    unneeded += ("toolexec.exec.adding", "toolexec.model.declare", "toolexec.model.signature")
    assert within(loaded, unneeded) == [], f"the first search loads more than it did; {ADVICE}"


def test_a_command_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    """`toolexec run` of a Python file."""
    path = tmp_path / "tools.py"
    path.write_text(TOOL_FILE)
    program = "from toolexec.cli.app import main\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    loaded = loaded_by(program, "run", "add", "a=1", "b=2", "--config", str(path))
    assert within(loaded - DECLARATIONS, NOT_FOR_A_COMMAND) == [], f"`toolexec run` loads more than it did; {ADVICE}"
    assert foreign(loaded) & {"mcp", "anyio", "wasmtime", "httpx", "httpx2", "starlette"} == set()
    assert loaded.isdisjoint({"tomllib", "yaml", "rich.progress"})


def test_a_program_loads_no_sandbox_but_its_own() -> None:
    """Nor advice on failures: the engines of the others are imported when one of them is needed."""
    loaded = loaded_by(RUN)
    assert "toolexec.runtime.wasm.backend" in loaded
    assert within(loaded, NOT_FOR_A_PROGRAM) == [], f"a program in the sandbox loads more than it did; {ADVICE}"
    assert foreign(loaded) & {"typer", "rich", "mcp", "anyio", "aiodocker", "aiohttp", "grpc", "httpx2"} == set()


def test_the_settings_are_known_without_a_look_at_what_is_installed() -> None:
    """Distributions are read where a plugin is named, which few settings do."""
    assert within(loaded_by("import toolexec.config.blocks"), ("importlib.metadata", "toolexec_kubernetes")) == []


@pytest.mark.parametrize("path", exports.doors(), ids=lambda path: "/".join(path.parts[-3:]))
def test_what_a_package_exports_lazily_is_written_from_its_imports(path: Path) -> None:
    """The map of names and `__all__` have what type checkers see."""
    assert exports.up_to_date(path), f"run {exports.COMMAND}"


@pytest.mark.parametrize("path", exports.doors(), ids=lambda path: "/".join(path.parts[-3:]))
def test_no_lazy_name_is_hidden_by_a_submodule(path: Path) -> None:
    """Each name is that of its module, however it is asked for."""
    package = importlib.import_module(exports.module_name(path))
    for module, names in exports.lazy_names_of(path).items():
        for name in names:
            assert getattr(package, name) is getattr(importlib.import_module(module), name)
            assert name in dir(package)


def test_exports_are_written_again(tmp_path: Path) -> None:
    """A name that is imported for type checkers, and nowhere else, is in the map and in `__all__` then."""
    path = tmp_path / "__init__.py"
    path.write_text(DOOR)
    assert not exports.up_to_date(path)
    exports.write(path)
    assert exports.up_to_date(path)
    space: dict[str, object] = {"__name__": "door"}
    exec(path.read_text(), space)
    assert space["__all__"] == ["LIMIT", "Own", "Room", "knock"]
    assert exports.lazy_names_of(path) == {"house.room": ["LIMIT", "Room"], "house.sound": ["knock"]}


def test_a_lazy_package_without_the_name() -> None:
    """It says so as any module does."""
    with pytest.raises(AttributeError, match=r"module 'toolexec\.code' has no attribute 'Engin'"):
        importlib.import_module("toolexec.code").Engin  # noqa: B018


BUILD = """
import sys, types
for name in ("hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin"):
    sys.modules[name] = types.ModuleType(name)
interface = sys.modules["hatchling.builders.hooks.plugin.interface"] = types.ModuleType("interface")
interface.BuildHookInterface = type("BuildHookInterface", (), {"__class_getitem__": classmethod(lambda cls, _: cls)})
sys.path.insert(0, sys.argv[1])
import hatch_build, importlib, pathlib
hatch_build._stand_in_for_packages(pathlib.Path(sys.argv[1]) / "src")
importlib.import_module(f"{hatch_build.PACKAGE}.component")
"""


def test_a_wheel_is_built_without_any_dependency() -> None:
    """The hook of the build imports what makes the sandbox where nothing is installed but the standard library."""
    command = [sys.executable, "-I", "-S", "-c", BUILD, str(ROOT.parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr

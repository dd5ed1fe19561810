"""The packages beside the core: each has its parts and the core's version, and neither knows the inside of the other."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.distributions import install, run
from tests.imports import Modules
from tests.test_layering import circle
from tests.workspace import ROOT, Package, packages

import toolexec
from toolexec.backend.plugins import PACKAGES

CORE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SOURCE = Path(toolexec.__file__).parent
PUBLIC = {
    "toolexec",
    "toolexec.containers",
    "toolexec.errors",
    "toolexec.journal",
    "toolexec.machines",
    "toolexec.provider",
    "toolexec.remote",
    "toolexec.sandbox",
    "toolexec.state",
    "toolexec.testing",
}
"""What a package may import of the core."""
IN_TESTS = re.compile(r"toolexec(\.\w+)?|toolexec\.testing\.\w+")
"""What its tests may import, too: what is one package deeper, and the shared suites."""
FOR_TYPES = {"exec/tool_sources.py", "exec/sync.py"}
"""The modules of the core whose methods have the settings of a package as their type; only type checkers import them."""


def _imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the modules that a file imports, each with whether only type checkers do."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node in for_types
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node in for_types) for alias in node.names)


def _of_core(path: Path) -> set[str]:
    return {name for name, _ in _imports(path) if re.match(r"toolexec(\.|$)", name)}


def test_there_are_packages() -> None:
    """The checks below have something to check."""
    assert {"containers", "grpc", "kubernetes", "microvms", "remote", "temporal", "valkey"} <= {
        package.name for package in packages()
    }


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_a_package_has_its_parts(package: Package) -> None:
    """A package has a page, tests, types, a licence, a module named after the directory, and an extra installs it."""
    project = package.settings["project"]
    assert project["name"] == package.distribution
    for part in ("README.md", "LICENSE", "tests", f"src/{package.module}/py.typed"):
        assert (package.directory / part).exists(), part
    license_file = package.directory / "LICENSE"
    assert not license_file.is_symlink()  # no archive of sources takes a link to what is outside
    assert license_file.read_text(encoding="utf-8") == (ROOT / "LICENSE").read_text(encoding="utf-8")
    targets = package.settings["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["packages"] == [f"src/{package.module}"]
    assert targets["sdist"]["include"] == ["/src", "/README.md", "/LICENSE"]
    extras = CORE["project"]["optional-dependencies"]
    own = ",".join(sorted(project.get("optional-dependencies", {})))
    wanted = f"{package.distribution}[{own}]" if own else package.distribution
    assert extras[package.name] == [f"{wanted}=={toolexec.__version__}"]
    for extra in own.split(",") if own else ():
        assert extras[extra] == [f"{package.distribution}[{extra}]=={toolexec.__version__}"]
    assert package.module in CORE["tool"]["coverage"]["run"]["source_pkgs"]
    assert f"(../packages/{package.name}/README.md)" in (ROOT / "docs/index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_versions_are_in_lock_step(package: Package) -> None:
    """A package has the core's version, and needs the core of just that version."""
    settings: Any = package.settings
    assert settings["project"]["version"] == toolexec.__version__
    assert f"toolexec=={toolexec.__version__}" in settings["project"]["dependencies"]


def test_the_table_of_packages_is_true() -> None:
    """The core's one table has the kinds that the packages' entry points have, each with its distribution."""
    found: dict[str, dict[str, str]] = {group: {} for group in PACKAGES}
    for package in packages():
        for group, kinds in package.settings["project"].get("entry-points", {}).items():
            found[group] |= dict.fromkeys(kinds, package.distribution)
    assert found == {group: {**kinds} for group, kinds in PACKAGES.items()}


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_a_package_imports_only_public_modules(package: Package) -> None:
    """A name that is needed from deeper is to be added to `toolexec.provider`, `toolexec.journal`, `toolexec.sandbox`, `toolexec.containers`, `toolexec.machines` or `toolexec.remote`."""
    deep = {str(path): _of_core(path) - PUBLIC for path in sorted(package.source.rglob("*.py"))}
    assert {path: names for path, names in deep.items() if names} == {}
    for path in sorted((package.directory / "tests").rglob("*.py")):
        assert [name for name in _of_core(path) if not IN_TESTS.fullmatch(name)] == [], path


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_a_package_has_no_circles_and_no_neighbours(package: Package) -> None:
    """The modules do not import each other, nor any other package."""
    assert circle([*Modules(package.source).imports()]) == []
    others = {other.module for other in packages()} - {package.module}
    for path in sorted(package.source.rglob("*.py")):
        assert {name.partition(".")[0] for name, _ in _imports(path)} & others == set(), path


def test_the_core_imports_no_package() -> None:
    """The entry points lead to packages: the core imports none at run time, and has none of their modules in a string."""
    modules = "|".join(package.module for package in packages())
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search(modules, text):
            continue
        name = path.relative_to(SOURCE).as_posix()
        imported = [for_types for module, for_types in _imports(path) if re.match(modules, module)]
        assert name in FOR_TYPES, f"{name} names a package"
        assert all(imported), f"{name} imports a package at run time"
        assert len(imported) == len(re.findall(modules, text)), f"{name} names a package in a string"


def test_the_core_is_built_without_packages() -> None:
    """The patterns of its source distribution begin at the root, and its wheel has one package."""
    targets = CORE["tool"]["hatch"]["build"]["targets"]
    assert [pattern for pattern in targets["sdist"]["include"] if not pattern.startswith("/")] == []
    assert targets["wheel"]["packages"] == ["src/toolexec"]


ABSENT = """
    import importlib.metadata as metadata
    every = metadata.entry_points
    beside = (
        "toolexec-containers", "toolexec-grpc", "toolexec-kubernetes", "toolexec-microvms", "toolexec-remote",
        "toolexec-temporal", "toolexec-valkey",
    )
    metadata.entry_points = lambda **wanted: [each for each in every(**wanted) if each.dist.name not in beside]
"""
"""Makes the packages as good as not installed."""


def test_what_is_missing_says_what_to_type(tmp_path: Path) -> None:
    """An absent package is named with the line that installs it, by `add_grpc` and for a file; no other distribution
    has its kind."""
    install(tmp_path, "other-plugin", "[toolexec.backends]\ngrpc = other:make\n", {"other": "print('imported')"})
    (tmp_path / "far.toml").write_text('[providers.far]\nkind = "grpc"\ntarget = "far.test:1"\n')
    program = """
    import sys
    from pathlib import Path
    from toolexec import Exec
    from toolexec.backend.providers.kinds import provider_kinds
    from toolexec.config.load import load_settings
    from toolexec.errors import MissingExtraError

    print("grpc" in provider_kinds())
    try:
        Exec().add_grpc("far", "far.test:1")
    except MissingExtraError as error:
        print(error)
    (provider,) = load_settings([Path(sys.path[0], "far.toml")]).providers.values()
    try:
        provider.backend()
    except MissingExtraError as error:
        print(error)
    """
    needed = "provider far needs the 'grpc' extra; install it with: pip install 'toolexec[grpc]'"
    assert run(tmp_path, ABSENT + program) == ["True", needed, needed]


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("raise RuntimeError('of another time')", "cannot be loaded: RuntimeError: of another time"),
        ("PLUGIN = 5", "must be a SandboxPlugin, not int"),
    ],
)
def test_a_package_that_is_broken_harms_no_other_sandbox(tmp_path: Path, module: str, reason: str) -> None:
    """Code runs in the others; the doctor, and naming its sandbox, say what is wrong."""
    install(tmp_path, "toolexec-kubernetes", "[toolexec.sandboxes]\nkubernetes = broken:PLUGIN\n", {"broken": module})
    program = """
    import asyncio
    import importlib.metadata as metadata
    every = metadata.entry_points
    metadata.entry_points = lambda **wanted: [
        each for each in every(**wanted) if each.dist.name != "toolexec-kubernetes" or each.dist.version == "1.0"
    ]

    from toolexec import Exec
    from toolexec.errors import ConfigurationError
    from toolexec.runtime.doctor import examine
    from toolexec.runtime.router import Runtime
    from toolexec.runtime.sandboxes import SandboxSettings, make_sandbox

    with Exec().sync as ex:
        print(ex.execute_code("return 6 * 7").value)
    found = {each.kind: each for each in asyncio.run(examine(Runtime(), measure=False))}["kubernetes"]
    print(found.state, found.reason)
    try:
        make_sandbox("kubernetes", SandboxSettings(use=("kubernetes",)))
    except ConfigurationError as error:
        print(error)
    """
    value, shown, refused = run(tmp_path, program)
    assert value == "42"
    assert shown.startswith("failed ")
    assert reason in shown
    assert reason in refused


def test_a_sandbox_whose_package_is_missing_says_what_to_type(tmp_path: Path) -> None:
    """Settings may name it; making it, and its commands, name the line that installs it, and so does the doctor. All
    others work without it."""
    program = """
    import asyncio
    import sys

    from toolexec.errors import MissingExtraError
    from toolexec.runtime.doctor import examine
    from toolexec.runtime.router import CANDIDATES, Runtime
    from toolexec.runtime.sandboxes import SandboxSettings, make_runtime, make_sandbox

    named = SandboxSettings(use=("kubernetes",), plugins={"kubernetes": {"namespace": "code"}})
    try:
        make_sandbox("kubernetes", named)
    except MissingExtraError as error:
        print(error)
    print("kubernetes" in [backend.kind for backend in make_runtime().backends], "kubernetes" in CANDIDATES["standard"])
    found = {each.kind: each for each in asyncio.run(examine(Runtime(), measure=False))}["kubernetes"]
    print(found.state, "pip install 'toolexec[kubernetes]'" in str(found))

    from typer.testing import CliRunner
    from toolexec.cli.app import app

    done = CliRunner().invoke(app, ["sandbox", "kubernetes", "manifest"])
    listed = CliRunner().invoke(app, ["sandbox", "--help"]).output
    print(done.exit_code, "toolexec[kubernetes]" in done.output, "kubernetes" in listed)
    """
    assert run(tmp_path, ABSENT + program) == [
        "the sandbox kubernetes needs the 'kubernetes' extra; install it with: pip install 'toolexec[kubernetes]'",
        "False False",
        "not_set_up True",
        "2 True False",
    ]


def test_engines_of_containers_whose_package_is_missing_say_what_to_type(tmp_path: Path) -> None:
    """Their keys are read as ever; naming one, and checking it, have the line that installs it. Bubblewrap is there, all
    other sandboxes work, and what an engine of a remote runtime isolates is known."""
    (tmp_path / "engines.toml").write_text('[sandboxes]\ndocker_host = "unix:///d.sock"\nrunsc = "/opt/g/runsc"\n')
    program = """
    import asyncio
    import sys
    from pathlib import Path

    from toolexec import Exec
    from toolexec.config.build import build
    from toolexec.config.load import load_settings
    from toolexec.errors import ConfigurationError, MissingExtraError
    from toolexec.runtime.doctor import examine
    from toolexec.runtime.kinds import isolations
    from toolexec.runtime.router import Runtime
    from toolexec.runtime.sandboxes import SandboxSettings, make_runtime, make_sandbox
    from typer.testing import CliRunner
    from toolexec.cli.app import app

    file = Path(sys.path[0], "engines.toml")
    settings = build(load_settings([file], environment={})).ex.options.runtime_backends
    print(settings.docker_host, settings.runsc)
    kinds = ("docker", "containerd", "gvisor", "kata")
    for kind in kinds:
        try:
            make_sandbox(kind, SandboxSettings(use=(kind,)))
        except MissingExtraError as error:
            print(error)
    try:
        SandboxSettings(plugins={"docker": {"warm": 1}})
    except ConfigurationError as error:
        print(error)
    done = CliRunner().invoke(app, ["sandbox", "check", "-c", str(file), "--backend", "docker"])
    print(done.exit_code, done.output.strip())
    found = {each.kind: each for each in asyncio.run(examine(Runtime(), measure=False))}
    print(found["docker"].state, all("pip install 'toolexec[containers]'" in str(found[kind]) for kind in kinds))
    with Exec(runtime_backends=settings).sync as ex:
        there = [backend.kind for backend in make_runtime(settings).backends]
        print(ex.execute_code("return 6 * 7").value, "bubblewrap" in there, {*there} & {*kinds})
    print(*(isolations()[kind] for kind in (*kinds, "qemu", "firecracker")))
    """
    lines = [
        f"the sandbox {kind} needs the 'containers' extra; install it with: pip install 'toolexec[containers]'"
        for kind in ("docker", "containerd", "gvisor", "kata")
    ]
    assert run(tmp_path, ABSENT + program) == [
        "unix:///d.sock /opt/g/runsc",
        *lines,
        "the sandbox docker is of toolexec: its settings have names of their own",
        f"2 error: {lines[0]}",
        "not_set_up True",
        "42 True set()",
        "container container gvisor vm vm vm",
    ]


def test_virtual_machines_whose_package_is_missing_say_what_to_type(tmp_path: Path) -> None:
    """Their keys are read as ever; naming one, and checking it, have the line that installs it. All other
    sandboxes work."""
    (tmp_path / "vm.toml").write_text('[sandboxes]\nvm_image = "team-vm"\nqemu = "/opt/q/qemu"\n')
    program = """
    import asyncio
    import sys
    from pathlib import Path

    from toolexec import Exec
    from toolexec.config.build import build
    from toolexec.config.load import load_settings
    from toolexec.errors import MissingExtraError
    from toolexec.runtime.doctor import examine
    from toolexec.runtime.router import Runtime
    from toolexec.runtime.sandboxes import SandboxSettings, make_runtime, make_sandbox
    from typer.testing import CliRunner
    from toolexec.cli.app import app

    file = Path(sys.path[0], "vm.toml")
    settings = build(load_settings([file], environment={})).ex.options.runtime_backends
    print(settings.vm_image, settings.qemu)
    for kind in ("qemu", "firecracker"):
        try:
            make_sandbox(kind, SandboxSettings(use=(kind,)))
        except MissingExtraError as error:
            print(error)
    done = CliRunner().invoke(app, ["sandbox", "check", "-c", str(file), "--backend", "qemu"])
    print(done.exit_code, done.output.strip())
    found = {each.kind: each for each in asyncio.run(examine(Runtime(), measure=False))}
    print(found["qemu"].state, *("pip install 'toolexec[microvms]'" in str(found[kind]) for kind in ("qemu", "firecracker")))
    with Exec(runtime_backends=settings).sync as ex:
        print(ex.execute_code("return 6 * 7").value, "qemu" in [backend.kind for backend in make_runtime(settings).backends])
    """
    lines = {
        kind: f"the sandbox {kind} needs the 'microvms' extra; install it with: pip install 'toolexec[microvms]'"
        for kind in ("qemu", "firecracker")
    }
    assert run(tmp_path, ABSENT + program) == [
        "team-vm /opt/q/qemu",
        *lines.values(),
        f"2 error: {lines['qemu']}",
        "not_set_up True True",
        "42 False",
    ]


def test_sandboxes_of_other_machines_whose_package_is_missing_say_what_to_type(tmp_path: Path) -> None:
    """Their settings are read as ever. Once they are set up, no code runs here in their place; and lending has its line,
    too."""
    (tmp_path / "far.toml").write_text(
        '[sandboxes.remote]\nendpoints = ["https://far.test"]\nkey_id = "k"\ntoken = "secretref:env:TOKEN"\n'
    )
    program = """
    import sys
    from pathlib import Path

    from toolexec import Exec
    from toolexec.config.build import build
    from toolexec.config.load import load_settings
    from toolexec.errors import MissingExtraError
    from toolexec.runtime.sandboxes import make_runtime
    from typer.testing import CliRunner
    from toolexec.cli.app import app

    file = Path(sys.path[0], "far.toml")
    options = build(load_settings([file], environment={})).ex.options
    print(options.runtime_backends.remote.endpoints[0])
    with Exec(runtime_backends=options.runtime_backends).sync as ex:
        try:
            ex.execute_code("return 1")
        except MissingExtraError as error:
            print(error)
    kinds = [backend.kind for backend in make_runtime().backends]
    print("wasm" in kinds, "remote" in kinds, "proxmox_lxc" in kinds)
    done = CliRunner().invoke(app, ["runtime", "serve", "-c", str(file)])
    print(done.exit_code, done.output.strip())
    print(CliRunner().invoke(app, ["runtime", "--help"]).exit_code)
    """
    line = "the sandbox remote needs the 'remote' extra; install it with: pip install 'toolexec[remote]'"
    assert run(tmp_path, ABSENT + program) == [
        "https://far.test",
        line,
        "True False False",
        f"2 error: {line}",
        "0",
    ]


def test_a_journal_whose_package_is_missing_says_what_to_type(tmp_path: Path) -> None:
    """Naming it, in Python, a file or a variable, and its commands, name the line that installs it. Runs in a file work
    without it, and so does a settings file with an empty table of it, as the template of once has."""
    (tmp_path / "far.toml").write_text('[durable.temporal]\naddress = "far.test:7233"\n')
    (tmp_path / "empty.toml").write_text("[durable.temporal]\n# address = 1\n")
    program = """
    import sys
    from pathlib import Path

    from toolexec import Exec
    from toolexec.config.build import build
    from toolexec.config.load import load_settings
    from toolexec.errors import ConfigurationError, MissingExtraError
    from toolexec.runtime.sandboxes import SandboxSettings, make_sandbox
    from typer.testing import CliRunner
    from toolexec.cli.app import app

    def add(ex):
        ex.add(lambda: 7, "shop:count")
        return ex

    def make(kind):
        return lambda: make_sandbox(kind, SandboxSettings(use=(kind,)))

    steps, here = [{"tool": "shop:count"}], Path(sys.path[0])
    with add(Exec(journal=here / "runs.db").sync) as ex:
        print(ex.run_chain(steps, durable="one").value)
    with add(Exec(journal="temporal").sync) as ex:
        print(ex.run_tool("shop:count").value)
        for work in (lambda: ex.run_chain(steps, durable="one"), make("temporal")):
            try:
                work()
            except MissingExtraError as error:
                print(error)
    for file, environment in (("far.toml", {}), ("empty.toml", {"TOOLEXEC_DURABLE__TEMPORAL__ADDRESS": "far.test:1"})):
        try:
            load_settings([here / file], environment=environment)
        except ConfigurationError as error:
            print(str(error).rpartition("/")[2])
    print(build(load_settings([here / "empty.toml"], environment={})).ex.options.journal)
    print(CliRunner().invoke(app, ["--json", "temporal", "worker"]).output.split('"code": ')[1].split(",")[0])
    done = CliRunner().invoke(app, ["temporal", "worker"])
    print(done.exit_code, done.output.strip(), "temporal" in CliRunner().invoke(app, ["--help"]).output)
    """
    line = "the 'temporal' extra; install it with: pip install 'toolexec[temporal]'"
    assert run(tmp_path, ABSENT + program) == [
        "7",
        "7",
        f"the journal temporal needs {line}",
        f"the sandbox temporal needs {line}",
        f"far.toml, line 1: the journal temporal needs {line}",
        f"TOOLEXEC_DURABLE__TEMPORAL__ADDRESS: the journal temporal needs {line}",
        "None",
        '"missing_extra"',
        f"2 error: the journal temporal needs {line} False",
    ]

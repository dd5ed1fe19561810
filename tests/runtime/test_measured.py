"""A check on this machine lets an experimental sandbox serve by itself, for as long as nothing of it changes."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from tests.distributions import install, run
from tests.engines.bubblewrap import require_bwrap

CELL = """
    import dataclasses
    import os

    from toolexec.runtime.containers.bubblewrap import BubblewrapBackend, BubblewrapConfig
    from toolexec.runtime.plugin import SandboxPlugin


    class Cell(BubblewrapBackend):
        def __init__(self, settings):
            if "CELL_OPEN" in os.environ:
                with open(os.environ["CELL_OPEN"], "w") as file:
                    file.write('{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}')
                settings = dataclasses.replace(settings, seccomp=os.environ["CELL_OPEN"])
            super().__init__(settings)
            self.kind = "cell"

        async def check(self):
            found = await super().check()
            return dataclasses.replace(found, version=found.version + os.environ.get("CELL_NEWER", ""))

        async def image_digest(self):
            return os.environ.get("CELL_IMAGE") or await super().image_digest()


    PLUGIN = SandboxPlugin(
        kind="cell",
        api=1,
        settings=BubblewrapConfig,
        make=lambda settings, context: Cell(settings),
        profiles={"standard": 5},
        isolation="container",
        experimental=True,
    )
"""
PROGRAM = """
import asyncio
import json
import os

os.environ["XDG_STATE_HOME"] = STATE
from typer.testing import CliRunner

from toolexec import Exec
from toolexec.cli.app import app
from toolexec.runtime.doctor import examine, served_profiles
from toolexec.runtime.sandboxes import SandboxSettings, make_runtime
from toolexec.testing import escapes

escapes.ESCAPES = [each for each in escapes.ESCAPES if each.name in ("environment", "vsock", "privileges")]
FILE = os.path.join(STATE, "own.toml")
os.makedirs(STATE, exist_ok=True)
open(FILE, "w").write("")


def check(*words, **env):
    done = CliRunner(env=env).invoke(app, ["sandbox", "check", "-c", FILE, "--backend", "cell", *words])
    assert done.exit_code in (0, 1), (done.output, done.exception)
    return done


async def ran(settings=None):
    "Which sandbox a program gets that names none, and what the doctor says of the cell."
    async with Exec(runtime_backends=settings or SandboxSettings()) as ex:
        kind = (await ex.execute_code("return 1")).raise_for_error().backend.kind
    async with make_runtime(settings) as runtime:
        findings = await examine(runtime, measure=False)
        found = {each.kind: each for each in findings}["cell"]
        serves = [entry.profile for entry in served_profiles(runtime, findings) if "cell" in entry.kinds.values()]
    return {"kind": kind, "state": found.state, "reason": found.reason, "checked": found.experimental, "serves": serves}


def look(settings=None, **env):
    os.environ.update(env)
    try:
        return asyncio.run(ran(settings))
    finally:
        for name in env:
            del os.environ[name]
"""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What becomes of the cell, a real bubblewrap, from scene to scene, in a process that has it installed."""
    require_bwrap()
    path = tmp_path_factory.mktemp("cell")
    install(path, "cell", "[toolexec.sandboxes]\ncell = cell:PLUGIN\n", {"cell": CELL})
    program = f"""STATE = {str(path / "state")!r}
{PROGRAM}
scenes = {{"unchecked": look()}}
check("--only", "vsock")
scenes["a part checked"] = look()
done = check()
scenes["said"] = done.stdout
scenes["checked"] = look()
records = os.path.join(STATE, "toolexec", "sandboxes")
scenes["modes"] = [oct(os.stat(records).st_mode & 0o777)] + sorted({{oct(os.stat(os.path.join(records, each)).st_mode & 0o777) for each in os.listdir(records)}})
scenes["doctor"] = CliRunner().invoke(app, ["doctor", "--quick"]).stdout
scenes["settings"] = look(SandboxSettings(max_running=7))
scenes["engine"] = look(CELL_NEWER="-rc1")
scenes["image"] = look(CELL_IMAGE="sha256:1")
uname = os.uname
changed = os.uname_result((*uname()[:2], "9.9.9", *uname()[3:]))
os.uname = lambda: changed
scenes["kernel"] = look()
os.uname = uname
scenes["as before"] = look()

async def meanwhile():
    async with Exec(runtime_backends=SandboxSettings()) as ex:
        first = (await ex.execute_code("return 1")).backend.kind
        weaker = await asyncio.to_thread(check, "--only", "vsock", CELL_OPEN=os.path.join(STATE, "open.json"))
        return [first, weaker.exit_code, weaker.stdout, (await ex.execute_code("return 1")).backend.kind]

scenes["meanwhile"] = asyncio.run(meanwhile())
scenes["weaker"] = look()
check("--only", "environment")
scenes["doctor again"] = CliRunner().invoke(app, ["doctor", "--quick"]).stdout
scenes["a part checked again"] = look()
scenes["json"] = json.loads(check("--json").stdout)["experimental"]
scenes["checked again"] = look()
record = next(os.path.join(records, each) for each in os.listdir(records) if each.startswith("cell") and not each.endswith(".json"))
text = open(record, "rb").read()
open(record, "wb").write(text.replace(b'"complete": true', b'"complete": True'))
scenes["damaged"] = look()
check()
os.chmod(record, 0o666)
scenes["writable"] = look()
check()
if os.geteuid() == 0:
    os.chown(record, 4321, 4321)
    scenes["planted"] = look()
    check()
    os.chown(records, 4321, 4321)
    scenes["their directory"] = look()
    scenes["not kept"] = json.loads(check("--json").stdout)["experimental"]["cell"]
    os.chown(records, 0, 0)
print(json.dumps(scenes))
"""
    (line,) = run(path, program)
    return json.loads(line)


pytestmark = pytest.mark.full


@pytest.mark.parametrize("scene", ["unchecked", "a part checked"])
def test_what_was_not_checked_runs_only_where_it_is_named(scenes: dict[str, Any], scene: str) -> None:
    """A program that names no sandbox gets another one, and the doctor says how to check it."""
    found = scenes[scene]
    assert found["kind"] != "cell"
    assert (found["state"], found["serves"]) == ("not_set_up", [])
    assert "experimental" in found["reason"]


@pytest.mark.parametrize("scene", ["checked", "as before", "checked again"])
def test_what_was_checked_serves_by_itself(scenes: dict[str, Any], scene: str) -> None:
    """Takes its place among the candidates, and the doctor says since when."""
    found = scenes[scene]
    assert (found["kind"], found["state"], found["serves"]) == ("cell", "ready", ["standard"])
    assert found["checked"].startswith("20")
    assert "serves standard by itself" in " ".join(scenes["said"].split())
    assert scenes["json"]["cell"] == {"profile": "standard", "serves": True, "reason": ""}


@pytest.mark.parametrize(
    ("scene", "why"),
    [
        ("settings", "its configuration is another one"),
        ("engine", "its engine is of another version: "),
        ("image", "its image is another one"),
        ("kernel", "this machine is another one: kernel "),
        ("weaker", "it was found weaker than it promises: vsock"),
        ("a part checked again", "it was found weaker than it promises: vsock"),
        ("damaged", "is damaged, or others could have written to it"),
        ("writable", "is damaged, or others could have written to it"),
    ],
)
def test_what_has_changed_is_experimental_again(scenes: dict[str, Any], scene: str, why: str) -> None:
    """Where its engine, image, kernel or configuration is another one, and where it was found weaker: the doctor says
    which it is."""
    found = scenes[scene]
    assert found["kind"] != "cell"
    assert (found["state"], found["serves"]) == ("not_set_up", [])
    assert why in found["reason"]


def test_the_doctor_shows_it(scenes: dict[str, Any]) -> None:
    """People read which kind serves since when, and why one does not any more."""
    served, lapsed = (" ".join(scenes[each].split()) for each in ("doctor", "doctor again"))
    assert "cell: it serves standard by itself, as it was checked here on 20" in served
    assert "standard cell (" in served
    assert "cell: it is experimental, and used only where it is named; standard: it was found weaker" in lapsed


def test_a_running_exec_notices_it(scenes: dict[str, Any]) -> None:
    """A check that finds it weaker takes it out of those that are open."""
    first, code, said, then = scenes["meanwhile"]
    assert (first, code) == ("cell", 1)
    assert "runs only where it is named: it was found weaker" in " ".join(said.split())
    assert then != "cell"


def test_records_are_private(scenes: dict[str, Any]) -> None:
    """No other user reads or writes them."""
    assert scenes["modes"] == ["0o700", "0o600"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize(
    ("scene", "why"), [("planted", "others could have written to it"), ("their directory", "belongs to another user")]
)
def test_a_record_of_another_user_is_not_believed(scenes: dict[str, Any], scene: str, why: str) -> None:
    """A file or directory that another user has put there lets nothing serve, and nothing is kept there."""
    found = scenes[scene]
    assert found["kind"] != "cell"
    assert (found["state"], found["serves"]) == ("not_set_up", [])
    assert why in found["reason"]
    assert scenes["not kept"]["serves"] is False
    assert "belongs to another user" in scenes["not kept"]["reason"]

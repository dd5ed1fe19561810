"""How a settings file, variables and Python set the engine and the sandbox up, and what is refused."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from packages.temporal.tests.server.programs import engine_of
from typer.testing import CliRunner

from toolexec import Exec
from toolexec.cli import app
from toolexec.config import build, load
from toolexec.errors import ConfigurationError
from toolexec.runtime import sandboxes, wasm
from toolexec_temporal import TemporalBackend, TemporalEngine, TemporalSettings, TemporalWorker

README = (Path(__file__).parents[1] / "README.md").read_text()
KEY = "a key of at least sixteen characters"


def _backend(ex: Exec) -> TemporalBackend:
    (backend,) = ex.runtime.backends
    assert isinstance(backend, TemporalBackend)
    return backend


def _built(tmp_path: Path, text: str, **variables: str) -> Exec:
    file = tmp_path / "toolexec.toml"
    file.write_text(text)
    built = build.build(load.load_settings([file], environment=variables))
    built.close()
    return built.ex


def test_recordings_are_refused_when_they_are_asked_for(tmp_path: Path) -> None:
    """An engine keeps no other runs: an Exec, its options and a settings file that want that say so at once."""
    match = "an engine keeps what it runs itself: leave record out"
    for journal in (TemporalEngine(), "temporal"):
        with pytest.raises(ConfigurationError, match=match) as caught:
            Exec(journal=journal, record=0.5)
        assert caught.value.details == {"setting": "record"}
    with pytest.raises(ConfigurationError, match=match):
        _built(tmp_path, "[durable.temporal]\nnamespace = 'shop'\n[record]\nshare = 1.0\n")


def test_the_settings_make_an_engine(tmp_path: Path) -> None:
    """`[durable.temporal]` has the runs of the Exec on Temporal; values are written as in every table, and a reference
    to a secret stays one."""
    text = """
    [durable.temporal]
    address = "127.0.0.1:7000"
    task_queue = "shop"
    key = "secretref:env:TEMPORAL_KEY"
    call_timeout = "2m"
    large_bytes = "64K"
    large_directory = "large"
    """
    settings = engine_of(_built(tmp_path, text, TOOLEXEC_DURABLE__TEMPORAL__TASK_QUEUE="tea")).settings
    assert (settings.address, settings.task_queue, settings.key) == (
        "127.0.0.1:7000",
        "tea",
        "secretref:env:TEMPORAL_KEY",
    )
    assert (settings.call_timeout, settings.large_bytes) == (120.0, 65536)
    assert settings.large_directory == str(tmp_path / "large")


@pytest.mark.parametrize("text", ["[durable.temporal]\n", "[durable]\n[durable.temporal]\n# address = 1\n"])
def test_an_empty_table_chooses_nothing(tmp_path: Path, text: str) -> None:
    """Templates of files had one, with all keys commented out."""
    assert _built(tmp_path, text).options.journal is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('adress = "a:1"', "unknown key durable.temporal.adress; did you mean address"),
        ("attempts = 0", "durable.temporal.attempts must be an integer, 1 or more, not 0"),
        ('heartbeat_timeout = "0.1s"', "durable.temporal.heartbeat_timeout must be"),
        ('key = "short"', "at least 16 characters"),
        ("key = 7", "durable.temporal.key must be a text"),
        ('address = ""', "address of Temporal must not be empty"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, line: str, said: str) -> None:
    """An error names the key."""
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        _built(tmp_path, f"[durable.temporal]\n{line}\n")
    assert "short" not in str(caught.value)


async def test_the_name_of_the_kind_is_enough(tmp_path: Path) -> None:
    """`journal="temporal"` has the default settings, in Python and in a file, and there are workers for it."""
    for ex in (Exec(journal="temporal"), _built(tmp_path, '[durable]\njournal = "temporal"\n')):
        async with ex:
            worker = ex.worker()
            assert isinstance(worker, TemporalWorker)
            assert worker.settings == TemporalSettings()


async def test_a_file_makes_the_sandbox(tmp_path: Path) -> None:
    """`inner` is a key of its table; where Temporal is, `[durable.temporal]` says."""
    text = """
    [sandboxes]
    use = ["temporal"]
    [[sandboxes.plugins]]
    kind = "temporal"
    inner = "bubblewrap"
    attempts = 3
    [durable.temporal]
    address = "127.0.0.1:7000"
    attempts = 5
    """
    async with _built(tmp_path, text) as ex:
        backend, engine = _backend(ex), engine_of(ex)
        assert (backend.kind, backend.inner.kind, backend.isolation) == ("temporal", "bubblewrap", "container")
        assert (backend.settings.address, backend.settings.attempts) == ("127.0.0.1:7000", 3)
        assert (engine.settings.address, engine.settings.attempts) == ("127.0.0.1:7000", 5)


@pytest.mark.parametrize("how", ["file", "variable", "flag"])
async def test_the_old_key_of_the_sandbox_is_read(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """`sandboxes.temporal` is what `inner` is now; a hint says so."""
    file = tmp_path / "toolexec.toml"
    line = 'temporal = "bubblewrap"' if how == "file" else ""
    file.write_text(f'[sandboxes]\nuse = ["temporal"]\n{line}\n')
    loaded = load.load_settings(
        [file],
        environment={"TOOLEXEC_SANDBOXES__TEMPORAL": "bubblewrap"} if how == "variable" else {},
        flags={"sandboxes.temporal": "bubblewrap"} if how == "flag" else {},
    )
    where = {"file": f"{file}, line 3", "variable": "TOOLEXEC_SANDBOXES__TEMPORAL", "flag": "--set sandboxes.temporal"}[
        how
    ]
    hint = 'sandboxes.temporal is inner in the table of sandboxes.plugins with kind = "temporal" now; move it there'
    assert loaded.hints == (f"{where}: {hint}",)
    assert hint in caplog.text
    built = build.build(loaded)
    async with built.ex as ex:
        assert _backend(ex).inner.kind == "bubblewrap"
    built.close()


def test_the_check_of_settings_has_the_hint(tmp_path: Path) -> None:
    """The old key is a warning: the settings are right."""
    file = tmp_path / "toolexec.toml"
    file.write_text('[sandboxes]\nuse = ["temporal"]\ntemporal = "wasm"\n')
    done = CliRunner().invoke(app.app, ["config", "validate", "-c", str(file)])
    assert done.exit_code == 0
    assert "is inner in the table of" in " ".join(done.output.split())
    file.write_text("[sandboxes]\ntemporal = 7\n")
    with pytest.raises(ConfigurationError, match="temporal must be a kind of sandbox"):
        load.load_settings([file])


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"inner": "temporal"}, "another kind"),
        ({"inner": "nothing"}, "nothing"),
        ({"iner": "wasm"}, "did you mean inner"),
        ({"key": "short"}, "at least 16 characters"),
    ],
)
def test_a_sandbox_that_makes_no_sense_is_refused(own: dict[str, object], said: str) -> None:
    """The kind underneath is one that there is on one machine."""
    with pytest.raises(ConfigurationError, match=said):
        sandboxes.make_runtime(sandboxes.SandboxSettings(use=("temporal",), plugins={"temporal": own}))


def test_it_is_used_only_where_it_is_named() -> None:
    """No `Exec` has it by itself, and settings with a key do not show it."""
    assert "temporal" not in {backend.kind for backend in sandboxes.make_runtime().backends}
    assert KEY not in repr(sandboxes.SandboxSettings(use=("temporal",), plugins={"temporal": {"key": KEY}}))
    backend = TemporalBackend(wasm.WasmBackend())
    assert (backend.kind, backend.isolation, backend.settings) == ("temporal", "wasm", TemporalSettings())


def test_a_worker_needs_an_engine(tmp_path: Path) -> None:
    """Without one there is nothing to work for, and both errors name the settings."""
    with pytest.raises(ConfigurationError, match=r"durable\.temporal"):
        Exec().worker()
    file = tmp_path / "app.py"
    file.write_text("from toolexec import tool\n\n\n@tool\ndef one() -> int:\n    return 1\n")
    done = CliRunner().invoke(app.app, ["temporal", "worker", "-c", str(file)])
    assert done.exit_code == 2
    assert "needs to know where Temporal is: the settings [durable.temporal]" in " ".join(done.output.split())


def test_the_command_lists_every_setting() -> None:
    """`toolexec config keys` has those of the package, once it is installed."""
    listed = CliRunner().invoke(app.app, ["config", "keys"]).stdout
    assert {each.name for each in fields(TemporalSettings)} == {
        *re.findall(r"^durable\.temporal\.(\w+) = ", listed, re.MULTILINE)
    }
    assert "TOOLEXEC_DURABLE__TEMPORAL__ADDRESS" in listed


def test_the_page_has_every_setting() -> None:
    """The table of the README names the fields of `TemporalSettings`, and no others."""
    table = README.partition("## Settings")[2].partition("## ")[0]
    listed = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert listed == {each.name for each in fields(TemporalSettings)}

"""The command that runs code: its words, what it prints and when, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec
from toolexec.cli import code as command
from toolexec.cli.code_input import CodeOptions
from toolexec.cli.session import perform

Cli = Callable[..., Any]
Process = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.mark.full
def test_a_subprocess_runs_code(process: Process) -> None:
    """The real command, without any tools."""
    done = process("code", "-e", "return 1")
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_what_it_prints_comes_first_then_the_value(cli: Cli) -> None:
    """Each stream to its own; a line that is open is ended before the value."""
    done = cli("code", "-e", "import sys\nprint('out', end='')\nprint('err', file=sys.stderr)\n{'a': [1]}")
    assert done.exit_code == 0
    assert done.stdout == 'out\n{\n  "a": [\n    1\n  ]\n}\n'
    assert done.stderr == "err\n"


def test_what_is_printed_only_is_shown_once(cli: Cli) -> None:
    """The only thing that a program prints is its value as well, and does not come again."""
    done = cli("code", "-e", "numbers = [1, 2]\nprint(numbers)")
    assert (done.exit_code, done.stdout) == (0, "[1, 2]\n")
    done = cli("code", "--json", "-e", "numbers = [1, 2]\nprint(numbers)")
    assert json.loads(done.stdout)["value"] == [1, 2]


def test_a_rule_of_the_settings_file_holds_for_a_language(cli: Cli, tmp_path: Path) -> None:
    """A language that a rule denies does not run, by whatever name; another one does."""
    file = tmp_path / "toolexec.toml"
    file.write_text('[[policy.rules]]\neffect = "deny"\nlanguages = ["javascript", "bash"]\nreason = "python only"\n')
    for language in ("js", "typescript", "bash"):
        done = cli("code", "-e", "1", "-l", language, "-c", file)
        assert done.exit_code != 0
        assert "python only" in done.stderr
    assert cli("code", "-e", "1", "-c", file).stdout == "1\n"


def test_nothing_is_shown_for_null(cli: Cli) -> None:
    """A program that only prints has printed all there is; JSON has the null."""
    assert cli("code", "-e", "print(1)").stdout == "1\n"
    assert json.loads(cli("code", "-e", "print(1)", "--json").stdout)["value"] is None


@pytest.mark.full
def test_output_is_shown_while_it_runs(tmp_path: Path) -> None:
    """A line is there before the program has ended."""
    code = "import time\nprint('first', flush=True)\nwhile True: time.sleep(1)"
    with subprocess.Popen([sys.executable, "-m", "toolexec", "code", "-e", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.terminate()
        assert process.wait() == 143


@pytest.mark.full
def test_an_interrupt_stops_the_code() -> None:
    """Ctrl-C ends a tight loop at once."""
    words = [sys.executable, "-m", "toolexec", "code", "-e", "print('on', flush=True)\nwhile True: pass"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == b"interrupted\n"


@pytest.mark.full
def test_a_reader_that_goes_away_ends_it() -> None:
    """As with any other command in a pipe."""
    words = [sys.executable, "-m", "toolexec", "code", "-e", "while True: print('y' * 1000)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 141


def test_json_is_the_whole_result(cli: Cli, tools_file: Path) -> None:
    """Prints, calls and all, in one document."""
    done = cli("code", "-e", "print('x')\ntools.math.add(a=2)", "--json", "-c", tools_file)
    data = json.loads(done.stdout)
    assert (data["ok"], data["value"], data["stdout"], data["backend"]["kind"]) == (True, 3, "x\n", "wasm")
    assert data["toolCalls"][0]["toolId"] == "math:add"


def test_calls_are_traced(cli: Cli, tools_file: Path) -> None:
    """With their arguments and how they went, on stderr."""
    code = "tools.math.add(a=2)\ntry: tools.odd.fail(why='x')\nexcept ToolError: pass\nreturn 'done'"
    done = cli("code", "--trace", "-e", code, "-c", tools_file)
    assert done.stdout == "done\n"
    lines = [line for line in done.stderr.splitlines() if line.startswith(("✓", "✗"))]
    assert lines[0].startswith('✓ math:add {"a": 2} · ')
    assert lines[1].startswith('✗ odd:fail {"why": "x"} · odd:fail raised ValueError: no, x · ')


def test_only_allowed_tools_can_be_called(cli: Cli, tools_file: Path) -> None:
    """Patterns count; another tool is refused."""
    words = ["--allow", "math:*", "-c", tools_file]
    assert cli("code", "-e", "tools.math.add(a=2)", *words).stdout == "3\n"
    done = cli("code", "-e", "tools.text.plain(words='x')", *words)
    assert done.exit_code == 1
    assert "ToolNotAllowedError" in done.stderr


def test_a_file_is_run(cli: Cli, tmp_path: Path) -> None:
    """Its name says which language it is, and the words after it are the program's."""
    (tmp_path / "p.py").write_text("import sys\nreturn sys.argv[1:]")
    assert json.loads(cli("code", "p.py", "a", "--", "-b", "--json").stdout) == ["a", "-b", "--json"]
    (tmp_path / "m.wat").write_text('(module (func (export "_start") (result i32) (i32.const 42)))')
    assert cli("code", "m.wat").stdout == "42\n"


def test_a_binary_module_is_run(cli: Cli, tmp_path: Path) -> None:
    """Whatever it is called."""
    from wasmtime import wat2wasm

    text = '(module (func (export "_start") (result i32) (i32.const 7)))'
    (tmp_path / "program").write_bytes(bytes(wat2wasm(text)))
    assert cli("code", "program").stdout == "7\n"


def test_words_after_the_code_are_its_own(cli: Cli) -> None:
    """There is no file with -e."""
    assert json.loads(cli("code", "-e", "import sys; sys.argv[1:]", "a", "b").stdout) == ["a", "b"]


def test_stdin_is_the_code_or_its_input(cli: Cli) -> None:
    """One of the two."""
    assert cli("code", "-", stdin="return 5").stdout == "5\n"
    assert cli("code", "--stdin", "-e", "import sys; sys.stdin.read()", stdin="words").stdout == "words\n"
    done = cli("code", "-", "--stdin", stdin="return 5")
    assert done.exit_code == 2
    assert "--stdin has nothing to hand on" in done.stderr


def test_files_go_in_and_out(cli: Cli, tmp_path: Path) -> None:
    """Under the names that they are given; what is made comes into the output directory."""
    (tmp_path / "data.csv").write_text("a,b\n")
    code = "import os\nos.mkdir('d')\nopen('d/up.txt', 'w').write(open('in.csv').read().upper())"
    done = cli("code", "-e", code, "--file", "data.csv=in.csv", "--out-dir", "out")
    assert done.exit_code == 0
    assert (tmp_path / "out" / "d" / "up.txt").read_text() == "A,B\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["d"]
    assert "wrote out/d/up.txt" in done.stderr
    assert (
        "files: d/up.txt; --out-dir DIRECTORY keeps them" in cli("code", "-e", code, "--file", "data.csv=in.csv").stderr
    )


@pytest.mark.full
def test_variables_are_set(cli: Cli) -> None:
    """With a value, or that of the caller; nothing else of the caller's is there."""
    code = "import os\n[os.environ.get(n) for n in ('A', 'HERE', 'HOME')]"
    done = cli("code", "-e", code, "--env", "A=1=2", "--env", "HERE", HERE="x", HOME="/secret")
    assert json.loads(done.stdout) == ["1=2", "x", None]


def test_a_run_can_be_replayed(cli: Cli) -> None:
    """The same seed and clock give the same."""
    words = ["code", "-e", "import random, time; [random.random(), int(time.time())]", "--seed", "3", "--now", "1e9"]
    assert cli(*words).stdout == cli(*words).stdout
    assert json.loads(cli(*words).stdout)[1] == 1_000_000_000


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--timeout", "0.3", "-e", "while True: pass"], "limit exceeded"),
        (["--cpu-ms", "100", "-e", "while True: pass"], "CPU time"),
        (["--memory", "48M", "-e", "x = 'x' * 10**8"], "memory"),
        (["--disk", "1K", "-e", "with open('x', 'w') as f: f.write('x' * 5000)"], "disk space"),
    ],
)
def test_limits_hold(cli: Cli, words: list[str], message: str) -> None:
    """Exit code 1, and the reason."""
    done = cli("code", *words)
    assert done.exit_code == 1
    assert message.lower() in done.stderr.lower()


def test_the_number_of_calls_is_limited(cli: Cli, tools_file: Path) -> None:
    """The rest is refused; limits above the defaults are taken, and above the ceilings of the Exec refused by name."""
    code = "for i in range(5): tools.math.add(a=i)"
    done = cli("code", "-e", code, "--max-tool-calls", "2", "-c", tools_file, "--json")
    data = json.loads(done.stdout)
    assert (done.exit_code, len(data["toolCalls"]), data["ok"]) == (1, 2, False)
    for source in ((), ("-c", tools_file)):
        done = cli("code", "-e", "1", "--max-tool-calls", "2000", "--timeout", "300", *source)
        assert done.exit_code == 0
    bounded = tools_file.with_name("bounded.py")
    bounded.write_text("from toolexec import Exec\nex = Exec(max_tool_calls=3, max_timeout=5)\n")
    for words, ceiling in ((("--max-tool-calls", "4"), "ceiling of 3"), (("--timeout", "6"), "ceiling of 5 s")):
        done = cli("code", "-e", "1", *words, "-c", bounded)
        assert done.exit_code != 0
        assert ceiling in " ".join(done.stderr.split())


def test_a_limit_that_cannot_be_kept_is_refused(cli: Cli) -> None:
    """Unless it is only wished for."""
    done = cli("code", "-e", "return 1", "--cpus", "1")
    assert done.exit_code == 3
    assert "cannot enforce cpus" in done.stderr
    assert cli("code", "-e", "return 1", "--cpus", "1", "--best-effort").stdout == "1\n"


def test_a_mistake_is_shown_with_its_line(cli: Cli) -> None:
    """A caret under the column, then the traceback; exit code 1."""
    done = cli("code", "-e", "def f(x):\n    return 1 + x['no']\nf({})")
    assert (done.exit_code, done.stdout) == (1, "")
    error = done.stderr.partition("\n")[0]
    assert error.startswith("error: KeyError: 'no'; ")
    assert error.endswith(" (line 2, col 16)")
    assert "  2 │     return 1 + x['no']\n    │                ^\n" in done.stderr
    assert 'File "<code>", line 3, in <module>' in done.stderr


def test_a_syntax_error_is_shown_with_its_line(cli: Cli) -> None:
    """Nothing has run."""
    done = cli("code", "-e", "print('never')\nx = (1,")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "SyntaxError: '(' was never closed" in done.stderr
    assert "  2 │ x = (1,\n    │     ^\n" in done.stderr


def test_a_terminal_gets_a_panel_and_a_footer(cli: Cli, tools_file: Path) -> None:
    """The footer shows the sandbox, the number of calls and the duration."""
    done = cli("code", "-e", "tools.math.add(a=1)", "-c", tools_file, FORCE_COLOR="1")
    assert "✓ python · wasm · 1 tool call · " in done.stderr
    done = cli("code", "-e", "1/0", FORCE_COLOR="1")
    assert "code failed" in done.stderr
    assert "✗ python · wasm" in done.stderr


def test_a_terminal_gets_no_orders(cli: Cli) -> None:
    """Escape sequences of the program are shown as such there, and kept in a pipe."""
    code = r"print('a\x1b[2Jb')"
    assert cli("code", "-e", code).stdout == "a\x1b[2Jb\n"
    assert cli("code", "-e", code, FORCE_COLOR="1").stdout == "a\\x1b[2Jb\n"


def test_what_was_dropped_is_mentioned(cli: Cli) -> None:
    """Output has a bound."""
    done = cli("code", "-e", "for _ in range(30): print('x' * 100_000)")
    assert "output limit reached" in done.stdout
    assert len(done.stdout) < 1_100_000


@pytest.mark.full
def test_unsafe_is_loud(cli: Cli) -> None:
    """The host runs it, and a warning says what that means."""
    done = cli("code", "--unsafe", "-e", "import os; os.getpid()", "--json")
    assert json.loads(done.stdout)["backend"]["kind"] == "unsafe_host"
    assert "UNSAFE: there is no sandbox" in done.stderr
    assert cli("code", "--unsafe", "-l", "bash", "-e", "tool return 42").stdout == "42\n"


def test_unsafe_must_be_said(cli: Cli) -> None:
    """A profile alone is not enough, and the word goes with no other profile."""
    done = cli("code", "--profile", "dev", "-e", "1")
    assert done.exit_code == 2
    assert "say --unsafe" in done.stderr
    done = cli("code", "--unsafe", "--profile", "hardened", "-e", "1")
    assert done.exit_code == 2
    assert "it would change nothing" in done.stderr


def test_an_unknown_language_is_refused_with_the_list(cli: Cli) -> None:
    """Exit code 3: nothing has run."""
    done = cli("code", "-l", "cobol", "-e", "1")
    assert done.exit_code == 3
    assert "'cobol'" in done.stderr
    assert "python" in done.stderr


@pytest.mark.parametrize("profile", ["standard", "hardened", "wasm"])
def test_profiles_are_served(cli: Cli, profile: str) -> None:
    """All but dev by the embedded sandbox."""
    assert cli("code", "--profile", profile, "-e", "return 1").stdout == "1\n"


@pytest.mark.full
def test_servers_are_connected(cli: Cli, servers_file: Path) -> None:
    """Their tools can be called; one that is down is mentioned."""
    done = cli("code", "-e", "tools.time.get_current_time(timezone='UTC')['timezone']", "-c", servers_file)
    assert (done.exit_code, done.stdout) == (0, "UTC\n")
    assert "unavailable: dead" in done.stderr


def test_a_file_that_is_found_is_mentioned(cli: Cli, tmp_path: Path) -> None:
    """As for the other commands."""
    (tmp_path / "toolexec.json").write_text('{"mcpServers": {}}')
    assert cli("code", "-e", "1").stderr == "using toolexec.json (override with -c)\n"
    assert cli("code", "-e", "1", "--json").stderr == ""


@pytest.mark.full
def test_a_broken_sandbox_directory_is_told(process: Process, tmp_path: Path) -> None:
    """Exit code 3, and what to do."""
    (tmp_path / "file").write_text("")
    done = process("code", "--profile", "wasm", "-e", "1", env={**os.environ, "TOOLEXEC_CACHE": str(tmp_path / "file")})
    assert done.returncode == 3
    assert "TOOLEXEC_CACHE" in done.stderr


def test_a_sandbox_that_dies_is_no_failure_of_the_code(cli: Cli) -> None:
    """Exit code 3, with what was printed until then."""
    done = cli("code", "-e", "import os\nprint('so far', flush=True)\nos.abort()")
    assert done.exit_code == 3
    assert done.stdout == "so far\n"


def test_a_sandbox_has_packages_of_that_name_only(cli: Cli) -> None:
    """A path or an option is none."""
    done = cli("code", "--with", "./evil", "-e", "1")
    assert done.exit_code == 2
    assert "'./evil' is not a package for the sandbox" in done.stderr


def test_code_that_is_switched_off(cli: Cli, tmp_path: Path) -> None:
    """The Exec's own settings count."""
    (tmp_path / "own.py").write_text("from toolexec import Exec\nex = Exec(enable_code_execution=False)\n")
    done = cli("code", "-e", "1", "-c", "own.py")
    assert done.exit_code == 2
    assert "code execution is switched off" in done.stderr


def test_an_unsafe_exec_is_loud_too(capfd: pytest.CaptureFixture[str]) -> None:
    """Its own opt-in counts, and is not silent."""
    options = CodeOptions(text="return 1")
    make = lambda: Exec(security_profile="dev", unsafe_opt_in=True)  # noqa: E731
    assert perform(lambda session: command.run(session, options), make=make) == 0
    captured = capfd.readouterr()
    assert captured.out == "1\n"
    assert "UNSAFE: there is no sandbox" in captured.err

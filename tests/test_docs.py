"""The documents are programs: their code runs, their output is true, their links and commands exist.

How a Markdown file is read here:

- A `python` block runs in the namespace of its document, one after the other, in a fresh directory. What it prints must be
  in the `text` block that follows it; `...` there stands for any text.
- A `console` block runs each line that begins with `$ ` in a shell, in that directory, and compares what it prints; how
  wide the columns of a table are does not matter.
- `<!-- file: NAME -->` above a block writes the block to that file. `<!-- no-run -->` leaves a block alone.
- Any other comment is a name: tests find the block, or the table, below it.
"""

import ast
import asyncio
import contextlib
import doctest
import functools
import importlib
import inspect
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.workspace import installed, packages, usable

import toolexec
from toolexec import errors
from toolexec.code import Tools
from toolexec.exec.sources import Sources
from toolexec.runtime import CANDIDATES, ExecuteRequest
from toolexec.runtime.unsafe_host import UnsafeHostBackend
from toolexec.runtime.wasm import WasmBackend
from toolexec.runtime.wasm.stdlib import LIMITED, STDLIB, UNAVAILABLE

ROOT = Path(__file__).parent.parent
SOURCE = Path(toolexec.__file__).parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    ROOT / "AGENTS.md",
    ROOT / "CODE_OF_CONDUCT.md",
    SOURCE / "cli" / "agent_skills" / "using-toolexec" / "SKILL.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *(path for package in packages() for path in sorted(package.directory.glob("*.md"))),
]
AWAY = {package.directory for package in packages() if package not in installed()}
WITH_CODE = [
    path
    for path in DOCUMENTS
    if path.parent not in AWAY and re.search(r"^```(python|console)$", path.read_text(), re.MULTILINE)
]
DOCTESTED = [
    path
    for source in (SOURCE, *(package.source for package in installed()))
    for path in sorted(source.rglob("*.py"))
    if ">>> " in path.read_text() and "cli" not in path.parts
]
CHECKER = doctest.OutputChecker()
_METHODS = {
    name: functools.partial(getattr(toolexec.Exec, name), None)
    for name in dir(toolexec.Exec)
    if not name.startswith("_") and inspect.isroutine(getattr(toolexec.Exec, name))
}
CALLABLE: dict[str, Any] = {
    **{name: getattr(toolexec, name) for name in toolexec.__all__ if callable(getattr(toolexec, name))},
    **_METHODS,
    **{f"ex.{name}": method for name, method in _METHODS.items()},
}
"""What a document can call, by the words that it uses."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block: where it begins, what it says, the comment above it, and the `text` block right below it."""

    path: Path
    line: int
    language: str
    text: str
    note: str
    expected: str | None = None

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def by_name(path: Path) -> str:
    return str(path.relative_to(SOURCE if SOURCE in path.parents else ROOT))


@pytest.fixture(scope="module", autouse=True)
def sandbox_is_built() -> None:
    """The first use of code mode on a machine takes a while, and is not a part of any document."""

    async def build() -> None:
        sandbox = WasmBackend()
        await sandbox.start()
        await sandbox.aclose()

    asyncio.run(build())


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory in which modules can be imported and installed programs be called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    # A reader waits 10 s for a server to start, which is too little on a machine that runs other tests.
    monkeypatch.setattr(Sources, "start_timeout", property(lambda _: 120.0, lambda _, __: None), raising=False)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__dict__", {}).get("__file__")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.name == "README.md" else pytest.mark.full) for path in WITH_CODE],
    ids=by_name,
)
def test_the_code_of_a_document_runs(path: Path, directory: Path) -> None:
    """Every block of a document runs, in order, and prints what the document says."""
    namespace: dict[str, Any] = {"__name__": f"document_{path.stem}"}
    for block in blocks(path):
        if block.note == "no-run":
            continue
        if block.note.startswith("file: "):
            (directory / block.note.removeprefix("file: ")).write_text(block.text)
        elif block.language == "python":
            compare(block, block.expected or "", run_python(block, namespace))
        elif block.language == "console":
            for command, expected in commands(block.text):
                compare(block, narrow(expected), narrow(run_command(command)))


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_name)
def test_the_links_of_a_document_lead_somewhere(path: Path) -> None:
    """A link into the repository names a file that exists, and a heading that is in it."""
    missing: list[str] = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(path.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            missing.append(target)
    assert missing == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_name)
def test_the_files_that_a_document_names_exist(path: Path) -> None:
    """A path such as `run/runner.py` leads from the repository's root, from the package's, or from the document."""
    named = set(re.findall(r"[\w/]+/\w+\.py\b", path.read_text()))
    homes = (ROOT, SOURCE, path.parent)
    assert {name for name in named if not any((home / name).exists() for home in homes)} == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_name)
def test_the_calls_that_a_document_quotes_can_be_made(path: Path) -> None:
    """A call in running text, such as `search_tools("x", limit=3)`, fits the signature; `...` stands for the rest."""
    wrong: list[str] = []
    for text in re.findall(r"`([\w.]+\([^`]*\))`", without_blocks(path.read_text())):
        try:
            call = ast.parse(text, mode="eval").body
        except SyntaxError:
            continue
        name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        target = CALLABLE.get(name)
        if target is None or not isinstance(call, ast.Call):
            continue
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        rest = any(isinstance(arg, ast.Constant) and arg.value is ... for arg in given)
        positional = [arg for arg in call.args if not (isinstance(arg, ast.Constant) and arg.value is ...)]
        keywords = {keyword.arg: 0 for keyword in call.keywords if keyword.arg}
        bare_names = any(isinstance(arg, ast.Name) for arg in positional)  # a signature, not a call
        try:
            signature = inspect.signature(target)
            (signature.bind_partial if rest or bare_names else signature.bind)(*positional, **keywords)
        except TypeError as error:
            wrong.append(f"{text}: {error}")
    assert wrong == []


def test_the_map_of_the_docs_is_complete() -> None:
    """`docs/index.md` links to every page of the directory but those of single decisions."""
    linked = set(re.findall(r"\]\(([a-z][a-z/-]*\.md)", (ROOT / "docs/index.md").read_text()))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("[a-z]*.md")}
    assert linked == pages - {"index.md"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_name)
def test_the_commands_of_a_document_exist(path: Path) -> None:
    """Every `toolexec …` command that a document names is one of the program, and so is every option of it."""
    from tests.command_line import commands_of

    from toolexec.cli.app import app

    group: Any = commands_of(app)
    shared = {option for param in group.params for option in param.opts} | {"--help"}
    unknown: list[str] = []
    for name, *words in mentioned_commands(path.read_text()):
        command = group if name in shared else group.get_command(typer.Context(group), name)  # journals have some
        if command is None:
            unknown.append(name)
            continue
        while words and not words[0].startswith("-") and hasattr(command, "commands"):
            inner = command.get_command(typer.Context(command), words[0])  # plugins have some
            unknown += [f"{name} {words[0]}"] * (inner is None)
            command, words = inner or command, words[1:] if inner is not None else []
        known = shared | {option for param in command.params for option in param.opts}
        unknown += [f"{name} {word}" for word in words if re.match(r"--?[a-z]", word) and word not in known]
    assert unknown == []


def test_the_table_of_errors_is_true() -> None:
    """`docs/error-handling.md` has one line for each code, with its error class and whether it is retryable."""
    rows = re.findall(
        r"^\| `(\w+)` \| `(\w+)` \| (yes|no) \|", (ROOT / "docs/error-handling.md").read_text(), re.MULTILINE
    )
    classes = [getattr(errors, name) for name in errors.__all__]
    expected = {
        (cls.__name__, code, "yes" if cls.default_retryable else "no")
        for cls in classes
        if issubclass(cls, errors.ToolExecError)
        for code in (cls.code, *vars(cls).get("further_codes", ()))
    }
    assert len(rows) == len(set(rows))
    assert set(rows) == expected


def test_the_names_of_the_migration_guide_exist() -> None:
    """Every Python name in the tables for those who come from Go is a public name, a member or a parameter."""
    guide = (ROOT / "docs/migration.md").read_text().partition("## From the Go packages")[2]
    columns = re.findall(r"^\| .*? \| (.*?) \|", guide, re.MULTILINE)
    code = [re.sub(r"\"[^\"]*\"|\{.*\}", "", span) for column in columns for span in re.findall(r"`([^`]+)`", column)]
    away = tuple(package.module for package in packages() if package not in installed())
    here = [span for span in code if not span.startswith(away)]
    names = {name for span in here for name in re.findall(r"[A-Za-z_]\w*", span)}
    assert len(names) > 100
    assert names - public_names() - {"await", "async", "with", "bool", "ex", "f"} == set()


def test_the_list_of_modules_is_true() -> None:
    """`docs/code-mode.md` lists what the sandbox's Python has, what of it is limited, and why others are missing."""
    guide = ROOT / "docs/code-mode.md"
    listed = next(block for block in blocks(guide) if block.note == "modules").text.split()
    assert listed == sorted({name.partition(".")[0] for name in STDLIB if not re.match("_[a-z]", name)}, key=str.lower)
    assert reasons(guide, "limited") == {name: why for name, why in LIMITED.items() if not name.startswith("_")}
    missing = reasons(guide, "unavailable")
    assert len(missing) > 20
    assert missing == {name: why for name, why in UNAVAILABLE.items() if name in missing}


def test_the_tables_of_sandboxes_are_true() -> None:
    """`docs/security-profiles.md` has the candidates of each profile, and what each sandbox says it enforces."""
    guide = ROOT / "docs/security-profiles.md"
    candidates = {row[0].strip("`"): re.findall(r"`(\w+)`", row[1]) for row in rows(guide, "candidates")}
    assert {profile: usable(kinds) for profile, kinds in candidates.items()} == {
        profile: [*kinds] for profile, kinds in CANDIDATES.items()
    }
    ex = toolexec.Exec()
    request = ExecuteRequest(code="1", gateway=Tools(ex.index, ex.docs, ex.runner))
    for column, backend in ((1, WasmBackend()), (3, UnsafeHostBackend())):
        said = {row[0].strip("`"): row[column] == "yes" for row in rows(guide, "enforced")}
        assert said == backend.enforces(request).to_dict()


def test_the_version_is_in_the_changelog() -> None:
    """The version that the package says it has is described in the changelog."""
    assert f"## [{toolexec.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("path", DOCTESTED, ids=by_name)
def test_the_examples_in_docstrings_are_true(path: Path) -> None:
    """Examples after `>>>` in a docstring give what it shows."""
    home = next(each for each in path.parents if each.name == "src")
    name = ".".join(path.relative_to(home).with_suffix("").parts).removesuffix(".__init__")
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.attempted > 0
    assert outcome.failed == 0


# -- reading Markdown -------------------------------------------------------------------------------------------


def blocks(path: Path) -> Iterator[Block]:
    """All fenced blocks of a document, each with the `text` block that directly follows it."""
    found = list(fences(path.read_text().splitlines()))
    for number, (start, end, language, text, note) in enumerate(found):
        after = found[number + 1] if number + 1 < len(found) else None
        adjacent = after is not None and after[2] == "text" and after[0] - end <= 2
        yield Block(
            path=path,
            line=start,
            language=language,
            text=text,
            note=note,
            expected=after[3] if after is not None and adjacent else None,
        )


def fences(lines: Sequence[str]) -> Iterator[tuple[int, int, str, str, str]]:
    """First and last line number, language, text and the note above of every fenced block."""
    start, language, note = 0, "", ""
    for number, line in enumerate(lines, start=1):
        if start and line == "```":
            yield start, number, language, "".join(f"{text}\n" for text in lines[start : number - 1]), note
            start, note = 0, ""
        elif not start and line.startswith("```"):
            start, language = number, line.removeprefix("```")
            comment = re.fullmatch(r"<!-- (.*) -->", lines[number - 2]) if number > 1 else None
            note = comment[1] if comment else ""
    assert not start, f"the block that begins in line {start} does not end"


def rows(path: Path, note: str) -> list[list[str]]:
    """The cells of the table below the comment *note*, without its head."""
    table = path.read_text().partition(f"<!-- {note} -->\n")[2].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


def reasons(path: Path, note: str) -> dict[str, str]:
    """The names in the first column of a table, each with what the second column says."""
    return {name: row[1] for row in rows(path, note) for name in re.findall(r"`([\w.]+)`", row[0])}


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a `console` block with what they print."""
    parts = re.split(r"^\$ (.*)$", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], (part.lstrip("\n") for part in parts[2::2]), strict=True))


def mentioned_commands(text: str) -> list[list[str]]:
    """The words after `toolexec` wherever a document shows a command line."""
    shown = re.findall(
        r"^(?:\$ )?toolexec (.+)$",
        "\n".join(re.findall(r"^```(?:console|sh)$.*?^```$", text, re.MULTILINE | re.DOTALL)),
        re.MULTILINE,
    )
    shown += re.findall(r"`toolexec ([^`]+)`", text)
    return [re.sub(r"'[^']*'|\"[^\"]*\"", "_", line).split() for line in shown]


def public_names() -> set[str]:
    """Return the exports of the packages, with the members of classes and the parameters of all that can be called."""
    packages = (
        "toolexec",
        *(f"toolexec.{name}" for name in "model model.version discovery backend run code exec errors".split()),
        "toolexec.runtime",
        *(f"toolexec.runtime.{name}" for name in "wasm unsafe_host".split()),
        "toolexec.runtime.protocol.proxy",
        "toolexec.remote",
        "toolexec.journal",
        *(package.module for package in installed()),
    )
    names = {word for package in packages for word in package.split(".")}
    callees: dict[int, Any] = {}  # each once: what is inherited is a member of many
    for module in map(importlib.import_module, packages):
        for name in module.__all__:
            value = getattr(module, name)
            members = {key: getattr(value, key, None) for key in dir(value)} if inspect.isclass(value) else {}
            names |= {name, *members}
            callees |= {id(callee): callee for callee in (value, *members.values()) if not inspect.isbuiltin(callee)}
    for callee in callees.values():
        with contextlib.suppress(TypeError, ValueError):
            names |= set(inspect.signature(callee).parameters)
    return names


# -- running it -------------------------------------------------------------------------------------------------


def run_python(block: Block, namespace: dict[str, Any]) -> str:
    """Run a block and return its output. Its lines keep their numbers in the document, so that a traceback leads there."""
    tree = ast.increment_lineno(ast.parse(block.text), block.line)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(block.path), "exec", dont_inherit=True), namespace)
    return printed.getvalue()


def run_command(command: str) -> str:
    ran = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return ran.stdout


def compare(block: Block, expected: str, printed: str) -> None:
    want, got = tidy(expected), tidy(printed)
    assert CHECKER.check_output(want, got, doctest.ELLIPSIS), f"{block.place} prints\n{got}\ninstead of\n{want}"


def narrow(text: str) -> str:
    """With tables as narrow as can be: one blank between words, a line of one dash between rows."""
    return re.sub(r" +", " ", re.sub("─+", "─", text))


def tidy(text: str) -> str:
    """Without blanks at the ends of lines, which are invisible in a document."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"

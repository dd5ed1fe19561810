"""Run programs against their cassettes, and compare what they come to with what is expected."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolexec.cassette.cassette import Cassette
from toolexec.cassette.modes import CassetteMode
from toolexec.errors import CassetteError, ConfigurationError, ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.model.redaction import redactor
from toolexec.process.atomic import replace_files

if TYPE_CHECKING:
    from toolexec.exec import Exec

_LANGUAGES: Final = {".py": "python", ".js": "javascript", ".workflow": "workflow"}
_KEYS: Final = ("inputs", "value", "stdout", "error")


@dataclass(frozen=True, slots=True)
class ProgramTest:
    """A program with its cassette, `NAME.cassette.yaml`, and what it is to come to, `NAME.expected.json`, beside it."""

    path: Path

    @property
    def cassette(self) -> Path:
        """The file of its calls."""
        return self.path.with_suffix(".cassette.yaml")

    @property
    def expected(self) -> Path:
        """The file with `value`, `stdout` and `error` (a code), each compared if it is there, and with its `inputs`."""
        return self.path.with_suffix(".expected.json")


@dataclass(slots=True, kw_only=True)
class ProgramOutcome:
    """How one test went: `problems` has a line or more for each difference, and is empty where it passed; `unused` are
    recorded calls that the program did not make."""

    test: ProgramTest
    problems: list[str] = field(default_factory=list[str])
    unused: list[str] = field(default_factory=list[str])

    @property
    def passed(self) -> bool:
        """Whether the program came to what is expected."""
        return not self.problems

    def to_dict(self) -> JSONDict:
        """Return it as JSON-able data."""
        return {"path": str(self.test.path), "passed": self.passed, "problems": self.problems, "unused": self.unused}


def find_tests(place: Path, mode: CassetteMode = "replay") -> list[ProgramTest]:
    """Return the tests in a directory and all below it, or the one in a file, by path: programs with a cassette, or
    with either file where they are recorded. Raises ConfigurationError where there are none."""
    paths = sorted(each for each in place.rglob("*") if each.is_file()) if place.is_dir() else [place]
    tests = [ProgramTest(path) for path in paths if path.suffix in _LANGUAGES]
    needed = [test for test in tests if test.cassette.exists() or (mode != "replay" and test.expected.exists())]
    if not needed and place.is_file() and tests and mode != "replay":
        needed = tests
    if not needed:
        raise ConfigurationError(
            f"{place} has no tests: a program (.py, .js, .workflow) needs a cassette beside it, NAME.cassette.yaml; "
            "record one with: toolexec test PROGRAM --mode record"
        )
    return needed


async def run_test(test: ProgramTest, make: Callable[[], Exec], mode: CassetteMode = "replay") -> ProgramOutcome:
    """Run one program with the tools of *make*, which a replay does not reach, and return how it went. Where calls are
    recorded, what is expected is written, too."""
    outcome = ProgramOutcome(test=test)
    try:
        expected = _expected(test)
        cassette = Cassette(test.cassette, mode)
    except ToolExecError as error:
        outcome.problems.append(_line(error))
        return outcome
    try:
        ex = make()
        ex.reconfigure(cassette=cassette)
        async with ex:
            ending = await _run(ex, test, expected.get("inputs"))
        found = ending.to_dict()
        if mode in ("record", "refresh"):
            kept = {key: expected[key] for key in ("inputs",) if key in expected}
            replace_files({test.expected: json.dumps(kept | found, indent=2, ensure_ascii=False) + "\n"})
            expected = kept | found
        outcome.problems += _problems(expected, found, ending.error)
        for line in (_line(miss) for miss in cassette.misses):  # also those that the program has caught
            if not any(line.partition(": ")[2] in each for each in outcome.problems):
                outcome.problems.append(line)
        outcome.unused = [f"{call.tool} {call.args}" for call in cassette.unused]
    except ToolExecError as error:
        outcome.problems.append(_line(error))
    finally:
        try:
            cassette.close()
        except CassetteError as error:
            if _line(error) not in outcome.problems:
                outcome.problems.append(_line(error))
    return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """What a program came to."""

    value: Any
    stdout: str = ""
    error: ToolExecError | None = None

    def to_dict(self) -> JSONDict:
        found: JSONDict = {"value": redactor.value(self.value)}
        if self.stdout:
            found["stdout"] = redactor.text(self.stdout)
        if self.error is not None:
            found["error"] = self.error.code
        return found


async def _run(ex: Exec, test: ProgramTest, inputs: Any) -> _Ending:
    try:
        source = test.path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{test.path} cannot be read: {error}") from error
    language = _LANGUAGES[test.path.suffix]
    if language != "workflow":
        if inputs:
            raise ConfigurationError(f"{test.expected}: only workflows have inputs")
        done = await ex.execute_code(source, language=language)
    elif source.lstrip().startswith("+++"):
        called = await ex.run_tool(ex.add_skill(test.path).id, inputs)
        return _Ending(value=called.value, error=called.error)
    else:
        done = await ex.run_workflow(source, inputs)
    return _Ending(value=done.value, stdout=done.stdout, error=done.error)


def _expected(test: ProgramTest) -> JSONDict:
    try:
        found = json.loads(test.expected.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{test.expected} cannot be read: {error}") from error
    if not isinstance(found, dict) or set(found) - set(_KEYS):
        raise ConfigurationError(f"{test.expected} must be an object with some of {', '.join(_KEYS)}")
    return found


def _problems(expected: JSONDict, found: JSONDict, error: ToolExecError | None) -> Iterator[str]:
    """Yield what is not as expected; a failure counts always, unless it is the one that is expected."""
    if error is not None and expected.get("error") != error.code:
        yield _line(error)
        return
    for key in ("error", "value", "stdout"):
        if key in expected and expected[key] != found.get(key):
            yield _diff(key, expected[key], found.get(key))


def _diff(key: str, expected: Any, found: Any) -> str:
    first, second = _lines(expected), _lines(found)
    lines = difflib.unified_diff(first, second, f"expected {key}", f"found {key}", lineterm="")
    return "\n".join(lines)


def _lines(value: Any) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return text.splitlines()


def _line(error: ToolExecError) -> str:
    return f"{type(error).__name__}: {redactor.text(str(error))}"

"""Patterns of paths mean what they mean in `.gitignore`; what depends on an unknown directory is unknown."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError
from toolexec.model import MCPBinding, Tool, ToolCall
from toolexec.run.policy import Policy, Rule
from toolexec.run.policy_conditions import Condition
from toolexec.run.policy_truth import Truth

SURE, NOT, DOUBT = Truth.TRUE, Truth.FALSE, Truth.UNKNOWN
FILES = MCPBinding("files", "read")
READ = Registered(Tool(name="read", namespace="files", input_schema={"type": "object"}), (FILES,), FILES)


def found(pattern: str, path: Any) -> Truth:
    return Condition("path", {"path_glob": pattern}).holds({"path": path})


@pytest.mark.parametrize("path", [".git/config", "a/.git/x/y", "a/b/.git/config", "/srv/repo/.git/config", "./.git/HEAD",
                                  "/.git/config", ".env", "a/.env", "a/b/.env", "/srv/a/.env", "file:///srv/.env",
                                  ".ENV", ".env/local", "a//.git///config", ["ok.txt", ".git/config"]])  # fmt: skip
def test_secrets_of_a_repository_are_denied_at_any_depth(path: Any) -> None:
    """The patterns that people write for `.git` and `.env` hold for relative and absolute paths."""
    rule = Rule("deny", when={"path": {"path_glob": ["*/.git/*", "**/.env"]}})
    policy = Policy([rule], remote_destructive="allow")
    assert policy.decide(READ, ToolCall("files:read", {"path": path})).effect == "deny"


@pytest.mark.parametrize(
    "path", ["README.md", "src/a.py", ".github/x.yml", "/srv/a/environment", ".envrc", ".gitignore"]
)
def test_other_files_stay_readable(path: str) -> None:
    """A path that matches in no directory at all is not denied."""
    rule = Rule("deny", when={"path": {"path_glob": ["*/.git/*", "**/.env"]}})
    policy = Policy([rule], remote_destructive="allow")
    assert policy.decide(READ, ToolCall("files:read", {"path": path})).effect == "allow"


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.txt", "a.txt", SURE),
        ("*.txt", "/srv/a/b.txt", SURE),
        ("*.txt", "b.txt/inside", SURE),
        ("*.txt", "b.TXT", DOUBT),
        ("*.txt", "b.md", NOT),
        ("src/*.py", "src/a.py", SURE),
        ("src/*.py", "src/a/b.py", NOT),
        ("src/*.py", "lib/src/a.py", NOT),
        ("src/*.py", "/home/me/src/a.py", DOUBT),
        ("src/*.py", "/home/me/lib/a.py", NOT),
        ("src/**", "src/a/b", SURE),
        ("src/**", "src", NOT),
        ("src/**/b", "src/b", SURE),
        ("src/**/b", "src/x/y/b", SURE),
        ("**/src/b", "x/src/b", SURE),
        ("**/src/b", "/x/src/b", SURE),
        ("**/src/b", "b", NOT),
        ("*/src/b", "src/b", DOUBT),
        ("*/src/b", "x/src/b", SURE),
        ("*/src/b", "x/y/src/b", DOUBT),
        ("/etc/*", "/etc/passwd", SURE),
        ("/etc/*", "/etc/ssl/private/key", SURE),
        ("/etc/*", "/etc", NOT),
        ("/etc/*", "/srv/etc/passwd", NOT),
        ("/etc/*", "etc/passwd", DOUBT),
        ("/etc/*", "passwd", DOUBT),
        ("/**/.env", "a/.env", SURE),
        ("/**/a/.env", ".env", DOUBT),
        ("build/", "build/x", SURE),
        ("build/", "build", DOUBT),
        ("build/", "x/build/y", SURE),
        ("build/", "x/builds", NOT),
        ("*", "a/b", SURE),
        ("*", ".", SURE),
        ("**", "/", SURE),
        ("**/*", ".", DOUBT),
        ("/*", ".", DOUBT),
        ("a?c", "abc", SURE),
        ("a?c", "a/c", NOT),
        ("[!a]b", "ab", NOT),
        ("[^a]b", "cb", SURE),
        ("*.txt", "*.txt", DOUBT),
        ("*.txt", "../a.txt", DOUBT),
        ("*.txt", 7, DOUBT),
    ],
)
def test_patterns(pattern: str, path: Any, expected: Truth) -> None:
    """A pattern matches for certain, does not, or depends on what is not known."""
    assert found(pattern, path) is expected


@pytest.mark.parametrize("pattern", ["!a", " !a", "*.{js,ts}", "[ab", "[[:alpha:]]", "a/[b/c]", "a\\*", "", "~/x", "/"])
def test_patterns_that_cannot_be_used(pattern: str) -> None:
    """Refuses what would mean something else than it looks like."""
    with pytest.raises(ConfigurationError, match="path_glob"):
        Condition("path", {"path_glob": pattern})


def test_a_pattern_takes_no_ages() -> None:
    """A path made for that does not keep a pattern busy."""
    assert found("*a*a*a*a*a*a*b", "a" * 5_000) is NOT
    assert found("**/a/**/a/**/a/**/b", "a/" * 4_000 + "a") is NOT


NAMES = ["a", "b", "ab", "aab", ".env", "x.py", "x", "bab"]
PIECES = ["a", "b", "*", "?", "[ab]", "[!a]", "[^b]", "x", ".py", ".env", "*", "a*b", "x.*", "*.py"]


def random_pattern(chance: random.Random) -> str:
    names = ["".join(chance.choices(PIECES, k=chance.choice([1, 1, 2]))) for _ in range(chance.choice([1, 1, 2, 3, 4]))]
    names = ["**" if chance.random() < 0.25 else name for name in names]
    return chance.choice(["", "", "/"]) + "/".join(names) + chance.choice(["", "", "", "/"])


def random_path(chance: random.Random) -> str:
    return "/".join(chance.choices(NAMES, k=chance.choice([1, 2, 2, 3, 4])))


def ignored_by_git(repository: Path, patterns: list[str], paths: list[list[str]]) -> list[list[bool]]:
    """Ask git which paths it ignores; each pattern is the `.gitignore` of a directory of its own."""
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    for number, pattern in enumerate(patterns):
        (repository / f"d{number}").mkdir()
        (repository / f"d{number}" / ".gitignore").write_text(pattern + "\n")
    asked = "".join(f"d{number}/{path}\0" for number, some in enumerate(paths) for path in some)
    command = ["git", "-C", str(repository), "check-ignore", "--no-index", "-v", "-n", "-z", "--stdin"]
    fields = subprocess.run(command, input=asked, capture_output=True, text=True, check=False).stdout.split("\0")
    answers = iter([bool(fields[at]) for at in range(0, len(fields) - 1, 4)])
    return [[next(answers) for _ in some] for some in paths]


def test_git_agrees(tmp_path: Path) -> None:
    """Over random patterns and paths the answer is that of git, or unknown for a reason."""
    chance = random.Random(7)
    patterns = [random_pattern(chance) for _ in range(400)]
    paths = [[random_path(chance) for _ in range(12)] for _ in patterns]
    decided = matched = 0
    for pattern, some, ignored in zip(patterns, paths, ignored_by_git(tmp_path, patterns, paths), strict=True):
        for path, is_ignored in zip(some, ignored, strict=True):
            # The directory of the `.gitignore` is the root of a pattern that begins with a slash.
            answer = found(pattern, f"/{path}" if pattern.startswith("/") else path)
            if answer is DOUBT:
                assert pattern.endswith("/") or pattern.lstrip("/").startswith("*"), (pattern, path)
            else:
                assert answer is Truth.of(is_ignored), (pattern, path)
                decided += 1
                matched += is_ignored
    assert decided > 3_000
    assert matched > 500

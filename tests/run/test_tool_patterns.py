"""A pattern of tool IDs means the same tools wherever it is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolexec
from toolexec.code.limits import AllowList
from toolexec.config.unused_patterns import unused_pattern
from toolexec.discovery.index import Registered
from toolexec.discovery.memory import InMemoryIndex
from toolexec.discovery.toolset import Toolset
from toolexec.errors import ConfigurationError, RateLimitedError
from toolexec.model import LocalBinding, Tool, ToolAnnotations, ToolCall
from toolexec.model.id_patterns import IDPatterns
from toolexec.model.origin import ANYONE
from toolexec.run.approvals import ApprovalMemory, approved
from toolexec.run.layers.cache import Cache
from toolexec.run.layers.fallback import Fallback
from toolexec.run.layers.ledger import Ledger
from toolexec.run.layers.rate_limit import RateLimit
from toolexec.run.policy import Policy, Rule

_OTHER_GLOBS: Final = {
    "run/policy_conditions.py": "strings among arguments",
    "run/policy_globs.py": "paths among arguments",
    "runtime/contract.py": "probes",
    "backend/providers/openapi/selection.py": "operations of a document",
    "model/id_patterns.py": "tools",
}

_NAMES: Final = st.text("ab-._", min_size=1, max_size=3)
_VERSIONS: Final = st.sampled_from(["", "1", "1.0", "2.0", "a"])
_PIECES: Final = st.sampled_from(["a", "b", "-", ".", "_", ":", "1", "0", "2", "*", "?", "[ab]", "[!a]", "A"])
_EITHER: Final = st.one_of(
    st.lists(_PIECES, max_size=8).map("".join),
    st.tuples(_NAMES, _NAMES, _VERSIONS).map(lambda parts: ":".join(filter(None, parts))),
)


def _entry(namespace: str, name: str, version: str, *, read_only: bool) -> Registered:
    marks = ToolAnnotations(read_only=read_only)
    tool = Tool(name=name, namespace=namespace, version=version, input_schema={"type": "object"}, annotations=marks)
    binding = LocalBinding(tool.id)
    return Registered(tool, (binding,), binding)


def _fits(text: str, pattern: str) -> bool:
    """Return whether a pattern fits a text as a shell reads it, one piece after the other."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(_fits(text[start:], pattern[1:]) for start in range(len(text) + 1))
    if pattern[0] == "[":
        inside, rest = pattern[1 : pattern.index("]")], pattern[pattern.index("]") + 1 :]
        takes = text[:1] not in inside[1:] if inside[0] == "!" else text[:1] in inside
        return bool(text) and takes and _fits(text[1:], rest)
    return bool(text) and pattern[0] in ("?", text[0]) and _fits(text[1:], pattern[1:])


def _verdicts(pattern: str, reads: Registered, writes: Registered, directory: Path) -> dict[str, bool]:
    """Return what each user of patterns says of a tool: *reads* only reads, *writes* is the same and does not."""
    call = ToolCall(reads.tool.id)
    index = InMemoryIndex()
    index.register(reads.tool, reads.binding)
    (found,) = index.tools()
    memory = ApprovalMemory(directory / "approvals.json")
    memory.add(approved(reads, ANYONE))
    limit = RateLimit(rules={pattern: "1/hour"}, clock=lambda: 0.0)
    ledger = Ledger(directory / "effects.db", tools=[pattern])
    says: dict[str, Callable[[], bool]] = {
        "rule": lambda: Rule("deny", tools=pattern).concerns(reads, ANYONE),
        "policy": lambda: Policy([Rule("deny", tools=[pattern])]).decide(reads, call).effect == "deny",
        "allowed_tools": lambda: AllowList(index, [pattern]).accepts(reads.tool.id),
        "cache": lambda: Cache(rules={pattern: 7.0}, ttl=3.0).plan(reads).ttl == 7.0,
        "fallback": lambda: bool([*Fallback({pattern: "else:where"}).ids(reads)]),
        "rate_limit": lambda: _refuses(limit, reads, call),
        "ledger": lambda: ledger.concerns(writes),
        "approvals": lambda: memory.forget(pattern) == 1,
        "toolset, allow": lambda: Toolset(allow=[pattern]).on(index)(found),
        "toolset, deny": lambda: not Toolset(namespaces=[reads.tool.namespace], deny=[pattern]).on(index)(found),
        "check": lambda: unused_pattern(pattern, [reads.tool.id]) is None,
    }
    try:
        return {name: say() for name, say in says.items()}
    finally:
        ledger.close()


def _refuses(limit: RateLimit, entry: Registered, call: ToolCall) -> bool:
    limit.take(entry, call)
    try:
        limit.take(entry, call)
    except RateLimitedError:
        return True
    return False


@given(_EITHER, _NAMES, _NAMES, _VERSIONS)
def test_all_who_take_patterns_mean_the_same_tools(pattern: str, namespace: str, name: str, version: str) -> None:
    """A pattern means a tool where it fits its ID, with the version or without: for rules, lists, limits and checks."""
    import tempfile

    reads = _entry(namespace, name, version, read_only=True)
    writes = _entry(namespace, name, version, read_only=False)
    expected = _fits(reads.tool.id, pattern) or _fits(f"{namespace}:{name}", pattern)
    with tempfile.TemporaryDirectory() as directory:
        found = _verdicts(pattern, reads, writes, Path(directory))
    assert found == dict.fromkeys(found, expected)


@pytest.mark.parametrize(
    ("pattern", "meant_ids"),
    [
        ("x:v", {"x:v", "x:v:1.0", "x:v:2.0"}),
        ("x:v:1.0", {"x:v:1.0"}),
        ("x:v:*", {"x:v:1.0", "x:v:2.0"}),
        ("x:*", {"x:v", "x:v:1.0", "x:v:2.0", "x:w"}),
        ("*:1.0", {"x:v:1.0"}),
        ("X:v", set[str]()),
    ],
)
def test_a_plain_id_means_all_versions(pattern: str, meant_ids: set[str]) -> None:
    """An ID without a version means the tool in all its versions, one with it that version alone."""
    ids = ("x:v", "x:v:1.0", "x:v:2.0", "x:w")
    patterns = IDPatterns("patterns", [pattern])
    assert {each for each in ids if patterns.match(each)} == meant_ids


def test_too_many_patterns_are_refused() -> None:
    """At most 1,000 patterns stand in one list; IDs are not counted."""
    IDPatterns("tools of a rule", map(str, range(2_000)))
    with pytest.raises(ConfigurationError, match="tools of a rule has more than 1000 patterns"):
        Rule("deny", tools=[f"{number}*" for number in range(1_001)])


def test_nothing_else_compares_patterns_with_tools() -> None:
    """Shell patterns are compared where tools are not meant, or in the one place that says which tools are."""
    root = Path(toolexec.__file__).parent
    files = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in root.rglob("*.py")}
    users = {name for name, text in files.items() if re.search(r"^\s*(from|import) fnmatch\b", text, re.MULTILINE)}
    assert users == set(_OTHER_GLOBS)

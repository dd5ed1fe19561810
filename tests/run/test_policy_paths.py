"""Conditions on paths hold for every spelling of a path; what cannot be compared is denied."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError
from toolexec.model import LocalBinding, Tool, ToolCall
from toolexec.run.policy import Policy, Rule
from toolexec.run.policy_conditions import Condition
from toolexec.run.policy_truth import Truth

READ = Registered(
    Tool(name="read", namespace="files", input_schema={"type": "object"}),
    (LocalBinding("files:read"),),
    LocalBinding("files:read"),
)

EVASIONS = [
    "/etc/passwd",
    "//etc/passwd",
    "///etc///passwd",
    "/./etc/passwd",
    "/etc/./passwd",
    "/etc//passwd",
    "/etc/passwd/",
    "/etc/passwd/.",
    "/etc/passwd//",
    "/srv/../etc/passwd",
    "/srv/data/../../etc/passwd",
    "/../etc/passwd",
    "../../../etc/passwd",
    "/srv/..;/etc/passwd",
    "/srv/.. /etc/passwd",
    " /etc/passwd",
    "/etc/passwd ",
    "\t/etc/passwd",
    "/etc/passwd\n",
    "\n/etc/passwd",
    "\u00a0/etc/passwd",
    "\ufeff/etc/passwd",
    "\u200b/etc/passwd",
    "/etc/pass\u200bwd",
    "/etc/passwd\x00.txt",
    "/srv/data/x\x00/../../etc/passwd",
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "file:/etc/passwd",
    "file://localhost/etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "file:////etc/passwd",
    "file:///etc/passwd?x=1",
    "file:///etc/passwd#part",
    "file:///%65tc/passwd",
    "file:///srv/%2e%2e/etc/passwd",
    " file:///etc/passwd",
    "url:file:///etc/passwd",
    "view-source:file:///etc/passwd",
    "jar:file:///etc/passwd",
    "%2Fetc%2Fpasswd",
    "/%65tc/passwd",
    "/etc%2fpasswd",
    "%252Fetc%252Fpasswd",
    "/srv/%2e%2e/etc/passwd",
    "/srv/%252e%252e/etc/passwd",
    "/srv/..%2fetc/passwd",
    "/srv/..%c0%afetc/passwd",
    "\\etc\\passwd",
    "/etc\\passwd",
    "/srv\\..\\etc\\passwd",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd/etc/passwd",
    "/proc/1/root/etc/passwd",
    "/proc/thread-self/root/etc/passwd",
    "/proc/self/task/1/root/etc/passwd",
    "//proc/self/./root/etc/passwd",
    "/proc/self/fd/3",
    "/dev/fd/3",
    "/dev/stdin",
    "~root/../etc/passwd",
    "~/passwd",
    "$HOME/../etc/passwd",
    "${ETC}/passwd",
    "/$(echo etc)/passwd",
    "%SYSTEMROOT%/passwd",
    "'/etc/passwd'",
    '"/etc/passwd"',
    "`/etc/passwd`",
    "\uff0fetc\uff0fpasswd",
    "/\uff45tc/passwd",
    "/etc\u2215passwd",
    "\\\\?\\C:\\etc\\passwd",
    "\\\\server\\etc\\passwd",
    "//./etc/passwd",
    "/etc./passwd",
    "/etc /passwd",
]
"""One and the same file, or one that may be it."""

ONLY_FOR_PATHS = [
    "/ETC/passwd",
    "etc/passwd",
    "./etc/passwd",
    "/et?/passwd",
    "/e*/passwd",
    "/{etc,x}/passwd",
    "/e[t]c/passwd",
    "C:/etc/passwd",
    "c:\\etc\\passwd",
    "https://x/etc/passwd",
    "php://filter/resource=/etc/passwd",
    "netdoc:/etc/passwd",
    "",
    "  ",
    "/" * 11_000 + "etc/passwd",
]
"""What only `path_under` and `path_glob` are sure to see: other conditions also serve for what is not a path."""

OTHERS = ["/srv/data/a.txt", "/etcetera/passwd", "/srv/etc/passwd", "/home/me/etc", "/srv/data/a b.txt", "/srv//data/x"]
"""Files elsewhere, which nothing keeps from being read."""

INSIDE = ["/srv/data", "/srv/data/", "/srv/data/a.txt", "/srv//data/./a.txt", "file:///srv/data/a.txt", "/srv/data/x%20y",
          "/srv/data/app/[id]/page.tsx", "/srv/data/..x", "/srv/data/été"]  # fmt: skip


def verdict(rule: Rule, default: Any, args: dict[str, Any]) -> str:
    return Policy([rule], default=default).decide(READ, ToolCall("files:read", args)).effect


DENY = [
    {"path": {"path_under": "/etc"}},
    {"path": {"path_under": ["/root", "/etc/"]}},
    {"path": {"path_glob": "/etc/*"}},
    {"path": {"path_glob": ["/root/*", "*/passwd*"]}},
]
PLAIN = [
    {"path": {"glob": "/etc/*"}},
    {"path": {"glob": "*/etc/passwd*"}},
    {"path": "/etc/passwd"},
    {"path": {"in": ["/etc/passwd", "/etc/shadow"]}},
    {"path": {"matches": "/etc/.*"}},
]


@pytest.mark.full
@pytest.mark.parametrize("path", [*EVASIONS, *ONLY_FOR_PATHS], ids=lambda path: ascii(path)[:60])
def test_a_denied_path_is_denied_however_it_is_spelled(path: str) -> None:
    """Conditions on paths see each spelling, also inside of a list."""
    for when in DENY:
        rule = Rule("deny", when=when)
        assert verdict(rule, "allow", {"path": path}) == "deny", when
        assert verdict(rule, "allow", {"path": ["/srv/data/a.txt", path]}) == "deny", when


@pytest.mark.parametrize("path", EVASIONS, ids=ascii)
def test_plain_conditions_see_the_spellings_too(path: str) -> None:
    """A condition on a path treats the value as a path: `glob`, `equals`, `in` and `matches` alike."""
    for when in PLAIN:
        assert verdict(Rule("deny", when=when), "allow", {"path": path}) == "deny", when


@pytest.mark.parametrize("path", [*EVASIONS, *ONLY_FOR_PATHS], ids=lambda path: ascii(path)[:60])
def test_no_spelling_leads_out_of_what_is_allowed(path: str) -> None:
    """An allow rule does not match what is, or may be, elsewhere."""
    for condition in ({"path_under": "/srv/data"}, {"path_glob": "/srv/data/*"}):
        rule = Rule("allow", when={"path": condition})
        assert verdict(rule, "deny", {"path": path}) == "deny"
        assert verdict(rule, "deny", {"path": ["/srv/data/a.txt", path]}) == "deny"


@pytest.mark.parametrize("path", OTHERS)
def test_other_paths_are_as_free_as_before(path: str) -> None:
    """A deny rule does not match a path that is certainly elsewhere."""
    for when in (*DENY[:3], *PLAIN[:1], *PLAIN[2:]):
        assert verdict(Rule("deny", when=when), "allow", {"path": path}) == "allow"


@pytest.mark.parametrize("path", INSIDE)
def test_paths_inside(path: str) -> None:
    """Usual spellings of a path inside are allowed."""
    assert verdict(Rule("allow", when={"path": {"path_under": "/srv/data"}}), "deny", {"path": path}) == "allow"


@pytest.mark.parametrize(
    ("when", "args", "effect"),
    [
        ({"files[*].path": {"path_under": "/srv"}}, {"files": [{"path": "/srv/a"}, {"path": "//srv/b"}]}, "allow"),
        ({"files[*].path": {"path_under": "/srv"}}, {"files": [{"path": "/srv/a"}, {"path": "/srv/../b"}]}, "deny"),
        ({"files[*].path": {"path_under": "/srv"}}, {"files": []}, "deny"),
        ({"move.to": {"path_under": "/srv"}}, {"move": {"to": "/srv/a"}}, "allow"),
        ({"move.to": {"path_under": "/srv"}}, {"move": {"to": ["/srv/a", ["/srv/b"]]}}, "deny"),
        ({"paths": {"path_under": "/srv"}}, {"paths": {"a": "/srv/a"}}, "deny"),
        ({"paths": {"path_under": "/srv"}}, {}, "deny"),
        ({"paths": {"path_under": "."}}, {"paths": ["src/a", "b"]}, "allow"),
        ({"paths": {"path_under": "src"}}, {"paths": ["src/a", "./src//b"]}, "allow"),
        ({"paths": {"path_under": "src"}}, {"paths": ["/src/a"]}, "deny"),
        ({"paths": {"path_under": "/"}}, {"paths": ["/anything"]}, "allow"),
        ({"paths": {"path_glob": "*.txt"}}, {"paths": ["/a/b.txt", "c.txt"]}, "allow"),
        ({"paths": {"path_glob": "*.txt"}}, {"paths": ["/a/b.txt", "c.TXT"]}, "deny"),
    ],
)
def test_nested_and_missing_values(when: dict[str, Any], args: dict[str, Any], effect: str) -> None:
    """Of many paths, an allow rule needs every one; what is missing or not a string is not allowed."""
    assert verdict(Rule("allow", when=when), "deny", args) == effect


@pytest.mark.parametrize(
    "operand",
    [
        "",
        " ",
        "../x",
        "/srv/../x",
        "~/x",
        "$HOME/x",
        "C:\\x",
        "/a\x00b",
        [],
        [3],
        3,
        None,
        "/proc/self/root",
    ],
)
def test_operands_that_cannot_be_compared(operand: Any) -> None:
    """A rule that could never be sure is refused when it is made."""
    for name in ("path_under", "path_glob"):
        with pytest.raises(ConfigurationError, match=name):
            Condition("path", {name: operand})


@pytest.mark.parametrize(
    ("pattern", "value", "holds"),
    [
        ("feature/*", "feature/x", True),
        ("feature/*", "main", False),
        ("image/*", "image/png", True),
        ("https://example.com/*", "https://example.com/a%20b?c=d#e", True),
        ("https://example.com/*", "https://example.org/x", False),
        ("/etc/*", "https://example.org/x", False),
        ("urgent*", "urgent: 50% off... at ~noon, $5", True),
        ("*secret*", "... a long text with / and \\ " * 1000, False),
        ("src/*", "src/*.py", True),
    ],
)
def test_plain_globs_serve_for_what_is_not_a_path(pattern: str, value: str, holds: bool) -> None:
    """Branches, media types, URLs and prose are compared as before, without doubt."""
    condition = Condition("value", {"glob": pattern})
    assert condition.holds({"value": value}) is Truth.of(holds)


NOISE = st.lists(st.sampled_from(["/", "/./", "//", "/.//", "/"]), min_size=2, max_size=2)


@pytest.mark.full
@settings(max_examples=300, deadline=None, derandomize=True)
@given(noise=NOISE, ends=st.tuples(st.sampled_from(["", " ", "\n", "file://"]), st.sampled_from(["", "/", " ", "/."])),
       encoded=st.sets(st.integers(0, 10)), rounds=st.integers(0, 3))  # fmt: skip
def test_any_mixture_of_spellings(noise: list[str], ends: tuple[str, str], encoded: set[int], rounds: int) -> None:
    """Spellings in any combination are seen, or are in doubt: never let through."""
    path = f"{noise[0]}etc{noise[1]}passwd"
    text = "".join(f"%{ord(sign):02x}" if number in encoded else sign for number, sign in enumerate(path))
    for _ in range(rounds):
        text = text.replace("%", "%25")
    text = ends[0] + text + ends[1]
    for when in (*DENY, *PLAIN):
        assert verdict(Rule("deny", when=when), "allow", {"path": text}) == "deny"
    assert verdict(Rule("allow", when={"path": {"path_under": "/srv"}}), "deny", {"path": text}) == "deny"

"""The tools of the catalogue that do what a program wanted of its machine: files, addresses, databases.

A tool is one of them where its name has the words of that, or words of the address that the program wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from toolexec.code.repair.bare_names import catalogue_of
from toolexec.code.repair.calls import arguments_of
from toolexec.code.repair.failure import Failure
from toolexec.code.tools import Tools

_WAYS: Final[Mapping[str, tuple[frozenset[str], ...]]] = {
    "file": tuple(frozenset(each.split()) for each in ("read file", "get file", "file content", "read document")),
    "fetch": tuple(frozenset(each.split()) for each in ("fetch", "http get", "get url", "read page", "web page")),
    "database": tuple(frozenset(each.split()) for each in ("sql", "db", "database", "query table", "run query")),
}
_WANTED: Final = (
    (
        "file",
        re.compile(r"FileNotFoundError: |.*'?require'? is not defined"),
        re.compile(r"open\(|['\"](?:node:)?fs\b"),
    ),
    (
        "fetch",
        re.compile(
            r"ModuleNotFoundError: No module named '(?:requests|httpx|aiohttp|urllib3)"
            r"|URLError|.*\bgaierror|ConnectionError|.*'?(?:fetch|axios|XMLHttpRequest|require)'? is not defined"
            r"|TypeError: fetch failed"
        ),
        re.compile(r"https?://|fetch|axios|requests"),
    ),
    (
        "database",
        re.compile(
            r"OperationalError|(?:sqlite3\.)?DatabaseError|ModuleNotFoundError: No module named "
            r"'(?:sqlalchemy|psycopg2?|pymysql|MySQLdb|asyncpg|duckdb)"
        ),
        re.compile(r"\bconnect\(|create_engine|execute\("),
    ),
)
"""What a program wanted, the messages of its failures, and what its code has then."""

_ADDRESS: Final = re.compile(r"https?://([^\s'\"`]{1,200})")
_PLAIN: Final = frozenset(
    ["api", "com", "csv", "data", "example", "get", "html", "http", "io", "json", "list", "net", "org", "v", "www"]
)
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_MOST_TOOLS: Final = 5_000
_MOST_SHOWN: Final = 3


def about_near_tools(failure: Failure, tools: Tools) -> str:
    """Return the calls of the tools that do what *failure* wanted of its machine; "" where there are none."""
    wanted = next(
        (way for way, said, has in _WANTED if said.match(failure.message) and has.search(failure.code)),
        "",
    )
    if not wanted:
        return ""
    words = {word for found in _ADDRESS.finditer(failure.code) for word in _words(found[1])} - _PLAIN
    found = [*islice(_near(_WAYS[wanted], words if wanted == "fetch" else set(), tools), _MOST_SHOWN)]
    return f"of the tools here, {' or '.join(found)} may do it" if found else ""


def _near(ways: tuple[frozenset[str], ...], words: set[str], tools: Tools) -> Iterator[str]:
    paths = [path for group in catalogue_of(tools.index).tools.values() for path in group]
    for path in islice(dict.fromkeys(paths), _MOST_TOOLS):
        own = set(_words(path))
        if (any(way <= own for way in ways) or words & own) and tools.allows(path):
            entry = tools.index.find(path)
            schema = entry.tool.input_schema.to_json() if entry is not None else None
            needed = schema.get("required") if isinstance(schema, dict) else None
            names = arguments_of(schema)[: len(needed)] if isinstance(needed, list) else ["..."] * (entry is None)
            spelled = re.sub(r"[^\w.]", "_", path.replace(":", "."))
            yield f"`tools.{spelled}({', '.join(names)})`"


def _words(text: str) -> list[str]:
    return [word.lower().removesuffix("s") for word in _WORD.findall(text)]

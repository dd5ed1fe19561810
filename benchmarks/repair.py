"""Programs as models write them: how many run at the first try, and how many a mechanical reader of the message fixes.

Each is run in the sandbox with the tools below. What fails, or has another value than it is to have, is changed as its
message says, or the notes of its result, and in no other way ("write
`this` instead of `that`", "leave `that` out", "did you mean this?", "send it with language='...'"), and is run again.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolexec import CodeResult, Exec, tool

CORPUS = Path(__file__).parent.parent / "tests" / "code" / "corpus"
_MOST_TRIES = 4
_INSTEAD = re.compile(r"write `(.*?)` instead of `(.*?)`(?= \(line|;|$)", re.DOTALL)
_OUT = re.compile(r"leave `(.*?)` out", re.DOTALL)
_NO_TOOL = re.compile(r"no tool (\S+); did you mean (\S+?)(?:\?| or )")
_NO_NAME = re.compile(r"'(\w+)' is not a known name; did you mean '(\w+)'|no '(\w+)'; did you mean (\w+)\?")
_PROMISE = re.compile(r"write `await (tools[\w.]+)\(\.\.\.\)`")
_LANGUAGE = re.compile(r"language='(\w+)'")
ORDERS = [
    {"id": 1, "customer": "ada", "total": 10.5, "status": "open"},
    {"id": 2, "customer": "bob", "total": 21.0, "status": "open"},
    {"id": 3, "customer": "cy", "total": 30.0, "status": "open"},
]


@tool("weather:get_forecast")
def _forecast(city: str, days: int = 1) -> dict[str, Any]:
    """Forecasts the weather of a city."""
    return {"city": city, "days": days, "high": 20 + len(city), "low": 10}


@tool("shop:list_orders")
def _list_orders(status: str = "open") -> list[dict[str, Any]]:
    """Lists the orders of a status."""
    return [order for order in ORDERS if order["status"] == status]


@tool("shop:get_order")
def _get_order(id: int) -> dict[str, Any]:
    """Reads an order."""
    return next(order for order in ORDERS if order["id"] == id)


@tool("shop:refund")
def _refund(order_id: int, amount: float) -> str:
    """Pays money back."""
    return f"refunded {amount}"


@tool("crm:find_customer")
def _find_customer(name: str) -> dict[str, str]:
    """Finds a customer by name."""
    return {"name": name, "email": f"{name}@example.com"}


@tool("mail:send")
def _send(to: str, subject: str, body: str) -> str:
    """Sends a mail."""
    return f"sent to {to}"


@tool("files:list-files")
def _list_files(folder: str) -> list[str]:
    """Lists the files of a directory."""
    return ["a.txt", "b.txt"]


@tool("math:add")
def _add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@tool("text:summarize")
def _summarize(text: str, max_words: int = 5) -> str:
    """Keeps the first words of a text."""
    return " ".join(text.split()[:max_words])


def add_tools(ex: Exec) -> None:
    """Add the tools that the programs call."""
    tools = _forecast, _list_orders, _get_order, _refund, _find_customer, _send, _list_files, _add, _summarize
    for each in tools:
        ex.add(each)


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the corpus: its name, language and code, the value it is to have, and what its message must say
    where it is wrong. With `for_reader` no text need be put in the place of another: saying that is enough.
    Of a text given in several forms, one is to be said."""

    name: str
    language: str
    code: str
    value: object
    says: tuple[tuple[str, ...], ...] = ()
    for_reader: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a program: `ran` at the first try, `fixed` from its message, or its first `message`. One that was
    `misled` was changed as its messages say, ran, and has another value."""

    program: Program
    ran: bool
    fixed: bool
    message: str = ""
    misled: bool = False
    failed: bool = False
    value: object = None
    """What the program had as it was written; with `failed`, it had an error."""


@dataclass(frozen=True, slots=True)
class Share:
    """Of how many programs: those that ran at the first try, and of the others those that were fixed."""

    programs: int
    ran: float
    fixed: float


def programs(name: str) -> list[Program]:
    """Return the programs of one file of the corpus. Raises OSError and ValueError."""
    found: list[Program] = []
    for language, entries in tomllib.loads((CORPUS / f"{name}.toml").read_text()).items():
        for number, entry in enumerate(entries):
            code, value = entry["code"], json.loads(entry["value"])
            says = tuple((text,) if isinstance(text, str) else tuple(text) for text in entry.get("says", ()))
            for_reader = entry.get("reader", False)
            found.append(Program(f"{name}-{language}-{number}", language, code, value, says, for_reader))
    return found


async def judge(ex: Exec, program: Program, **settings: Any) -> Outcome:
    """Run a program, and again as its message says, at most three times."""
    code, language = program.code, program.language
    result = await ex.execute_code(code, language=language, **settings)
    first = messages = said(result)
    failed, value = result.error is not None, result.value
    ran = result.error is None and result.value == program.value
    is_changed = False
    for _ in range(_MOST_TRIES):
        if ran or (result.error is None and result.value == program.value):
            break
        changed = fixed(code, language, said(result))
        if changed == (code, language):
            break
        code, language = changed
        is_changed = True
        result = await ex.execute_code(code, language=language, **settings)
        messages = f"{messages}\n{said(result)}"
    is_right = result.error is None and result.value == program.value
    is_fixed = not ran and is_right
    if program.for_reader:
        is_fixed = is_fixed or (not ran and all(any(form in messages for form in text) for text in program.says))
    misled = is_changed and result.error is None and not is_right and not is_fixed
    return Outcome(program, ran, is_fixed, first or f"value: {result.value!r}", misled, failed, value)


def said(result: CodeResult) -> str:
    """Return what a model is told beside the value: the error, or else the notes."""
    return str(result.error) if result.error is not None else "; ".join(result.notes)


def fixed(code: str, language: str, message: str) -> tuple[str, str]:
    """Return the program and its language as *message* says; as they are where it says nothing of the kind."""
    if found := _LANGUAGE.search(message):
        return code, found[1]
    if written := list(_INSTEAD.finditer(message)):
        for found in written:
            code = _replaced(code, found[2], found[1])
        return code, language
    if found := _OUT.search(message):
        return code.replace(found[1], "", 1), language
    if found := _PROMISE.search(message):
        return re.sub(rf"(?<!await ){re.escape(found[1])}\(", f"await {found[1]}(", code), language
    if found := _NO_TOOL.search(message):
        parts = found[1].split(":"), found[2].split(":")
        pairs = zip(*parts, strict=True) if len(parts[0]) == len(parts[1]) else [(found[1], found[2])]
        for old, new in pairs:
            code = _replaced(code, old, new)
        return code, language
    for found in _NO_NAME.finditer(message):
        code = _replaced(code, found[1] or found[3], found[2] or found[4])
    return code, language


def _replaced(code: str, old: str, new: str) -> str:
    whole = (
        rf"(?<!\w)(?:(?<!\.)|(?<=\.\.\.)){re.escape(old)}"
        if re.match(r"\w", old) and not old.isidentifier()
        else re.escape(old)
    )
    if old.isidentifier():
        whole = rf"(?<!\w){old}(?!\w)"
    return re.sub(whole, lambda _: new, code)


def shares(outcomes: Iterable[Outcome]) -> Iterator[tuple[str, Share]]:
    """Yield the share of each language; TypeScript is counted with JavaScript."""
    by_language: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_language.setdefault("python" if outcome.program.language == "python" else "javascript", []).append(outcome)
    for language, of in by_language.items():
        ran = sum(each.ran for each in of)
        rest = len(of) - ran
        yield language, Share(len(of), ran / len(of), sum(each.fixed for each in of) / rest if rest else 1.0)

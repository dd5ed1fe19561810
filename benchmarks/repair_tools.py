"""The tools that the third blind set of programs calls: none of them is in the other sets."""

from __future__ import annotations

from typing import Any

from toolexec import Exec, tool

_ISSUES: list[dict[str, Any]] = [
    {"number": 12, "title": "Crash at start", "state": "open", "labels": ["bug"], "author": {"login": "mia"}},
    {"number": 15, "title": "Dark mode", "state": "open", "labels": ["feature"], "author": {"login": "noah"}},
    {"number": 9, "title": "Typo in README", "state": "closed", "labels": ["docs"], "author": {"login": "mia"}},
    {"number": 21, "title": "Slow search", "state": "open", "labels": ["bug", "search"], "author": {"login": "liv"}},
]
_STAFF: list[dict[str, Any]] = [
    {"employee_id": 7, "name": "Ida", "department": "sales", "salary": 52_000, "manager_id": None},
    {"employee_id": 8, "name": "Jon", "department": "sales", "salary": 48_000, "manager_id": 7},
    {"employee_id": 9, "name": "Kay", "department": "support", "salary": 45_500, "manager_id": 7},
]
_EVENTS: list[dict[str, Any]] = [
    {"id": "e1", "title": "Standup", "start": "2026-03-02T09:00:00", "minutes": 15, "attendees": ["ida", "jon"]},
    {"id": "e2", "title": "Review", "start": "2026-03-02T13:30:00", "minutes": 60, "attendees": ["ida", "kay"]},
    {"id": "e3", "title": "1:1", "start": "2026-03-02T16:00:00", "minutes": 30, "attendees": ["jon"]},
]
_PRICES = {"ACME": 120.5, "GLOBEX": 80.0, "INITECH": 42.25}
_RATES = {"USD": 1.0, "EUR": 1.25, "GBP": 1.5}
_STOCK = {"A-1": 4, "B-2": 0, "C-3": 17}
_NOTES = {"notes/todo.md": "- buy milk\n- call Ida\n- [x] pay rent\n", "notes/ideas.md": "one idea\n"}


@tool("tracker:list_issues", read_only=True)
def _list_issues(repo: str, state: str = "open", label: str | None = None) -> dict[str, Any]:
    """Lists the issues of a repository."""
    found = [each for each in _ISSUES if state in (each["state"], "all") and (label is None or label in each["labels"])]
    return {"repo": repo, "total_count": len(found), "items": found}


@tool("tracker:get_issue", read_only=True)
def _get_issue(repo: str, number: int) -> dict[str, Any]:
    """Reads one issue."""
    return next(each for each in _ISSUES if each["number"] == number)


@tool("tracker:add_comment")
def _add_comment(repo: str, number: int, body: str) -> dict[str, Any]:
    """Comments on an issue."""
    return {"number": number, "comment": body, "id": 1000 + number}


@tool("calendar:list_events", read_only=True)
def _list_events(date: str) -> list[dict[str, Any]]:
    """Lists the events of a day, as 2026-03-02."""
    return [each for each in _EVENTS if each["start"].startswith(date)]


@tool("calendar:create_event")
def _create_event(title: str, start: str, minutes: int = 30, attendees: list[str] | None = None) -> dict[str, Any]:
    """Creates an event."""
    return {"id": "e9", "title": title, "start": start, "minutes": minutes, "attendees": attendees or []}


@tool("hr:list_employees", read_only=True)
def _list_employees(department: str | None = None) -> list[dict[str, Any]]:
    """Lists employees, those of one department if given."""
    return [each for each in _STAFF if department in (None, each["department"])]


@tool("hr:get_employee", read_only=True)
def _get_employee(employee_id: int) -> dict[str, Any]:
    """Reads one employee."""
    return next(each for each in _STAFF if each["employee_id"] == employee_id)


@tool("chat:post_message")
def _post_message(channel: str, text: str) -> dict[str, Any]:
    """Posts a message to a channel."""
    return {"ok": True, "channel": channel, "ts": f"{len(text)}.0"}


@tool("stocks:get_quote", read_only=True)
def _get_quote(symbol: str) -> dict[str, Any]:
    """Reads the price of a share, in USD."""
    return {"symbol": symbol, "price": _PRICES[symbol], "currency": "USD"}


@tool("fx:convert", read_only=True)
def _convert(amount: float, from_currency: str, to_currency: str) -> float:
    """Converts an amount of money."""
    return round(amount * _RATES[from_currency] / _RATES[to_currency], 2)


@tool("warehouse:getStock")
def _get_stock(sku: str) -> dict[str, Any]:
    """Reads how many of an article are there."""
    return {"sku": sku, "quantity": _STOCK[sku], "warehouse": "north"}


@tool("warehouse:reserveStock")
def _reserve_stock(sku: str, quantity: int) -> dict[str, Any]:
    """Reserves articles."""
    return {"sku": sku, "reserved": quantity, "left": _STOCK[sku] - quantity}


@tool("fs:read-file")
def _read_file(path: str) -> str:
    """Reads a text file."""
    return _NOTES[path]


@tool("fs:list-directory")
def _list_directory(path: str) -> list[str]:
    """Lists the files of a directory."""
    return [name for name in _NOTES if name.startswith(path)]


@tool("translate:translate_text", read_only=True)
def _translate_text(text: str, target_lang: str) -> dict[str, str]:
    """Translates a text."""
    return {"translation": f"[{target_lang}] {text}", "detected": "en"}


def add_office_tools(ex: Exec) -> None:
    """Add the tools of an office: issues, a calendar, staff, chat, shares, money, stock, files and translations."""
    issues = _list_issues, _get_issue, _add_comment
    people = _list_events, _create_event, _list_employees, _get_employee, _post_message
    things = _get_quote, _convert, _get_stock, _reserve_stock, _read_file, _list_directory, _translate_text
    for each in (*issues, *people, *things):
        ex.add(each)

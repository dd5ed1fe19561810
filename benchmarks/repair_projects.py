"""The tools that the fifth blind set of programs calls: issues, a calendar, employees, accounts, measurements."""

from __future__ import annotations

from typing import Any, Literal

from toolexec import Exec, tool

_ISSUES: list[dict[str, Any]] = [
    {
        "number": number,
        "title": title,
        "state": state,
        "labels": [{"name": label} for label in labels],
        "assignee": {"login": login} if login else None,
        "comments": comments,
        "created_at": created_at,
    }
    for number, title, state, labels, login, comments, created_at in (
        (11, "Crash on save", "open", ["bug", "editor"], "mia", 4, "2026-01-05T09:30:00Z"),
        (12, "Add dark theme", "open", ["feature"], None, 9, "2026-01-20T14:00:00Z"),
        (13, "Typo in docs", "open", ["docs"], "leo", 0, "2026-02-02T08:15:00Z"),
        (14, "Memory leak", "open", ["bug"], None, 2, "2026-02-10T17:45:00Z"),
        (15, "Old login page", "closed", ["feature"], "mia", 1, "2025-11-30T10:00:00Z"),
    )
]
_EVENTS: list[dict[str, Any]] = [
    {"id": id, "title": title, "start": {"dateTime": start}, "end": {"dateTime": end}, "attendees": attendees}
    for id, title, start, end, attendees in (
        ("e1", "Standup", "2026-03-02T09:00:00+00:00", "2026-03-02T09:15:00+00:00", ["ada@x.io", "ben@x.io"]),
        ("e2", "Planning", "2026-03-02T10:00:00+00:00", "2026-03-02T11:30:00+00:00", ["ada@x.io", "cho@x.io"]),
        ("e3", "Retro", "2026-03-03T15:00:00+00:00", "2026-03-03T16:00:00+00:00", []),
    )
]
_EMPLOYEES: dict[int, dict[str, Any]] = {
    id: {
        "id": id,
        "first_name": first,
        "last_name": last,
        "email": f"{first.lower()}@x.io",
        "manager_id": manager,
        "hired_on": hired_on,
        "salary": {"amount": amount, "currency": "EUR"},
    }
    for id, first, last, manager, hired_on, amount in (
        (1, "Ada", "Berg", None, "2019-06-01", 9000),
        (2, "Ben", "Ito", 1, "2021-03-15", 6000),
        (3, "Cho", "Park", 1, "2023-09-01", 5500),
    )
}
_TEAMS = {"core": [2, 3], "leads": [1]}
_BALANCES = {"ACC-1": "1250.50", "ACC-2": "80.00"}
_TRANSACTIONS: list[dict[str, Any]] = [
    {"id": "t1", "amount": -42.0, "description": "Groceries", "date": "2026-02-01"},
    {"id": "t2", "amount": 2000.0, "description": "Salary", "date": "2026-02-05"},
    {"id": "t3", "amount": -15.5, "description": "Streaming", "date": "2026-02-11"},
    {"id": "t4", "amount": -120.0, "description": "Groceries", "date": "2026-02-20"},
]
_LATENCY = {"2026-03-01T00:00:00Z": 120.0, "2026-03-01T06:00:00Z": 180.0, "2026-03-01T12:00:00Z": 150.0}


@tool("repo:list_issues", read_only=True)
def _list_issues(
    state: Literal["open", "closed"] = "open", labels: list[str] | None = None, page: int = 1, per_page: int = 3
) -> dict[str, Any]:
    """Lists issues, a page at a time."""
    wanted = set(labels or ())
    found = [
        each for each in _ISSUES if each["state"] == state and wanted <= {label["name"] for label in each["labels"]}
    ]
    start = (page - 1) * per_page
    return {
        "items": found[start : start + per_page],
        "total_count": len(found),
        "has_more": start + per_page < len(found),
    }


@tool("repo:get_issue", read_only=True)
def _get_issue(number: int) -> dict[str, Any]:
    """Reads an issue."""
    for each in _ISSUES:
        if each["number"] == number:
            return each
    raise ValueError(f"no issue {number}")


@tool("repo:add_label")
def _add_label(number: int, label: str) -> list[str]:
    """Adds a label to an issue, and returns all it has."""
    labels = [each["name"] for issue in _ISSUES if issue["number"] == number for each in issue["labels"]]
    return [*labels, label]


@tool("repo:close_issue")
def _close_issue(number: int, reason: Literal["completed", "not_planned"] = "completed") -> dict[str, Any]:
    """Closes an issue."""
    return {"number": number, "state": "closed", "reason": reason}


@tool("repo:search-code", read_only=True)
def _search_code(query: str, language: str | None = None) -> list[dict[str, Any]]:
    """Searches the code."""
    return [
        {"path": "src/app.py", "line": 10, "text": "def main():"},
        {"path": "src/util.py", "line": 3, "text": "def helper():"},
    ]


@tool("calendar:list_events", read_only=True)
def _list_events(start: str, end: str) -> dict[str, Any]:
    """Lists the events from a day to another, both included."""
    return {"events": [each for each in _EVENTS if start[:10] <= each["start"]["dateTime"][:10] <= end[:10]]}


@tool("calendar:create_event")
def _create_event(
    title: str, start: str, duration_minutes: int = 30, attendees: list[str] | None = None
) -> dict[str, Any]:
    """Puts an event into the calendar."""
    return {"event_id": f"new-{title.lower()}", "minutes": duration_minutes, "invited": len(attendees or [])}


@tool("hr:get_employee", read_only=True)
def _get_employee(employee_id: int) -> dict[str, Any]:
    """Reads an employee."""
    return _EMPLOYEES[employee_id]


@tool("hr:list_team", read_only=True)
def _list_team(team: str) -> dict[str, Any]:
    """Lists the employees of a team, by number."""
    return {"team": team, "member_ids": _TEAMS[team]}


@tool("bank:get_balance", read_only=True)
def _get_balance(account: str) -> dict[str, str]:
    """Reads the balance of an account."""
    return {"available": _BALANCES[account], "currency": "EUR"}


@tool("bank:list_transactions", read_only=True)
def _list_transactions(account: str, since: str | None = None) -> list[dict[str, Any]]:
    """Lists transactions, the oldest first."""
    return [each for each in _TRANSACTIONS if since is None or each["date"] >= since]


@tool("bank:transfer")
def _transfer(from_account: str, to_account: str, amount: float, memo: str = "") -> str:
    """Moves money, and returns the number of the transfer."""
    return f"TX-{from_account}-{to_account}-{amount:g}"


@tool("docs:read_page", read_only=True)
def _read_page(path: str) -> str:
    """Reads a page as Markdown."""
    return "# Guide\n\nInstall it.\n\n## Usage\n\nRun it.\n"


@tool("metrics:query", read_only=True)
def _query(name: str, window_hours: int = 24) -> dict[str, Any]:
    """Reads a measurement, by time."""
    return {"name": name, "series": _LATENCY, "unit": "ms"}


@tool("flags:is_enabled", read_only=True)
def _is_enabled(flag: str) -> bool:
    """Tells whether a feature is on."""
    return flag == "new-ui"


def add_project_tools(ex: Exec) -> None:
    """Add the tools of a project: issues, code, a calendar, employees, accounts, pages, measurements, features."""
    issues = _list_issues, _get_issue, _add_label, _close_issue, _search_code
    people = _list_events, _create_event, _get_employee, _list_team
    for each in (*issues, *people, _get_balance, _list_transactions, _transfer, _read_page, _query, _is_enabled):
        ex.add(each)

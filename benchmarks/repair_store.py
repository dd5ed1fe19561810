"""The tools of the twelfth set of programs: a code forge, a chat, invoices, measurements, documents and a calendar."""

from __future__ import annotations

import json
from typing import Any

from toolexec import Exec, tool

ISSUES: list[dict[str, Any]] = [
    {
        "number": 100 + number,
        "title": title,
        "state": "closed" if closed else "open",
        "user": {"login": login},
        "labels": [{"name": name} for name in labels],
        "assignee": {"login": assignee} if assignee else None,
        "comments": comments,
        "created_at": f"2025-03-{number:02}T09:30:00Z",
        "closed_at": closed,
    }
    for number, title, login, labels, assignee, comments, closed in (
        (1, "Crash on empty upload", "mira", ["bug", "p1"], "jon", 7, None),
        (2, "Dark mode", "sol", ["feature"], None, 2, None),
        (3, "Slow search", "mira", ["bug"], "ana", 4, "2025-03-09T12:00:00Z"),
        (4, "Typo in guide", "kai", ["docs"], None, 0, "2025-03-05T08:00:00Z"),
        (5, "Login loop", "jon", ["bug", "p1"], "ana", 11, None),
        (6, "Export as CSV", "sol", ["feature"], "jon", 3, None),
        (7, "Wrong totals", "kai", ["bug"], None, 5, None),
    )
]
CHANNELS: list[dict[str, Any]] = [
    {"id": "C01", "name": "general", "num_members": 40, "is_archived": False},
    {"id": "C02", "name": "billing", "num_members": 6, "is_archived": False},
    {"id": "C03", "name": "launch-2024", "num_members": 12, "is_archived": True},
]
CUSTOMERS: dict[str, dict[str, Any]] = {
    "cus_1": {"id": "cus_1", "name": "Nordwind", "email": "ap@nordwind.test", "plan": "pro"},
    "cus_2": {"id": "cus_2", "name": "Café Lune", "email": "hello@lune.test", "plan": None},
    "cus_3": {"id": "cus_3", "name": "Okapi Ltd", "email": "pay@okapi.test", "plan": "team"},
}
CITIES = {"cus_1": ("Bergen", "NO"), "cus_2": ("Lyon", "FR"), "cus_3": ("Leeds", "GB")}
INVOICES: list[dict[str, Any]] = [
    {
        "id": f"inv_{number}",
        "customer_id": f"cus_{customer}",
        "amount": amount,
        "currency": currency,
        "status": status,
        "due_date": due,
        "lines": [{"sku": sku, "quantity": quantity} for sku, quantity in lines],
    }
    for number, customer, amount, currency, status, due, lines in (
        (1, 1, "120.50", "EUR", "paid", "2025-02-01", [("A-1", 2), ("B-7", 1)]),
        (2, 2, "80.00", "EUR", "open", "2025-03-10", [("A-1", 1)]),
        (3, 3, "310.25", "GBP", "open", "2025-02-20", [("C-3", 5)]),
        (4, 1, "45.10", "EUR", "open", "2025-04-01", [("B-7", 3)]),
        (5, 2, "19.90", "EUR", "void", "2025-01-15", []),
        (6, 3, "99.99", "GBP", "paid", "2025-03-01", [("A-1", 4), ("C-3", 1)]),
    )
]
FILES = {
    "reports/sales.csv": "region,units,price\nnorth,10,2.50\nsouth,4,3.00\nnorth,6,2.00\n",
    "reports/config.json": json.dumps({"threshold": 50, "owners": {"billing": "ana", "search": "jon"}}),
    "notes/standup.md": "# Standup\n- ana: search index\n- jon: login loop\n- kai: on leave\n",
}
EVENTS: list[dict[str, Any]] = [
    {"title": "Standup", "start": "2025-03-12T09:00:00+00:00", "end": "2025-03-12T09:15:00+00:00"},
    {"title": "Review", "start": "2025-03-12T13:00:00+00:00", "end": "2025-03-12T14:30:00+00:00"},
]


@tool("github:list_issues", read_only=True)
def _list_issues(owner: str, repo: str, state: str = "all", page: int = 1, per_page: int = 3) -> dict[str, Any]:
    """Lists the issues of a repository, a page at a time; state is open, closed or all."""
    found = [each for each in ISSUES if state in ("all", each["state"])]
    items = found[(page - 1) * per_page : page * per_page]
    return {"total_count": len(found), "items": items, "has_more": page * per_page < len(found)}


@tool("github:get_issue", read_only=True)
def _get_issue(owner: str, repo: str, issue_number: int) -> dict[str, Any]:
    """Reads one issue."""
    for each in ISSUES:
        if each["number"] == issue_number:
            return each
    raise LookupError(f"no issue {issue_number}")


@tool("github:create_comment")
def _create_comment(owner: str, repo: str, issue_number: int, body: str) -> dict[str, Any]:
    """Comments on an issue."""
    return {"id": 9000 + issue_number, "body": body}


@tool("slack:list_channels", read_only=True)
def _list_channels() -> dict[str, Any]:
    """Lists the channels."""
    return {"ok": True, "channels": CHANNELS}


@tool("slack:post_message")
def _post_message(channel: str, text: str, thread_ts: str | None = None) -> dict[str, Any]:
    """Posts a message into a channel, by its ID."""
    if channel not in {each["id"] for each in CHANNELS}:
        raise ValueError("channel_not_found")
    return {"ok": True, "channel": channel, "ts": "1700.01"}


@tool("billing:list_invoices", read_only=True)
def _list_invoices(
    customer_id: str | None = None, status: str | None = None, cursor: str | None = None, limit: int = 4
) -> dict[str, Any]:
    """Lists invoices; next_cursor leads to the next page, and is null on the last."""
    found = [
        each for each in INVOICES if customer_id in (None, each["customer_id"]) and status in (None, each["status"])
    ]
    start = int(cursor.removeprefix("c")) if cursor else 0
    end = start + limit
    return {"data": found[start:end], "next_cursor": f"c{end}" if end < len(found) else None}


@tool("billing:get_customer", read_only=True)
def _get_customer(customer_id: str) -> dict[str, Any]:
    """Reads a customer."""
    city, country = CITIES[customer_id]
    return {**CUSTOMERS[customer_id], "address": {"city": city, "country": country}}


@tool("billing:refund_invoice")
def _refund_invoice(invoice_id: str, amount: float, reason: str) -> dict[str, Any]:
    """Pays back an invoice that was paid."""
    invoice = next(each for each in INVOICES if each["id"] == invoice_id)
    if invoice["status"] != "paid":
        raise ValueError(f"{invoice_id} is {invoice['status']}, not paid")
    return {"refund_id": f"re_{invoice_id}", "amount": amount}


@tool("metrics:query", read_only=True)
def _query(metric: str, start: str, end: str, step: str = "1d") -> list[dict[str, Any]]:
    """Returns the points of a metric between two days."""
    values = [12.0, 15.5, None, 11.0, 20.0, 18.5]
    points = [{"timestamp": f"2025-03-0{day}", "value": value} for day, value in enumerate(values, 1)]
    return [each for each in points if start <= str(each["timestamp"]) <= end]


@tool("docs:list_files", read_only=True)
def _list_files(directory: str) -> list[str]:
    """Lists the paths in a directory."""
    return [path for path in FILES if path.startswith(directory)]


@tool("docs:read_file", read_only=True)
def _read_file(path: str) -> str:
    """Reads a text file."""
    if path not in FILES:
        raise FileNotFoundError(path)
    return FILES[path]


@tool("calendar:list_events", read_only=True)
def _list_events(day: str) -> list[dict[str, Any]]:
    """Lists the events of a day."""
    return [each for each in EVENTS if each["start"].startswith(day)]


@tool("calendar:create_event")
def _create_event(title: str, start: str, end: str, attendees: list[str]) -> dict[str, Any]:
    """Enters an event."""
    return {"event_id": f"ev-{len(attendees)}", "title": title, "start": start}


@tool("users:lookup", read_only=True)
def _lookup(login: str) -> dict[str, Any] | None:
    """Finds a user by login; null if there is none."""
    known = {"ana": ("Ana Ruiz", "ana@acme.test"), "jon": ("Jon Berg", "jon@acme.test")}
    return {"name": known[login][0], "email": known[login][1]} if login in known else None


def add_store_tools(ex: Exec) -> None:
    """Add the tools that the programs of the twelfth set call."""
    tools = (
        _list_issues,
        _get_issue,
        _create_comment,
        _list_channels,
        _post_message,
        _list_invoices,
        _get_customer,
        _refund_invoice,
        _query,
        _list_files,
        _read_file,
        _list_events,
        _create_event,
        _lookup,
    )
    for each in tools:
        ex.add(each)

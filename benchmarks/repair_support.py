"""The tools that the fourth blind set of programs calls: those of customer support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from toolexec import Exec, tool

_TICKETS: list[dict[str, Any]] = [
    {"id": "T-1", "subject": "Login fails", "status": "open", "priority": "high", "tags": ["auth", "bug"], "by": "ana"},
    {
        "id": "T-2",
        "subject": "Invoice missing",
        "status": "open",
        "priority": "normal",
        "tags": ["billing"],
        "by": "ben",
    },
    {
        "id": "T-3",
        "subject": "Slow dashboard",
        "status": "open",
        "priority": "low",
        "tags": ["perf", "bug"],
        "by": "ana",
    },
    {
        "id": "T-4",
        "subject": "Refund request",
        "status": "pending",
        "priority": "high",
        "tags": ["billing"],
        "by": "cid",
    },
    {"id": "T-5", "subject": "Export broken", "status": "open", "priority": "high", "tags": ["bug"], "by": "dee"},
]
_PLANS = {"ana": (101, "pro"), "ben": (102, "free"), "cid": (103, "pro"), "dee": (104, "free")}
_STOCK = {"KB-1": 12, "MS-2": 0, "MN-3": 5}
_PRODUCTS: list[dict[str, Any]] = [
    {"sku": "KB-1", "name": "Keyboard", "price_cents": 4900, "category": "peripherals"},
    {"sku": "MS-2", "name": "Mouse", "price_cents": 1900, "category": "peripherals"},
    {"sku": "MN-3", "name": "Monitor", "price_cents": 19900, "category": "screens"},
]
_DISTANCES = {("Oslo", "Bergen"): 463.0, ("Oslo", "Trondheim"): 494.0}
_ARTICLES: list[dict[str, Any]] = [
    {"title": "Reset a password", "url": "/a/1", "score": 0.92},
    {"title": "Two-factor login", "url": "/a/2", "score": 0.81},
    {"title": "Billing FAQ", "url": "/a/3", "score": 0.4},
]


@dataclass(frozen=True, slots=True)
class _Order:
    sku: str
    quantity: int
    destination: str


def _shown(ticket: dict[str, Any]) -> dict[str, Any]:
    name = ticket["by"]
    requester = {"name": name.capitalize(), "email": f"{name}@x.io"}
    return {**{key: value for key, value in ticket.items() if key != "by"}, "requester": requester}


@tool("tickets:list_tickets", read_only=True)
def _list_tickets(status: str = "open", limit: int = 2, cursor: str | None = None) -> dict[str, Any]:
    """Lists tickets, page by page: the next page is asked for with the cursor of the one before."""
    found = [_shown(each) for each in _TICKETS if each["status"] == status]
    start = int(cursor or 0)
    end = start + limit
    return {"tickets": found[start:end], "next_cursor": str(end) if end < len(found) else None}


@tool("tickets:get_ticket", read_only=True)
def _get_ticket(ticket_id: str) -> dict[str, Any]:
    """Reads one ticket."""
    for each in _TICKETS:
        if each["id"] == ticket_id:
            return _shown(each)
    raise ValueError(f"no ticket {ticket_id}")


@tool("tickets:update_ticket")
def _update_ticket(
    ticket_id: str,
    status: Literal["open", "pending", "solved"] | None = None,
    priority: Literal["low", "normal", "high"] | None = None,
) -> dict[str, Any]:
    """Changes the status or the priority of a ticket."""
    return {"id": ticket_id, "status": status, "priority": priority, "updated": True}


@tool("people:lookup_user", read_only=True)
def _lookup_user(email: str) -> dict[str, Any]:
    """Finds a user by address."""
    name = email.partition("@")[0]
    number, plan = _PLANS[name]
    return {"user": {"id": number, "name": name.capitalize(), "plan": plan}}


@tool("inventory:check_stock", read_only=True)
def _check_stock(sku: str) -> int:
    """Counts how many of a product are there."""
    return _STOCK[sku]


@tool("inventory:list_products", read_only=True)
def _list_products(category: str | None = None) -> dict[str, Any]:
    """Lists products."""
    found = [each for each in _PRODUCTS if category in (None, each["category"])]
    return {"products": found, "count": len(found)}


@tool("shipping:quote", read_only=True)
def _quote(weight_kg: float, destination: str, express: bool = False) -> dict[str, Any]:
    """Says what shipping costs."""
    price = round(4 + 2 * weight_kg + (6 if express else 0), 2)
    return {"price": price, "currency": "EUR", "days": 1 if express else 3, "destination": destination}


@tool("shipping:create_label")
def _create_label(order: _Order) -> dict[str, str]:
    """Makes a label for an order."""
    return {"label_id": f"L-{order.sku}-{order.quantity}", "destination": order.destination}


@tool("reports:export_csv", read_only=True)
def _export_csv(name: str) -> str:
    """Exports a report as CSV."""
    return "region,amount\nnorth,100\nsouth,250\neast,75\n"


@tool("config:read_settings", read_only=True)
def _read_settings() -> str:
    """Reads the settings, as JSON."""
    return '{"currency": "EUR", "limits": {"max_refund": 50}, "regions": ["north", "south"]}'


@tool("notify:send_sms")
def _send_sms(to: str, message: str) -> None:
    """Sends a text message."""


@tool("clock:now", read_only=True)
def _now() -> str:
    """Says what time it is, in UTC."""
    return "2026-03-02T12:00:00Z"


@tool("geo:distance-km", read_only=True)
def _distance(origin: str, destination: str) -> float:
    """Measures the distance between two places."""
    return _DISTANCES[origin, destination]


@tool("kb:search_articles", read_only=True)
def _search_articles(query: str, limit: int = 3) -> list[dict[str, Any]]:
    """Searches the articles of the knowledge base, best first."""
    return _ARTICLES[:limit]


def add_support_tools(ex: Exec) -> None:
    """Add the tools of customer support: tickets, users, articles, stock, shipping, reports, settings, time."""
    tickets = _list_tickets, _get_ticket, _update_ticket, _lookup_user, _search_articles
    things = _check_stock, _list_products, _quote, _create_label, _export_csv, _read_settings
    for each in (*tickets, *things, _send_sms, _now, _distance):
        ex.add(each)

"""The tools that the seventh blind set of programs calls: a bank, a clinic, parcels, metrics, files, a school."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from toolexec import Exec, tool


@dataclass(frozen=True, slots=True)
class _Slot:
    day: str
    time: str


@dataclass(frozen=True, slots=True)
class _Point:
    lat: float
    lng: float


_ACCOUNTS: list[dict[str, Any]] = [
    {"account_id": "A-1", "holder": {"first": "Ida", "last": "Berg"}, "balance_cents": 125000, "closed_at": None},
    {"account_id": "A-2", "holder": {"first": "Omar", "last": "Ali"}, "balance_cents": 5050, "closed_at": "2025-12-01"},
    {"account_id": "A-3", "holder": {"first": "Lea", "last": "Roth"}, "balance_cents": 990, "closed_at": None},
]
_TRANSACTIONS: list[dict[str, Any]] = [
    {"tx_id": 1, "amount_cents": -1500, "posted_at": 1_767_225_600_000, "category": "food"},
    {"tx_id": 2, "amount_cents": -4200, "posted_at": 1_767_312_000_000, "category": "rent"},
    {"tx_id": 3, "amount_cents": 9000, "posted_at": 1_767_398_400_000, "category": None},
]
_PATIENTS: list[dict[str, Any]] = [
    {"patient_id": 501, "name": "Rosa Diaz", "birth_date": "1980-03-14", "allergies": "nuts;pollen"},
    {"patient_id": 502, "name": "Luis Diaz", "birth_date": "2015-07-01", "allergies": None},
]
_SLOTS: list[dict[str, Any]] = [
    {"time": "09:00", "doctor": "Kim", "free": True},
    {"time": "09:30", "doctor": "Kim", "free": False},
    {"time": "10:00", "doctor": "Bauer", "free": True},
]
_PARCELS: dict[str, Any] = {
    "PX1": {
        "number": "PX1",
        "status": "in_transit",
        "weight_g": 1200,
        "events": [
            {"at": "2026-05-30T08:00:00Z", "place": "Lyon", "code": 10},
            {"at": "2026-05-31T18:30:00Z", "place": "Basel", "code": 20},
        ],
    },
    "PX2": {"number": "PX2", "status": "delivered", "weight_g": 300, "events": []},
}
_SERIES: list[dict[str, Any]] = [
    {"labels": {"host": "web-1"}, "points": [[1000, 0.5], [1060, 0.75]]},
    {"labels": {"host": "web-2"}, "points": [[1000, 0.25], [1060, None]]},
]
_ALERTS = {"cpu-high": {"firing": True, "severity": 3}, "disk-full": {"firing": False, "severity": 5}}
_FILES = {
    "scores.csv": "name,score\nann,7\nben,9\n",
    "config.json": json.dumps({"theme": "dark", "limits": {"rows": 50}}),
}
_RECIPES: list[dict[str, Any]] = [
    {
        "id": 11,
        "title": "Soup",
        "minutes": 25,
        "ingredients": [{"item": "leek", "grams": 200}, {"item": "potato", "grams": 300}],
        "tags": ["vegan"],
    },
    {"id": 12, "title": "Gratin", "minutes": 60, "ingredients": [{"item": "potato", "grams": 500}], "tags": []},
]
_PLACES = {"zurich": (47.4, 8.5), "milan": (45.5, 9.2)}


@tool("bank:list_accounts", read_only=True)
def _list_accounts() -> list[dict[str, Any]]:
    """Lists the accounts, with balances in cents."""
    return _ACCOUNTS


@tool("bank:list_transactions", read_only=True)
def _list_transactions(account_id: str, cursor: str | None = None, page_size: int = 2) -> dict[str, Any]:
    """Lists the transactions of an account, a page at a time; times are milliseconds since 1970."""
    start = int(cursor or 0)
    end = start + page_size
    return {"items": _TRANSACTIONS[start:end], "next_cursor": str(end) if end < len(_TRANSACTIONS) else None}


@tool("bank:transfer")
def _transfer(
    from_account: str, to_account: str, amount_cents: int, kind: Literal["instant", "standard"] = "standard"
) -> dict[str, Any]:
    """Moves money between accounts."""
    return {"transfer": {"id": f"T-{from_account}-{to_account}", "amount_cents": amount_cents, "kind": kind}}


@tool("clinic:search_patients", read_only=True)
def _search_patients(last_name: str) -> dict[str, Any]:
    """Finds patients by their last name."""
    found = [each for each in _PATIENTS if each["name"].endswith(last_name)]
    return {"patients": found, "total": len(found)}


@tool("clinic:list_slots", read_only=True)
def _list_slots(day: str, doctor: str | None = None) -> list[dict[str, Any]]:
    """Lists the times of a day."""
    return [each for each in _SLOTS if doctor in (None, each["doctor"])]


@tool("clinic:book_slot")
def _book_slot(patient_id: int, slot: _Slot, reason: str | None = None) -> str:
    """Books a time for a patient."""
    return f"{patient_id}: {slot.day} {slot.time}"


@tool("parcels:track", read_only=True)
def _track(number: str) -> dict[str, Any]:
    """Reads where a parcel is."""
    if number not in _PARCELS:
        raise ValueError(f"no parcel {number}; numbers look like PX1")
    return {"parcel": _PARCELS[number]}


@tool("parcels:quote", read_only=True)
def _quote(weight_kg: float, size_cm: list[float], service: Literal["economy", "express"]) -> dict[str, Any]:
    """Reads what a parcel costs."""
    net = (10.0 if service == "economy" else 25.0) + weight_kg
    return {"price": {"net": net, "vat": round(net * 0.2, 2)}, "days": 5 if service == "economy" else 1}


@tool("metrics-store:query-range", read_only=True)
def _query_range(metric: str, start: int, end: int, step: Literal["1m", "5m", "1h"] = "1m") -> dict[str, Any]:
    """Reads the points of a metric, of each host."""
    return {"series": _SERIES, "metric": metric}


@tool("metrics-store:list-alerts", read_only=True)
def _list_alerts() -> dict[str, Any]:
    """Lists the alerts by name."""
    return {"alerts": _ALERTS}


@tool("db:query", read_only=True)
def _query(sql: str, params: list[str] | None = None) -> dict[str, Any]:
    """Runs a statement."""
    rows = [[1, "Oslo", 30], [2, "Bern", 12], [3, "Oslo", 8]]
    return {"columns": ["id", "city", "sales"], "rows": [row for row in rows if not params or row[1] in params]}


@tool("drive:read_file", read_only=True)
def _read_file(path: str) -> str:
    """Reads the text of a file."""
    return _FILES[path]


@tool("drive:write_file")
def _write_file(path: str, content: str, overwrite: bool = False) -> dict[str, Any]:
    """Writes the text of a file."""
    return {"path": path, "bytes": len(content.encode()), "overwritten": overwrite}


@tool("recipes:find", read_only=True)
def _find(ingredients: list[str], max_minutes: int | None = None) -> list[dict[str, Any]]:
    """Finds recipes that use all ingredients."""
    return [
        each
        for each in _RECIPES
        if set(ingredients) <= {part["item"] for part in each["ingredients"]}
        and (max_minutes is None or each["minutes"] <= max_minutes)
    ]


@tool("geo:geocode", read_only=True)
def _geocode(place: str) -> dict[str, Any]:
    """Finds where a place is."""
    found = _PLACES.get(place.lower())
    return {"results": [{"label": place, "location": {"lat": found[0], "lng": found[1]}}] if found else []}


@tool("geo:distance_km", read_only=True)
def _distance(origin: _Point, target: _Point) -> float:
    """Measures how far two points are from each other."""
    return round(100 * abs(origin.lat - target.lat), 1)


@tool("school:get_grades", read_only=True)
def _get_grades(student: str) -> dict[str, Any]:
    """Reads the grades of a student, by subject."""
    return {"student": student, "grades": {"math": [5, 6], "art": [4], "music": []}}


def add_town_tools(ex: Exec) -> None:
    """Add the tools of a town: a bank, a clinic, parcels, metrics, tables, a drive, recipes, places, a school."""
    money = _list_accounts, _list_transactions, _transfer, _search_patients, _list_slots, _book_slot, _track, _quote
    data = _query_range, _list_alerts, _query, _read_file, _write_file, _find, _geocode, _distance, _get_grades
    for each in (*money, *data):
        ex.add(each)

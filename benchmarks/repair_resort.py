"""The tools that the eighth blind set of programs calls: books, a hotel, a stock room, meters, shows, bikes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.repair_resort_records import (
    BOOKS,
    EMPLOYEES,
    LOANS,
    RATES,
    READINGS,
    RESERVATIONS,
    ROOMS,
    SHIFTS,
    SHOWS,
    STATIONS,
    STOCK,
)
from toolexec import Exec, tool


@dataclass(frozen=True, slots=True)
class _Stay:
    check_in: str
    check_out: str


@dataclass(frozen=True, slots=True)
class _Seat:
    row: str
    number: int


@tool("readingroom:find_titles", read_only=True)
def _find_titles(query: str, page: int = 1, per_page: int = 2) -> dict[str, Any]:
    """Finds books by words of their titles, a page at a time."""
    found = [each for each in BOOKS if query.lower() in each["title"].lower()]
    start = (page - 1) * per_page
    pages = -(-len(found) // per_page)
    return {"results": found[start : start + per_page], "page": page, "total_pages": pages, "total": len(found)}


@tool("readingroom:get_title", read_only=True)
def _get_title(isbn: str) -> dict[str, Any]:
    """Reads a book."""
    found = [each for each in BOOKS if each["isbn"] == isbn]
    if not found:
        raise ValueError(f"no book {isbn}")
    return found[0]


@tool("readingroom:list_borrowed", read_only=True)
def _list_borrowed(member_id: int) -> list[dict[str, Any]]:
    """Lists what a member has borrowed."""
    return LOANS if member_id == 8 else []


@tool("readingroom:extend_loan")
def _extend_loan(loan_id: int, weeks: Literal[1, 2, 4] = 2) -> dict[str, Any]:
    """Lets a member keep a book for longer."""
    return {"loan": {"loan_id": loan_id, "weeks_added": weeks}, "renewed": True}


@tool("hotel:list_rooms", read_only=True)
def _list_rooms(floor: int | None = None) -> dict[str, Any]:
    """Lists the rooms, with what a night costs."""
    return {"rooms": [each for each in ROOMS if floor in (None, each["floor"])]}


@tool("hotel:find_reservations", read_only=True)
def _find_reservations(
    check_in: str, status: Literal["confirmed", "cancelled", "no_show"] = "confirmed"
) -> dict[str, Any]:
    """Finds the reservations that begin on a day."""
    found = [each for each in RESERVATIONS if each["check_in"] == check_in and each["status"] == status]
    return {"data": found, "meta": {"count": len(found)}}


@tool("hotel:create_reservation")
def _create_reservation(
    guest_name: str, stay: _Stay, room_kind: Literal["single", "double", "suite"], adults: int = 1
) -> dict[str, Any]:
    """Reserves a room."""
    nights = int(stay.check_out[-2:]) - int(stay.check_in[-2:])
    rate = {"single": 80.0, "double": 120.5, "suite": 310.0}[room_kind]
    return {"reservation": {"confirmation": "R-9100", "guest": guest_name, "nights": nights}, "total": nights * rate}


@tool("stockroom:list_articles", read_only=True)
def _list_articles(after: str | None = None, limit: int = 2) -> dict[str, Any]:
    """Lists what is kept in stock, a page at a time."""
    names = list(STOCK)
    start = names.index(after) + 1 if after else 0
    page = names[start : start + limit]
    return {"skus": page, "has_more": start + limit < len(names), "last": page[-1] if page else None}


@tool("stockroom:get_levels", read_only=True)
def _get_levels(sku: str) -> dict[str, Any]:
    """Reads how much of an article is in which bin."""
    if sku not in STOCK:
        raise ValueError(f"unknown SKU {sku}")
    return STOCK[sku]


@tool("stockroom:move_pieces")
def _move_pieces(sku: str, from_bin: str, to_bin: str, qty: int) -> dict[str, Any]:
    """Moves pieces of an article to another bin."""
    return {"sku": sku, "moved": qty, "bins": [from_bin, to_bin]}


@tool("energy-meter:read-usage", read_only=True)
def _read_usage(meter_id: str, start: str, end: str, resolution: Literal["hour", "day"] = "day") -> dict[str, Any]:
    """Reads what was used from one day to another."""
    return {"meter": {"id": meter_id, "resolution": resolution}, "unit": "Wh", "readings": READINGS}


@tool("energy-meter:get-tariff", read_only=True)
def _get_tariff(plan: str) -> dict[str, Any]:
    """Reads the prices of a plan."""
    bands = {
        "peak": {"from": "07:00", "to": "22:00", "cents_per_kwh": 32.5},
        "off_peak": {"from": "22:00", "to": "07:00", "cents_per_kwh": 18.0},
    }
    return {"plan": plan, "bands": bands, "standing_cents_per_day": 45}


@tool("boxoffice:list_shows", read_only=True)
def _list_shows(on: str | None = None) -> list[dict[str, Any]]:
    """Lists the shows, of one day or of all."""
    return [each for each in SHOWS if on is None or each["starts_at"].startswith(on)]


@tool("boxoffice:free_seats", read_only=True)
def _free_seats(show_id: str, section: Literal["stalls", "balcony"] = "stalls") -> dict[str, Any]:
    """Reads which seats of a show are free, by row."""
    rows = {"A": [1, 2, 5], "B": [], "C": [7]} if section == "stalls" else {"K": [3]}
    return {"show_id": show_id, "section": section, "rows": rows}


@tool("boxoffice:hold_seats")
def _hold_seats(show_id: str, seats: list[_Seat], email: str | None = None) -> dict[str, Any]:
    """Keeps seats for some minutes."""
    return {"hold": {"code": f"H-{show_id}", "expires_in_s": 600}, "seats": [f"{x.row}{x.number}" for x in seats]}


@tool("bikes:list_stations", read_only=True)
def _list_stations() -> dict[str, Any]:
    """Lists the stations by name, with their bikes."""
    return {"stations": STATIONS}


@tool("bikes:estimate_trip", read_only=True)
def _estimate_trip(from_station: str, to_station: str, pace: Literal["easy", "fast"] = "easy") -> dict[str, Any]:
    """Estimates how far and how long a trip is."""
    return {"distance_m": 4200, "duration_s": 1500 if pace == "easy" else 900}


@tool("staff:list_shifts", read_only=True)
def _list_shifts(week: str) -> list[dict[str, Any]]:
    """Lists who works when in a week."""
    return SHIFTS if week == "2026-W23" else []


@tool("staff:get_person", read_only=True)
def _get_person(employee_id: int) -> dict[str, Any]:
    """Reads an employee."""
    if employee_id not in EMPLOYEES:
        raise ValueError(f"no employee {employee_id}")
    return EMPLOYEES[employee_id]


@tool("money:exchange", read_only=True)
def _exchange(amount: float, source: str, target: str) -> dict[str, Any]:
    """Converts money."""
    rate = RATES[target] / RATES[source]
    return {"amount": round(amount * rate, 2), "rate": rate}


@tool("journal:add_entry")
def _add_entry(text: str, level: Literal["info", "warning", "error"] = "info", tags: list[str] | None = None) -> str:
    """Writes an entry into the journal of the house."""
    return f"{level}: {text} {sorted(tags or [])}"


def add_resort_tools(ex: Exec) -> None:
    """Add the tools of a resort: books, a hotel, a stock room, meters, shows, bikes, staff, money, a journal."""
    house = _find_titles, _get_title, _list_borrowed, _extend_loan, _list_rooms, _find_reservations, _create_reservation
    goods = _list_articles, _get_levels, _move_pieces, _read_usage, _get_tariff, _list_shows, _free_seats, _hold_seats
    rest = _list_stations, _estimate_trip, _list_shifts, _get_person, _exchange, _add_entry
    for each in (*house, *goods, *rest):
        ex.add(each)

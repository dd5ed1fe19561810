"""What the tools of the eighth blind set know: its books, rooms, articles, shows, bikes and people."""

from __future__ import annotations

from typing import Any, Final

BOOKS: Final[list[dict[str, Any]]] = [
    {
        "isbn": "978-1",
        "title": "Salt Roads",
        "authors": [{"name": {"given": "Nora", "family": "Lind"}, "role": "author"}],
        "published": 1998,
        "copies": {"total": 3, "available": 1},
        "shelf": {"floor": 2, "code": "B4"},
    },
    {
        "isbn": "978-2",
        "title": "Glass Rivers",
        "authors": [
            {"name": {"given": "Teo", "family": "Marsh"}, "role": "author"},
            {"name": {"given": "Ines", "family": "Vega"}, "role": "translator"},
        ],
        "published": 2011,
        "copies": {"total": 2, "available": 0},
        "shelf": None,
    },
    {
        "isbn": "978-3",
        "title": "Salt and Iron",
        "authors": [{"name": {"given": "Nora", "family": "Lind"}, "role": "author"}],
        "published": 2020,
        "copies": {"total": 5, "available": 4},
        "shelf": {"floor": 1, "code": "A1"},
    },
]
LOANS: Final[list[dict[str, Any]]] = [
    {"loan_id": 71, "isbn": "978-1", "due_on": "2026-06-10", "returned_on": None, "fine_cents": 0},
    {"loan_id": 72, "isbn": "978-2", "due_on": "2026-05-20", "returned_on": None, "fine_cents": 350},
    {"loan_id": 73, "isbn": "978-3", "due_on": "2026-05-01", "returned_on": "2026-05-04", "fine_cents": 90},
]
ROOMS: Final[list[dict[str, Any]]] = [
    {
        "number": "101",
        "floor": 1,
        "kind": "single",
        "rate": {"amount": "80.00", "currency": "EUR"},
        "amenities": ["wifi", "desk"],
        "guest": None,
    },
    {
        "number": "102",
        "floor": 1,
        "kind": "double",
        "rate": {"amount": "120.50", "currency": "EUR"},
        "amenities": ["wifi"],
        "guest": {"full_name": "Mia Kurz", "until": "2026-06-04"},
    },
    {
        "number": "201",
        "floor": 2,
        "kind": "suite",
        "rate": {"amount": "310.00", "currency": "EUR"},
        "amenities": ["wifi", "balcony", "bath"],
        "guest": None,
    },
]
RESERVATIONS: Final[list[dict[str, Any]]] = [
    {
        "confirmation": "R-9001",
        "guest": {"full_name": "Mia Kurz", "email": "mia@example.com"},
        "check_in": "2026-06-01",
        "nights": 3,
        "status": "confirmed",
        "extras": {"breakfast": True, "parking": False},
    },
    {
        "confirmation": "R-9002",
        "guest": {"full_name": "Jon Abe", "email": None},
        "check_in": "2026-06-01",
        "nights": 1,
        "status": "confirmed",
        "extras": {"breakfast": False, "parking": True},
    },
    {
        "confirmation": "R-9003",
        "guest": {"full_name": "Lou Petit", "email": "lou@example.com"},
        "check_in": "2026-06-01",
        "nights": 7,
        "status": "cancelled",
        "extras": {},
    },
]
STOCK: Final[dict[str, dict[str, Any]]] = {
    "SOAP-1": {
        "sku": "SOAP-1",
        "levels": [{"bin": "A-01", "qty": 40, "reserved": 5}, {"bin": "B-02", "qty": 10, "reserved": 0}],
        "reorder_at": 30,
        "unit_weight_g": 90,
        "supplier": {"id": 4, "name": "Clean Co"},
    },
    "TOWEL-2": {
        "sku": "TOWEL-2",
        "levels": [{"bin": "A-03", "qty": 12, "reserved": 8}],
        "reorder_at": 20,
        "unit_weight_g": 450,
        "supplier": {"id": 7, "name": "Loom"},
    },
    "LAMP-3": {"sku": "LAMP-3", "levels": [], "reorder_at": 2, "unit_weight_g": 1500, "supplier": None},
}
READINGS: Final[list[dict[str, Any]]] = [
    {"ts": 1_780_272_000, "value": 12_000},
    {"ts": 1_780_358_400, "value": 9_500},
    {"ts": 1_780_444_800, "value": None},
    {"ts": 1_780_531_200, "value": 14_500},
]
SHOWS: Final[list[dict[str, Any]]] = [
    {
        "show_id": "S1",
        "title": "The Lighthouse",
        "starts_at": "2026-06-05T19:30:00+02:00",
        "minutes": 95,
        "prices": {"adult": 40.0, "child": 15.0},
        "seats_left": 12,
    },
    {
        "show_id": "S2",
        "title": "Two Clowns",
        "starts_at": "2026-06-06T15:00:00+02:00",
        "minutes": 50,
        "prices": {"adult": 18.0, "child": 9.0},
        "seats_left": None,
    },
    {
        "show_id": "S3",
        "title": "Winter Songs",
        "starts_at": "2026-06-06T20:00:00+02:00",
        "minutes": 120,
        "prices": {"adult": 55.0, "child": 27.5},
        "seats_left": 3,
    },
]
STATIONS: Final[dict[str, dict[str, Any]]] = {
    "lake": {
        "docks": 10,
        "bikes": [
            {"bike_id": 1, "battery": 0.92, "last_service": "2026-04-02"},
            {"bike_id": 2, "battery": 0.15, "last_service": None},
        ],
    },
    "station": {"docks": 6, "bikes": [{"bike_id": 3, "battery": 0.55, "last_service": "2026-05-11"}]},
    "summit": {"docks": 4, "bikes": []},
}
EMPLOYEES: Final[dict[int, dict[str, Any]]] = {
    31: {"employee_id": 31, "name": "Pia Holm", "role": "reception", "hourly_rate": 21.5, "manager_id": None},
    32: {"employee_id": 32, "name": "Sam Oduya", "role": "kitchen", "hourly_rate": 19.0, "manager_id": 31},
    33: {"employee_id": 33, "name": "Eva Lanz", "role": "kitchen", "hourly_rate": 24.0, "manager_id": 32},
}
SHIFTS: Final[list[dict[str, Any]]] = [
    {"employee": {"id": 31, "name": "Pia Holm"}, "day": "mon", "start": "08:00", "end": "16:30"},
    {"employee": {"id": 32, "name": "Sam Oduya"}, "day": "mon", "start": "10:00", "end": "18:00"},
    {"employee": {"id": 32, "name": "Sam Oduya"}, "day": "tue", "start": "10:00", "end": "14:00"},
    {"employee": {"id": 33, "name": "Eva Lanz"}, "day": "wed", "start": "06:30", "end": "14:30"},
]
RATES: Final = {"EUR": 1.0, "USD": 1.25, "CHF": 0.95}

"""The tools that the sixth blind set of programs calls: flights, hotels, money, a home, books, music, quotes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolexec import Exec, tool


@dataclass(frozen=True, slots=True)
class _Passenger:
    name: str
    age: int


_FLIGHTS: list[dict[str, Any]] = [
    {
        "flight_no": number,
        "price": {"total": total, "currency": "EUR"},
        "departs": departs,
        "arrives": arrives,
        "stops": stops,
        "seats_left": seats,
    }
    for number, total, departs, arrives, stops, seats in (
        ("TX101", 240.0, "2026-05-01T08:00:00", "2026-05-01T10:30:00", 0, 4),
        ("TX205", 180.0, "2026-05-01T12:00:00", "2026-05-01T17:00:00", 1, None),
        ("TX309", 310.0, "2026-05-01T19:15:00", "2026-05-01T21:45:00", 0, 9),
    )
]
_HOTELS: list[dict[str, Any]] = [
    {"hotel_id": 7, "name": "Lindt", "nightly_rate": 95.0, "rating": 4.2, "amenities": ["wifi", "pool"]},
    {"hotel_id": 8, "name": "Alba", "nightly_rate": 140.0, "rating": None, "amenities": ["wifi"]},
    {"hotel_id": 9, "name": "Corso", "nightly_rate": 60.0, "rating": 3.6, "amenities": []},
]
_DEVICES: list[dict[str, Any]] = [
    {"device_id": "lamp-1", "room": "kitchen", "kind": "light", "on": True, "state": {"brightness": 80}},
    {"device_id": "lamp-2", "room": "hall", "kind": "light", "on": False, "state": {"brightness": 0}},
    {"device_id": "plug-1", "room": "kitchen", "kind": "plug", "on": True, "state": {}},
]
_BOOKS: list[dict[str, Any]] = [
    {"isbn": "978-1", "title": "Rivers", "authors": ["Ana Sol", "Bo Lind"], "year": 1999, "loan": None},
    {"isbn": "978-2", "title": "Stones", "authors": ["Cy Moor"], "year": 2012, "loan": {"due": "2026-04-10"}},
    {"isbn": "978-3", "title": "Winds", "authors": ["Ana Sol"], "year": 2020, "loan": None},
]
_TRACKS = [{"track": "Dawn", "plays": 900}, {"track": "Noon", "plays": 700}, {"track": "Dusk", "plays": 400}]
_QUOTES = {"ACME": (105.0, 100.0), "GLOBEX": (48.0, 50.0)}
_KEPT = {"home_city": "Rome", "budget": 500}


@tool("flights:search", read_only=True)
def _search(origin: str, destination: str, date: str) -> dict[str, Any]:
    """Finds flights of a day."""
    return {"data": {"flights": _FLIGHTS, "currency": "EUR"}, "meta": {"count": len(_FLIGHTS)}}


@tool("flights:book")
def _book(flight_no: str, passengers: list[_Passenger]) -> dict[str, Any]:
    """Books seats of a flight."""
    return {"booking_ref": f"B-{flight_no}-{len(passengers)}", "status": "confirmed"}


@tool("hotels:find", read_only=True)
def _find(city: str, max_rate: float | None = None) -> list[dict[str, Any]]:
    """Finds hotels in a city."""
    return [each for each in _HOTELS if max_rate is None or each["nightly_rate"] <= max_rate]


@tool("hotels:availability", read_only=True)
def _availability(hotel_id: int, check_in: str, check_out: str) -> dict[str, Any]:
    """Tells which rooms are free."""
    return {"available": hotel_id != 9, "rooms": {"single": 2, "double": 0}}


@tool("fx:convert", read_only=True)
def _convert(amount: float, from_currency: str, to_currency: str) -> float:
    """Converts an amount of money."""
    return round(amount * (1.1 if to_currency == "USD" else 1.0), 2)


@tool("home:list_devices", read_only=True)
def _list_devices(room: str | None = None) -> dict[str, Any]:
    """Lists the devices at home."""
    return {"devices": [each for each in _DEVICES if room in (None, each["room"])]}


@tool("home:set_state")
def _set_state(device_id: str, on: bool, brightness: int | None = None) -> dict[str, Any]:
    """Switches a device."""
    return {"device_id": device_id, "on": on, "brightness": brightness}


@tool("home:read_sensor", read_only=True)
def _read_sensor(sensor_id: str) -> dict[str, Any]:
    """Reads a sensor."""
    return {"reading": {"value": 21.5, "unit": "C"}, "battery": 0.8}


@tool("library:search_books", read_only=True)
def _search_books(query: str, limit: int = 10) -> list[dict[str, Any]]:
    """Searches books."""
    return _BOOKS[:limit]


@tool("library:get_loans", read_only=True)
def _get_loans(member: str) -> list[list[str]]:
    """Lists loans: the number of a book, and the day when it is due."""
    return [["978-2", "2026-04-10"], ["978-5", "2026-03-28"]]


@tool("music:top_tracks", read_only=True)
def _top_tracks(artist: str, n: int = 3) -> list[dict[str, Any]]:
    """Lists the tracks that are played most."""
    return _TRACKS[:n]


@tool("weather:hourly", read_only=True)
def _hourly(lat: float, lon: float) -> dict[str, Any]:
    """Forecasts by the hour, in columns."""
    return {"hourly": {"time": ["09:00", "12:00", "15:00"], "temperature": [11.5, 16.0, 18.5]}, "unit": "C"}


@tool("news:headlines", read_only=True)
def _headlines(topic: str) -> str:
    """Lists headlines, one a line."""
    return "Rates held\nPort reopens\nTeam wins final\n"


@tool("kv:get", read_only=True)
def _get(key: str) -> Any:
    """Reads a value; null if there is none."""
    return _KEPT.get(key)


@tool("kv:put")
def _put(key: str, value: Any) -> None:
    """Keeps a value."""


@tool("stocks-api:get-quote", read_only=True)
def _get_quote(symbol: str) -> dict[str, Any]:
    """Reads the price of a share."""
    last, before = _QUOTES[symbol]
    return {"symbol": symbol, "last": last, "prev_close": before}


def add_travel_tools(ex: Exec) -> None:
    """Add the tools of a traveller: flights, hotels, money, a home, books, music, weather, news, values, quotes."""
    trips = _search, _book, _find, _availability, _convert, _hourly
    home = _list_devices, _set_state, _read_sensor, _search_books, _get_loans, _top_tracks
    for each in (*trips, *home, _headlines, _get, _put, _get_quote):
        ex.add(each)

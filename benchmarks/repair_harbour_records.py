"""What the tools of the ninth blind set know: port calls, vessels, berths, containers, declarations and invoices."""

from __future__ import annotations

from typing import Any, Final


def _call(
    number: int, imo: str, name: str, flag: str, berth: str | None, eta: str, ata: str | None, status: str, agent: str
) -> dict[str, Any]:
    return {
        "call_id": f"PC-{number}",
        "vessel": {"imo": imo, "name": name, "flag": flag},
        "berth_code": berth,
        "schedule": {"eta": eta, "ata": ata},
        "status": status,
        "agent_id": agent,
    }


CALLS: Final[list[Any]] = [
    _call(
        501, "IMO9321483", "Nordic Heron", "DK", "B2", "2026-09-14T05:30:00Z", "2026-09-14T06:10:00Z", "berthed", "AG-7"
    ),
    _call(502, "IMO9706891", "Adria Queen", "HR", None, "2026-09-15T11:00:00Z", None, "expected", "AG-3"),
    _call(503, "IMO9461867", "Long Bridge", "SG", None, "2026-09-15T23:30:00Z", None, "expected", "AG-7"),
    _call(
        504,
        "IMO9811000",
        "Ocean Plover",
        "PA",
        "B1",
        "2026-09-12T14:00:00Z",
        "2026-09-12T13:20:00Z",
        "departed",
        "AG-7",
    ),
    _call(
        505,
        "IMO9321483",
        "Nordic Heron",
        "DK",
        "B3",
        "2026-08-30T04:00:00Z",
        "2026-08-30T07:45:00Z",
        "departed",
        "AG-3",
    ),
    _call(
        506, "IMO9550082", "Sable Point", "LR", "B1", "2026-09-14T16:00:00Z", "2026-09-14T15:55:00Z", "berthed", "AG-1"
    ),
    _call(507, "IMO9706891", "Adria Queen", "HR", None, "2026-09-17T08:15:00Z", None, "expected", "AG-3"),
]
VESSELS: Final[dict[str, dict[str, Any]]] = {
    "IMO9321483": {
        "imo": "IMO9321483",
        "name": "Nordic Heron",
        "operator": {"code": "NHL", "name": "Nordhav Line"},
        "dimensions": {"length_m": 294.1, "beam_m": 32.2, "draught_m": 12.8},
        "capacity_teu": 4250,
        "built": 2007,
        "last_ports": [{"locode": "DKAAR", "left_on": "2026-09-12"}, {"locode": "NLRTM", "left_on": "2026-09-09"}],
    },
    "IMO9706891": {
        "imo": "IMO9706891",
        "name": "Adria Queen",
        "operator": {"code": "ADR", "name": "Adriamar"},
        "dimensions": {"length_m": 172.0, "beam_m": 27.5, "draught_m": 9.4},
        "capacity_teu": 1700,
        "built": 2015,
        "last_ports": [{"locode": "HRRJK", "left_on": "2026-09-08"}],
    },
    "IMO9461867": {
        "imo": "IMO9461867",
        "name": "Long Bridge",
        "operator": {"code": "SBL", "name": "Straits Bridge Lines"},
        "dimensions": {"length_m": 366.0, "beam_m": 48.2, "draught_m": 15.2},
        "capacity_teu": 13100,
        "built": 2012,
        "last_ports": [],
    },
    "IMO9811000": {
        "imo": "IMO9811000",
        "name": "Ocean Plover",
        "operator": None,
        "dimensions": {"length_m": 229.0, "beam_m": 32.2, "draught_m": 11.9},
        "capacity_teu": 3100,
        "built": 2018,
        "last_ports": [{"locode": "ESALG", "left_on": "2026-09-07"}],
    },
    "IMO9550082": {
        "imo": "IMO9550082",
        "name": "Sable Point",
        "operator": {"code": "NHL", "name": "Nordhav Line"},
        "dimensions": {"length_m": 208.9, "beam_m": 29.8, "draught_m": 10.1},
        "capacity_teu": 2500,
        "built": 2010,
        "last_ports": [{"locode": "GBFXT", "left_on": "2026-09-13"}],
    },
}
BERTHS: Final[dict[str, Any]] = {
    "B1": {"length_m": 240, "max_draught_m": 11.0, "cranes": ["CR-1"], "occupied_by": "PC-506"},
    "B2": {"length_m": 320, "max_draught_m": 13.5, "cranes": ["CR-2", "CR-3"], "occupied_by": "PC-501"},
    "B3": {"length_m": 400, "max_draught_m": 16.0, "cranes": ["CR-4", "CR-5", "CR-6"], "occupied_by": None},
    "B4": {"length_m": 180, "max_draught_m": 9.0, "cranes": [], "occupied_by": None},
}
TIDES: Final[dict[str, Any]] = {
    "2026-09-14": [
        {"at": "2026-09-14T03:12:00+02:00", "kind": "high", "height_cm": 412},
        {"at": "2026-09-14T09:24:00+02:00", "kind": "low", "height_cm": 88},
        {"at": "2026-09-14T15:38:00+02:00", "kind": "high", "height_cm": 398},
        {"at": "2026-09-14T21:49:00+02:00", "kind": "low", "height_cm": 95},
    ],
    "2026-09-15": [
        {"at": "2026-09-15T03:55:00+02:00", "kind": "high", "height_cm": 401},
        {"at": "2026-09-15T10:06:00+02:00", "kind": "low", "height_cm": 102},
    ],
}
CRANE_HOURS: Final[list[dict[str, Any]]] = [
    {"crane_id": "CR-1", "day": "2026-09-13", "worked_min": 410, "downtime": [{"reason": "wind", "minutes": 70}]},
    {"crane_id": "CR-2", "day": "2026-09-13", "worked_min": 480, "downtime": []},
    {
        "crane_id": "CR-1",
        "day": "2026-09-14",
        "worked_min": 300,
        "downtime": [{"reason": "wind", "minutes": 45}, {"reason": "repair", "minutes": 135}],
    },
    {"crane_id": "CR-2", "day": "2026-09-14", "worked_min": 455, "downtime": [{"reason": "crew", "minutes": 25}]},
    {"crane_id": "CR-4", "day": "2026-09-14", "worked_min": 0, "downtime": [{"reason": "repair", "minutes": 480}]},
]
_LINES = {
    "NHL": {"code": "NHL", "name": "Nordhav Line"},
    "ADR": {"code": "ADR", "name": "Adriamar"},
    "SBL": {"code": "SBL", "name": "Straits Bridge Lines"},
}


def _container(
    number: str,
    size: int,
    state: str,
    gross: int | None,
    position: tuple[str, int, int, int] | None,
    line: str,
    arrived: str,
    free_until: str | None,
    hazard: dict[str, str] | None = None,
) -> dict[str, Any]:
    place = dict(zip(("block", "bay", "row", "tier"), position, strict=True)) if position else None
    found = {
        "container_no": number,
        "size_ft": size,
        "state": state,
        "gross_kg": gross,
        "position": place,
        "line": _LINES[line],
        "arrived_at": arrived,
        "free_until": free_until,
    }
    return {**found, "hazard": hazard} if hazard else found


CONTAINERS: Final[list[Any]] = [
    _container("NHLU1040011", 20, "full", 18400, ("A", 3, 1, 2), "NHL", "2026-09-10T08:15:00Z", "2026-09-15"),
    _container("NHLU1040027", 40, "reefer", 26150, ("R", 1, 4, 1), "NHL", "2026-09-14T09:40:00Z", "2026-09-17"),
    _container(
        "ADRU2200318",
        40,
        "full",
        30200,
        ("A", 7, 2, 1),
        "ADR",
        "2026-09-02T17:05:00Z",
        "2026-09-09",
        {"un": "1203", "imdg_class": "3"},
    ),
    _container("ADRU2200324", 20, "empty", None, ("D", 11, 5, 4), "ADR", "2026-08-21T12:00:00Z", None),
    _container("SBLU7751902", 40, "full", 28750, None, "SBL", "2026-09-12T15:30:00Z", "2026-09-19"),
    _container("SBLU7751918", 40, "reefer", 24980, ("R", 2, 1, 2), "SBL", "2026-09-12T16:10:00Z", "2026-09-16"),
    _container("NHLU1040032", 40, "empty", None, ("D", 9, 2, 1), "NHL", "2026-09-01T07:20:00Z", None),
    _container(
        "ADRU2200330",
        20,
        "full",
        21300,
        ("B", 4, 4, 3),
        "ADR",
        "2026-09-11T10:45:00Z",
        "2026-09-16",
        {"un": "1950", "imdg_class": "2.1"},
    ),
    _container("SBLU7751923", 20, "full", 15900, ("B", 5, 1, 1), "SBL", "2026-09-12T18:00:00Z", "2026-09-19"),
]
EVENTS: Final[dict[str, list[dict[str, Any]]]] = {
    "NHLU1040011": [
        {"at": "2026-09-10T08:15:00Z", "type": "discharged", "by": {"kind": "crane", "id": "CR-2"}},
        {"at": "2026-09-10T09:02:00Z", "type": "stacked", "by": {"kind": "straddle", "id": "SC-9"}},
        {"at": "2026-09-13T13:30:00Z", "type": "inspected", "by": None},
    ],
    "NHLU1040027": [{"at": "2026-09-14T09:40:00Z", "type": "discharged", "by": {"kind": "crane", "id": "CR-3"}}],
    "ADRU2200318": [
        {"at": "2026-09-02T17:05:00Z", "type": "gated_in", "by": {"kind": "truck", "id": "ZG-4411-K"}},
        {"at": "2026-09-02T17:40:00Z", "type": "stacked", "by": {"kind": "straddle", "id": "SC-2"}},
    ],
}
BLOCKS: Final[list[Any]] = [
    {"block": "A", "capacity_teu": 600, "used_teu": 510, "reefer_plugs": None},
    {"block": "B", "capacity_teu": 480, "used_teu": 120, "reefer_plugs": None},
    {"block": "D", "capacity_teu": 900, "used_teu": 855, "reefer_plugs": None},
    {"block": "R", "capacity_teu": 160, "used_teu": 88, "reefer_plugs": {"total": 80, "in_use": 61}},
]
REEFERS: Final[dict[str, dict[str, Any]]] = {
    "NHLU1040027": {
        "setpoint_c": -18.0,
        "samples": [
            {"at": "2026-09-14T12:00:00Z", "supply_c": -17.6},
            {"at": "2026-09-14T13:00:00Z", "supply_c": None},
            {"at": "2026-09-14T14:00:00Z", "supply_c": -14.2},
            {"at": "2026-09-14T15:00:00Z", "supply_c": -16.0},
        ],
        "alarms": [{"code": "T-HIGH", "raised_at": "2026-09-14T14:05:00Z", "cleared_at": None}],
    },
    "SBLU7751918": {
        "setpoint_c": 4.0,
        "samples": [
            {"at": "2026-09-14T12:00:00Z", "supply_c": 4.2},
            {"at": "2026-09-14T13:00:00Z", "supply_c": 4.4},
            {"at": "2026-09-14T14:00:00Z", "supply_c": 3.9},
        ],
        "alarms": [],
    },
}
SLOTS: Final[dict[str, list[dict[str, Any]]]] = {
    "north": [
        {"slot_id": "TS-N06", "from": "06:00", "to": "08:00", "free": 0},
        {"slot_id": "TS-N08", "from": "08:00", "to": "10:00", "free": 3},
        {"slot_id": "TS-N10", "from": "10:00", "to": "12:00", "free": 11},
        {"slot_id": "TS-N14", "from": "14:00", "to": "16:00", "free": 1},
    ],
    "south": [
        {"slot_id": "TS-S07", "from": "07:00", "to": "09:00", "free": 2},
        {"slot_id": "TS-S09", "from": "09:00", "to": "11:00", "free": 0},
    ],
}
DECLARATIONS: Final[list[dict[str, Any]]] = [
    {
        "mrn": "26HR000101",
        "declarant": {"eori": "HR11223344", "name": "Brodar Freight"},
        "containers": ["NHLU1040011"],
        "status": "under_review",
        "lodged_at": "2026-09-11T07:50:00Z",
        "goods": [
            {
                "hs_code": "0901.21",
                "description": "roasted coffee",
                "net_kg": 15200.0,
                "value": {"amount_minor": 7980000, "currency": "EUR"},
            },
            {
                "hs_code": "4202.92",
                "description": "jute bags",
                "net_kg": 640.5,
                "value": {"amount_minor": 115000, "currency": "EUR"},
            },
        ],
        "inspection": {"kind": "xray", "booked_for": "2026-09-13T13:00:00Z", "passed": None},
    },
    {
        "mrn": "26HR000102",
        "declarant": {"eori": "DK55667788", "name": "Havn Agenter"},
        "containers": ["NHLU1040027"],
        "status": "lodged",
        "lodged_at": "2026-09-14T10:05:00Z",
        "goods": [
            {
                "hs_code": "0303.13",
                "description": "frozen salmon",
                "net_kg": 21900.0,
                "value": {"amount_minor": 18450000, "currency": "EUR"},
            },
        ],
        "inspection": None,
    },
    {
        "mrn": "26HR000103",
        "declarant": {"eori": "HR11223344", "name": "Brodar Freight"},
        "containers": ["ADRU2200318", "ADRU2200330"],
        "status": "rejected",
        "lodged_at": "2026-09-03T08:00:00Z",
        "goods": [
            {
                "hs_code": "2710.12",
                "description": "petrol",
                "net_kg": 24800.0,
                "value": {"amount_minor": 2232000, "currency": "USD"},
            },
        ],
        "inspection": {"kind": "physical", "booked_for": "2026-09-04T09:30:00Z", "passed": False},
    },
    {
        "mrn": "26HR000104",
        "declarant": {"eori": "SG90001000", "name": "Straits Clearing"},
        "containers": ["SBLU7751902", "SBLU7751923"],
        "status": "released",
        "lodged_at": "2026-09-12T19:30:00Z",
        "goods": [
            {
                "hs_code": "8517.13",
                "description": "smartphones",
                "net_kg": 3900.0,
                "value": {"amount_minor": 96000000, "currency": "USD"},
            },
            {
                "hs_code": "8504.40",
                "description": "chargers",
                "net_kg": 5100.0,
                "value": {"amount_minor": 12400000, "currency": "USD"},
            },
        ],
        "inspection": {"kind": "documents", "booked_for": "2026-09-13T08:00:00Z", "passed": True},
    },
    {
        "mrn": "26HR000105",
        "declarant": {"eori": "SG90001000", "name": "Straits Clearing"},
        "containers": ["SBLU7751918"],
        "status": "under_review",
        "lodged_at": "2026-09-13T06:45:00Z",
        "goods": [
            {
                "hs_code": "0804.50",
                "description": "mangoes",
                "net_kg": 20350.0,
                "value": {"amount_minor": 5087500, "currency": "EUR"},
            },
        ],
        "inspection": None,
    },
]
HOLDS: Final[dict[str, Any]] = {
    "NHLU1040011": [{"code": "XRAY", "placed_by": "customs", "since": "2026-09-11"}],
    "ADRU2200318": [
        {"code": "DOCS", "placed_by": "customs", "since": "2026-09-03"},
        {"code": "HAZ", "placed_by": "harbour_master", "since": "2026-09-02"},
    ],
}
HS_CODES: Final[list[dict[str, Any]]] = [
    {"hs_code": "0901.11", "label": "Coffee, not roasted", "duty_percent": 0.0},
    {"hs_code": "0901.21", "label": "Coffee, roasted", "duty_percent": 7.5},
    {"hs_code": "0303.13", "label": "Salmon, frozen", "duty_percent": 2.0},
    {"hs_code": "8517.13", "label": "Smartphones", "duty_percent": 0.0},
    {"hs_code": "0804.50", "label": "Mangoes, fresh or dried", "duty_percent": 4.0},
    {"hs_code": "2710.12", "label": "Light oils, petrol", "duty_percent": 4.7},
]
CUSTOMERS: Final[dict[str, dict[str, Any]]] = {
    "CU-12": {
        "id": "CU-12",
        "name": "Brodar Freight",
        "contacts": [
            {"role": "accounts", "email": "ap@brodar.example", "phone": "+385 51 200 300"},
            {"role": "operations", "email": "ops@brodar.example"},
        ],
        "terms_days": 30,
        "credit": {"limit_minor": 2500000, "used_minor": 1975000},
        "tax_id": "HR11223344",
    },
    "CU-19": {
        "id": "CU-19",
        "name": "Straits Clearing",
        "contacts": [{"role": "operations", "email": "desk@straits.example"}],
        "terms_days": 14,
        "credit": None,
        "tax_id": None,
    },
}


def _invoice(
    number: str, customer: str, issued: str, due: str, state: str, paid: str | None, lines: list[dict[str, Any]]
) -> dict[str, Any]:
    total = sum(line["quantity"] * line["unit_minor"] for line in lines)
    return {
        "invoice_no": number,
        "customer_id": customer,
        "issued_on": issued,
        "due_on": due,
        "state": state,
        "paid_on": paid,
        "lines": lines,
        "total": {"minor": total, "currency": "EUR"},
    }


INVOICES: Final[list[dict[str, Any]]] = [
    _invoice(
        "INV-3001",
        "CU-12",
        "2026-07-01",
        "2026-07-31",
        "paid",
        "2026-07-29",
        [
            {"kind": "lift", "quantity": 4, "unit_minor": 8500, "container_no": "NHLU1040011"},
        ],
    ),
    _invoice(
        "INV-3008",
        "CU-12",
        "2026-08-03",
        "2026-09-02",
        "overdue",
        None,
        [
            {"kind": "storage", "quantity": 12, "unit_minor": 4200, "container_no": "ADRU2200318"},
            {"kind": "lift", "quantity": 2, "unit_minor": 8500, "container_no": "ADRU2200318"},
        ],
    ),
    _invoice(
        "INV-3015",
        "CU-12",
        "2026-08-20",
        "2026-09-19",
        "open",
        None,
        [
            {"kind": "berth", "quantity": 1, "unit_minor": 640000},
            {"kind": "lift", "quantity": 31, "unit_minor": 8500},
        ],
    ),
    _invoice(
        "INV-3021",
        "CU-12",
        "2026-09-05",
        "2026-10-05",
        "open",
        None,
        [
            {"kind": "reefer", "quantity": 9, "unit_minor": 5550, "container_no": "NHLU1040027"},
        ],
    ),
    _invoice(
        "INV-3022",
        "CU-12",
        "2026-09-06",
        "2026-10-06",
        "void",
        None,
        [
            {"kind": "lift", "quantity": 1, "unit_minor": 8500},
        ],
    ),
    _invoice(
        "INV-3030",
        "CU-19",
        "2026-09-01",
        "2026-09-15",
        "open",
        None,
        [
            {"kind": "storage", "quantity": 3, "unit_minor": 4200, "container_no": "SBLU7751902"},
        ],
    ),
]
RATES: Final[dict[str, float]] = {"EUR": 1.0, "USD": 1.25, "GBP": 0.8}

"""The tools that the ninth blind set of programs calls: a container port's quay, yard, customs desk and billing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from benchmarks.repair_harbour_records import (
    BERTHS,
    BLOCKS,
    CALLS,
    CONTAINERS,
    CRANE_HOURS,
    CUSTOMERS,
    DECLARATIONS,
    EVENTS,
    HOLDS,
    HS_CODES,
    INVOICES,
    RATES,
    REEFERS,
    SLOTS,
    TIDES,
    VESSELS,
)
from toolexec import Exec, tool

CallStatus = Literal["expected", "berthed", "departed"]
DeclarationStatus = Literal["lodged", "under_review", "released", "rejected"]
InvoiceState = Literal["open", "paid", "overdue", "void"]
Currency = Literal["EUR", "USD", "GBP"]


class VesselRef(TypedDict):
    imo: str
    name: str
    flag: str


class Schedule(TypedDict):
    eta: str
    ata: str | None


class PortCall(TypedDict):
    call_id: str
    vessel: VesselRef
    berth_code: str | None
    schedule: Schedule
    status: CallStatus
    agent_id: str


class PortCallPage(TypedDict):
    port_calls: list[PortCall]
    next_cursor: str | None


class Berth(TypedDict):
    length_m: int
    max_draught_m: float
    cranes: list[str]
    occupied_by: str | None


class Berths(TypedDict):
    berths: dict[str, Berth]


class Assignment(TypedDict):
    id: str
    call_id: str
    berth_code: str


class Assigned(TypedDict):
    outcome: Literal["assigned"]
    assignment: Assignment


class Reason(TypedDict):
    code: str
    text: str


class Refused(TypedDict):
    outcome: Literal["refused"]
    reasons: list[Reason]


class Tide(TypedDict):
    at: str
    kind: Literal["high", "low"]
    height_cm: int


class Position(TypedDict):
    block: str
    bay: int
    row: int
    tier: int


class Line(TypedDict):
    code: str
    name: str


class Hazard(TypedDict):
    un: str
    imdg_class: str


class Container(TypedDict):
    container_no: str
    size_ft: Literal[20, 40]
    state: Literal["full", "empty", "reefer"]
    gross_kg: int | None
    position: Position | None
    line: Line
    arrived_at: str
    free_until: str | None
    hazard: NotRequired[Hazard]


class PageInfo(TypedDict):
    next: str | None
    total: int


class ContainerPage(TypedDict):
    items: list[Container]
    page: PageInfo


class Plugs(TypedDict):
    total: int
    in_use: int


class Block(TypedDict):
    block: str
    capacity_teu: int
    used_teu: int
    reefer_plugs: Plugs | None


class Hold(TypedDict):
    code: str
    placed_by: str
    since: str


class HoldsByContainer(TypedDict):
    holds: dict[str, list[Hold]]


class Released(TypedDict):
    result: Literal["released"]
    released_at: str


class Held(TypedDict):
    result: Literal["held"]
    missing: list[str]


class Quote(TypedDict):
    container_no: str
    free_days: int
    charged_days: int
    charge: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Window:
    """From when to when, as ISO 8601 with an offset."""

    start: str
    end: str


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in the yard."""

    block: str
    bay: int
    row: int
    tier: int


@dataclass(frozen=True, slots=True)
class Driver:
    name: str
    phone: str


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in the minor unit of its currency (cents)."""

    amount_minor: int
    currency: Currency


@tool("quay:list_port_calls", read_only=True)
def list_port_calls(
    status: CallStatus | None = None, agent_id: str | None = None, cursor: str | None = None, page_size: int = 3
) -> PortCallPage:
    """List the calls of vessels at this port, oldest id first.

    Args:
        status: Only calls of this status.
        agent_id: Only calls which this agent handles, e.g. "AG-7".
        cursor: The next_cursor of the page before.
        page_size: How many calls a page has, at most 5.
    """
    if not 1 <= page_size <= 5:
        raise ValueError("page_size must be from 1 to 5")
    found = [c for c in CALLS if status in (None, c["status"]) and agent_id in (None, c["agent_id"])]
    start = int(cursor.removeprefix("pc_")) if cursor else 0
    end = start + page_size
    return {"port_calls": found[start:end], "next_cursor": f"pc_{end}" if end < len(found) else None}


@tool("quay:get_vessel", read_only=True)
def get_vessel(imo: str) -> dict[str, Any]:
    """Get the particulars of a vessel.

    Args:
        imo: The IMO number with its prefix, e.g. "IMO9321483".
    """
    if imo not in VESSELS:
        raise ValueError(f"no vessel {imo!r}; IMO numbers are 'IMO' and seven digits")
    return VESSELS[imo]


@tool("quay:list_berths", read_only=True)
def list_berths() -> Berths:
    """List the berths by their code, with their limits, cranes, and the call that occupies them."""
    return {"berths": BERTHS}


@tool("quay:assign_berth")
def assign_berth(call_id: str, berth_code: str, window: Window) -> Assigned | Refused:
    """Assign a berth to a port call for a window of time. A berth that does not fit is refused, with the reasons."""
    call = next((c for c in CALLS if c["call_id"] == call_id), None)
    if call is None:
        raise ValueError(f"no port call {call_id}")
    if berth_code not in BERTHS:
        raise ValueError(f"no berth {berth_code}")
    if window.end <= window.start:
        raise ValueError("window.end must be after window.start")
    berth, size = BERTHS[berth_code], VESSELS[call["vessel"]["imo"]]["dimensions"]
    reasons: list[Reason] = []
    if size["length_m"] > berth["length_m"]:
        reasons.append({"code": "TOO_LONG", "text": f"{size['length_m']} m on a berth of {berth['length_m']} m"})
    if size["draught_m"] > berth["max_draught_m"]:
        reasons.append(
            {"code": "TOO_DEEP", "text": f"{size['draught_m']} m where {berth['max_draught_m']} m are allowed"}
        )
    if berth["occupied_by"] not in (None, call_id):
        reasons.append({"code": "OCCUPIED", "text": f"occupied by {berth['occupied_by']}"})
    if reasons:
        return {"outcome": "refused", "reasons": reasons}
    return {
        "outcome": "assigned",
        "assignment": {"id": f"BA-{call_id[3:]}-{berth_code}", "call_id": call_id, "berth_code": berth_code},
    }


@tool("quay:get_tide_table", read_only=True)
def get_tide_table(day: str) -> list[Tide]:
    """Get the tides of a day (YYYY-MM-DD), in local time with its offset; heights in centimetres."""
    date.fromisoformat(day)
    return TIDES.get(day, [])


@tool("quay:list_crane_hours", read_only=True)
def list_crane_hours(from_day: str, to_day: str, crane_id: str | None = None) -> dict[str, Any]:
    """List what the cranes worked and why they stood still, in minutes, for each day of a range (ends included)."""
    for day in (from_day, to_day):
        date.fromisoformat(day)
    rows = [r for r in CRANE_HOURS if from_day <= r["day"] <= to_day and crane_id in (None, r["crane_id"])]
    return {"range": {"from_day": from_day, "to_day": to_day}, "rows": rows}


@tool("yard:search_containers", read_only=True)
def search_containers(
    line: str | None = None,
    state: Literal["full", "empty", "reefer"] | None = None,
    block: str | None = None,
    cursor: str | None = None,
    limit: int = 4,
) -> ContainerPage:
    """Search the containers in the yard.

    Args:
        line: The code of a shipping line, e.g. "NHL".
        state: Whether the container is full, empty or a reefer.
        block: Only those stacked in this block.
        cursor: page.next of the page before.
        limit: How many a page has, from 1 to 6.
    """
    if not 1 <= limit <= 6:
        raise ValueError("limit must be from 1 to 6")
    found = [
        c
        for c in CONTAINERS
        if line in (None, c["line"]["code"])
        and state in (None, c["state"])
        and (block is None or (c["position"] is not None and c["position"]["block"] == block))
    ]
    start = int(cursor.removeprefix("c")) if cursor else 0
    end = start + limit
    return {"items": found[start:end], "page": {"next": f"c{end}" if end < len(found) else None, "total": len(found)}}


@tool("yard:get_container", read_only=True)
def get_container(container_no: str) -> dict[str, Any]:
    """Get a container with its events, oldest first."""
    found = next((c for c in CONTAINERS if c["container_no"] == container_no), None)
    if found is None:
        raise ValueError(f"no container {container_no}")
    return {"container": found, "events": EVENTS.get(container_no, [])}


@tool("yard:list_blocks", read_only=True)
def list_blocks() -> list[Block]:
    """List the blocks of the yard: how full each is in TEU, and its reefer plugs where it has any."""
    return BLOCKS


@tool("yard:move_container")
def move_container(
    container_no: str, to: Spot, priority: Literal["low", "normal", "urgent"] = "normal"
) -> dict[str, Any]:
    """Queue a move of a container to another place in the yard."""
    found = get_container(container_no)["container"]
    return {
        "move_id": f"MV-{container_no[-4:]}",
        "status": "queued",
        "priority": priority,
        "origin": found["position"],
        "destination": {"block": to.block, "bay": to.bay, "row": to.row, "tier": to.tier},
    }


@tool("yard:read_reefer", read_only=True)
def read_reefer(container_no: str, hours: int = 6) -> dict[str, Any]:
    """Read the temperatures (°C) and alarms of a reefer. A sample without a reading has supply_c null."""
    if container_no not in REEFERS:
        raise ValueError(f"{container_no} is not a reefer")
    found = REEFERS[container_no]
    return {"container_no": container_no, **found, "samples": found["samples"][-hours:]}


@tool("yard:list_truck_slots", read_only=True)
def list_truck_slots(day: str, gate: Literal["north", "south"] = "north") -> dict[str, Any]:
    """List the slots for trucks at a gate on a day (YYYY-MM-DD), in local time."""
    date.fromisoformat(day)
    return {"day": day, "gate": gate, "slots": SLOTS[gate]}


@tool("yard:book_truck_slot")
def book_truck_slot(slot_id: str, plate: str, containers: list[str], driver: Driver | None = None) -> dict[str, Any]:
    """Book a truck slot for the pick-up of one or two containers."""
    slot = next((s for slots in SLOTS.values() for s in slots if s["slot_id"] == slot_id), None)
    if slot is None:
        raise ValueError(f"no slot {slot_id}")
    if not slot["free"]:
        raise ValueError(f"slot {slot_id} is full")
    if not 1 <= len(containers) <= 2:
        raise ValueError("a truck takes one or two containers")
    held = [f"{number} is on hold" for number in containers if number in HOLDS]
    warnings = held + ([] if driver else ["no driver given"])
    return {"booking": {"ref": f"TB-{slot_id[3:]}-{plate[-3:]}", "slot_id": slot_id}, "warnings": warnings}


@tool("customs:find_declarations", read_only=True)
def find_declarations(
    status: DeclarationStatus | None = None, container_no: str | None = None, page: int = 1, per_page: int = 2
) -> dict[str, Any]:
    """Find customs declarations, a page at a time. Values of goods are in minor units."""
    found = [
        d
        for d in DECLARATIONS
        if status in (None, d["status"]) and (container_no is None or container_no in d["containers"])
    ]
    start = (page - 1) * per_page
    pages = -(-len(found) // per_page)
    return {"data": found[start : start + per_page], "meta": {"page": page, "pages": pages, "count": len(found)}}


@tool("customs:get_declaration", read_only=True)
def get_declaration(mrn: str) -> dict[str, Any]:
    """Get a declaration by its movement reference number."""
    found = next((d for d in DECLARATIONS if d["mrn"] == mrn), None)
    if found is None:
        raise ValueError(f"no declaration {mrn}")
    return found


@tool("customs:check-holds", read_only=True)
def check_holds(container_nos: list[str]) -> HoldsByContainer:
    """Check which of these containers are on hold. Those without a hold are left out."""
    return {"holds": {number: HOLDS[number] for number in container_nos if number in HOLDS}}


@tool("customs:classify-goods", read_only=True)
def classify_goods(description: str, max_results: int = 3) -> list[dict[str, Any]]:
    """Suggest HS codes for a description of goods, best first, with a score from 0 to 1."""
    words = description.lower().split()
    scored = []
    for each in HS_CODES:
        hits = sum(word in each["label"].lower() for word in words)
        if hits:
            scored.append({"hs_code": each["hs_code"], "label": each["label"], "score": round(hits / len(words), 2)})
    return sorted(scored, key=lambda s: -s["score"])[:max_results]


@tool("customs:quote_duty", read_only=True)
def quote_duty(hs_code: str, origin: str, value: Money) -> dict[str, Any]:
    """Quote duty and VAT of goods.

    Args:
        hs_code: With its dot, e.g. "0901.21".
        origin: The country of origin, two letters (ISO 3166).
        value: What the goods are worth.
    """
    if len(origin) != 2 or not origin.isupper():
        raise ValueError("origin must be two capital letters, such as BR")
    found = next((h for h in HS_CODES if h["hs_code"] == hs_code), None)
    if found is None:
        raise ValueError(f"no HS code {hs_code}")
    duty = round(value.amount_minor * found["duty_percent"] / 100)
    vat = round((value.amount_minor + duty) * 0.25)
    return {
        "rate_percent": found["duty_percent"],
        "duty": {"amount_minor": duty, "currency": value.currency},
        "vat": {"amount_minor": vat, "currency": value.currency},
    }


@tool("customs:request_release")
def request_release(mrn: str) -> Released | Held:
    """Ask customs to release a declaration: it is released, or held until documents are handed in."""
    found = get_declaration(mrn)
    if found["status"] in ("released", "lodged"):
        return {"result": "released", "released_at": "2026-09-14T17:00:00Z"}
    missing = ["commercial_invoice"] if found["status"] == "under_review" else ["dangerous_goods_note", "permit"]
    return {"result": "held", "missing": missing}


@tool("billing:list_invoices", read_only=True)
def list_invoices(
    customer_id: str, state: InvoiceState | None = None, offset: int = 0, limit: int = 3
) -> dict[str, Any]:
    """List a customer's invoices, oldest first. Amounts are in minor units (cents)."""
    found = [i for i in INVOICES if i["customer_id"] == customer_id and state in (None, i["state"])]
    return {"invoices": found[offset : offset + limit], "total_count": len(found)}


@tool("billing:get_customer", read_only=True)
def get_customer(customer_id: str) -> dict[str, Any]:
    """Get a customer with contacts, terms, and credit where it has been granted."""
    if customer_id not in CUSTOMERS:
        raise ValueError(f"no customer {customer_id}")
    return CUSTOMERS[customer_id]


@tool("billing:quote_storage", read_only=True)
def quote_storage(container_no: str, until: str) -> Quote:
    """Quote what the storage of a container costs until a day (YYYY-MM-DD)."""
    found = get_container(container_no)["container"]
    arrived = date.fromisoformat(found["arrived_at"][:10])
    free_until = date.fromisoformat(found["free_until"]) if found["free_until"] else arrived + timedelta(days=30)
    charged = max(0, (date.fromisoformat(until) - free_until).days)
    rate = 4200 if found["size_ft"] == 20 else 7900
    return {
        "container_no": container_no,
        "free_days": (free_until - arrived).days,
        "charged_days": charged,
        "charge": {"minor": charged * rate, "currency": "EUR"},
    }


@tool("billing:record_payment")
def record_payment(
    invoice_no: str,
    amount_minor: int,
    method: Literal["transfer", "card", "direct_debit"],
    paid_on: str | None = None,
) -> dict[str, Any]:
    """Record a payment of an invoice, in cents."""
    found = next((i for i in INVOICES if i["invoice_no"] == invoice_no), None)
    if found is None:
        raise ValueError(f"no invoice {invoice_no}")
    balance = found["total"]["minor"] - amount_minor
    if balance < 0:
        raise ValueError(f"{amount_minor} is more than the total of {found['total']['minor']}")
    return {
        "payment_id": f"PAY-{invoice_no[4:]}",
        "method": method,
        "invoice": {
            "invoice_no": invoice_no,
            "state": "paid" if balance == 0 else found["state"],
            "balance_minor": balance,
        },
    }


@tool("billing:convert_currency", read_only=True)
def convert_currency(amount_minor: int, source: Currency, target: Currency) -> dict[str, Any]:
    """Convert an amount in minor units to another currency."""
    rate = RATES[target] / RATES[source]
    return {"amount_minor": round(amount_minor * rate), "currency": target, "rate": rate, "as_of": "2026-09-14"}


def add_harbour_tools(ex: Exec) -> None:
    """Add the tools of a container port: its quay, yard, customs desk and billing."""
    quay = list_port_calls, get_vessel, list_berths, assign_berth, get_tide_table, list_crane_hours
    yard = search_containers, get_container, list_blocks, move_container, read_reefer, list_truck_slots, book_truck_slot
    customs = find_declarations, get_declaration, check_holds, classify_goods, quote_duty, request_release
    billing = list_invoices, get_customer, quote_storage, record_payment, convert_currency
    for each in (*quay, *yard, *customs, *billing):
        ex.add(each)

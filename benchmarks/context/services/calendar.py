"""A calendar."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from benchmarks.context.services.tables import Service, Table, matches

INTENTS = {
    "list_calendars": "list my calendars",
    "list_events": "events in a period",
    "get_event": "read one calendar event",
    "create_event": "schedule a meeting",
    "update_event": "reschedule an event",
    "cancel_event": "cancel a meeting",
    "find_free_slots": "when are people free",
    "invite_attendees": "invite people to a meeting",
    "respond_to_invitation": "accept or decline an invitation",
    "set_reminder": "remind before an event",
    "search_events": "find an event by its title",
}


class Event(TypedDict):
    id: str
    calendar_id: str
    title: str
    start: str
    end: str
    location: str
    attendees: list[str]
    status: Literal["confirmed", "tentative", "cancelled"]


class Slot(TypedDict):
    start: str
    end: str


class Calendar(TypedDict):
    id: str
    name: str
    time_zone: str


def _event(title: str, start: str, end: str, *attendees: str, place: str = "") -> dict[str, Any]:
    return {
        "calendar_id": "cal_0001",
        "title": title,
        "start": start,
        "end": end,
        "location": place,
        "attendees": list(attendees),
        "status": "confirmed",
    }


def make() -> Service:
    """Return the tools over a calendar of one week."""
    service = Service("calendar")
    calendars = Table(
        "cal",
        {"name": "Work", "time_zone": "Europe/Berlin"},
        {"name": "Private", "time_zone": "Europe/Berlin"},
    )
    events = Table(
        "evt",
        _event("Weekly planning", "2026-12-01T09:00", "2026-12-01T10:00", "anna@acme.example", place="Room 4"),
        _event("Budget review", "2026-12-02T14:00", "2026-12-02T15:00", "omar@acme.example", "lena@acme.example"),
        _event("Interview Novak", "2026-12-02T11:00", "2026-12-02T12:00", "petra@acme.example", place="Room 1"),
        _event("Dentist", "2026-12-03T08:30", "2026-12-03T09:00"),
        _event("Release retrospective", "2026-12-03T15:00", "2026-12-03T16:00", "anna@acme.example"),
        _event("Customer call Northwind", "2026-12-04T10:00", "2026-12-04T10:45", "kim@northwind.example"),
        _event("Team lunch", "2026-12-04T12:00", "2026-12-04T13:00", "omar@acme.example", place="Canteen"),
    )

    @service.tool(read_only=True)
    def list_calendars() -> list[Calendar]:
        """List the calendars that the current user can read or write, with their time zones."""
        return calendars.select()

    @service.tool(read_only=True)
    def list_events(start: str, end: str, calendar_id: str = "cal_0001") -> list[Event]:
        """List all events that overlap a period, in chronological order. Cancelled events are left out.

        Args:
            start: Beginning of the period, as ISO 8601 date and time.
            end: End of the period, as ISO 8601 date and time.
            calendar_id: The calendar to look into; the user's main calendar by default.
        """
        return events.select(
            lambda e: (
                e["calendar_id"] == calendar_id and e["start"] < end and e["end"] > start and e["status"] != "cancelled"
            )
        )

    @service.tool(read_only=True)
    def get_event(event_id: str) -> Event:
        """Get a single event with its time, location, attendees and status.

        Args:
            event_id: ID of the event, such as evt_0001.
        """
        return events.get(event_id)

    @service.tool()
    def create_event(
        title: str,
        start: str,
        end: str,
        attendees: list[str] | None = None,
        location: str = "",
        calendar_id: str = "cal_0001",
    ) -> Event:
        """Create a new event. Attendees receive an invitation by e-mail as soon as the event is stored.

        Args:
            title: What the event is called.
            start: When it begins, as ISO 8601 date and time.
            end: When it is over, as ISO 8601 date and time.
            attendees: E-mail addresses of those who are invited.
            location: Room, address or link of a video conference.
            calendar_id: The calendar that the event belongs to.
        """
        return events.add(
            **_event(title, start, end, *(attendees or ()), place=location) | {"calendar_id": calendar_id}
        )

    @service.tool()
    def update_event(
        event_id: str,
        title: str | None = None,
        start: str | None = None,
        end: str | None = None,
        location: str | None = None,
    ) -> Event:
        """Change the title, the time or the location of an existing event. What is not given stays as it is.

        Args:
            event_id: ID of the event.
            title: A new title.
            start: A new beginning, as ISO 8601 date and time.
            end: A new end, as ISO 8601 date and time.
            location: A new location.
        """
        return events.change(event_id, title=title, start=start, end=end, location=location)

    @service.tool(destructive=False)
    def cancel_event(event_id: str, message: str = "") -> Event:
        """Cancel an event and notify everyone who was invited. The event stays visible as cancelled.

        Args:
            event_id: ID of the event.
            message: A note for the attendees.
        """
        return events.change(event_id, status="cancelled")

    @service.tool(read_only=True)
    def find_free_slots(attendees: list[str], day: str, minutes: int = 30) -> list[Slot]:
        """Find times on a working day at which all of the given people are available.

        Args:
            attendees: E-mail addresses of the people.
            day: The day, as ISO 8601 date.
            minutes: How long the slot must be at least.
        """
        busy = [e for e in events if e["start"].startswith(day) and set(attendees) & set(e["attendees"])]
        hours = [hour for hour in range(9, 17) if not any(e["start"][11:13] == f"{hour:02}" for e in busy)]
        return [{"start": f"{day}T{hour:02}:00", "end": f"{day}T{hour:02}:{min(minutes, 59):02}"} for hour in hours[:3]]

    @service.tool()
    def invite_attendees(event_id: str, attendees: list[str]) -> Event:
        """Add people to an existing event and send them an invitation.

        Args:
            event_id: ID of the event.
            attendees: E-mail addresses of those who are invited in addition.
        """
        event = events.get(event_id)
        return events.change(event_id, attendees=[*event["attendees"], *attendees])

    @service.tool()
    def respond_to_invitation(event_id: str, response: Literal["accepted", "declined", "tentative"]) -> Event:
        """Answer an invitation on behalf of the current user.

        Args:
            event_id: ID of the event.
            response: The answer that the organizer receives.
        """
        return events.change(event_id, status="tentative" if response == "tentative" else "confirmed")

    @service.tool()
    def set_reminder(event_id: str, minutes_before: int, channel: Literal["popup", "email"] = "popup") -> str:
        """Set a reminder for an event, for the current user only.

        Args:
            event_id: ID of the event.
            minutes_before: How many minutes before the beginning the reminder is due.
            channel: How the user is reminded.
        """
        return f"{channel} {minutes_before} minutes before {events.get(event_id)['title']}"

    @service.tool(read_only=True)
    def search_events(query: str, limit: int = 10) -> list[Event]:
        """Search events by words in their title, location or attendees.

        Args:
            query: The words; all of them must occur.
            limit: How many events to return at most.
        """
        return events.select(lambda e: matches(query, e["title"], e["location"], *e["attendees"]))[:limit]

    return service

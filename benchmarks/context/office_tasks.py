"""Tasks around the calendar, the mailbox, notes, files and contacts."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.context.task import Task, call

_PEOPLE = (
    ("Kim Larsen", "Kim", "kim@northwind.example", "Northwind"),
    ("Sam Okafor", "Sam", "sam@fabrikam.example", "Fabrikam"),
    ("Ida Brandt", "Ida", "ida@tailspin.example", "Tailspin"),
    ("Paul Mercier", "Paul", "paul@contoso.example", "Contoso"),
)


def _task(text: str, *calls: object) -> Task:
    return Task(text, calls)  # type: ignore[arg-type]


def office_tasks() -> Iterator[Task]:
    """Give the tasks, in a fixed order."""
    yield from _with_people()
    yield from _with_events()
    yield from _with_mail()
    yield from _with_documents()


def _with_people() -> Iterator[Task]:
    for number, (name, first, email, company) in enumerate(_PEOPLE):
        day = f"2026-12-{7 + number:02}"
        yield _task(
            f"Set up half an hour with {name} on {day} at ten about the renewal and write {first} what it is about.",
            call("crm:search_contacts", query=name),
            call(
                "calendar:create_event",
                title=f"Renewal {company}",
                start=f"{day}T10:00",
                end=f"{day}T10:30",
                attendees=["$0[0].email"],
            ),
            call(
                "mail:send_message",
                to=["$0[0].email"],
                subject="Our renewal",
                body=f"Hello {first}, I would like to go through the renewal with you.",
            ),
        )
        yield _task(
            f"I just spoke to {first} from {company}, who wants a new offer. Put that into the history and see "
            "to it that "
            f"we get back on {day}.",
            call("crm:search_contacts", query=f"{first} {company}"),
            call("crm:log_activity", contact_id="$0[0].id", kind="call", text="Wants a new offer", day="2026-11-27"),
            call("crm:create_followup", contact_id="$0[0].id", due=day, text="Send the new offer"),
        )
        yield _task(
            f"What have we been talking about with {name} lately, and is there any mail from there?",
            call("crm:search_contacts", query=name),
            call("crm:list_activities", contact_id="$0[0].id"),
            call("mail:search_messages", query=email),
        )
        yield _task(
            f"{first} at {company} has a new number, +49 30 20{number} 11. Change it, and drop a line to say thanks.",
            call("crm:search_contacts", query=f"{first} {company}"),
            call("crm:update_contact", contact_id="$0[0].id", phone=f"+49 30 20{number} 11"),
            call("mail:send_message", to=[email], subject="Your new number", body="Thank you, I have written it down."),
        )
    for person, company, amount in (
        ("Mia Roth", "Litware", 7000),
        ("Jon Berg", "Adatum", 12500),
        ("Eva Sand", "Proseware", 3200),
    ):
        first = person.split()[0]
        yield _task(
            f"{person} of {company} would like to buy for about {amount} euros. Make an entry for the person and "
            "for the "
            f"business, and prepare a mail to {first} that I can look at before it goes out.",
            call(
                "crm:create_contact", name=person, email=f"{first.lower()}@{company.lower()}.example", company=company
            ),
            call("crm:create_deal", name=f"{company} first order", company=company, amount=amount),
            call(
                "mail:create_draft",
                to=["$0.email"],
                subject="Welcome",
                body=f"Hello {first}, thank you for your interest.",
            ),
        )
    for company, stage, owner in (
        ("Northwind", "won", "omar"),
        ("Tailspin", "proposal", "lena"),
        ("Fabrikam", "qualified", "omar"),
    ):
        yield _task(
            f"Good news about the {company} deal: it is {stage} now. Update it, give it to {owner}, and note it in the "
            "weekly minutes.",
            call("crm:list_deals", company=company),
            call("crm:move_deal_stage", deal_id="$0[0].id", stage=stage),
            call("crm:assign_owner", deal_id="$0[0].id", owner=owner),
            call("notes:search_notes", tag="minutes"),
            call("notes:append_to_note", note_id="$3[0].id", text=f"{company}: {stage}, {owner}"),
        )


def _with_events() -> Iterator[Task]:
    for title, day, hour in (
        ("Budget review", "2026-12-08", 9),
        ("Release retrospective", "2026-12-10", 13),
        ("Interview Novak", "2026-12-09", 16),
    ):
        who = {"Budget": "Omar", "Release": "Anna", "Interview": "Petra"}[title.split()[0]]
        address = f"{who.lower()}@acme.example"
        yield _task(
            f"Push the {title.lower()} to {day} at {hour}:00 and let {who} know.",
            call("calendar:search_events", query=title),
            call(
                "calendar:update_event", event_id="$0[0].id", start=f"{day}T{hour:02}:00", end=f"{day}T{hour + 1:02}:00"
            ),
            call("mail:send_message", to=[address], subject=f"{title} moved", body=f"It is on {day} at {hour}:00 now."),
        )
        yield _task(
            f"Find an hour on {day} when {who} and I have time, block it for a talk about {title.lower()}, and "
            "remind me a "
            "quarter of an hour before.",
            call("calendar:find_free_slots", attendees=[address, "me@acme.example"], day=day, minutes=60),
            call(
                "calendar:create_event",
                title=f"Talk: {title}",
                start="$0[0].start",
                end="$0[0].end",
                attendees=[address],
            ),
            call("calendar:set_reminder", event_id="$1.id", minutes_before=15),
        )
        yield _task(
            f"Call off the {title.lower()} and tell {who} why: half of the people are ill.",
            call("calendar:search_events", query=title),
            call("calendar:cancel_event", event_id="$0[0].id", message="Half of the people are ill."),
            call("mail:send_message", to=[address], subject=f"No {title.lower()}", body="Half of the people are ill."),
        )
        yield _task(
            f"Have Lena join the {title.lower()} as well, and put the agenda into a note that she can edit.",
            call("calendar:search_events", query=title),
            call("calendar:invite_attendees", event_id="$0[0].id", attendees=["lena@acme.example"]),
            call(
                "notes:create_note", title=f"Agenda: {title}", body="1. Where we are\n2. What is next", tags=["agenda"]
            ),
            call("notes:share_note", note_id="$2.id", email="lena@acme.example", can_edit=True),
        )
    for day, what in (
        ("2026-12-01", "Tuesday"),
        ("2026-12-02", "Wednesday"),
        ("2026-12-03", "Thursday"),
        ("2026-12-04", "Friday"),
    ):
        yield _task(
            f"Write me a summary of my {what}, {day}, into my private notebook.",
            call("calendar:list_events", start=f"{day}T00:00", end=f"{day}T23:59"),
            call("notes:create_note", title=f"My {what}", body="$0[0].title", notebook="private"),
        )
        yield _task(
            f"What is on for {what} ({day})? Say yes to the first thing, and warn me ten minutes ahead by mail.",
            call("calendar:list_events", start=f"{day}T00:00", end=f"{day}T23:59"),
            call("calendar:respond_to_invitation", event_id="$0[0].id", response="accepted"),
            call("calendar:set_reminder", event_id="$0[0].id", minutes_before=10, channel="email"),
        )


def _with_mail() -> Iterator[Task]:
    for sender, topic, answer in (
        ("kim@northwind.example", "invoice", "We look into the total today."),
        ("sam@fabrikam.example", "delivery", "It left the warehouse this morning."),
        ("anna@acme.example", "slides", "They look good to me."),
        ("omar@acme.example", "budget", "I have no objections."),
    ):
        who = sender.split("@", maxsplit=1)[0].capitalize()
        yield _task(
            f'Answer the mail about the {topic} from {who}: "{answer}" Then put it into the archive.',
            call("mail:search_messages", query=f"{who.lower()} {topic}"),
            call("mail:get_message", message_id="$0[0].id"),
            call("mail:reply_to_message", message_id="$0[0].id", body=answer),
            call("mail:move_message", message_id="$0[0].id", folder="archive"),
        )
        yield _task(
            f"Pass {who}'s message on the {topic} on to Lena, flag it as urgent and open a ticket for it in WEB.",
            call("mail:search_messages", query=f"{who.lower()} {topic}"),
            call("mail:forward_message", message_id="$0[0].id", to=["lena@acme.example"]),
            call("mail:add_label", message_id="$0[0].id", label="urgent"),
            call("tickets:create_issue", project="WEB", summary="$0[0].subject", priority="urgent"),
        )
        yield _task(
            f"Turn what {who} wrote about the {topic} into a note with the tag todo.",
            call("mail:search_messages", query=f"{who.lower()} {topic}"),
            call("mail:get_message", message_id="$0[0].id"),
            call("notes:create_note", title="$1.subject", body="$1.body", tags=["todo"]),
        )
    for limit in (3, 5, 10):
        yield _task(
            f"Show me my newest {limit} unread mails and mark the first one as read.",
            call("mail:list_messages", unread_only=True, limit=limit),
            call("mail:mark_as_read", message_ids=["$0[0].id"]),
        )


def _with_documents() -> Iterator[Task]:
    for what, path, person in (
        ("budget", "/finance/budget-2027.csv", "omar@acme.example"),
        ("runbook", "/ops/runbook-disk.md", "petra@acme.example"),
        ("slides", "/marketing/slides-thursday.md", "anna@acme.example"),
        ("application", "/hr/novak-application.txt", "lena@acme.example"),
    ):
        who = person.split("@", maxsplit=1)[0].capitalize()
        yield _task(
            f"Who can see the {what} document? {who} should be able to edit it, and needs a mail with a link.",
            call("files:search_files", query=what),
            call("files:list_permissions", path="$0[0].path"),
            call("files:share_file", path="$0[0].path", email=person, role="editor"),
            call("files:get_download_link", path="$0[0].path"),
            call("mail:send_message", to=[person], subject=f"The {what}", body="$3"),
        )
        yield _task(
            f"Make a copy of the {what} in /archive, and then sum up what is in the original in a note.",
            call("files:search_files", query=what),
            call("files:copy_file", source="$0[0].path", target=f"/archive/{path.rsplit('/', maxsplit=1)[-1]}"),
            call("files:read_file", path="$0[0].path"),
            call("notes:create_note", title=f"Summary: {what}", body="$2"),
        )
        yield _task(
            f"Rename {path} to old-{what}.txt and get rid of the copy that I keep in my notes, if there is any.",
            call("files:move_file", source=path, target=f"/archive/old-{what}.txt"),
            call("notes:search_notes", query="checklist"),
            call("notes:delete_note", note_id="$1[0].id"),
        )
        yield _task(
            f"Save the notes tagged minutes as /minutes/{what}.md and give {who} access.",
            call("notes:search_notes", tag="minutes"),
            call("files:upload_file", path=f"/minutes/{what}.md", content="$0[0].body"),
            call("files:share_file", path="$1.path", email=person),
        )
    for title, tag in (("Release checklist", "release"), ("Interview questions", "hiring"), ("Packing list", "travel")):
        yield _task(
            f'Look for my note "{title}", add the point "ask for feedback" at the end, and tag it with reviewed.',
            call("notes:search_notes", query=title),
            call("notes:append_to_note", note_id="$0[0].id", text="- ask for feedback"),
            call("notes:tag_note", note_id="$0[0].id", tags=["reviewed"]),
        )
        yield _task(
            f"Everything that I noted under {tag} should be in the notebook archive, and Petra should be able to "
            "read it.",
            call("notes:search_notes", tag=tag),
            call("notes:move_note", note_id="$0[0].id", notebook="archive"),
            call("notes:share_note", note_id="$0[0].id", email="petra@acme.example"),
        )

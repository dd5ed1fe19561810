"""Tasks of many calls over several services."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.context.task import Task, call

_CUSTOMERS = (
    ("Northwind", "Kim Larsen", "kim@northwind.example", "solo", 150000),
    ("Fabrikam", "Sam Okafor", "sam@fabrikam.example", "team", 80000),
    ("Tailspin", "Ida Brandt", "ida@tailspin.example", "enterprise", 320000),
)


def _task(text: str, *calls: object) -> Task:
    return Task(text, calls)  # type: ignore[arg-type]


def long_tasks() -> Iterator[Task]:
    """Give the tasks, in a fixed order."""
    yield from _for_customers()
    yield from _for_incidents()
    yield from _for_colleagues()


def _for_customers() -> Iterator[Task]:
    for company, name, email, plan, cents in _CUSTOMERS:
        first = name.split()[0]
        yield _task(
            f"{company} has signed. Mark the deal as won, start the {plan} plan, bill {cents // 100} euros for "
            "the setup, "
            f"invite {first} to a kick-off on 8 December at nine, and write a welcome mail.",
            call("crm:list_deals", company=company),
            call("crm:move_deal_stage", deal_id="$0[0].id", stage="won"),
            call("payments:find_customer", query=company),
            call("payments:create_subscription", customer_id="$2[0].id", plan=plan),
            call("payments:create_invoice", customer_id="$2[0].id"),
            call("payments:add_invoice_item", invoice_id="$4.id", description="Setup", amount=cents),
            call("payments:finalize_invoice", invoice_id="$4.id"),
            call("payments:send_invoice", invoice_id="$4.id"),
            call(
                "calendar:create_event",
                title=f"Kick-off {company}",
                start="2026-12-08T09:00",
                end="2026-12-08T10:00",
                attendees=[email],
            ),
            call("mail:send_message", to=[email], subject="Welcome", body=f"Hello {first}, we are glad to have you."),
        )
        yield _task(
            f"{company} complains about a defective desk lamp. Refund the last payment, send a new one from Lyon "
            "stock to "
            f"Berlin, open a ticket, answer {first}, and write it into the history.",
            call("payments:find_customer", query=company),
            call("payments:list_charges", customer_id="$0[0].id"),
            call("payments:refund_charge", charge_id="$1[0].id"),
            call("inventory:search_products", query="lamp"),
            call("inventory:transfer_stock", product_id="$3[0].id", source="lyon", target="berlin", quantity=1),
            call("tickets:create_issue", project="OPS", summary=f"Defective lamp at {company}", priority="high"),
            call("mail:send_message", to=[email], subject="Your lamp", body="You have your money back."),
            call("crm:search_contacts", query=name),
            call("crm:log_activity", contact_id="$7[0].id", kind="email", text="Defective lamp", day="2026-11-27"),
        )
        yield _task(
            f"Prepare my call with {name}: the deal, the history, open bills and the last mails. Put all of that "
            "into a note "
            "and block fifteen minutes before the call on 4 December at a quarter to ten.",
            call("crm:search_contacts", query=name),
            call("crm:list_deals", company=company),
            call("crm:list_activities", contact_id="$0[0].id"),
            call("payments:find_customer", query=company),
            call("payments:list_invoices", customer_id="$3[0].id"),
            call("mail:search_messages", query=email),
            call("notes:create_note", title=f"Call with {name}", body="$1[0].name"),
            call("calendar:create_event", title=f"Prepare {company}", start="2026-12-04T09:45", end="2026-12-04T10:00"),
        )
        yield _task(
            f"{first} from {company} is not going to buy. Mark the deal as lost, take back the open meeting, set "
            "a follow-up "
            "for March, and save a short report on the drive that Omar can comment on.",
            call("crm:list_deals", company=company),
            call("crm:move_deal_stage", deal_id="$0[0].id", stage="lost", reason="no budget"),
            call("calendar:search_events", query="Northwind"),
            call("calendar:cancel_event", event_id="$2[0].id"),
            call("crm:search_contacts", query=name),
            call("crm:create_followup", contact_id="$4[0].id", due="2027-03-01", text="Ask again"),
            call("files:upload_file", path=f"/sales/{company}.md", content="$0[0].name"),
            call("files:share_file", path="$6.path", email="omar@acme.example", role="commenter"),
        )


def _for_incidents() -> Iterator[Task]:
    for words, path, repo, who in (
        ("disk usage", "alerts.yaml", "infra", "petra"),
        ("empty cart", "src/cart.py", "webshop", "anna"),
        ("March invoices", "src/cart.py", "webshop", "omar"),
    ):
        yield _task(
            f"We have an incident with {words}. Find the ticket, make it urgent, give it to {who.capitalize()}, "
            "look for the "
            "runbook on the disk, set up a call in an hour from 13:00 on, and start a note for the minutes.",
            call("tickets:search_issues", query=words),
            call("tickets:update_issue", issue_id="$0[0].id", priority="urgent"),
            call("tickets:assign_issue", issue_id="$0[0].id", assignee=who),
            call("files:search_files", query="runbook"),
            call("files:read_file", path="$3[0].path"),
            call(
                "calendar:create_event",
                title="Incident",
                start="2026-11-27T13:00",
                end="2026-11-27T13:30",
                attendees=[f"{who}@acme.example"],
            ),
            call("notes:create_note", title="Incident", body="$0[0].summary", tags=["incident"]),
        )
        yield _task(
            f"Fix the ticket on {words}: change {path} in acme/{repo} on a branch, open a pull request, merge "
            "it, release "
            "v1.4.1, close the ticket with a comment, and book an hour of work.",
            call("tickets:search_issues", query=words),
            call("repos:get_file_contents", owner="acme", repo=repo, path=path),
            call("repos:create_branch", owner="acme", repo=repo, branch="hotfix"),
            call(
                "repos:commit_file", owner="acme", repo=repo, path=path, content="$1", message="Fix it", branch="hotfix"
            ),
            call("repos:create_pull_request", owner="acme", repo=repo, title="Fix it", head="hotfix"),
            call("repos:merge_pull_request", pull_id="$4.id", method="squash"),
            call("repos:create_release", owner="acme", repo=repo, tag="v1.4.1"),
            call("tickets:add_comment", issue_id="$0[0].id", body="$6"),
            call("tickets:transition_issue", issue_id="$0[0].id", status="done"),
            call("tickets:log_work", issue_id="$0[0].id", minutes=60),
        )
        yield _task(
            f"Write the report on the {words} incident: take the comments of the ticket and the latest commits "
            f"of {repo}, save "
            f"it on the drive, link it in the ticket, send it to {who.capitalize()}, and plan a retrospective.",
            call("tickets:search_issues", query=words),
            call("tickets:list_comments", issue_id="$0[0].id"),
            call("repos:list_commits", owner="acme", repo=repo),
            call("files:upload_file", path=f"/ops/report-{who}.md", content="$2[0].message"),
            call("files:get_download_link", path="$3.path", hours=72),
            call("tickets:add_comment", issue_id="$0[0].id", body="$4"),
            call("mail:send_message", to=[f"{who}@acme.example"], subject="Report", body="$4"),
            call("calendar:find_free_slots", attendees=[f"{who}@acme.example"], day="2026-12-07"),
            call("calendar:create_event", title="Retrospective", start="$7[0].start", end="$7[0].end"),
        )


def _for_colleagues() -> Iterator[Task]:
    for number, who in enumerate(("anna", "omar", "petra", "lena")):
        day = f"2026-12-1{number + 4}"
        name = who.capitalize()
        yield _task(
            f"{name} goes on holiday on {day}. Hand the open tickets to me, move the planning, tell the team by "
            "mail, and "
            "share the packing list from my notes.",
            call("tickets:search_issues", assignee=who, status="open"),
            call("tickets:assign_issue", issue_id="$0[0].id", assignee="me"),
            call("calendar:search_events", query="planning"),
            call("calendar:update_event", event_id="$2[0].id", start=f"{day}T09:00", end=f"{day}T10:00"),
            call("mail:send_message", to=["team@acme.example"], subject=f"{name} is away", body=f"From {day} on."),
            call("notes:search_notes", query="packing"),
            call("notes:share_note", note_id="$5[0].id", email=f"{who}@acme.example"),
        )
        yield _task(
            f"Plan the interview of Novak with {name}: a free hour on {day}, the application from the drive and "
            "the questions "
            "from my notes for the interviewer, and an answer to the applicant.",
            call("calendar:find_free_slots", attendees=[f"{who}@acme.example"], day=day, minutes=60),
            call("calendar:create_event", title="Interview Novak", start="$0[0].start", end="$0[0].end"),
            call("calendar:invite_attendees", event_id="$1.id", attendees=[f"{who}@acme.example"]),
            call("files:share_file", path="/hr/novak-application.txt", email=f"{who}@acme.example"),
            call("notes:search_notes", tag="hiring"),
            call("notes:share_note", note_id="$4[0].id", email=f"{who}@acme.example"),
            call("mail:search_messages", query="application"),
            call("mail:reply_to_message", message_id="$6[0].id", body="We would like to meet you."),
        )
        yield _task(
            f"Get ready for the new year with {name}: check the budget file, list what runs out in stock, order "
            "ten of the first "
            "thing for Berlin, put the numbers into a note, and mail them.",
            call("files:search_files", query="budget"),
            call("files:read_file", path="$0[0].path"),
            call("inventory:list_low_stock"),
            call(
                "inventory:create_purchase_order",
                supplier_id="$2[0].supplier_id",
                product_id="$2[0].id",
                quantity=10,
                warehouse="berlin",
            ),
            call("notes:create_note", title="New year", body="$1"),
            call("mail:send_message", to=[f"{who}@acme.example"], subject="New year", body="$1"),
        )
        yield _task(
            f"Monday routine for {name}: unread mail, tickets in progress or open, meetings on {day}, pull "
            "requests of the web "
            "shop, deals in proposal, and our balance. One note with all of it, please.",
            call("mail:list_messages", unread_only=True),
            call("tickets:search_issues", assignee=who),
            call("calendar:list_events", start=f"{day}T00:00", end=f"{day}T23:59"),
            call("repos:list_pull_requests", owner="acme", repo="webshop"),
            call("crm:list_deals", stage="proposal"),
            call("payments:get_balance"),
            call("notes:create_note", title=f"Monday, {name}", body="$1[0].summary"),
        )

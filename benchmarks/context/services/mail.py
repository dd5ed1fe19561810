"""A mailbox."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from benchmarks.context.services.tables import Service, Table, matches

INTENTS = {
    "list_folders": "which mail folders are there",
    "list_messages": "newest messages of the inbox",
    "search_messages": "find a mail",
    "get_message": "read a mail",
    "send_message": "send an email",
    "reply_to_message": "answer a mail",
    "forward_message": "forward a mail",
    "create_draft": "write a draft of an email",
    "send_draft": "send a draft",
    "move_message": "move a mail to a folder",
    "add_label": "label a mail",
    "mark_as_read": "mark mails as read",
}


class Message(TypedDict):
    id: str
    folder: str
    sender: str
    to: list[str]
    subject: str
    body: str
    received: str
    unread: bool
    labels: list[str]


class Header(TypedDict):
    id: str
    sender: str
    subject: str
    received: str
    unread: bool


def _message(sender: str, subject: str, body: str, received: str, *, unread: bool = False) -> dict[str, Any]:
    return {
        "folder": "inbox",
        "sender": sender,
        "to": ["me@acme.example"],
        "subject": subject,
        "body": body,
        "received": received,
        "unread": unread,
        "labels": [],
    }


def _header(row: Any) -> Header:
    return {name: row[name] for name in ("id", "sender", "subject", "received", "unread")}  # type: ignore[return-value]


def make() -> Service:
    """Return the tools over a mailbox with a few messages."""
    service = Service("mail")
    rows = Table(
        "msg",
        _message(
            "kim@northwind.example", "Question about invoice", "Our invoice has a wrong total.", "2026-11-24T08:10"
        ),
        _message("anna@acme.example", "Slides for Thursday", "Please have a look at the slides.", "2026-11-24T09:25"),
        _message(
            "omar@acme.example", "Budget 2027", "The draft of the budget is ready.", "2026-11-25T16:40", unread=True
        ),
        _message("jobs@novak.example", "Application", "Please find my application.", "2026-11-26T07:05", unread=True),
        _message("alerts@status.example", "Disk almost full", "db-2 has 4 % left.", "2026-11-26T23:58", unread=True),
        _message(
            "sam@fabrikam.example", "Late delivery", "Order 7731 has not arrived yet.", "2026-11-27T06:30", unread=True
        ),
    )
    drafts = Table("dft")

    def sent(to: list[str], subject: str, body: str) -> Any:
        return rows.add(**_message("me@acme.example", subject, body, "2026-11-27T12:00") | {"folder": "sent", "to": to})

    @service.tool(read_only=True)
    def list_folders() -> list[str]:
        """List the folders of the mailbox by name."""
        return ["inbox", "sent", "archive", "spam"]

    @service.tool(read_only=True)
    def list_messages(folder: str = "inbox", unread_only: bool = False, limit: int = 20) -> list[Header]:
        """List the messages of a folder, newest first, without their bodies.

        Args:
            folder: Name of the folder.
            unread_only: Leave out what has been read already.
            limit: How many messages to return at most.
        """
        found = rows.select(lambda m: m["folder"] == folder and (m["unread"] or not unread_only))
        return [_header(row) for row in reversed(found)][:limit]

    @service.tool(read_only=True)
    def search_messages(query: str, folder: str | None = None, limit: int = 10) -> list[Header]:
        """Search the mailbox by words in the sender, the subject and the body of messages.

        Args:
            query: The words; all of them must occur.
            folder: Search this folder only.
            limit: How many messages to return at most.
        """
        found = rows.select(
            lambda m: matches(query, m["sender"], m["subject"], m["body"]) and folder in (None, m["folder"])
        )
        return [_header(row) for row in found][:limit]

    @service.tool(read_only=True)
    def get_message(message_id: str) -> Message:
        """Get a message with its body, recipients and labels.

        Args:
            message_id: ID of the message, such as msg_0001.
        """
        return rows.get(message_id)

    @service.tool()
    def send_message(to: list[str], subject: str, body: str, cc: list[str] | None = None) -> Header:
        """Send a new message right away. To have it looked at first, create a draft.

        Args:
            to: Addresses of the recipients.
            subject: Subject line.
            body: The text, as Markdown.
            cc: Addresses of those who get a copy.
        """
        return _header(sent(to, subject, body))

    @service.tool()
    def reply_to_message(message_id: str, body: str, reply_all: bool = False) -> Header:
        """Answer a message. The original is quoted below the text.

        Args:
            message_id: ID of the message that is answered.
            body: The text, as Markdown.
            reply_all: Whether all recipients of the original get the answer.
        """
        message = rows.get(message_id)
        return _header(sent([message["sender"]], f"Re: {message['subject']}", body))

    @service.tool()
    def forward_message(message_id: str, to: list[str], comment: str = "") -> Header:
        """Forward a message with its attachments to other people.

        Args:
            message_id: ID of the message.
            to: Addresses of the recipients.
            comment: A text above the forwarded message.
        """
        return _header(sent(to, f"Fwd: {rows.get(message_id)['subject']}", comment))

    @service.tool()
    def create_draft(to: list[str], subject: str, body: str) -> dict[str, Any]:
        """Store a message as a draft without sending it.

        Args:
            to: Addresses of the recipients.
            subject: Subject line.
            body: The text, as Markdown.
        """
        return drafts.add(to=to, subject=subject, body=body)

    @service.tool()
    def send_draft(draft_id: str) -> Header:
        """Send a draft that was stored before.

        Args:
            draft_id: ID of the draft, such as dft_0001.
        """
        draft = drafts.get(draft_id)
        return _header(sent(draft["to"], draft["subject"], draft["body"]))

    @service.tool()
    def move_message(message_id: str, folder: Literal["inbox", "archive", "spam"]) -> Header:
        """Move a message to another folder.

        Args:
            message_id: ID of the message.
            folder: Where it goes.
        """
        return _header(rows.change(message_id, folder=folder))

    @service.tool()
    def add_label(message_id: str, label: str) -> list[str]:
        """Put a label on a message, and return all of its labels. The label is created if there is none of that name.

        Args:
            message_id: ID of the message.
            label: Name of the label.
        """
        row = rows.get(message_id)
        row["labels"] = [*row["labels"], label]
        return row["labels"]

    @service.tool()
    def mark_as_read(message_ids: list[str]) -> int:
        """Mark messages as read, and return how many of them were unread.

        Args:
            message_ids: IDs of the messages.
        """
        changed = [rows.get(one) for one in message_ids]
        count = sum(row["unread"] for row in changed)
        for row in changed:
            row["unread"] = False
        return count

    return service

"""Notes in notebooks."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from benchmarks.context.services.tables import Service, Table, matches

INTENTS = {
    "list_notebooks": "my notebooks",
    "create_note": "write a note",
    "get_note": "read a note",
    "search_notes": "find a note",
    "append_to_note": "add lines to a note",
    "replace_note": "rewrite a note",
    "move_note": "move a note to a notebook",
    "tag_note": "tag a note",
    "list_tags": "tags of my notes",
    "share_note": "share a note with a colleague",
    "delete_note": "remove a note",
}


class Note(TypedDict):
    id: str
    notebook: str
    title: str
    body: str
    tags: list[str]
    shared_with: list[str]


def make() -> Service:
    """Return the tools over a few notes."""
    service = Service("notes")

    def note(notebook: str, title: str, body: str, *tags: str) -> dict[str, Any]:
        return {"notebook": notebook, "title": title, "body": body, "tags": list(tags), "shared_with": []}

    notes = Table(
        "note",
        note("work", "Release checklist", "- freeze\n- changelog\n- tag", "release"),
        note("work", "Interview questions", "1. Tell us about a failure.", "hiring"),
        note("private", "Packing list", "passport, charger", "travel"),
        note("work", "Meeting minutes 24 November", "Omar sends the budget. Anna fixes the cart.", "minutes"),
        note("work", "Ideas for the web shop", "Dark mode. Gift cards.", "ideas"),
    )

    @service.tool(read_only=True)
    def list_notebooks() -> list[str]:
        """List the names of all notebooks."""
        return sorted({one["notebook"] for one in notes})

    @service.tool()
    def create_note(title: str, body: str, notebook: str = "work", tags: list[str] | None = None) -> Note:
        """Create a note in a notebook.

        Args:
            title: Title of the note.
            body: Its text, as Markdown.
            notebook: Name of the notebook, which is created if there is none of that name.
            tags: Tags of the note.
        """
        return notes.add(**note(notebook, title, body, *(tags or ())))

    @service.tool(read_only=True)
    def get_note(note_id: str) -> Note:
        """Get a note with its whole text.

        Args:
            note_id: ID of the note, such as note_0001.
        """
        return notes.get(note_id)

    @service.tool(read_only=True)
    def search_notes(query: str = "", tag: str | None = None, limit: int = 10) -> list[Note]:
        """Search notes by words in the title and the text, or by a tag.

        Args:
            query: The words; all of them must occur.
            tag: Only notes with this tag.
            limit: How many notes to return at most.
        """
        return notes.select(lambda n: matches(query, n["title"], n["body"]) and (tag is None or tag in n["tags"]))[
            :limit
        ]

    @service.tool()
    def append_to_note(note_id: str, text: str) -> Note:
        """Append text to the end of a note, in a line of its own.

        Args:
            note_id: ID of the note.
            text: What is appended, as Markdown.
        """
        return notes.change(note_id, body=f"{notes.get(note_id)['body']}\n{text}")

    @service.tool()
    def replace_note(note_id: str, body: str, title: str | None = None) -> Note:
        """Replace the text of a note, and its title if one is given. Earlier versions are kept for 30 days.

        Args:
            note_id: ID of the note.
            body: The new text, as Markdown.
            title: A new title.
        """
        return notes.change(note_id, body=body, title=title)

    @service.tool()
    def move_note(note_id: str, notebook: str) -> Note:
        """Move a note to another notebook.

        Args:
            note_id: ID of the note.
            notebook: Name of the notebook.
        """
        return notes.change(note_id, notebook=notebook)

    @service.tool()
    def tag_note(note_id: str, tags: list[str]) -> Note:
        """Add tags to a note.

        Args:
            note_id: ID of the note.
            tags: The tags.
        """
        return notes.change(note_id, tags=[*notes.get(note_id)["tags"], *tags])

    @service.tool(read_only=True)
    def list_tags() -> dict[str, int]:
        """List all tags with the number of notes that have them."""
        every = [tag for one in notes for tag in one["tags"]]
        return {tag: every.count(tag) for tag in every}

    @service.tool()
    def share_note(note_id: str, email: str, can_edit: bool = False) -> Note:
        """Share a note with another person, who is notified by e-mail.

        Args:
            note_id: ID of the note.
            email: Address of the person.
            can_edit: Whether the person may change the note.
        """
        return notes.change(note_id, shared_with=[*notes.get(note_id)["shared_with"], email])

    @service.tool(destructive=True)
    def delete_note(note_id: str) -> bool:
        """Delete a note. It can be restored from the trash for 30 days.

        Args:
            note_id: ID of the note.
        """
        notes.remove(note_id)
        return True

    return service

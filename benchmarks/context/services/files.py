"""A drive with files."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from benchmarks.context.services.tables import Service, matches

INTENTS = {
    "list_directory": "what is in a directory of the drive",
    "search_files": "find a document",
    "get_metadata": "size and owner of a file",
    "read_file": "text of a document",
    "upload_file": "save a document",
    "create_directory": "make a directory on the drive",
    "move_file": "move or rename a document",
    "copy_file": "duplicate a document",
    "delete_file": "remove a document",
    "share_file": "share a document",
    "list_permissions": "who can see a document",
    "get_download_link": "link to download a document",
}


class Metadata(TypedDict):
    path: str
    size: int
    owner: str
    modified: str
    shared_with: list[str]


def make() -> Service:
    """Return the tools over a drive with a few files."""
    service = Service("files")
    texts = {
        "/finance/budget-2027.csv": "team,euros\nweb,240000\nops,180000\n",
        "/finance/invoices/northwind-november.txt": "Licences 1,200.00 EUR\nTotal 1,290.00 EUR\n",
        "/hr/novak-application.txt": "Ten years of Python.\n",
        "/marketing/slides-thursday.md": "# Launch\n\nGift cards.\n",
        "/ops/runbook-disk.md": "1. Find the largest tables.\n2. Archive them.\n",
    }
    shared: dict[str, list[str]] = {}

    def metadata(path: str) -> Any:
        if path not in texts:
            raise ValueError(f"there is no file {path}")
        return {
            "path": path,
            "size": len(texts[path]),
            "owner": "me@acme.example",
            "modified": "2026-11-26T10:00",
            "shared_with": shared.get(path, []),
        }

    @service.tool(read_only=True)
    def list_directory(path: str = "/") -> list[str]:
        """List the paths of all files below a directory.

        Args:
            path: The directory, such as /finance.
        """
        return [one for one in texts if one.startswith(path)]

    @service.tool(read_only=True)
    def search_files(query: str, directory: str = "/") -> list[Metadata]:
        """Search files by words in their name and text.

        Args:
            query: The words; all of them must occur.
            directory: Search below this directory only.
        """
        return [metadata(one) for one in texts if one.startswith(directory) and matches(query, one, texts[one])]

    @service.tool(read_only=True)
    def get_metadata(path: str) -> Metadata:
        """Get the size, the owner and the date of a file, and with whom it is shared.

        Args:
            path: The file, such as /finance/budget-2027.csv.
        """
        return metadata(path)

    @service.tool(read_only=True)
    def read_file(path: str, encoding: str = "utf-8") -> str:
        """Read the text of a file.

        Args:
            path: The file.
            encoding: How its bytes are decoded.
        """
        return texts[path]

    @service.tool()
    def upload_file(path: str, content: str, overwrite: bool = False) -> Metadata:
        """Store a text as a file.

        Args:
            path: Where, with the name of the file.
            content: The text.
            overwrite: Whether to replace a file that is there already.
        """
        if path in texts and not overwrite:
            raise ValueError(f"there is a file {path} already")
        texts[path] = content
        return metadata(path)

    @service.tool()
    def create_directory(path: str) -> str:
        """Create a directory, and those above it that are missing.

        Args:
            path: The directory.
        """
        return path

    @service.tool()
    def move_file(source: str, target: str) -> Metadata:
        """Move a file, or give it another name.

        Args:
            source: The file.
            target: Its new path.
        """
        metadata(source)
        texts[target] = texts.pop(source)
        return metadata(target)

    @service.tool()
    def copy_file(source: str, target: str) -> Metadata:
        """Copy a file.

        Args:
            source: The file.
            target: Path of the copy.
        """
        metadata(source)
        texts[target] = texts[source]
        return metadata(target)

    @service.tool(destructive=True)
    def delete_file(path: str, permanently: bool = False) -> bool:
        """Delete a file. It goes to the trash, unless it is to be gone at once.

        Args:
            path: The file.
            permanently: Whether it skips the trash.
        """
        metadata(path)
        del texts[path]
        return True

    @service.tool()
    def share_file(path: str, email: str, role: Literal["reader", "commenter", "editor"] = "reader") -> Metadata:
        """Share a file with a person, who is notified by e-mail.

        Args:
            path: The file.
            email: Address of the person.
            role: What the person may do.
        """
        metadata(path)
        shared[path] = [*shared.get(path, []), email]
        return metadata(path)

    @service.tool(read_only=True)
    def list_permissions(path: str) -> list[str]:
        """List the addresses of those with whom a file is shared.

        Args:
            path: The file.
        """
        return metadata(path)["shared_with"]

    @service.tool(read_only=True)
    def get_download_link(path: str, hours: int = 24) -> str:
        """Get a link under which a file can be downloaded without an account, for some hours.

        Args:
            path: The file.
            hours: How long the link is valid.
        """
        return f"https://drive.acme.example/d/{metadata(path)['path'].strip('/').replace('/', '-')}"

    return service

r"""Find a tool by words, read its documentation, then run it: Python functions and an MCP server in one catalogue.

    pip install 'toolexec[mcp]' mcp-server-time
    python examples/discovery.py

Prints:

    read the contents of a file?
      files:read_file        Reads a text file.
      time:get_current_time  Get current time in a specific timezone
    what time is it in another timezone?
      time:convert_time      Convert time between timezones
      time:get_current_time  Get current time in a specific timezone
    harmless: files:list_files, files:read_file
    about: Reads a text file. Knows UTF-8 only.
    required: path - defaults: {'max_lines': 100}
    value: 'Buy milk.\nCall Ada.\n'
    Tokyo is ahead of UTC by +9.0h
"""

import asyncio
import sys

from toolexec import DocEntry, Exec, Filters, ToolExample, tool

FILES = {"notes.txt": "Buy milk.\nCall Ada.\n", "draft.txt": "Once upon a time\n"}


@tool(namespace="files", tags=["text"], read_only=True)
async def read_file(path: str, max_lines: int = 100) -> str:
    """Reads a text file.

    Args:
        path: Which file to read.
        max_lines: Stop after this many lines.
    """
    return "".join(FILES[path].splitlines(keepends=True)[:max_lines])


@tool(namespace="files", read_only=True)
async def list_files() -> list[str]:
    """Lists all files of the directory."""
    return sorted(FILES)


@tool(namespace="files", destructive=True)
async def delete_file(path: str) -> None:
    """Deletes a file permanently."""
    del FILES[path]


async def main() -> None:
    async with Exec() as ex:
        example = ToolExample(title="Read the notes", args={"path": "notes.txt"})
        ex.add(read_file, doc=DocEntry(notes="Knows UTF-8 only.", examples=(example,)))
        ex.add(list_files)
        ex.add(delete_file)
        await ex.add_mcp("time", command=[sys.executable, "-m", "mcp_server_time"])

        # Search by words. Summaries are short and have no schemas, so many fit into a model's context.
        for query in ("read the contents of a file", "what time is it in another timezone"):
            print(f"{query}?")
            for summary in await ex.search_tools(query, limit=2):
                print(f"  {summary.id:22} {summary.short_description}")

        # Filters narrow the search; an empty query lists all tools that remain.
        harmless = await ex.search_tools("", filters=Filters(namespace="files", read_only=True))
        print("harmless:", ", ".join(summary.id for summary in harmless))

        # Read the documentation of the best one, in the detail that you need: `summary`, `schema` or `full`.
        doc = await ex.get_tool_doc("files:read_file", "full")
        print("about:", doc.summary, doc.notes)
        print("required:", *doc.schema_info.required, "- defaults:", dict(doc.schema_info.defaults))

        # Run the author's example.
        result = await ex.run_tool(doc.id, doc.example_call)
        print("value:", repr(result.value))

        # Tools of the MCP server are called the same way.
        result = await ex.run_tool(
            "time:convert_time", {"source_timezone": "UTC", "time": "09:00", "target_timezone": "Asia/Tokyo"}
        )
        print("Tokyo is ahead of UTC by", result.value["time_difference"])


if __name__ == "__main__":
    asyncio.run(main())

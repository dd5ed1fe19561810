"""Everything that an `Exec` can do, as one MCP server."""

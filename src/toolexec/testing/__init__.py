"""What users and our own tests test with: in-memory parts, a scripted MCP server, contract suites."""

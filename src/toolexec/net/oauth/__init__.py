"""Log in to servers with OAuth 2.1: discovery, flows, tokens, and where they are kept.

MCP's SDK has client flows, too. They are not used here, because they hold one lock from a request to its response, so
that calls wait for each other, follow the metadata of a server to any address, belong to one process, and cannot be had
without the SDK, by providers of other kinds. What is checked is the same, and the official conformance suite says so.
"""

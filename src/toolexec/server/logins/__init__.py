"""The logins that callers make themselves, at a page of this server."""

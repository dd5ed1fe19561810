"""Single endpoints of HTTP services as tools, from a small specification."""

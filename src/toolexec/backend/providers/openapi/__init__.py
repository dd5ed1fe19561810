"""Tools of an HTTP API that an OpenAPI document describes."""

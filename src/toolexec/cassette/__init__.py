"""Cassettes: the calls of a session in one file, to make the session again without any backend."""

from typing import Literal, TypeAlias

__all__ = ["CassetteMode"]

CassetteMode: TypeAlias = Literal["replay", "record", "auto", "refresh"]
"""What is done with a cassette: `replay` answers every call from it, `record` begins it again, `auto` replays what it
has and records the rest, `refresh` makes all calls again and keeps what has not changed."""

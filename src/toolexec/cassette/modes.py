"""The modes of a cassette."""

from typing import Literal, TypeAlias

CassetteMode: TypeAlias = Literal["replay", "record", "auto", "refresh"]
"""`replay` answers every call from the cassette, `record` begins it again, `auto` replays what it has and records the
rest, `refresh` makes all calls again and keeps what has not changed."""

"""A compiled workflow: flat instructions that are plain data, each with its place in the source."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

Instruction: TypeAlias = tuple[str, JSONValue, int, int]
"""The name of an operation, what it works with (plain data), and the line and column that it comes from."""

_encode: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Program:
    """What a `Machine` runs. `inputs` is the JSON Schema of the arguments."""

    code: tuple[Instruction, ...]
    inputs: JSONObject

    @cached_property
    def digest(self) -> str:
        """What a state belongs to: the same for two programs with the same instructions."""
        return hashlib.sha256(_encode(self.to_dict()).encode()).hexdigest()

    def to_dict(self) -> JSONDict:
        """Return the program as JSON-able data."""
        return {"code": [[*instruction] for instruction in self.code], "inputs": self.inputs}

    @classmethod
    def from_dict(cls, data: JSONObject) -> Program:
        """Return the program that `to_dict` has written."""
        return cls(tuple((op, arg, line, column) for op, arg, line, column in data["code"]), data["inputs"])

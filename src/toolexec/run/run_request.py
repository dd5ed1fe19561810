"""A run of code, a workflow, a chain or a skill, as the rules decide on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Origin

Profile: TypeAlias = Literal["dev", "standard", "hardened"]
PROFILES: tuple[str, ...] = get_args(Profile)

RunKind: TypeAlias = Literal["code", "workflow", "chain", "skill"]
RUN_KINDS: tuple[str, ...] = get_args(RunKind)

_NAMES: Final = {"code": "execute_code", "workflow": "run_workflow", "chain": "run_chain", "skill": "run_workflow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run that is about to begin.

    `profile` is the one that code will run in, and `language` what it is in, as `base_language` names it; only code has
    them. `details` are facts without secrets, for audit and traces; `args` are what an approver is shown.
    """

    kind: RunKind
    origin: Origin
    profile: str = ""
    language: str = ""
    details: JSONObject = field(default_factory=JSONDict)
    args: JSONObject = field(default_factory=JSONDict)

    @property
    def name(self) -> str:
        """What the run is called where calls have the ID of their tool."""
        return _NAMES[self.kind]

    def __str__(self) -> str:
        words = {"code": "code", "workflow": "a workflow", "chain": "a chain", "skill": "a skill"}[self.kind]
        if self.kind == "code" and self.language:
            words = f"{self.language} code"
        return f"{words} in the profile {self.profile}" if self.profile else words

"""A program that failed, as advice sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A program that failed: the `kind` and `message` of its error, the `line` (from 1; 0 unknown) and its `source`,
    its `code`, its `language`, and where it ran. `has_network` says whether it could reach some hosts, `is_isolated`
    whether it had a machine of its own: only then is anything known of that. `held` is what a guest reported of the
    values on the line, as it came, and `facts` what another run of the program reports of them."""

    kind: str
    message: str
    code: str
    backend: str
    language: str = "python"
    source: str = ""
    line: int = 0
    has_network: bool = False
    is_isolated: bool = True
    held: object = None
    facts: tuple[str, ...] = ()

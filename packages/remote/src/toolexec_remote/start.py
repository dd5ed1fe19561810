"""What a caller knows of the start of its run, as types: only two of them lead to "it never started".

`Withheld` → `Released` → `Begun`, and never back. While the word to start is withheld, nothing may start. Once it has
left, only a proof of the incarnation that has it shows that the run never started. Once the program has shown that it
runs, there is no way to say so: `Begun` has no method that leads there, and `NeverStartedError` takes nothing else.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from toolexec.errors import SandboxFailedError, ToolExecError
from toolexec_remote.incarnation import NEVER_STARTED, is_stated

_UNPROVEN: Final = "the program is not run again, as it may have done some of its work"


@final
class Withheld:
    """The word to start has not left this process: the run has not started, and cannot."""

    __slots__ = ("run",)

    def __init__(self, run: str) -> None:
        self.run = run

    def release(self, incarnation: str, key: str, *, at: float, remembers: float) -> Released:
        """Let the word leave for *incarnation*, at the time *at*, signed with the key of this ID; that one remembers
        each run for so many seconds."""
        return Released(self, incarnation, key, at, remembers)

    def never(self, error: ToolExecError, *, final: bool = False, moves: bool = False) -> NeverStartedError:
        """Return that it never started."""
        return NeverStartedError(error, self, final=final, moves=moves)


@final
class Released:
    """The word to start has left for one incarnation, which may have started the run; no other one can."""

    __slots__ = ("at", "incarnation", "key", "remembers", "run")

    def __init__(self, before: Withheld, incarnation: str, key: str, at: float, remembers: float) -> None:
        self.run = before.run
        self.incarnation = incarnation
        self.key = key
        self.at = at
        self.remembers = remembers

    def never(
        self, signature: object, error: ToolExecError, *, now: float, final: bool = False
    ) -> NeverStartedError | SandboxFailedError:
        """Return that it never started if *signature* is the proof of that, else that it may have.

        A proof counts for as long as its incarnation remembers what it has started.
        """
        try:
            proof = NeverStartedProof(self, signature, now)
        except ValueError:
            return self.lost(error.message, error)
        return NeverStartedError(error, proof, final=final)

    def begin(self) -> Begun:
        """Note that the program has shown that it runs."""
        return Begun(self.run, self.incarnation)

    def lost(self, why: str, cause: ToolExecError | None = None) -> SandboxFailedError:
        """Return the failure of a run of which nothing is known."""
        return _lost(self.incarnation, why, cause)


@final
class Begun:
    """The program has shown that it runs: by `started`, by a call, or by output."""

    __slots__ = ("incarnation", "run")

    def __init__(self, run: str, incarnation: str) -> None:
        self.run = run
        self.incarnation = incarnation

    def lost(self, why: str, cause: ToolExecError | None = None) -> SandboxFailedError:
        """Return the failure of a run that was under way."""
        return _lost(self.incarnation, why, cause)


StartState: TypeAlias = Withheld | Released | Begun


@final
class NeverStartedProof:
    """The word of an incarnation that it has not started a run, and never will. Raises ValueError for what does not
    prove that."""

    __slots__ = ("incarnation", "run")

    def __init__(self, of: Released, signature: object, now: float) -> None:
        if now - of.at > of.remembers:
            raise ValueError("the incarnation may have forgotten the run by now")
        if not is_stated(of.incarnation, signature, NEVER_STARTED, of.key, of.run):
            raise ValueError("this incarnation has not stated that")
        self.incarnation = of.incarnation
        self.run = of.run


class NeverStartedError(Exception):
    """The program certainly did not start, for the reason that is its `error`; another endpoint may take it.

    `ground` is why that is certain. `final` is true when no endpoint would take it, and `moves` when another one has
    room for it.
    """

    def __init__(
        self, error: ToolExecError, ground: Withheld | NeverStartedProof, *, final: bool = False, moves: bool = False
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.ground = ground
        self.final = final
        self.moves = moves


def _lost(incarnation: str, why: str, cause: ToolExecError | None) -> SandboxFailedError:
    failure = SandboxFailedError(f"{why}; {_UNPROVEN}", details={"began": True, "incarnation": incarnation})
    failure.__cause__ = cause
    return failure

"""One program of all attacks, and what got out of a sandbox by it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.held_out import attacks, further, means
from tests.wall import run_alone

from toolexec.runtime.base import SandboxBackend

_ALL: Final = (*attacks.ATTACKS, *further.FURTHER)
NAMES: Final = tuple(each.__name__ for each in _ALL)
_OUTSIDE: Final = frozenset(each.__name__ for each in _ALL if each.__doc__ == "outside")
"""What counts wherever it is tried: it reaches beyond a kernel of the sandbox's own."""
_FIRST: Final = {"memory_of_the_first_process": "it runs the program, and has what the program was sent with"}
KNOWN: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(("docker", "containerd", "podman"), _FIRST),
    "kubernetes": {
        **_FIRST,
        "tracing_files": "the runtime of a node mounts /sys, read-only, and no pod can take that away",
    },
}
"""By kind of sandbox: the attacks that get something out of it which no profile promises to keep, with the reason."""
_IN_A_CHILD: Final = """
import os, signal

def said_by(attack):
    try:
        said = attack() or ""
    except BaseException as error:
        said = f"raised {type(error).__name__}: {error}"
    return f"said {said}"[:1000]

def tried(attack):
    if not hasattr(os, "fork"):
        return said_by(attack)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        signal.alarm(10)
        os.write(theirs, said_by(attack).encode("utf-8", "replace"))
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as answer:
        said = answer.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    return said or f"killed by {os.WTERMSIG(status) if os.WIFSIGNALED(status) else status}"

return {attack.__name__: tried(attack) for attack in (*ATTACKS, *FURTHER)}
"""


def _source(module: Any) -> str:
    lines = Path(inspect.getfile(module)).read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("from tests."))


PROGRAM: Final = "\n".join([_source(means), _source(attacks), _source(further), _IN_A_CHILD])
"""Its value is what each attack said, by name: `said ` and the evidence or nothing, `raised ...` or `killed by ...`."""


def judge(value: Any, isolation: str) -> dict[str, str]:
    """Return the attacks that got something out under *isolation*, by the *value* of `PROGRAM`, each with the evidence;
    one without an answer has measured nothing, and counts as well."""
    answers: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    counted = NAMES if isolation in ("container", "wasm") else [name for name in NAMES if name in _OUTSIDE]
    found = {name: str(answers.get(name, "it was never tried")) for name in counted}
    return {
        name: said
        for name, said in found.items()
        if not said.startswith(("said raised ", "killed by ")) and said != "said "
    }


async def escaped(backend: SandboxBackend, *, timeout: float = 120.0) -> dict[str, str]:
    """Run all attacks in *backend*, and return those that got something out; closes it. Raises what the run raises."""
    return judge(await run_alone(backend, PROGRAM, timeout), backend.isolation)


def unknown(kind: str, found: Mapping[str, str]) -> dict[str, str]:
    """Return what is in *found*, which got out of *kind*, without what is known to."""
    return {name: evidence for name, evidence in found.items() if name not in KNOWN.get(kind, {})}

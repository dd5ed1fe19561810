"""All that asks the kernel for what no sandbox may have, as one program: the wall of an engine, in one start of a guest."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent
from typing import Any, Final

from tests.promises import read_record

from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.runtime.base import SandboxBackend
from toolexec.testing.escapes import LIMITS, Attempt, Site
from toolexec.testing.escapes.kernel import KERNEL_ESCAPES

NAMES: Final = tuple(escape.name for escape in KERNEL_ESCAPES)
PROGRAM: Final = "".join(
    [
        *(f"def {each.name}():\n{indent(each.programs['python'], '    ')}\n" for each in KERNEL_ESCAPES),
        f"return {{{', '.join(f'{name!r}: {name}()' for name in NAMES)}}}\n",
    ]
)
"""Its value is that of each program, by name."""


def judge(value: Any, isolation: str) -> dict[str, str]:
    """Return what got out under *isolation*, by the *value* of `PROGRAM`: the names of the programs, each with the
    evidence."""
    found: dict[str, str] = {}
    for escape in KERNEL_ESCAPES:
        one = CodeResult(value=value.get(escape.name) if isinstance(value, dict) else None)
        evidence = escape.check(Attempt(result=one, raised=None, tools=None, isolation=isolation))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        if evidence:
            found[escape.name] = evidence
    return found


async def run_alone(backend: SandboxBackend, program: str, timeout: float = 120.0) -> Any:
    """Return the value of *program*, run in *backend*, which is closed. Raises what the run raises."""
    try:
        async with Site() as site:
            settings: dict[str, Any] = {"limits": LIMITS, "profile": "standard", "best_effort": True}
            gateway = site.tools(LIMITS, None)
            request = ExecuteRequest(code=program, gateway=gateway, timeout=timeout, **settings)
            result = await backend.execute(request.validate())
            gateway.close()
    finally:
        await backend.aclose()
    return result.raise_for_error().value


async def fallen(backend: SandboxBackend, *, timeout: float = 120.0) -> dict[str, str]:
    """Run `PROGRAM` in *backend* and return what got out of it; closes it. Raises what the run raises."""
    return judge(await run_alone(backend, PROGRAM, timeout), backend.isolation)


def broken(kind: str, who: str, found: Mapping[str, str]) -> dict[str, str]:
    """Return what is in *found*, which got out of *kind*, though the recorded table says that it is held; *who* started
    it, `root` or `user`."""
    held = read_record().get(kind, {}).get(who, {"held": ()})["held"]
    return {name: evidence for name, evidence in found.items() if name in held}

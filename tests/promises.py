"""The table of promises and sandboxes in docs/sandboxes.md, from the declaration and from recorded runs.

`toolexec sandbox check --json >run.json` measures; `python -m tests.promises run.json` takes the run into the record
(`promises.json`), in place of what was there of the same sandboxes and the same kind of user, and writes the table.
`podman=run.json` records the run's sandbox as `podman`. Without a file it only writes the table. What was never
recorded is never measured here. `python -m tests.record_promises` measures the engines of the tests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from toolexec.runtime.contract import PROMISES, Promise
from toolexec.runtime.kinds import isolations
from toolexec.testing.escapes import ESCAPES, ISOLATING

RECORD: Final = Path(__file__).with_name("promises.json")
DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "sandboxes.md"
BEGIN, END = "<!-- promises: begin -->", "<!-- promises: end -->"
_ABOUT: Final = ("isolation", "profile", "image", "version")
_BEHIND: Final = "inner"
_NEVER: Final = "never measured here"
_WHO: Final = {"root": "root", "user": "a user without rights"}


KNOWN_GAPS: Final[Mapping[str, Mapping[str, str]]] = {
    "kubernetes": {"cpu_budget": "CPU time can be read only with permissions that would allow much more"},
    "podman:user": dict.fromkeys(
        ("cpu_budget", "fork_bomb", "memory_list", "threads"),
        "a rootless Podman has no control groups of the first version, and results say so",
    ),
    "gvisor:user": {"memory_list": "an ordinary user can make no control groups, and results say so"},
}
"""By kind of sandbox, with `:user` as an ordinary user starts it: the programs that get out of it, each with the reason.
What is recorded as weaker is one of them."""


def read_record() -> dict[str, Any]:
    """Return what is recorded: by kind of sandbox and `root` or `user`, how it was set up, and the programs that were
    held or got out."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}


def merged(record: Mapping[str, Any], run: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """Return *record* with the sandboxes of *run*, the JSON of a check, that were measured in it; as *name*, if one is
    given."""
    found = dict(record)
    for column in run["sandboxes"]:
        outcomes = column["outcomes"]
        if outcomes:
            kind, who = name or column["kind"], "user" if run["user"] else "root"
            measured = {
                **{about: column[about] for about in _ABOUT},
                **({_BEHIND: column[_BEHIND]} if column.get(_BEHIND) else {}),
                "language": run["language"],
                "held": sorted(each["name"] for each in outcomes if each["held"]),
                "weaker": sorted(each["name"] for each in outcomes if not each["held"]),
            }
            found[kind] = {**found.get(kind, {}), who: measured}
    return dict(sorted(found.items()))


def table(record: Mapping[str, Any]) -> str:
    """Return the table as Markdown: a column for each recorded sandbox, one for all that have no record, and a line
    about each recorded run."""
    kinds = [kind for kind, isolation in isolations().items() if isolation in ISOLATING]
    there = [*(kind for kind in kinds if kind in record), *sorted({*record} - {*kinds})]
    absent = [kind for kind in kinds if kind not in record]
    heads = [*(f"`{kind}`" for kind in there), ", ".join(f"`{kind}`" for kind in absent)]
    lines = [f"| No program | {' | '.join(filter(None, heads))} |", "|---" * (len([*filter(None, heads)]) + 1) + "|"]
    for promise in PROMISES:
        cells = [*(_cell(promise, record[kind]) for kind in there), *([_NEVER] if absent else [])]
        lines.append(f"| {promise.says} | {' | '.join(cells)} |")
    return "\n".join([*lines, *([""] if there else []), *(_about(kind, record[kind]) for kind in there)])


def _cell(promise: Promise, runs: Mapping[str, Any]) -> str:
    """Return what came of a promise, apart for root and for users without rights only where that differs."""
    found = {who: _verdict(promise, runs[who]) for who in sorted(runs)}
    if len({*found.values()}) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{verdict} ({_WHO[who]})" for who, verdict in found.items())


def _verdict(promise: Promise, run: Mapping[str, Any]) -> str:
    language = run["language"]
    programs = [
        each.name
        for each in ESCAPES
        if language in each.programs and any(fnmatchcase(each.name, probe) for probe in promise.probes)
    ]
    weaker = [name for name in programs if name in run["weaker"]]
    if weaker:
        return "weaker: " + ", ".join(f"`{name}`" for name in weaker)
    return f"kept ({len(programs)})" if {*programs} <= {*run["held"]} else _NEVER


def _about(kind: str, runs: Mapping[str, Any]) -> str:
    said: list[str] = []
    for who, run in sorted(runs.items()):
        setup = f"with `{run[_BEHIND]}` behind it, " if _BEHIND in run else ""
        setup += f"under the profile `{run['profile']}`" + (f", the image `{run['image']}`" if run["image"] else "")
        count, held = len(run["held"]) + len(run["weaker"]), len(run["held"])
        what = f"{held} of {count} {run['language'].title()} programs were held"
        said.append(f"{what}, {setup}, started by {_WHO[who]}")
    known = {**KNOWN_GAPS.get(kind, {}), **KNOWN_GAPS.get(f"{kind}:user", {})}
    gaps = [f"`{name}` gets out: {reason}" for name, reason in known.items()]
    return f"- `{kind}`: {'; '.join(said)}. {'. '.join(gaps)}".rstrip() + ("." if gaps else "")


def write(text: str) -> None:
    """Put the table into the document."""
    document = DOCUMENT.read_text("utf-8")
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


def main(files: Sequence[str]) -> None:
    """Take in the runs in *files*, each a path or `NAME=path`, and write the table."""
    record = read_record()
    for file in files:
        name, _, path = file.rpartition("=")
        record = merged(record, json.loads(Path(path).read_text("utf-8")), name)
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")
    write(table(record))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The table of promises and sandboxes in docs/sandboxes.md, from the declaration and from recorded runs.

`toolexec sandbox check --json >run.json` measures; `python -m tests.promises run.json` takes the run into the record
(`promises.json`), in place of what was there of the same sandboxes, and writes the table. Without a file it only writes
the table. What was never recorded is never measured here.
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

__all__ = ["DOCUMENT", "RECORD", "merged", "read_record", "table"]

RECORD: Final = Path(__file__).with_name("promises.json")
DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "sandboxes.md"
BEGIN, END = "<!-- promises: begin -->", "<!-- promises: end -->"
_ABOUT: Final = ("isolation", "profile", "image", "version")
_NEVER: Final = "never measured here"


def read_record() -> dict[str, Any]:
    """Return what is recorded: by kind of sandbox, how it was set up, and the programs that were held or got out."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}


def merged(record: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """Return *record* with the sandboxes of *run*, the JSON of a check, that were measured in it."""
    found = dict(record)
    for column in run["sandboxes"]:
        outcomes = column["outcomes"]
        if outcomes:
            found[column["kind"]] = {
                **{name: column[name] for name in _ABOUT},
                "language": run["language"],
                "user": run["user"],
                "held": sorted(each["name"] for each in outcomes if each["held"]),
                "weaker": sorted(each["name"] for each in outcomes if not each["held"]),
            }
    return dict(sorted(found.items()))


def table(record: Mapping[str, Any]) -> str:
    """Return the table as Markdown: a column for each recorded sandbox, one for all that have no record, and a line
    about each recorded run."""
    kinds = [kind for kind, isolation in isolations().items() if isolation in ISOLATING]
    there, absent = [kind for kind in kinds if kind in record], [kind for kind in kinds if kind not in record]
    heads = [*(f"`{kind}`" for kind in there), ", ".join(f"`{kind}`" for kind in absent)]
    lines = [f"| No program | {' | '.join(filter(None, heads))} |", "|---" * (len([*filter(None, heads)]) + 1) + "|"]
    for promise in PROMISES:
        cells = [*(_cell(promise, record[kind]) for kind in there), *([_NEVER] if absent else [])]
        lines.append(f"| {promise.says} | {' | '.join(cells)} |")
    return "\n".join([*lines, *([""] if there else []), *(_about(kind, record[kind]) for kind in there)])


def _cell(promise: Promise, run: Mapping[str, Any]) -> str:
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


def _about(kind: str, run: Mapping[str, Any]) -> str:
    user = "root" if run["user"] == 0 else "a user without rights"
    setup = f"the profile `{run['profile']}`" + (f", the image `{run['image']}`" if run["image"] else "")
    count, held = len(run["held"]) + len(run["weaker"]), len(run["held"])
    return (
        f"- `{kind}`: {held} of {count} {run['language'].title()} programs were held, under {setup}, started by {user}."
    )


def write(text: str) -> None:
    """Put the table into the document."""
    document = DOCUMENT.read_text("utf-8")
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


def main(files: Sequence[str]) -> None:
    """Take in the runs in *files*, and write the table."""
    record = read_record()
    for file in files:
        record = merged(record, json.loads(Path(file).read_text("utf-8")))
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")
    write(table(record))


if __name__ == "__main__":
    main(sys.argv[1:])

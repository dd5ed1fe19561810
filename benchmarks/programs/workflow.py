"""What it costs to read a workflow of 200 lines: parsing, formatting, and the first use in a process."""

from __future__ import annotations

from time import perf_counter

from benchmarks.meter import Meter, run_program

PART = """\
issue := run("github:get_issue", {owner: "a", repo: repo, number: n}) timeout 5s
labels := collect label, i in issue.labels where label.name != "wontfix" and not i > 3 {
    {name: label.name, position: i, ...label.more}
}
if issue?.number == 3 or len(labels) > 10 {
    print("issue ${issue.number} of ${labels[0].name}", labels[1:2])
} else if labels[-1] not in [1, 2] {
    fail "no such label"
} else {
    issue.state = -n * 2 + 3
}
both := parallel limit 3 {
    comments: run("github:list_comments", {number: issue.number})
    events: retry 3 delay 1s { run("github:list_events", {number: issue.number}) }
}
try {
    run("slack:send", {text: both.comments[0].body ?? "nothing", channel: "#triage"})
} catch err {
    print(err.message)
}
"""
SOURCE = "input repo: string\ninput n: integer = 1\n" + PART * 10


async def main(meter: Meter) -> None:
    """Record seconds: `workflow.first`, `workflow.parse`, `workflow.format`."""
    started = perf_counter()
    from toolexec.workflow.parser import parse

    parse("x := 1")
    meter.record("workflow.first", perf_counter() - started)
    from toolexec.workflow.formatter import format_workflow

    meter.sync("workflow.parse", parse, SOURCE)
    meter.sync("workflow.format", format_workflow, SOURCE)


if __name__ == "__main__":
    run_program(main)

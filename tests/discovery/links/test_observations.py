"""What calls have shown: counted, bounded, written down and read again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.discovery.links.services import TEXT, index_of, tool

from toolexec.discovery.links import Links, Observations, Observed
from toolexec.errors import ConfigurationError

SOURCE = ("t:begin", "job.ref")
GO = tool("t:go", {"handle": TEXT}, None)
BEGIN = tool("t:begin", {}, None)


def test_counts() -> None:
    """Counts how often an argument came from a result path, of all calls since the first time."""
    observations = Observations()
    observations.note("t:go", {"handle": []})
    for places in ([SOURCE], [SOURCE, ("t:other", "@")], []):
        observations.note("t:go", {"handle": places})
    assert observations.into("t:go", at_least=2) == [
        Observed(producer_id="t:begin", path="job.ref", tool_id="t:go", argument="handle", seen=2, of=3)
    ]
    assert [(o.producer_id, o.seen) for o in observations.all()] == [("t:begin", 2), ("t:other", 1)]
    assert observations.into("t:begin") == []


def test_the_oldest_go_first() -> None:
    """Only so many are kept, and nothing of the others."""
    observations = Observations(max_links=3)
    for number in range(10):
        observations.note(f"t:{number}", {"a": [SOURCE]})
        observations.note("t:0", {"a": [SOURCE]})
    assert {o.tool_id for o in observations.all()} == {"t:0", "t:8", "t:9"}
    assert (len(observations._into), len(observations._calls)) == (3, 3)
    for path in "abcd":
        observations.note("t:go", {"a": [("t:begin", path)]})
    assert [o.path for o in observations.into("t:go")] == ["b", "c", "d"]
    with pytest.raises(ConfigurationError, match="max_links"):
        Observations(max_links=0)


def test_written_down_and_read_again() -> None:
    """`load` adds what `dump` gave, which is JSON."""
    observations = Observations()
    for places in ([SOURCE], [SOURCE], []):
        observations.note("t:go", {"handle": places})
    data = json.loads(json.dumps(observations.dump()))
    other = Observations()
    other.load(data)
    assert other.all() == observations.all()
    other.load(data)
    assert [(o.seen, o.of) for o in other.all()] == [(4, 6)]


_GOOD: dict[str, Any] = {"producer": "a", "path": "x.y", "tool": "b", "argument": "c.d", "seen": 1, "of": 2}


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, {"format": 2, "links": []}, {"format": 1, "links": {}}, {"format": 1, "links": [3]},
        *({"format": 1, "links": [_GOOD, {**_GOOD, **wrong}]} for wrong in (
            {"producer": ""}, {"tool": 3}, {"tool": "x" * 401}, {"path": "a[0]"}, {"path": "x || `1`"}, {"path": ""},
            {"path": "a" * 65}, {"argument": "a b"}, {"argument": "a." * 200 + "a"}, {"seen": 0}, {"seen": True},
            {"of": 1.5}, {"of": 10**7}, {"argument": None},
        )),
    ],
)  # fmt: skip
def test_what_cannot_be_read(data: Any) -> None:
    """Refuses unreadable observations as a whole: a path is put into expressions, so it must be one."""
    observations = Observations()
    with pytest.raises(ConfigurationError):
        observations.load(data)
    assert observations.all() == []


def test_links_show_them() -> None:
    """From the second time on, although no schema says a thing; the more often, the surer."""
    links = Links(index_of(BEGIN, GO))
    links.observations.note("t:go", {"handle": [SOURCE]})
    assert links.producers_for("t:go") == {}
    links.observations.note("t:go", {"handle": [SOURCE]})
    (first,) = links.producers_for("t:go")["handle"]
    assert (first.tool_id, first.path, first.source) == ("t:begin", "job.ref", "observed")
    assert "in 2 of 2 calls" in first.reason
    for _ in range(20):
        links.observations.note("t:go", {"handle": [SOURCE]})
    (surer,) = links.producers_for("t:go")["handle"]
    assert surer.score > first.score
    for _ in range(40):
        links.observations.note("t:go", {"handle": []})
    (doubtful,) = links.producers_for("t:go")["handle"]
    assert doubtful.score < first.score


def test_arguments_that_no_schema_has() -> None:
    """Lists them after those of the schema; they must be given where it has none at all."""
    free = tool("t:free", {}, None)
    links = Links(index_of(BEGIN, GO, free))
    for tool_id in ("t:go", "t:free", "t:gone"):
        for _ in range(2):
            links.observations.note(tool_id, {"extra": [SOURCE, ("t:gone", "@")]})
    assert [taken.name for taken in links.inputs(GO)] == ["handle", "extra"]
    assert [taken.argument.required for taken in links.inputs(free)] == [True]
    assert [p.tool_id for p in links.producers_for("t:free")["extra"]] == ["t:begin"]

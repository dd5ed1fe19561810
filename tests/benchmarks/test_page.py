"""The page of benchmarks: each table has its own date and commit, and is replaced by itself."""

from __future__ import annotations

import pytest
from benchmarks.harness import PROGRAMS, Figure, Outcome
from benchmarks.meaning import MEANINGS
from benchmarks.page import marked, read_page
from benchmarks.report import PAGE, TEMPLATE, update
from benchmarks.tables import ALL_GROUPS, keys_of

GROUP = "Chains"
NEW = "Measured 2030-01-02 at commit abcdef1, on another machine; load 0.1 before, 0.2 after."


@pytest.fixture
def text() -> str:
    return PAGE.read_text()


def outcome_of(*keys: str, seconds: float = 0.5) -> Outcome:
    """Return the outcome of a run that measured these figures only."""
    return Outcome({key: Figure(((seconds,),)) for key in keys})


def split(text: str) -> tuple[str, str, str]:
    """Return what is before the table of GROUP, the table and what is after it."""
    table = read_page(text, ALL_GROUPS).tables[GROUP]
    before, found, after = text.partition(table)
    assert found
    return before, found, after


def test_the_page_is_what_its_template_and_its_tables_give(text: str) -> None:
    """Prose that is edited on the page instead of in benchmarks/page.md would be lost with the next run."""
    rounds = str(max(program.rounds for program in PROGRAMS))
    assert read_page(text, ALL_GROUPS).render(TEMPLATE.read_text(), ALL_GROUPS, MEANINGS, rounds=rounds) == text


def test_a_partial_run_replaces_its_table_only(text: str) -> None:
    """All other tables keep their figures, dates and commits, byte for byte."""
    written, new = update(text, outcome_of(*keys_of(GROUP)), stamp=NEW, versions={})
    assert written == [GROUP]
    before, table, after = split(text)
    new_before, new_table, new_after = split(new)
    assert new_before == before
    assert after.startswith(new_after.partition("## Where it falls short")[0])
    assert table != new_table
    assert NEW in new_table
    assert "| 500 ms |" in new_table
    assert new.count(NEW) == 1


def test_only_the_shortfalls_of_the_replaced_table_change(text: str) -> None:
    """The list at the end has the new figure of a missed bar, and the others as they were."""
    _, new = update(text, outcome_of(*keys_of(GROUP)), stamp=NEW, versions={})
    old_lines, new_lines = text.splitlines(), new.splitlines()
    mine = f"- {GROUP}: **"
    assert [line for line in new_lines if line.startswith(mine)] == [
        "- Chains: **a step of `Exec.run_chain`, ten steps, `use_previous`** is at 500 ms, over its bar of 6.00 µs."
    ]
    end = old_lines.index("## Where it falls short")
    kept = [line for line in old_lines[end:] if not line.startswith(mine)]
    assert [line for line in new_lines[new_lines.index(old_lines[end]) :] if not line.startswith(mine)] == kept


def test_a_bar_that_is_met_again_leaves_the_list(text: str) -> None:
    """A table that is replaced takes its old shortfalls away."""
    _, slow = update(text, outcome_of(*keys_of(GROUP), seconds=1), stamp=NEW, versions={})
    _, new = update(slow, outcome_of(*keys_of(GROUP), seconds=1e-7), stamp=NEW, versions={})
    assert f"- {GROUP}: **" in slow
    assert f"- {GROUP}: **" not in new


def test_a_table_that_was_measured_in_part_is_kept(text: str) -> None:
    """A comparison that the run does not have would be lost, or be of another date."""
    written, new = update(text, outcome_of("calls.chain_step", "floor.chain_step"), stamp=NEW, versions={})
    assert (written, new) == ([], text)


def test_a_new_table_takes_its_place(text: str) -> None:
    """A table that is not on the page yet comes where its rows stand among the others."""
    group = next(name for name in ALL_GROUPS if name.startswith("The default gate"))
    page = read_page(text, ALL_GROUPS)
    page.tables.pop(group, None)
    without = page.render(TEMPLATE.read_text(), ALL_GROUPS, MEANINGS, rounds="5")
    written, new = update(without, outcome_of(*keys_of(group)), stamp=NEW, versions={})
    assert written == [group]
    names = list(read_page(new, ALL_GROUPS).tables)
    assert names == [name for name in ALL_GROUPS if name in names]
    assert "| `Exec(gate=None).run_tool` |" in new
    assert "| `Exec().run_tool` |" in new


def test_versions_of_other_peers_are_kept(text: str) -> None:
    """A run without a peer says nothing of that peer's version."""
    old = read_page(text, ALL_GROUPS).versions
    _, new = update(text, outcome_of(*keys_of(GROUP)), stamp=NEW, versions={"fastmcp": "99.1"})
    assert read_page(new, ALL_GROUPS).versions == {**old, "fastmcp": "99.1"}


def test_a_line_of_meaning_follows_its_figures(text: str) -> None:
    """The first lines of the page change with the figures in them, and only then."""
    keys = [key for group in ("Chains", next(iter(ALL_GROUPS))) for key in keys_of(group)]
    _, new = update(text, outcome_of(*keys), stamp=NEW, versions={})
    old, now = (read_page(each, ALL_GROUPS).meanings for each in (text, new))
    assert {name for name in old if old[name] != now[name]} == {"calls", "threads"}


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("### Chains\n\n| What |\n| --- |\n", "no marker: '### Chains'"),
        ("| What |\n| --- |\n", r"no marker: '\| What \|'"),
        (marked("Chains", "### Chains\n\n| What |"), "does not say when it was measured, and at which commit"),
        (marked("Chians", f"### Chains\n\n{NEW}"), "did you mean Chains"),
        (f"<!-- table: Chains -->\n{NEW}", "has no end"),
        (f"<!-- table: Chains -->\n{NEW}\n{marked('Chains', NEW)}", "has no end"),
        (marked("Chains", NEW) * 2, "there twice"),
    ],
)
def test_a_table_that_cannot_be_replaced_is_an_error(page: str, message: str) -> None:
    """A table without a marker, a date, a commit, an end or rows is refused, not silently kept."""
    with pytest.raises(ValueError, match=message):
        read_page(page, ALL_GROUPS)

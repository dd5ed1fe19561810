"""The index as bytes: read back it ranks as before, and what is not sound is refused."""

from __future__ import annotations

import hashlib
import pickle
import random
from collections.abc import Callable, Iterator

import pytest

from toolexec.discovery import BM25Config, BM25Searcher
from toolexec.discovery.ranking import snapshot
from toolexec.discovery.ranking.postings import Postings
from toolexec.errors import CatalogueError
from toolexec.model import LocalBinding, MCPBinding, Tool, ToolAnnotations

HEAD = len(b"toolexec bm25\n") + 33
WORDS = ["invoice", "meeting", "branch", "ticket", "naïve", "課題", "createIssue", "k8s", "refund", "deploy"]
QUERIES = [
    "invoice",
    "deployments",
    "meetings branch",
    "refnud",
    "create an issue",
    "課題",
    "deplo",
    "",
    "nothing like it",
    "n3",
]


def tool(number: int, seed: int = 0) -> Tool:
    """A tool with some words, always the same for its number and seed."""
    r = random.Random(number * 1000 + seed)
    return Tool(
        name=f"{r.choice(WORDS[:4])}_{number}",
        namespace=f"n{number % 7}",
        description=" ".join(r.choices(WORDS, k=r.randrange(1, 30))),
        tags=[r.choice(["red", "blue"])],
        annotations=ToolAnnotations(read_only=number % 2 == 0),
        input_schema={"type": "object", "properties": {r.choice(WORDS): {"description": "of it"}}},
    )


def filled(count: int = 300, config: BM25Config | None = None) -> tuple[BM25Searcher, dict[str, Tool]]:
    """A searcher with tools, some of which have come, changed and gone."""
    made = BM25Searcher(config)
    tools = {each.id: each for each in map(tool, range(count))}
    for each in tools.values():
        made.add(each, [MCPBinding("there", each.name)])
    made.search("invoice", 1)
    for tool_id in list(tools)[::11]:
        made.remove(tool_id)
        del tools[tool_id]
    return made, tools


def same(left: BM25Searcher, right: BM25Searcher) -> None:
    """Both give the same answers."""
    for query in QUERIES:
        assert left.search(query, 500) == right.search(query, 500)
        assert left.facets(query) == right.facets(query)
        for hit in left.search(query, 5):
            assert left.explain(query, hit.tool_id) == right.explain(query, hit.tool_id)


@pytest.mark.parametrize("count", [0, 1, 5, 300, 900])
def test_it_ranks_as_before(count: int) -> None:
    """A searcher that was read back gives the answers of the one that was written."""
    made, tools = filled(count)
    same(made, BM25Searcher.load(made.dump(), tools))


def test_it_goes_on_changing() -> None:
    """Tools that come, change and go afterwards leave both the same; so does another snapshot."""
    made, tools = filled()
    made.search("", 1)
    again = BM25Searcher.load(made.dump(), tools)
    for searcher in (made, again):
        for number in range(0, 300, 3):
            searcher.remove(tool(number).id)
        for number in range(290, 320):
            searcher.add(tool(number, seed=1), [LocalBinding("x")])
    same(made, again)
    tools |= {each.id: each for each in (tool(number, seed=1) for number in range(290, 320))}
    same(made, BM25Searcher.load(again.dump(), tools))


def test_tools_that_are_not_there_are_left_out() -> None:
    """Tools of the snapshot that the caller does not have are found no more."""
    made, tools = filled()
    gone = set(list(tools)[::2])
    left = {tool_id: each for tool_id, each in tools.items() if tool_id not in gone}
    again = BM25Searcher.load(made.dump(), left)
    for tool_id in gone:
        made.remove(tool_id)
    same(made, again)
    assert {hit.tool_id for hit in again.search("", 1000)} == left.keys()


@pytest.mark.full
def test_forgotten_words_stay_free() -> None:
    """Places of words that no tool has any more are given to new ones."""
    made = BM25Searcher()
    for i in range(9000):
        made.add(Tool(name=f"word{chr(97 + i % 26)}x{i}", description=f"q{i:x}z", input_schema=True))
    made.search("", 1)
    for i in range(9000):
        made.remove(f"word{chr(97 + i % 26)}x{i}")
    made.add(tool(1))
    made.search("", 1)
    again = BM25Searcher.load(made.dump(), {tool(1).id: tool(1)})
    assert set(again._postings.words._free) == set(made._postings.words._free) != set()
    for searcher in (made, again):
        searcher.add(tool(2))
    same(made, again)


def test_signs_among_the_surrogates(monkeypatch: pytest.MonkeyPatch) -> None:
    """With so many words that some characters are halves of surrogate pairs, each takes four bytes."""
    monkeypatch.setattr(snapshot, "_SURROGATES", 300)
    made, tools = filled()
    data = made.dump()
    same(made, BM25Searcher.load(data, tools))
    monkeypatch.setattr(snapshot, "_SURROGATES", 0xD800)
    with pytest.raises(CatalogueError, match="damaged"):
        BM25Searcher.load(data, tools)


def test_another_byte_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are little-endian on every machine."""
    made, _tools = filled()
    data = made.dump()
    monkeypatch.setattr(snapshot.sys, "byteorder", "big")
    swapped = snapshot._numbers(made._postings.lengths)
    assert swapped != made._postings.lengths.tobytes()
    assert snapshot._array(memoryview(swapped)) == made._postings.lengths
    assert made.dump() != data


@pytest.mark.parametrize("config", [BM25Config(name_boost=1.0), BM25Config(parameters_boost=0.0)])
def test_other_boosts_are_refused(config: BM25Config) -> None:
    """Counts are in units of the boosts, so a snapshot is for its boosts only; k1 and b may be others."""
    made, tools = filled()
    with pytest.raises(CatalogueError, match="another way"):
        BM25Searcher.load(made.dump(), tools, config)
    looser = BM25Searcher.load(made.dump(), tools, BM25Config(k1=2.0, synonyms=0.0))
    same(filled(config=looser.config)[0], looser)


def test_another_analysis_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of words that were cut in another way is not used, whether or not the number was raised."""
    made, tools = filled()
    data = made.dump()
    for name, value in (("ANALYSIS", 99), ("STOP_WORDS", frozenset({"of"}))):
        with monkeypatch.context() as patched:
            snapshot._print_of.cache_clear()
            patched.setattr(snapshot, name, value)
            with pytest.raises(CatalogueError, match="build the index anew"):
                BM25Searcher.load(data, tools)
    snapshot._print_of.cache_clear()
    BM25Searcher.load(data, tools)


def sealed(body: bytes) -> bytes:
    """A snapshot with this body, whose checksum is right."""
    return b"toolexec bm25\n\x02" + hashlib.sha256(body).digest() + body


def sections(data: bytes) -> list[bytes]:
    """The parts of a snapshot."""
    rest, found = data[HEAD:], list[bytes]()
    while rest:
        length = int.from_bytes(rest[:8], "little")
        found.append(rest[8 : 8 + length])
        rest = rest[8 + length :]
    return found


def joined(parts: list[bytes]) -> bytes:
    return sealed(b"".join(len(part).to_bytes(8, "little") + part for part in parts))


def number(place: int, value: int) -> Callable[[bytes], bytes]:
    """Another number at a place of a section."""

    def change(section: bytes) -> bytes:
        at = place % (len(section) // 4) * 4
        return section[:at] + value.to_bytes(4, "little") + section[at + 4 :]

    return change


HOSTILE: list[tuple[str, int, Callable[[bytes], bytes]]] = [
    ("another print", 0, lambda s: s[:-1] + b"x"),
    ("an ID twice", 1, lambda s: b"\n".join([s.split(b"\n")[1], *s.split(b"\n")[1:]])),
    ("an ID too many", 1, lambda s: s + b"\nmore"),
    ("an ID too few", 1, lambda s: s.rpartition(b"\n")[0]),
    ("IDs that are not ASCII", 1, lambda s: s + b"\xff"),
    ("an ID of a free slot", 1, lambda s: s.replace(b"\n\n", b"\nx\n", 1)),
    ("words that are no JSON", 2, lambda s: s[:-1]),
    ("words that are no list", 2, lambda s: b"{}"),
    ("words of numbers", 2, lambda s: b"[[1,2]," + s[1:]),
    ("a word without a form", 2, lambda s: b'[["a"],' + s[1:]),
    ("a word twice", 2, lambda s: s[:-1] + b',["invoic","invoice"]]'),
    ("words that are nested", 2, lambda s: b"[" * 100_000),
    ("too few words", 2, lambda s: b"[null]"),
    ("too few lengths", 3, lambda s: s[:-4]),
    ("half a number", 3, lambda s: s[:-1]),
    ("more postings than there are", 4, number(0, 4_000_000_000)),
    ("a slot that is not there", 5, number(3, 0xFFFFFF01)),
    ("a count of nothing", 5, number(3, 0x00000100)),
    ("postings missing", 5, lambda s: s[:-4]),
    ("more words in a tool", 6, number(0, 77)),
    ("a sign of no word", 7, lambda s: b"\xff\xd7" + s[2:]),
    ("a sign below all others", 7, lambda s: b"\x41\x00" + s[2:]),
    ("a half of a pair", 7, lambda s: b"\x00\xd8" + s[2:]),
    ("a count of nothing in a tool", 7, lambda s: s[:-1] + b"\0"),
    ("texts missing", 7, lambda s: s[:-3]),
]


@pytest.mark.full
@pytest.mark.parametrize(("section", "change"), [item[1:] for item in HOSTILE], ids=[item[0] for item in HOSTILE])
def test_hostile_parts_are_refused(section: int, change: Callable[[bytes], bytes]) -> None:
    """A forger with the right checksum still cannot make the searcher trip later."""
    made, tools = filled()
    parts = sections(made.dump())
    assert joined(parts) == made.dump()
    before = parts[section]
    parts[section] = change(before)
    assert parts[section] != before
    with pytest.raises(CatalogueError, match="build the index anew"):
        BM25Searcher.load(joined(parts), tools)


def test_sections_that_do_not_add_up_are_refused() -> None:
    """One too few, one too many, and one that is longer than the file."""
    made, tools = filled(3)
    parts = sections(made.dump())
    for data in (joined(parts[:-1]), joined([*parts, b""]), sealed((1 << 60).to_bytes(8, "little")), sealed(b"")):
        with pytest.raises(CatalogueError, match="damaged"):
            BM25Searcher.load(data, tools)


def damaged(data: bytes) -> Iterator[bytes]:
    """The snapshot with a byte changed, cut off, or with more after it."""
    r = random.Random(7)
    for _ in range(60):
        place = r.randrange(len(data))
        yield data[:place] + bytes([data[place] ^ 1 << r.randrange(8)]) + data[place + 1 :]
        yield data[:place]
    yield data + b"x"


def test_damage_is_refused() -> None:
    """A snapshot that is not whole is never taken."""
    made, tools = filled(50)
    for data in damaged(made.dump()):
        with pytest.raises(CatalogueError):
            BM25Searcher.load(data, tools)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is none"),
        (b"something else", "is none"),
        (b"toolexec bm25\n", "is none"),
        (pickle.dumps({"a": 1}), "is none"),
        (b"toolexec bm25\n\x03" + bytes(40), "version 3, and this toolexec reads 2"),
    ],
)
def test_foreign_and_newer_ones_are_refused(data: bytes, why: str) -> None:
    """The message says what it is, and what to do."""
    with pytest.raises(CatalogueError, match=why) as caught:
        BM25Searcher.load(data, {})
    assert caught.value.code == "catalogue"
    assert "build the index anew" in caught.value.message


def test_postings_that_contradict_the_texts_do_no_harm() -> None:
    """Where a snapshot was made so that its parts differ, tools still come and go, and searches answer."""
    made, tools = filled(40)
    parts = sections(made.dump())
    numbers = [parts[5][i : i + 4] for i in range(0, len(parts[5]), 4)]
    random.Random(1).shuffle(numbers)
    parts[5] = b"".join(numbers)
    again = BM25Searcher.load(joined(parts), tools)
    for query in QUERIES:
        again.search(query, 10)
    for tool_id in tools:
        again.remove(tool_id)
    assert again.search("", 10) == []
    again.add(tool(1))
    assert [hit.tool_id for hit in again.search("", 10)] == [tool(1).id]


def test_restoring_postings_counts_what_is_dead() -> None:
    """Words whose last tool is gone are known as such."""
    made = BM25Searcher()
    made.add(tool(1))
    made.add(tool(2))
    made.search("", 1)
    made.remove(tool(2).id)
    made.search("", 1)
    again = BM25Searcher.load(made.dump(), {tool(1).id: tool(1)})
    postings: Postings = again._postings
    assert postings._dead == made._postings._dead != set()
    assert postings.count == 1
    assert postings.total_length == made._postings.total_length

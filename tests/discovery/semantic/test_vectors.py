"""Where vectors are kept: exact, the same with and without numpy, small, and safe to load."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolexec.discovery import Hit
from toolexec.discovery.semantic import InMemoryVectors, VectorEntry, VectorStore
from toolexec.discovery.semantic.rows import NumpyRows, PlainRows, finite
from toolexec.errors import ConfigurationError


def entries(count: int, dimensions: int = 16, seed: int = 0) -> list[VectorEntry]:
    """Vectors of random directions and lengths."""
    dice = random.Random(seed)
    return [
        VectorEntry(f"t{i:04}", [dice.gauss(0, 1) * 10 ** (i % 5) for _ in range(dimensions)], f"m{i}")
        for i in range(count)
    ]


def filled(*given: VectorEntry) -> InMemoryVectors:
    """A store with these."""
    store: VectorStore = InMemoryVectors()
    store.add(given)
    assert isinstance(store, InMemoryVectors)
    return store


def cosine(a: list[float], b: list[float]) -> float:
    """In full precision."""
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


class TestSearch:
    def test_the_closest_come_first(self) -> None:
        """The order is that of the exact cosines, which are met within a hundredth."""
        given = entries(300)
        store = filled(*given)
        query = list(given[7].vector)
        exact = {entry.tool_id: cosine(query, list(entry.vector)) for entry in given}
        hits = store.search(query, 300)
        assert hits[0].tool_id == "t0007"
        assert {hit.tool_id for hit in hits} <= {tool_id for tool_id, value in exact.items() if value > -0.02}
        assert all(abs(hit.score - exact[hit.tool_id]) < 0.02 for hit in hits)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    def test_no_more_than_the_limit(self) -> None:
        """A limit cuts the same ranking; none is given for one below 1."""
        store = filled(*entries(300))
        query = list(entries(1)[0].vector)
        whole = store.search(query, 1000)
        assert 100 < len(whole) < 300
        assert all(store.search(query, limit) == whole[:limit] for limit in (1, 2, 10, 99))
        assert store.search(query, 0) == []

    def test_equal_scores_go_by_id(self) -> None:
        """Equal scores go by ID, across the end of the answer too, and in any order of arrival."""
        for order in (range(50), reversed(range(50))):
            store = filled(*[VectorEntry(f"t{i:02}", [1.0, 2.0, 3.0]) for i in order])
            assert [hit.tool_id for hit in store.search([1, 2, 3], 3)] == ["t00", "t01", "t02"]

    def test_only_positive_cosines(self) -> None:
        """Opposite and unrelated ones, and those of zero vectors, are not found; nor is anything by a zero vector."""
        store = filled(
            *[VectorEntry(name, v) for name, v in (("a", [1, 0]), ("b", [0, 1]), ("c", [-1, 0]), ("d", [0, 0]))]
        )
        assert store.search([1, 0], 9) == [Hit("a", 1.0)]
        assert store.search([0, 0], 9) == []
        assert store.scores([1, 0], "abcdx") == {"a": 1.0, "b": 0.0, "c": -1.0, "d": 0.0}

    def test_above_a_floor(self) -> None:
        """Only cosines above it count."""
        store = filled(VectorEntry("near", [1, 0.1]), VectorEntry("far", [1, 3]))
        assert [hit.tool_id for hit in store.search([1, 0], 9, above=0.5)] == ["near"]

    def test_accept_is_asked_best_first_and_no_more_than_needed(self) -> None:
        """Among many, few are asked about."""
        given = entries(2000)
        store = filled(*given)
        asked: list[str] = []

        def odd(tool_id: str) -> bool:
            asked.append(tool_id)
            return tool_id[-1] in "13579"

        hits = store.search(given[0].vector, 5, odd)
        everything = [hit for hit in store.search(given[0].vector, 2000) if hit.tool_id[-1] in "13579"]
        assert hits == everything[:5]
        assert len(asked) < 50
        assert store.search(given[0].vector, 5, lambda _: False) == []

    def test_accept_may_use_the_store(self) -> None:
        """No lock is held while it is asked."""
        store = filled(*entries(3))
        assert (
            len(store.search(entries(1)[0].vector, 3, lambda tool_id: bool(store.scores([1.0] * 16, [tool_id])))) >= 1
        )


class TestChanges:
    def test_a_known_id_is_replaced(self) -> None:
        """Within one call, too: the last one counts."""
        store = filled(VectorEntry("a", [1, 0], "old"), VectorEntry("a", [0, 1], "new"))
        store.add([VectorEntry("b", [1, 0])])
        store.add([VectorEntry("b", [0, 1], "newer")])
        assert len(store) == 2
        assert store.search([1, 0], 9) == []
        assert store.marks() == {"a": "new", "b": "newer"}
        store.add([])
        assert len(store) == 2

    def test_removed_ones_are_gone_and_their_room_is_used_again(self) -> None:
        """Adding and removing for long neither grows nor mixes anything up."""
        store = InMemoryVectors()
        dice = random.Random(1)
        model: dict[str, VectorEntry] = {}
        for turn in range(60):
            fresh = [VectorEntry(f"t{dice.randrange(3000)}", [dice.gauss(0, 1) for _ in range(8)]) for _ in range(60)]
            store.add(fresh)
            model |= {entry.tool_id: entry for entry in fresh}
            gone = dice.sample(sorted(model), len(model) if turn == 40 else len(model) // 3)
            store.remove([*gone, "never there"])
            for tool_id in gone:
                del model[tool_id]
        assert len(store) == len(model)
        query = [1.0] * 8
        assert store.search(query, 9999) == filled(*model.values()).search(query, 9999)
        assert len(store.dump()) < len(model) * 100

    def test_room_is_given_back_once_most_of_it_is_empty(self) -> None:
        """After the removal of nearly all, a few are searched, not thousands."""
        store = filled(*entries(3000))
        store.remove([entry.tool_id for entry in entries(2990)])
        rest = entries(3000)[2990:]
        assert store._rows is not None
        assert len(store._rows.dump()) == 10 * 16
        assert store.search([1.0] * 16, 99) == filled(*rest).search([1.0] * 16, 99)

    @pytest.mark.parametrize(
        "vector",
        [[1.0], [1.0, 2.0, 3.0], [1.0, math.nan], [math.inf, 1.0], ["a", "b"], [[1.0], [2.0]], [10**400, 1], [None, 1]],
        ids=repr,
    )
    def test_other_vectors_are_refused(self, vector: list[float]) -> None:
        """Another length, what is not finite or no number: nothing of the call is kept."""
        store = filled(VectorEntry("a", [1.0, 2.0]))
        with pytest.raises(ConfigurationError, match="2 finite numbers"):
            store.add([VectorEntry("b", [3.0, 4.0]), VectorEntry("c", vector)])
        with pytest.raises(ConfigurationError, match="2 finite numbers"):
            store.search(vector, 5)
        assert len(store) == 1

    def test_dimensions(self) -> None:
        """Dimensions may be given, are the first vector's otherwise, and are from 1 to 8,192."""
        assert InMemoryVectors(3).dimensions == 3
        store = InMemoryVectors()
        assert store.dimensions is None
        assert store.search([1.0], 5) == []
        assert store.scores([1.0], ["a"]) == {}
        store.remove(["a"])
        store.add([VectorEntry("a", [1.0] * 5)])
        assert store.dimensions == 5
        for wrong in (0, 8193, 10**9):
            with pytest.raises(ConfigurationError, match="1 to 8,192"):
                InMemoryVectors(wrong)
        with pytest.raises(ConfigurationError, match="dimensions must be an integer or None, not '3'"):
            InMemoryVectors("3")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="1 to 8,192"):
            InMemoryVectors().add([VectorEntry("a", [])])

    def test_many_threads(self) -> None:
        """Searches see whole vectors while others come and go."""
        store = filled(VectorEntry("stays", [1.0, 0.0]))

        def turn(number: int) -> list[Hit]:
            store.add([VectorEntry(f"t{number}", [0.0, 1.0])])
            found = store.search([1.0, 0.0], 5)
            store.remove([f"t{number}"])
            return found

        with ThreadPoolExecutor(8) as pool:
            assert all(found == [Hit("stays", 1.0)] for found in pool.map(turn, range(300)))
        store.close()


class TestSnapshots:
    def test_all_comes_back(self) -> None:
        """Vectors, marks and scores; removed ones do not."""
        store = filled(*entries(100))
        store.remove(["t0003"])
        again = InMemoryVectors.load(store.dump())
        query = entries(1)[0].vector
        assert again.search(query, 99) == store.search(query, 99)
        assert again.marks() == store.marks()
        again.add(entries(101)[99:])
        again.remove(["t0004"])
        assert len(again) == 99

    def test_an_empty_store(self) -> None:
        """An empty store comes back empty, with its dimensions."""
        assert InMemoryVectors.load(InMemoryVectors(7).dump()).dimensions == 7
        assert InMemoryVectors.load(InMemoryVectors().dump()).dimensions is None
        assert InMemoryVectors.load(filled().dump()).search([1.0], 1) == []

    @pytest.mark.parametrize("cut", [0, 1, 10, 40, 200, -1])
    def test_damaged_bytes_are_refused(self, cut: int) -> None:
        """Whatever is missing."""
        with pytest.raises(ConfigurationError, match="snapshot"):
            InMemoryVectors.load(filled(*entries(9)).dump()[:cut])

    @pytest.mark.parametrize(
        "change",
        [
            (b'"t0001"', b'"t0000"'),  # the same ID twice
            (b'"t0001"', b'""     '),
            (b'"t0001"', b"1234567"),
            (b'"m1"', b"1234"),
            (b'"m1",', b"     "),
            (b'"dimensions":16', b'"dimensions":15'),
            (b'"dimensions":16', b'"dimensions":-6'),
            (b'"dimensions":16', b'"dimensions":{}'),
            (b'"ids"', b'"odd"'),
            (b'{"dim', b'["dim'),
        ],
    )
    def test_nonsense_is_refused(self, change: tuple[bytes, bytes]) -> None:
        """Bytes with a right digest but a header that cannot be."""
        import hashlib

        body = filled(*entries(9)).dump()[:-16].replace(*change)
        with pytest.raises(ConfigurationError):
            InMemoryVectors.load(body + hashlib.blake2b(body, digest_size=16).digest())


numbers = st.lists(st.floats(-1e6, 1e6, width=32), min_size=6, max_size=6)


class TestRows:
    @pytest.mark.full
    @settings(deadline=None)
    @given(st.lists(numbers, min_size=1, max_size=20), numbers)
    def test_both_kinds_say_the_same(self, vectors: list[list[float]], query: list[float]) -> None:
        """To the last bit, also after slots were emptied, put again, renumbered, and loaded."""
        answers = []
        for rows in (NumpyRows(6), PlainRows(6)):
            rows.put(range(len(vectors)), finite(vectors, 6))
            rows.put([0], [query])
            rows.clear(len(vectors) - 1)
            rows.keep(list(reversed(range(len(vectors)))))
            loaded = type(rows)(6)
            loaded.load(rows.dump())
            runs = [sorted(pair for run in one.runs(query, 3, 0.0) for pair in run) for one in (rows, loaded)]
            answers.append((runs, rows.dump(), rows.cosines(query, range(len(vectors))), loaded.cosines(query, [0])))
        assert answers[0] == answers[1]

    @settings(deadline=None)
    @given(st.integers(1, 300), st.integers(0))
    def test_sums_are_exact(self, dimensions: int, seed: int) -> None:
        """A score does not depend on which slot a vector is in, or what is beside it."""
        dice = random.Random(seed)
        vector, other, query = ([dice.uniform(-1, 1) for _ in range(dimensions)] for _ in range(3))
        many = NumpyRows(dimensions)
        many.put(range(70), [other] * 33 + [vector] + [other] * 36)
        alone = PlainRows(dimensions)
        alone.put([0], [vector])
        assert many.cosines(query, range(70))[33] == alone.cosines(query, [0])[0]

    def test_long_vectors(self) -> None:
        """The longest rows stay exact, and close to the truth."""
        dice = random.Random(3)
        vector, query = ([dice.choice((-1.0, 1.0)) for _ in range(8192)] for _ in range(2))
        rows, plain = NumpyRows(8192), PlainRows(8192)
        for one in (rows, plain):
            one.put([0], [vector])
        assert rows.cosines(vector, [0]) == plain.cosines(vector, [0])
        assert rows.cosines(vector, [0])[0] == pytest.approx(1.0)
        assert rows.cosines(query, [0])[0] == pytest.approx(cosine(vector, query), abs=0.01)


@pytest.mark.full
def test_without_numpy_all_is_the_same() -> None:
    """A process that cannot import it finds the same tools with the same scores."""
    code = """
import random, sys
if sys.argv[1] == "without":
    sys.modules["numpy"] = None
from toolexec.discovery.semantic import EmbeddingSearcher, InMemoryVectors, VectorEntry
dice = random.Random(5)
store = InMemoryVectors()
store.add([VectorEntry(f"t{i}", [dice.gauss(0, 1) for _ in range(32)], "m") for i in range(200)])
store.remove(["t5"])
print(sys.modules.get("numpy") is not None, file=sys.stderr)
print(store.search([dice.gauss(0, 1) for _ in range(32)], 20), store.dump())
try:
    store.add([VectorEntry("x", [float("nan")] * 32)])
except Exception as error:
    print(type(error).__name__)
"""
    done = [
        subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, check=True)
        for how in ("with", "without")
    ]
    assert [one.stderr for one in done] == ["True\n", "False\n"]
    assert done[0].stdout == done[1].stdout
    assert "ConfigurationError" in done[0].stdout

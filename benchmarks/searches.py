"""Time searches in the same way for every engine. Standard library only: the peers' programs use it too."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from itertools import islice
from statistics import fmean, median, quantiles
from time import perf_counter, process_time, sleep
from typing import Any

from benchmarks.corpus import QUERIES, make_corpus, other_queries, precision
from benchmarks.meter import Meter

LIMIT = 10
_OTHERS = 400
_ONCE = 500
_PAUSED = 40
_PAUSE = 0.05
_SLOW = 4.0


def size_asked(argv: Sequence[str]) -> int:
    """The number of tools that the command line asks for."""
    return next(int(text) for text in argv[1:] if text.isdigit())


def corpus_of(count: int, more: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The first *count* tools, and those after them which are added later."""
    tools = list(islice(make_corpus(), count + more))
    return tools[:count], tools[count:]


def record_search(meter: Meter, prefix: str, search: Callable[[str], Sequence[str]]) -> None:
    """Time *search*, which gives the names of the ten best tools: `cold` is the first round of the twenty queries,
    `mean`, `p50` and `p95` are over further rounds (or that one, where it took seconds), `others` is the mean over
    other queries, each asked for the first time. Also the `precision` at ten."""
    texts = [query.text for query in QUERIES]
    budget = 0.2 if meter.quick else 1.0
    gc.collect()
    found: list[Sequence[str]] = []
    cold = [_timed(lambda text: found.append(search(text)), text) for text in texts]
    meter.record(f"{prefix}.cold", fmean(cold))
    meter.record(f"{prefix}.precision", precision(found))
    rounds = min(100, max(int(sum(cold) < _SLOW), int(budget / sum(cold))))
    taken = [_timed(search, text) for _ in range(rounds) for text in texts] or cold
    meter.record(f"{prefix}.mean", fmean(taken))
    meter.record(f"{prefix}.p50", median(taken))
    meter.record(f"{prefix}.p95", quantiles(taken, n=20)[-1])
    asked = other_queries(min(_OTHERS, int(2 * budget / fmean(taken))))
    if asked:
        meter.record(f"{prefix}.others", fmean(_timed(search, text) for text in asked))


def record_once(meter: Meter, prefix: str, search: Callable[[str], Any]) -> None:
    """Time 500 different queries, each asked once, of an index that was just built, or fewer where it takes seconds:
    `mean`, `p95` and `max` of the time, `mean@cpu` of the processor's, and `mean@paused` of some more, each after a
    pause."""
    texts = [query.text for query in QUERIES]
    texts += other_queries(_ONCE - len(texts))
    gc.collect()
    taken: list[float] = []
    before = process_time()
    for text in texts:
        taken.append(_timed(search, text))
        if len(taken) >= 20 and sum(taken) > _SLOW:
            break
    meter.record(f"{prefix}.mean@cpu", (process_time() - before) / len(taken))
    meter.record(f"{prefix}.mean", fmean(taken))
    meter.record(f"{prefix}.p95", quantiles(taken, n=20)[-1])
    meter.record(f"{prefix}.max", max(taken))
    later: list[float] = []
    for text in other_queries(_ONCE + _PAUSED)[_ONCE:]:
        sleep(_PAUSE)
        later.append(_timed(search, text))
        if sum(later) > _SLOW:
            break
    meter.record(f"{prefix}.mean@paused", fmean(later))


def record_changes(meter: Meter, prefix: str, change: Callable[[int], None], times: int) -> None:
    """Time `change(number)`, which changes a tool and searches, so many times, or fewer where it takes long: `median`,
    `p95` (of twenty or more) and `max`."""
    gc.collect()
    taken: list[float] = []
    while len(taken) < times and sum(taken) < _SLOW:
        taken.append(_timed(change, len(taken)))
    meter.record(f"{prefix}.median", median(taken))
    if len(taken) >= 20:
        meter.record(f"{prefix}.p95", quantiles(taken, n=20)[-1])
    meter.record(f"{prefix}.max", max(taken))


def _timed(function: Callable[[Any], Any], value: Any) -> float:
    started = perf_counter()
    function(value)
    return perf_counter() - started

"""What calls have shown: which tool's result held the value that another tool was then called with."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeGuard

from toolexec.discovery.links.leaves import PATH, property_name
from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict, JSONObject

_FORMAT: Final = 1
_MAX_COUNT: Final = 1_000_000
_MAX_ID: Final = 400
_MAX_ARGUMENT: Final = 256

_Place = tuple[str, str]  # a tool, and an argument of it or a path in its result


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """In *seen* of *of* calls of *tool_id*, its argument *argument* was what *path* in the result of *producer_id* had
    been. Only calls that came after some other call's result count."""

    producer_id: str
    path: str
    tool_id: str
    argument: str
    seen: int
    of: int

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        return {
            "producer": self.producer_id,
            "path": self.path,
            "tool": self.tool_id,
            "argument": self.argument,
            "seen": self.seen,
            "of": self.of,
        }


class Observations:
    """Counts of which results fed which arguments: names only, never a value. Safe to use from several threads.

    At most *max_links* are kept; the one that was seen longest ago goes first. Raises ConfigurationError for less than
    1.
    """

    def __init__(self, *, max_links: int = 5000) -> None:
        if max_links < 1:
            raise ConfigurationError(f"max_links must be 1 or more, not {max_links}")
        self._max = max_links
        self._lock = threading.Lock()
        self._counts: OrderedDict[tuple[_Place, _Place], int] = OrderedDict()
        self._into: dict[str, dict[tuple[str, _Place], None]] = {}
        self._calls: OrderedDict[_Place, int] = OrderedDict()

    def note(self, tool_id: str, fed: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        """Count one call: for each argument whose value could be compared, the places (a tool's ID and a path in its
        result) that it came from; none if it came from nowhere that is known. What misses before the first time that
        an argument was fed is not counted."""
        with self._lock:
            for argument, places in fed.items():
                self._count((tool_id, argument), places)

    def _count(self, consumer: _Place, places: Sequence[_Place]) -> None:
        if places or consumer in self._calls:
            self._called(consumer, 1)
        for place in places:
            self._add(place, consumer, 1)

    def _called(self, consumer: _Place, times: int) -> None:
        self._calls[consumer] = min(self._calls.get(consumer, 0) + times, _MAX_COUNT)
        self._calls.move_to_end(consumer)
        while len(self._calls) > self._max:
            self._calls.popitem(last=False)

    def _add(self, place: _Place, consumer: _Place, count: int) -> None:
        link = (place, consumer)
        self._counts[link] = min(self._counts.get(link, 0) + count, _MAX_COUNT)
        self._counts.move_to_end(link)
        self._into.setdefault(consumer[0], {})[consumer[1], place] = None
        while len(self._counts) > self._max:
            (old_place, old_consumer), _ = self._counts.popitem(last=False)
            known = self._into[old_consumer[0]]
            del known[old_consumer[1], old_place]
            if not known:
                del self._into[old_consumer[0]]

    def into(self, tool_id: str, *, at_least: int = 1) -> list[Observed]:
        """Return what fed the arguments of this tool at least so often."""
        with self._lock:
            found = [self._observed(place, (tool_id, argument)) for argument, place in self._into.get(tool_id, ())]
        return [observed for observed in found if observed.seen >= at_least]

    def all(self) -> list[Observed]:
        """Everything, most often seen first."""
        with self._lock:
            found = [self._observed(place, consumer) for place, consumer in self._counts]
        return sorted(found, key=lambda o: (-o.seen, o.tool_id, o.argument, o.producer_id, o.path))

    def _observed(self, place: _Place, consumer: _Place) -> Observed:
        seen = self._counts[place, consumer]
        return Observed(
            producer_id=place[0],
            path=place[1],
            tool_id=consumer[0],
            argument=consumer[1],
            seen=seen,
            of=max(self._calls.get(consumer, 0), seen),
        )

    def dump(self) -> JSONDict:
        """Everything as JSON-able data, for `load`."""
        return {"format": _FORMAT, "links": [observed.to_dict() for observed in self.all()]}

    def load(self, data: JSONObject) -> None:
        """Add what `dump` gave to what is known. Raises ConfigurationError, with nothing added, for anything else."""
        links = data.get("links") if isinstance(data, Mapping) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if not isinstance(links, list) or data.get("format") != _FORMAT:
            raise ConfigurationError("these are no observed links; give what Observations.dump() returned")
        loaded = [_loaded(link, place) for place, link in enumerate(links)]
        calls: dict[_Place, int] = {}
        for observed in loaded:
            consumer = (observed.tool_id, observed.argument)
            calls[consumer] = max(calls.get(consumer, 0), observed.of)
        with self._lock:
            for observed in reversed(loaded):  # those seen most often come last, so they are kept longest
                self._add((observed.producer_id, observed.path), (observed.tool_id, observed.argument), observed.seen)
            for consumer, times in calls.items():
                self._called(consumer, times)


def _loaded(link: object, place: int) -> Observed:
    parts: JSONDict = link if isinstance(link, dict) else {}
    producer, path, tool, argument = (parts.get(key) for key in ("producer", "path", "tool", "argument"))
    seen, of = parts.get("seen"), parts.get("of")
    if not (_is_text(producer) and _is_text(path) and _is_text(tool) and _is_text(argument)):
        problem = "producer, path, tool and argument must be strings of at most 400 characters"
    elif not PATH.fullmatch(path):
        problem = "its path is none"
    elif len(argument) > _MAX_ARGUMENT or not all(map(property_name, argument.split("."))):
        problem = "its argument is not a name"
    elif not (_is_count(seen) and _is_count(of)):
        problem = "seen and of must be integers from 1 to 1,000,000"
    else:
        return Observed(producer_id=producer, path=path, tool_id=tool, argument=argument, seen=seen, of=of)
    raise ConfigurationError(f"observed link number {place} cannot be read: {problem}; nothing was loaded")


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MAX_ID


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= _MAX_COUNT

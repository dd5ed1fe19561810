"""So many calls in so much time."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError, RateLimitedError
from toolexec.model.call import ToolCall
from toolexec.model.id_patterns import IDPatterns
from toolexec.model.settings import checked
from toolexec.run.layer import Layer
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner

__all__ = ["Limited", "Rate", "RateLike", "RateLimit"]

_TEXT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:/|per)\s*([a-z]+)\s*(?:,?\s*burst\s+(\d+))?\s*", re.IGNORECASE)
_SECONDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("m", "min", "minute"), 60),
    **dict.fromkeys(("h", "hour"), 3600),
    **dict.fromkeys(("d", "day"), 86_400),
}
_MAX_BUCKETS: Final = 10_000
_MAX_TOOLS: Final = 10_000
_COUNTS: Final = ("_overall", "_per_caller", "_per_tool", "_per_backend")


@checked("Rate")
@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many calls a second in the long run, and at most *burst* at once after a pause.

    Raises ConfigurationError for a rate that is not above 0, or a burst below 1.
    """

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if not (_is_number(self.per_second) and 0 < self.per_second < math.inf):
            raise ConfigurationError(f"a rate, per_second, must be above 0 calls a second, not {self.per_second!r}")
        if not (_is_number(self.burst) and self.burst >= 1 and self.burst == int(self.burst)):
            raise ConfigurationError(f"the burst of a rate must be an integer from 1 on, not {self.burst!r}")

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Read `10/s`, `100/min` or `1000/hour burst 50`; the units are s, min, h and d, or their whole words.

        Without a burst it is the number of calls: `100/min` lets 100 calls through at once after a pause. Raises
        ConfigurationError.
        """
        found = _TEXT.fullmatch(text)
        seconds = _SECONDS.get(found[2].lower()) if found else None
        if found is None or seconds is None:
            raise ConfigurationError(f"{text!r} is not a rate; write it as 10/s, 100/min or 1000/hour burst 50")
        count = float(found[1])
        return cls(per_second=count / seconds, burst=int(found[3]) if found[3] else max(math.ceil(count), 1))


RateLike: TypeAlias = Rate | str | float
"""A rate, its text, or a number of calls a second."""


@checked("RateLimit")
class RateLimit:
    """Refuses calls that come too fast, with a RateLimitedError that says when to try again.

    `overall` holds for all calls together, `per_caller` for each caller (all anonymous ones are one), `per_tool` for
    each tool, `per_backend` for each backend. *rules* maps patterns of tool IDs to rates; each holds for all calls
    together of the tools that match. A call needs room in every limit that concerns it, and if one has none, it uses
    up none of the others. *rate* (calls a second) with *burst* is another way to give `overall`.

    At most 10,000 callers, tools and backends each are kept in mind: the one that was seen least recently is forgotten
    first. *clock* gives seconds; one that jumps back does no harm. Raises ConfigurationError for rates that make no
    sense.
    """

    def __init__(
        self,
        *,
        rate: float | None = None,
        burst: int | None = None,
        overall: RateLike | None = None,
        per_caller: RateLike | None = None,
        per_tool: RateLike | None = None,
        per_backend: RateLike | None = None,
        rules: Mapping[str, RateLike] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if rate is None and burst is not None:
            raise ConfigurationError("a burst needs a rate to go with it")
        if rate is not None and overall is not None:
            raise ConfigurationError("give either rate or overall: they mean the same")
        if rate is not None:
            overall = Rate(per_second=rate, burst=burst) if burst is not None else rate
        self._overall = _buckets(overall, "in total")
        self._per_caller = _buckets(per_caller, "for one caller")
        self._per_tool = _buckets(per_tool, "for one tool")
        self._per_backend = _buckets(per_backend, "for one backend")
        self._rules = [
            (IDPatterns("a rule of a RateLimit", [pattern]), _Buckets(_rate(rule), f"for {pattern}"))
            for pattern, rule in (rules or {}).items()
        ]
        self._clock = clock
        self._lock = threading.Lock()
        self._read = clock()
        self._shift = 0.0
        self._tools: dict[str, tuple[Registered, list[_Use]]] = {}

    def take_over(self, before: RateLimit) -> None:
        """Go on with what *before* has counted by those rates that are the same here, apart from those of rules; to be
        called before the first call."""
        self._lock, self._read, self._shift = before._lock, before._read, before._shift
        for name in _COUNTS:
            ours, theirs = getattr(self, name), getattr(before, name)
            if ours is not None and theirs is not None and (ours.each, ours.slack) == (theirs.each, theirs.slack):
                setattr(self, name, theirs)

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that refuses calls that come too fast."""
        return Limited(self, inner, find)

    def take(self, entry: Registered, call: ToolCall) -> None:
        """Count a call of the tool *entry*. Raises RateLimitedError, with nothing counted."""
        uses = self._uses(entry)
        if self._per_caller is not None:
            caller = call.origin.caller
            uses = [*uses, (self._per_caller, (caller.realm, caller.id))]
        with self._lock:
            now = self._now()
            for buckets, key in uses:
                if buckets.full_at.get(key, now) - now > buckets.slack:
                    raise self._refusal(entry, uses, now)
            for buckets, key in uses:
                buckets.take(key, now)

    # -- which limits -------------------------------------------------------------------------------------------

    def _uses(self, entry: Registered) -> list[_Use]:
        """Return the limits that concern all calls of the tool."""
        known = self._tools.get(entry.tool.id)
        if known is not None and known[0] is entry:
            return known[1]
        tool, binding = entry.tool, entry.binding
        uses: list[_Use] = []
        if self._overall is not None:
            uses.append((self._overall, ""))
        if self._per_backend is not None:
            uses.append((self._per_backend, (binding.kind, binding.backend)))
        if self._per_tool is not None:
            uses.append((self._per_tool, tool.id))
        for pattern, buckets in self._rules:
            if pattern.match(tool.id):
                uses.append((buckets, ""))
        if len(self._tools) >= _MAX_TOOLS:
            self._tools = {}
        self._tools[tool.id] = (entry, uses)
        return uses

    def _now(self) -> float:
        """Return the time, which never goes back."""
        read = self._clock()
        if read < self._read:
            self._shift += self._read - read
        self._read = read
        return read + self._shift

    def _refusal(self, entry: Registered, uses: list[_Use], now: float) -> RateLimitedError:
        waits = [(buckets.full_at.get(key, now) - now - buckets.slack, buckets) for buckets, key in uses]
        wait, buckets = max(waits, key=lambda one: one[0])
        seconds = max(math.ceil(wait), 1)
        return RateLimitedError(
            f"too many calls {buckets.what}; try {entry.tool.id} again in {seconds} s, and more slowly",
            tool_id=entry.tool.id,
            op="rate_limit",
            details={"retry_after": seconds, "limit": buckets.what},
        )


class _Buckets:
    """Token buckets of one size. A bucket is kept as the time when it will be full again, so an idle one needs no care:
    once that time is past it is as good as a new one."""

    __slots__ = ("each", "full_at", "slack", "what")

    def __init__(self, rate: Rate, what: str) -> None:
        self.each = 1 / rate.per_second
        # A little more than exact, because many small steps do not add up to the same float as one big one.
        self.slack = (rate.burst - 1) * self.each + 1e-6 * self.each
        self.full_at: dict[Any, float] = {}
        self.what = what

    def take(self, key: Any, now: float) -> None:
        """Take one token, of a bucket that has one."""
        full_at = self.full_at
        until = full_at.pop(key, now)  # and in again at the end: the first is the one that was used least recently
        full_at[key] = (until if until > now else now) + self.each  # noqa: FURB136 - max takes twice as long
        if len(full_at) > _MAX_BUCKETS:
            del full_at[next(iter(full_at))]


_Use: TypeAlias = tuple[_Buckets, Any]


class Limited(Layer):
    """Makes calls that do not come too fast; see `RateLimit`."""

    def __init__(self, limit: RateLimit, inner: Runner, find: Find) -> None:
        super().__init__(inner)
        self._take = limit.take
        self._find = find

    def before(self, call: ToolCall) -> None:
        """Count the call, or raise RateLimitedError; see `Layer.before`."""
        self._take(resolved(call, self._find), call)


def _buckets(rate: RateLike | None, what: str) -> _Buckets | None:
    return _Buckets(_rate(rate), what) if rate is not None else None


def _rate(rate: Any) -> Rate:
    if isinstance(rate, Rate):
        return rate
    if isinstance(rate, str):
        return Rate.parse(rate)
    if not _is_number(rate):
        raise ConfigurationError(f"{rate!r} is not a rate; write it as 10/s, 100/min or 1000/hour burst 50")
    return Rate(per_second=rate, burst=max(math.ceil(rate), 1) if math.isfinite(rate) else 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

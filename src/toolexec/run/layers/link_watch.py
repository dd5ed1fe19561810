"""Learn from calls which tool's result held the value that another tool was then called with. Values are not kept."""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from time import monotonic
from typing import Any, Final, TypeAlias

from toolexec.discovery.index import Registered
from toolexec.discovery.links.leaves import arguments_of, property_name
from toolexec.discovery.links.observations import Observations
from toolexec.errors import ConfigurationError
from toolexec.model.call import ToolCall
from toolexec.model.origin import Origin
from toolexec.model.redaction import redactor
from toolexec.model.secret_keys import is_telling
from toolexec.run.layer import CallEnd, ObserverLayer
from toolexec.run.runner import Runner
from toolexec.run.types import Result

logger: logging.Logger = logging.getLogger(__name__)

Fed: TypeAlias = dict[str, list[tuple[str, str]]]

_MAX_ARGUMENTS: Final = 64
_MAX_ARGUMENT_DEPTH: Final = 4
_MAX_DEPTH: Final = 8
_MAX_MEMBERS: Final = 100
_MAX_TEXT: Final = 200
_MAX_KEY: Final = 64
_MIN_TEXT: Final = 4
_MIN_NUMBER: Final = 100
_MAX_NUMBER: Final = 1 << 64
_LIKE_DATA: Final = re.compile(r"[0-9]{3}|@")
_GIVEN: Final = ("", "")


class LinkWatch:
    """A layer for `Options.layers`, as it is: `Exec(layers=[LinkWatch()])`. It notes in `observations` when an
    argument's value was in an earlier result of the same session (or, without one, the same chain or code, or the same
    caller), so that `Links` know of what no schema says.

    A value counts if it is a text of 4 to 200 characters or an integer from 100; booleans, enumerations, defaults, what
    has the name of a secret (`password`) and known secrets do not. Of a value only a hash is kept, with a key that
    never leaves this object, for *seconds* at most, and of the last *max_values* ones. Of each result at most
    *max_leaves* values are looked at (1 to 2 µs each, between the result and its caller). *find* gives the tool, for
    what its schema says about its arguments. *observations* takes the place of new ones.

    Raises ConfigurationError for a limit that is not above 0.
    """

    def __init__(
        self,
        observations: Observations | None = None,
        *,
        find: Callable[[str], Registered | None] | None = None,
        seconds: float = 900.0,
        max_values: int = 20_000,
        max_leaves: int = 300,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        for name, value in (("seconds", seconds), ("max_values", max_values), ("max_leaves", max_leaves)):
            if not value > 0:
                raise ConfigurationError(f"{name} of a LinkWatch must be above 0, not {value}")
        self.observations: Observations = observations if observations is not None else Observations()
        self.find = find
        self._seconds = seconds
        self._max_values = max_values
        self._max_leaves = max_leaves
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._seen: OrderedDict[bytes, tuple[float, str, str]] = OrderedDict()

    def __call__(self, inner: Runner) -> Runner:
        """Return a runner that watches the calls of *inner*."""
        return _Watched(inner, self)

    def before(self, call: ToolCall) -> Fed:
        """Return where the values of the call's arguments come from, by argument; those from nowhere are remembered, so
        that a result that just repeats them is not taken for their source.
        """
        args = call.args
        if not args or not isinstance(args, Mapping):
            return {}
        fed: Fed = {}
        session, now = self._session(call.origin), self._clock()
        with self._lock:
            for name, value in islice(_arguments(args, "", 0), _MAX_ARGUMENTS):
                key = _hash(session, value)
                known = self._seen.get(key)
                if known is None or known[0] < now:
                    known = self._remember(key, now, *_GIVEN)
                places = fed.setdefault(name, [])
                place = known[1:]
                if place != _GIVEN and place not in places and not self._fixed(call.tool_id, name, value):
                    places.append(place)
        return fed

    def after(self, call: ToolCall, fed: Fed, tool_id: str, value: Any) -> None:
        """Record a call that succeeded, and where in its result which values are."""
        with self._lock:
            session, now = self._session(call.origin), self._clock()
            for path, leaf in islice(_leaves(value, "", 0), self._max_leaves):
                key = _hash(session, leaf)
                known = self._seen.get(key)
                if known is None or known[0] < now:
                    self._remember(key, now, tool_id, path or "@")
        noted = {name: [place for place in places if place[0] != tool_id] for name, places in fed.items()}
        noted = {name: places for name, places in noted.items() if places or not fed[name]}
        if noted:
            self.observations.note(tool_id, noted)

    def _remember(self, key: bytes, now: float, tool_id: str, path: str) -> tuple[float, str, str]:
        entry = self._seen[key] = (now + self._seconds, tool_id, path)
        self._seen.move_to_end(key)
        while len(self._seen) > self._max_values or next(iter(self._seen.values()))[0] < now:
            self._seen.popitem(last=False)
        return entry

    def _session(self, origin: Origin) -> blake2b:
        """Return what calls must have in common to be compared, as the beginning of a hash."""
        caller = origin.caller
        parts = (caller.realm, caller.id, *(("s", origin.session) if origin.session else ("p", origin.parent)))
        text = "".join([f"{len(part)}:{part}" for part in parts])
        return blake2b(text.encode(errors="surrogatepass"), digest_size=12, key=self._key)

    def _fixed(self, tool_id: str, name: str, value: str | int) -> bool:
        """Return whether the schema explains the value (default, constant, enumeration) or marks it as secret."""
        entry = self.find(tool_id) if self.find is not None else None
        always, default = _fixed(entry.tool.input_schema.text).get(name, (False, None)) if entry else (False, None)
        return always or value == default


@lru_cache(maxsize=512)
def _fixed(schema_text: str) -> dict[str, tuple[bool, Any]]:
    """By argument: whether nothing is to be learnt from its values at all, and its default."""
    found: dict[str, tuple[bool, Any]] = {}
    for argument in arguments_of(schema_text):
        few = any(key in part for part in (argument.node, argument.items) for key in ("enum", "const"))
        found[argument.name] = (argument.secret or few, argument.node.get("default"))
    return found


class _Watched(ObserverLayer):
    """Runs calls, and has them watched; what goes wrong with the latter is logged and changes nothing."""

    def __init__(self, inner: Runner, watch: LinkWatch) -> None:
        super().__init__(inner)
        self._watch = watch

    def begin(self, call: ToolCall) -> CallEnd:
        try:
            fed = self._watch.before(call)
        except Exception:  # a mapping of the caller's own, or one that changes meanwhile
            logger.exception("the arguments of a call of %s could not be looked through", call.tool_id)
            fed = {}

        def end(result: Result | None, failure: BaseException | None) -> None:
            if result is None or result.error is not None:
                return
            try:
                self._watch.after(call, fed, result.tool_id, result.value)
            except Exception:
                logger.exception("the result of a call of %s could not be looked through", result.tool_id)

        return end


def _hash(session: blake2b, value: str | int) -> bytes:
    hashed = session.copy()
    hashed.update((value if isinstance(value, str) else f"\0{value}").encode(errors="surrogatepass"))
    return hashed.digest()


def _counts(value: Any) -> bool:
    """Return whether a value is likely to identify one thing among all."""
    if isinstance(value, str):
        return _MIN_TEXT <= len(value) <= _MAX_TEXT and not (redactor.knows_any and redactor.knows(value))
    return type(value) is int and _MIN_NUMBER <= value < _MAX_NUMBER


def _arguments(value: Any, name: str, depth: int) -> Iterator[tuple[str, str | int]]:
    """Yield the values of arguments, each with its name; names in objects are joined by dots, items of lists have
    none."""
    if isinstance(value, Mapping):
        for key, item in islice(value.items(), _MAX_MEMBERS) if depth < _MAX_ARGUMENT_DEPTH else ():
            if _step_of(key):
                yield from _arguments(item, f"{name}.{key}" if name else key, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value[:_MAX_MEMBERS] if depth < _MAX_ARGUMENT_DEPTH else ():
            yield from _arguments(item, name, depth + 1)
    elif name and _counts(value):
        yield name, value


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, str | int]]:
    """Yield the values in a result, each with its path."""
    if isinstance(value, dict):
        for key, item in islice(value.items(), _MAX_MEMBERS) if depth < _MAX_DEPTH else ():
            step = _step_of(key)
            if not step:
                continue
            below = f"{path}.{step}" if path else step
            if isinstance(item, dict | list | tuple):
                yield from _leaves(item, below, depth + 1)
            elif _counts(item):
                yield below, item
    elif isinstance(value, list | tuple):
        for item in value[:_MAX_MEMBERS] if depth < _MAX_DEPTH else ():
            yield from _leaves(item, f"{path}[]", depth + 1)
    elif _counts(value):
        yield path, value


def _step_of(key: Any) -> str:
    """The key as a step of a path; empty for one that names a secret, or looks like data itself: paths are kept, and
    must not give away a value."""
    return _cached_step(key) if isinstance(key, str) and len(key) <= _MAX_KEY else ""


@lru_cache(maxsize=8192)
def _cached_step(key: str) -> str:
    return "" if is_telling(key) or _LIKE_DATA.search(key) else property_name(key)

"""Results that are too large to travel at once: they stay on the host, and are read piece by piece as they are used.

To a program they are what they stand for. Lists and dicts are of subclasses of these; what has been read is in them, so
that functions in C find it, too. Once all is read nothing but the class is special. Strings are read at once, as little
can be done with a part of one, unless they are huge.
"""

# ruff: noqa: SLF001, B905 - what is below belongs to the classes; `zip(strict=)` is not in Python 3.9
from __future__ import annotations

import _thread
from typing import Any

from . import values

_WHOLE_TEXT = 16 << 20
_FIRST_BYTES = 1 << 16
_MOST_BYTES = 1 << 20
_BY_VALUE_BYTES = 4 << 20


class _Unread:
    """In the place of an item that has not been read."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<not read yet>"

    def _refuse(self, other: Any) -> Any:
        raise TypeError("this result is large and not all of it is here; make a plain one first: list(it) or dict(it)")

    __lt__ = __le__ = __gt__ = __ge__ = _refuse


_UNREAD = _Unread()


class _Remote:
    """A value on the host, which forgets it when nothing here stands for it any more."""

    def __init__(self, channel: Any, data: dict[str, Any]) -> None:
        self.channel = channel
        self.data = data
        self.length: int = data["length"]

    def __del__(self) -> None:
        self.channel.release(self.data["id"])

    def ask(self, **page: Any) -> dict[str, Any]:
        """Return a piece of the value."""
        return self.channel.ask("read_result", {"handle": self.data["id"], "page": page})

    def read(self, path: str, offset: int, limit: Any) -> Any:
        """Return what a path selects."""
        payload = {"handle": self.data["id"], "path": path, "offset": offset, "limit": limit}
        return answered(self.channel, self.channel.ask("read_result", payload))

    def reference(self) -> dict[str, str]:
        """Return what stands for the whole value in messages to the host."""
        return {"$handle": self.data["id"]}


class _Reader:
    """Which items of a value on the host have been read, and how to read on."""

    def __init__(self, remote: _Remote) -> None:
        self.remote = remote
        self.gaps = [(0, remote.length)] if remote.length else []
        self.is_shared = False
        """Whether the program has got lists or dicts of it, which it may have changed."""
        self.positions: dict[str, int] = {}
        """Of a dict: where a key is."""
        self.lock = _thread.RLock()
        self._bytes = _FIRST_BYTES

    def page(self, **wanted: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the items of a piece, and the answer that they came in. Pieces grow: who reads on reads much."""
        answer = self.remote.ask(bytes=self._bytes, **wanted)
        self._bytes = min(self._bytes * 4, _MOST_BYTES)
        items = answer["items"]
        for place, data in (answer.get("held") or {}).items():
            items[int(place)] = large_result(self.remote.channel, data)
        self.is_shared = self.is_shared or any(isinstance(item, (list, dict)) for item in items)
        return items, answer

    def around(self, index: int) -> tuple[int, list[Any]]:
        """Return unread items, with the one at *index* among them, and where they begin; none if that one is read."""
        gap = next((gap for gap in self.gaps if gap[0] <= index < gap[1]), None)
        if gap is None:
            return index, []
        low, high = gap
        if low < index == high - 1 and self.remote.data["type"] == "array":  # most likely it goes on backward
            items, _ = self.page(offset=high, limit=high - low, backward=True)
            start = high - len(items)
        else:
            items, _ = self.page(offset=index, limit=high - index)
            start = index
        if not items:
            raise RuntimeError("the host has lost a part of this result")
        self.filled(start, start + len(items))
        return start, items

    def filled(self, start: int, stop: int) -> None:
        """Take note that these items, which were in one gap, are read."""
        for at, (low, high) in enumerate(self.gaps):
            if low <= start and stop <= high:
                self.gaps[at : at + 1] = [gap for gap in ((low, start), (stop, high)) if gap[0] < gap[1]]
                return


class _Alike(type):
    """A class that compares equal to the plain one that it stands for."""

    plain: Any = None

    def __eq__(cls, other: object) -> bool:
        return cls is other or other is cls.plain or (isinstance(other, _Alike) and other.plain is cls.plain)

    __hash__ = type.__hash__  # not that of the plain one: tables by class have functions that know nothing of this


def answered(channel: Any, payload: dict[str, Any]) -> Any:
    """Return the value in an answer of the host."""
    handle = payload.get("handle")
    return large_result(channel, handle) if handle is not None else payload.get("structured")


def large_result(channel: Any, data: dict[str, Any]) -> Any:
    """Return what behaves as the value that the host describes with *data*."""
    values.by_reference = True
    remote = _Remote(channel, data)
    if data["type"] == "string":
        text = TextResult(remote)
        return text if remote.length > _WHOLE_TEXT else str(text)
    return _new(remote)


def _new(remote: _Remote) -> Any:
    cls: Any = _UnreadDict if remote.data["type"] == "object" else _UnreadList
    result = cls.__new__(cls)
    result._reader = _Reader(remote)
    if cls is _UnreadList:
        list.extend(result, [_UNREAD] * remote.length)
    else:
        dict.__setitem__(result, _UNREAD, _UNREAD)  # what is empty would be taken for that
    return result


def _is_unchanged(value: Any) -> bool:
    """Whether what the program has is still what the host has."""
    remote = value._reader.remote
    if len(value) != remote.length:
        return False
    again = _new(remote)
    pairs = zip(value.items(), again.items()) if isinstance(value, dict) else zip(value, again)
    return all(values.to_text(one) == values.to_text(two) for one, two in pairs)


# -- lists and dicts --------------------------------------------------------------------------------------------------


class _ListResult(list, metaclass=_Alike):  # type: ignore[type-arg]
    """A list that has been read to its end."""

    __slots__ = ("__weakref__", "_reader")
    plain = list


class _UnreadList(_ListResult):
    __slots__ = ()

    def _load(self) -> None:
        """Read all that is left."""
        reader = self._reader
        with reader.lock:
            while reader.gaps:
                self._read(reader.gaps[0][0])
            object.__setattr__(self, "__class__", _ListResult)

    def _read(self, index: int) -> None:
        with self._reader.lock:
            start, items = self._reader.around(index)
            list.__setitem__(self, slice(start, start + len(items)), items)

    def __getitem__(self, key: Any) -> Any:
        wanted: Any = ()
        if isinstance(key, slice):
            wanted = range(*key.indices(len(self)))
        elif hasattr(key, "__index__"):
            at = key.__index__()
            wanted = (at + len(self) if at < 0 else at,)
        for index in wanted:
            if 0 <= index < len(self) and list.__getitem__(self, index) is _UNREAD:
                self._read(index)
        return list.__getitem__(self, key)

    def __iter__(self) -> Any:
        index = 0
        while index < len(self):
            yield self[index]
            index += 1

    def __reversed__(self) -> Any:
        index = len(self) - 1
        while index >= 0:
            if index < len(self):
                yield self[index]
            index -= 1

    def __contains__(self, wanted: Any) -> bool:
        return any(item is wanted or item == wanted for item in self)

    def __radd__(self, other: Any) -> Any:
        return other + list(self) if isinstance(other, list) else NotImplemented


class _DictResult(dict, metaclass=_Alike):  # type: ignore[type-arg]
    """A dict that has been read to its end."""

    __slots__ = ("__weakref__", "_reader")
    plain = dict


class _UnreadDict(_DictResult):
    __slots__ = ()

    def _open(self) -> None:
        """Read the keys, and the first values with them."""
        reader = self._reader
        with reader.lock:
            if reader.positions:
                return
            items, answer = reader.page(offset=0, strings=False)
            keys = answer["keys"]
            while len(keys) < reader.remote.length:
                keys += reader.remote.ask(of="keys", offset=len(keys))["keys"]
            reader.positions = {key: index for index, key in enumerate(keys)}
            dict.clear(self)
            dict.update(self, dict.fromkeys(keys, _UNREAD))
            dict.update(self, zip(keys, items))
            if items:
                reader.filled(0, len(items))
            self._check()

    def _check(self) -> None:
        if not self._reader.gaps:
            object.__setattr__(self, "__class__", _DictResult)

    def _read(self, index: int) -> None:
        with self._reader.lock:
            start, items = self._reader.around(index)
            keys = [*self._reader.positions][start : start + len(items)]
            dict.update(self, zip(keys, items))
            self._check()

    def _load(self) -> None:
        """Read all that is left."""
        self._open()
        while self._reader.gaps:
            self._read(self._reader.gaps[0][0])

    def __len__(self) -> int:
        return self._reader.remote.length

    def __getitem__(self, key: Any) -> Any:
        self._open()
        if dict.__getitem__(self, key) is _UNREAD:
            self._read(self._reader.positions[key])
        return dict.__getitem__(self, key)

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - this is what `get` does


def _prepared(cls: Any, name: str, prepare: Any) -> None:
    """Have a method of the plain class prepare first, and find other large results read."""
    function = getattr(cls.plain, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        prepare(self)
        for other in args:
            if isinstance(other, (_UnreadList, _UnreadDict)):
                other._load()  # pyright: ignore[reportPrivateUsage]
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = function.__doc__
    setattr(cls, name, method)


def _read_method(self: Any, path: str = "", offset: int = 0, limit: Any = None) -> Any:
    """A part of the value as the tool gave it: what a JMESPath selects, at most *limit* items from *offset* on."""
    return self._reader.remote.read(path, offset, limit)


def _settled(self: Any) -> Any:
    """What stands for it in messages to the host: a reference as long as nothing can have been changed."""
    reader = self._reader
    if isinstance(self, (_UnreadList, _UnreadDict)) and not reader.is_shared:
        return reader.remote.reference()
    if reader.remote.data["bytes"] > _BY_VALUE_BYTES and _is_unchanged(self):
        return reader.remote.reference()
    return type(self).plain(self)


def _deepcopied(self: Any, memo: Any) -> Any:
    import copy

    return copy.deepcopy(type(self).plain(self), memo)


def _known(name: str) -> Any:
    return property(lambda self: self._reader.remote.data[name])


def _complete(cls: Any, unread: Any, lazy: set[str], opened: set[str]) -> None:
    """Give a class for results, and the one for those that are not read, the methods that they have by rule."""
    cls.read = _read_method
    cls.__toolexec_value__ = _settled
    for name in ("id", "type", "bytes", "length", "preview"):
        setattr(cls, name, _known(name))
    cls.__copy__ = cls.plain
    cls.__reduce_ex__ = lambda self, protocol: (cls.plain, (cls.plain(self),))
    cls.__deepcopy__ = _deepcopied
    for name, function in vars(cls.plain).items():
        if name in lazy or name in vars(unread) or not callable(function):
            continue
        if name in ("__new__", "__init__", "__getattribute__", "__class_getitem__", "fromkeys", "__hash__"):
            continue
        _prepared(unread, name, unread._open if name in opened else unread._load)
    for made in (cls, unread):
        made.__name__ = made.__qualname__ = cls.plain.__name__
        made.__module__ = "builtins"


_complete(_ListResult, _UnreadList, {"__len__"}, set())
_complete(_DictResult, _UnreadDict, set(), {"__contains__", "__iter__", "__reversed__", "keys"})
for _unread in (_UnreadList, _UnreadDict):
    _unread.__hash__ = None


# -- strings
# ------------------------------------------------------------------------------------------------------------


class TextResult:
    """A text so long that it is not read at once: its length, characters, slices and iteration read what they need; all
    else reads it whole. It is not a str: functions in C that want one, such as those of `re`, need `str(it)`."""

    def __init__(self, remote: _Remote) -> None:
        self._remote = remote
        self._whole: Any = None

    def _pieces(self, start: int, stop: int) -> Any:
        while start < stop:
            piece = self._remote.ask(offset=start, limit=stop - start)["text"]
            if not piece:
                raise RuntimeError("the host has lost a part of this result")
            yield piece
            start += len(piece)

    def __str__(self) -> str:
        if self._whole is None:
            self._whole = "".join(self._pieces(0, self._remote.length))
        return self._whole

    def __len__(self) -> int:
        return self._remote.length

    def __getitem__(self, key: Any) -> str:
        if self._whole is not None:
            return self._whole[key]
        if not isinstance(key, slice):
            at = key.__index__()
            at += len(self) if at < 0 else 0
            if not 0 <= at < len(self):
                raise IndexError("string index out of range")
            return "".join(self._pieces(at, at + 1))
        start, stop, step = key.indices(len(self))
        if step == 1:
            return "".join(self._pieces(start, stop))
        return str(self)[key]

    def __iter__(self) -> Any:
        for piece in self._pieces(0, len(self)):
            yield from piece

    def __getattr__(self, name: str) -> Any:
        if name == "read":
            return self._remote.read
        if name.startswith("__") or not hasattr(str, name):
            raise AttributeError(f"'str' object has no attribute '{name}'")
        return getattr(str(self), name)

    def __toolexec_value__(self) -> Any:
        return self._remote.reference()

    def __reduce__(self) -> Any:
        return str, (str(self),)

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - for `isinstance`
        return str


def _forward(name: str) -> None:
    function = getattr(str, name)
    setattr(TextResult, name, lambda self, *args: function(str(self), *[_plain_text(arg) for arg in args]))


def _plain_text(value: Any) -> Any:
    return str(value) if type(value) is TextResult else value


for _name in ("add", "contains", "eq", "format", "ge", "gt", "hash", "le", "lt", "mod", "mul", "ne", "repr", "rmod"):
    _forward("__" + _name + "__")
TextResult.__rmul__ = TextResult.__mul__  # type: ignore[attr-defined]
TextResult.__radd__ = lambda self, other: other + str(self)  # type: ignore[attr-defined]

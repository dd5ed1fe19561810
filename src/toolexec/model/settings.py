"""Check settings where they are given: refuse unknown names, and values that do not fit their annotations.

`checked` decorates a class or a function whose parameters are settings. The annotations are the one place that says
what fits: type checkers read them, and so does this module, at the first call. The test is strict: a string is never
read as a bool or a list, a bool is not a number, and numbers are finite.
"""

from __future__ import annotations

import builtins
import collections.abc as abc
import functools
import importlib
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from itertools import count
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.errors.hints import did_you_mean
from toolexec.errors.moved import moved_setting
from toolexec.model.declared import Setting, declared, form_of
from toolexec.model.json_value import JSONValue
from toolexec.model.secret_keys import is_telling

T = TypeVar("T")

_MAX_SHOWN: Final = 40
_CALLS_BEFORE_COMPILED: Final = 3  # most classes of settings are used once, and not worth it
_CALLS_BEFORE_ALL_IS_READ: Final = 30  # where compiling would import what the calls until then did not need
_NO_COLLECTIONS: Final = (str, bytes, bytearray, memoryview, abc.Mapping)
_SEQUENCES: Final = (list, tuple, abc.Sequence, abc.MutableSequence)
_COLLECTIONS: Final = (set, frozenset, abc.Set, abc.MutableSet, abc.Collection, abc.Iterable)
_MAPPINGS: Final = (dict, abc.Mapping, abc.MutableMapping)
_WRAPPERS: Final = (typing.Annotated, typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What values fit. *quick* are types whose values always do; *keys* and *items* are what a container holds;
    *bounds* are those of numbers."""

    one: str
    many: str
    fits: Callable[[Any], bool]
    quick: frozenset[type] = frozenset()
    holds: Callable[[Any], bool] | None = None
    keys: _Kind | None = None
    items: _Kind | None = None
    words: tuple[str, ...] = ()
    choices: tuple[_Kind, ...] = ()
    reads: type | None = None
    members: tuple[str, ...] = ()
    bounds: str = ""


class _Settings(dict[str, _Kind]):
    """What fits each setting that may be given by name, in the order of the parameters.

    The annotation of one that can be given by name only is read when it is: it may need a module that nothing else
    has loaded. For None that is not needed where the text of the annotation allows it.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.optional: set[str] = set()
        self._later: dict[str, Callable[[], _Kind]] = {}

    @property
    def are_read(self) -> bool:
        """Whether all annotations were read."""
        return len(self) == len(self.names)

    def add(self, kinds: Mapping[str, _Kind]) -> None:
        self.names += tuple(kinds)
        self.update(kinds)

    def add_later(self, name: str, annotation: object, read: Callable[[], _Kind]) -> None:
        self.names += (name,)
        self._later[name] = read
        if isinstance(annotation, str) and annotation.endswith("| None"):
            self.optional.add(name)

    def __missing__(self, name: str) -> _Kind:
        kind = self[name] = self._later[name]()
        return kind


class SettingsGuard:
    """The parameters of one class or function, and what fits each of them."""

    def __init__(
        self,
        what: str,
        error: type[ToolExecError],
        function: Callable[..., Any],
        owner: type | None = None,
        homes: Mapping[str, str] | None = None,
        leave: Collection[str] = (),
    ) -> None:
        self.what = what
        self.error = error
        self.function = function
        self.owner = owner
        self._homes = homes or {}
        self._leave = leave
        self._declared = declared(owner)
        self._shape: tuple[tuple[tuple[str, _Kind], ...], _Settings, bool] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the settings."""
        return self._known()[1].names

    @property
    def is_read(self) -> bool:
        """Whether the annotations of all settings were read."""
        return self._known()[1].are_read

    def check(self, args: tuple[Any, ...], named: Mapping[str, object]) -> None:
        """Raise the guard's error for the first value that does not fit, in the order of the parameters, or else for
        the first unknown name."""
        positional, by_name, is_open = self._shape or self._known()
        if args:
            for (name, kind), value in zip(positional, args, strict=False):
                if type(value) not in kind.quick and not kind.fits(value):
                    raise self.error(_explain(self.what, kind, value, name), details={"setting": name})
        unknown: str | None = None
        wrong: list[str] = []
        for name, value in named.items():
            if value is None and name in by_name.optional:
                continue
            try:
                kind = by_name[name]
            except KeyError:
                unknown = name if unknown is None else unknown
                continue
            if type(value) not in kind.quick and not kind.fits(value):
                wrong.append(name)
        for name in by_name.names if wrong else ():
            if name in wrong:
                message = _explain(self.what, by_name[name], named[name], name)
                raise self.error(message, details={"setting": name})
        if unknown is not None and not is_open:
            raise unknown_setting(self.what, unknown, by_name.names, self.error)

    def _known(self) -> tuple[tuple[tuple[str, _Kind], ...], _Settings, bool]:
        if self._shape is None:
            by_name = _Settings()
            positional: list[tuple[str, _Kind]] = []
            is_open = False
            for number, part in enumerate(inspect.signature(self.function).parameters.values()):
                if part.kind is part.VAR_KEYWORD:
                    settings = self._annotation(part)
                    if get_origin(settings) is typing.Unpack:
                        by_name.add(_kinds_of(get_args(settings)[0]))
                    else:
                        is_open = True
                    continue
                is_self = number == 0 and (self.owner is not None or part.name in ("self", "cls"))
                left = is_self or part.name in self._leave or "*" in self._leave
                if part.kind is part.VAR_POSITIONAL:
                    continue
                if part.kind is part.KEYWORD_ONLY and not left:
                    by_name.add_later(part.name, part.annotation, functools.partial(self._kind, part))
                    continue
                kind = _ANYTHING if left else self._kind(part)
                if part.kind is not part.KEYWORD_ONLY:
                    positional.append((part.name, kind))
                if part.kind is not part.POSITIONAL_ONLY and not is_self:
                    by_name.add({part.name: kind})
            self._shape = tuple(positional), by_name, is_open
        return self._shape

    def compiled(self, guarded: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does what *guarded* does, the checked `__init__` of a class, in a third of its time.

        It is made as `dataclass` makes an `__init__`: from text, with the parameters in it by name. What it does not
        accept goes to *guarded*, which explains it. Where none can be made, it is *guarded* itself.
        """
        by_name = self._known()[1]
        of_class = fields(self.owner) if is_dataclass(self.owner) else ()
        made = {field.name for field in of_class if field.default_factory is not MISSING}
        space: dict[str, Any] = {"__guarded": guarded, "__bare": self.function, "__absent": object()}
        positional, by_keyword, tests = ["self"], list[str](), ["not __rest and not __more"]
        for part in [*inspect.signature(self.function).parameters.values()][1:]:
            name = part.name
            if name not in by_name.names or part.kind not in (part.POSITIONAL_OR_KEYWORD, part.KEYWORD_ONLY):
                return guarded
            kind = by_name[name]
            test = f"(type({name}) in __quick_{name} or __fits_{name}({name}))"
            if kind.keys is not None:
                test = f"(type({name}) is dict and not {name} or __fits_{name}({name}))"
            space |= {f"__quick_{name}": kind.quick, f"__fits_{name}": kind.fits, f"__default_{name}": part.default}
            if len(kind.quick) == 1:
                space[f"__quick_{name}"] = next(iter(kind.quick))
                test = test.replace(" in ", " is ", 1)
            if part.default is part.empty:
                space[f"__default_{name}"] = space["__absent"]
                test = f"{name} is not __absent and {test}"
            elif name in made:
                test = f"({name} is __default_{name} or {test})"
            elif not kind.fits(part.default):
                return guarded  # what is left out could not be distinguished from what is given as the default
            elif type(part.default) not in kind.quick:
                test = f"({name} is __default_{name} or {test})"
            if kind is not _ANYTHING:
                tests.append(test)
            (positional if part.kind is part.POSITIONAL_OR_KEYWORD else by_keyword).append(name)
        head = [*(f"{name}=__default_{name}" for name in positional[1:]), "*__rest"]
        head += [f"{name}=__default_{name}" for name in by_keyword]
        again = [f"({name!r}, {name}, __default_{name})" for name in (*positional[1:], *by_keyword)]
        named = [f"{name}={name}" for name in by_keyword]
        exec(  # noqa: S102 - in the text are names of parameters, and nothing else from outside
            f"""def __init__(self, {", ".join(head)}, **__more):
    if {" and ".join(tests)}:
        return __bare({", ".join([*positional, *named])})
    if __rest:
        return __guarded({", ".join(positional)}, *__rest, **__more)
    given = {{name: value for name, value, default in [{", ".join(again)}] if value is not default}}
    return __guarded(self, **given, **__more)
""",
            space,
        )
        return functools.wraps(self.function)(space["__init__"])

    def _kind(self, part: inspect.Parameter) -> _Kind:
        annotation = self._annotation(part)
        about = self._declared.get(part.name)
        return _kind(annotation) if about is None else _bounded(annotation, about)

    def _annotation(self, part: inspect.Parameter) -> Any:
        """Return the annotation of a parameter, read in the module where it is written: of a field, that of
        its class.
        """
        home: object = self.owner or self.function
        for cls in self.owner.__mro__ if self.owner is not None else ():
            if part.name in inspect.get_annotations(cls):
                home = cls
                break
        return _annotation(part.annotation, home.__module__, self._homes)


_guards: list[SettingsGuard] = []


def guards() -> tuple[SettingsGuard, ...]:
    """Return all guards of the modules that are loaded."""
    return tuple(_guards)


def checked(
    what: str,
    *,
    error: type[ToolExecError] = ConfigurationError,
    homes: Mapping[str, str] | None = None,
    leave: Collection[str] = (),
) -> Callable[[T], T]:
    """Have the arguments of a class or function checked before it is called.

    *what* names it in messages. *error* is raised for an unknown name (with the nearest one that there is), for a value
    that does not fit its annotation (with its place), and for a number out of the bounds that its field declares
    (`setting`). What they cannot say is left to the class or function. Put it above `@dataclass`. *homes* are the
    modules of names that only type checkers import. The values of *leave* (`*` for all) are left to the class, which
    accepts more than its annotations say.
    Names that the module loads lazily, by a `__getattr__` of its own, are found there.
    """

    def decorate(target: object) -> Any:
        owner = target if isinstance(target, type) else None
        function: Callable[..., Any] = owner.__init__ if owner is not None else target  # type: ignore[misc]
        guard = SettingsGuard(what, error, function, owner, homes, leave)
        _guards.append(guard)
        check = guard.check

        @functools.wraps(function)
        def guarded(*args: object, **named: object) -> Any:
            check(args, named)
            return function(*args, **named)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: object, **named: object) -> Any:
                check(args, named)
                return await function(*args, **named)

            return awaited
        if owner is None:
            return guarded
        calls = count(1)

        @functools.wraps(function)
        def first(*args: Any, **named: Any) -> None:
            guarded(*args, **named)
            number = next(calls)
            is_time = guard.is_read if number == _CALLS_BEFORE_COMPILED else number == _CALLS_BEFORE_ALL_IS_READ
            if is_time and vars(owner).get("__init__") is first:
                owner.__init__ = guard.compiled(guarded)  # type: ignore[misc]

        owner.__init__ = first  # type: ignore[misc]
        return owner

    return decorate


def check_settings(
    what: str, kind: type, settings: Mapping[str, object], *, error: type[ToolExecError] = ConfigurationError
) -> None:
    """Check *settings* against the TypedDict *kind*; raises *error* as `checked` does."""
    known = _kinds_of(kind)
    for name, value in settings.items():
        found = known.get(name)
        if found is None:
            raise unknown_setting(what, name, known, error)
        if type(value) not in found.quick and not found.fits(value):
            raise error(_explain(what, found, value, name), details={"setting": name})


def unknown_setting(
    what: str, name: object, known: abc.Iterable[str], error: type[ToolExecError] = ConfigurationError
) -> ToolExecError:
    """Return the error for a setting that *what* does not have."""
    hint = moved_setting(f"{what}.{name}") or did_you_mean(name, known)
    return error(f"{what} has no setting {str(name)[:100]!r}; {hint}", details={"setting": name})


def check_ranges(
    what: str, *, above: Mapping[str, float] | None = None, least: Mapping[str, float] | None = None
) -> None:
    """Raise ConfigurationError for the first setting, by its name, that is not above 0 (*above*) or not 0 or more
    (*least*); both are name → value. *what* names those settings in the message."""
    for name, value in (above or {}).items():
        if not value > 0:
            raise ConfigurationError(f"{what}: {name} must be above 0, not {value!r}", details={"setting": name})
    for name, value in (least or {}).items():
        if not value >= 0:
            raise ConfigurationError(f"{what}: {name} must be 0 or more, not {value!r}", details={"setting": name})


# -- annotations --------------------------------------------------------------------------------------------------


@functools.cache
def _kinds_of(kind: type) -> dict[str, _Kind]:
    """Return what fits each key of a TypedDict."""
    found: dict[str, _Kind] = {}
    for base in (*getattr(kind, "__orig_bases__", ()), kind):
        if typing.is_typeddict(base):
            for name, text in inspect.get_annotations(base).items():
                plain, module = text, base.__module__
                if isinstance(text, typing.ForwardRef):  # it knows where it is written, which may be in a base
                    plain, module = text.__forward_arg__, text.__forward_module__ or module
                found.setdefault(name, _kind(_annotation(plain, module)))
    return found


class _NameOnly(type):
    """The type of stand-ins for classes that only type checkers import: an instance has a class of that name."""

    def __instancecheck__(cls, value: object) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(value).__mro__)


class _Names(dict[str, Any]):
    """What the names in a module's annotations mean."""

    def __init__(self, module: str, homes: Mapping[str, str]) -> None:
        super().__init__(vars(sys.modules[module]))
        self._homes = homes

    def __missing__(self, name: str) -> Any:
        if name in self._homes:
            return getattr(importlib.import_module(self._homes[name]), name)
        if load := self.get("__getattr__"):
            try:
                return load(name)
            except AttributeError:
                pass
        return getattr(builtins, name, None) or _NameOnly(name, (), {})


def _annotation(text: object, module: str, homes: Mapping[str, str] | None = None) -> Any:
    """Return the type that an annotation means."""
    if not isinstance(text, str):
        return text
    try:
        return eval(text, {}, _Names(module, homes or {}))  # noqa: S307 - the text is this package's own source
    except (AttributeError, TypeError):  # it needs what only type checkers import
        return Any


@functools.cache
def _cached_kind(annotation: object) -> _Kind:
    return _make_kind(annotation)


def _kind(annotation: object) -> _Kind:
    try:
        return _cached_kind(annotation)
    except TypeError:  # it cannot be hashed
        return _make_kind(annotation)


def _make_kind(annotation: object) -> _Kind:
    if annotation is None:
        annotation = types.NoneType
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return _either([_kind(choice) for choice in get_args(annotation)])
    if origin is Literal:
        return _one_of(get_args(annotation))
    if origin in _WRAPPERS:
        return _kind(get_args(annotation)[0])
    if annotation is abc.Callable or origin is abc.Callable:
        return _FUNCTION
    container = origin or annotation
    if container in _MAPPINGS:
        of = get_args(annotation)
        return _mapping(*of) if len(of) == 2 else _mapping()
    if container in (*_SEQUENCES, *_COLLECTIONS):
        return _collection(container in _SEQUENCES, get_args(annotation))
    if origin is type or annotation is type:
        return _Kind("a class", "classes", lambda value: isinstance(value, type))
    if isinstance(container, type) and container is not object:
        return _instance(container)
    return _ANYTHING


def _bounded(annotation: Any, about: Setting) -> _Kind:
    """Return what fits a setting that has bounds, too."""
    kind = _kind(annotation)
    bounds = about.bounds(form_of(annotation))
    if not bounds:
        return kind
    if kind.fits(None):
        bounds = f"None or {bounds}"
    return replace(
        kind,
        fits=lambda value: kind.fits(value) and about.holds(value),
        quick=frozenset(),
        choices=kind.choices or (kind,),
        bounds=bounds,
    )


def _is_number(value: object) -> bool:
    if type(value) is not float and (type(value) is bool or not isinstance(value, (int, float))):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


_ANYTHING: Final = _Kind("anything", "anything", lambda _: True)
_FUNCTION: Final = _Kind("a function", "functions", callable, frozenset({types.FunctionType, types.MethodType}))
_PLAIN: Final[Mapping[Any, _Kind]] = {
    Any: _ANYTHING,
    object: _ANYTHING,
    types.NoneType: _Kind("None", "None", lambda value: value is None, frozenset({types.NoneType})),
    bool: _Kind("true or false", "true or false", lambda value: isinstance(value, bool), frozenset({bool})),
    int: _Kind(
        "an integer", "integers", lambda value: isinstance(value, int) and type(value) is not bool, frozenset({int})
    ),
    float: _Kind("a number", "numbers", _is_number),
    str: _Kind("a string", "strings", lambda value: isinstance(value, str), frozenset({str})),
    bytes: _Kind("bytes", "bytes", lambda value: isinstance(value, bytes), frozenset({bytes})),
}
_SCALARS: Final = (_PLAIN[bool], _PLAIN[int], _PLAIN[float])


def _one_of(values: tuple[object, ...]) -> _Kind:
    def fits(value: object) -> bool:
        return any(type(value) is type(choice) and value == choice for choice in values)

    listed = f"{'one of ' if len(values) > 1 else ''}{', '.join(map(str, values))}"
    return _Kind(listed, listed, fits, words=tuple(choice for choice in values if isinstance(choice, str)))


def _either(choices: list[_Kind]) -> _Kind:
    if any(choice is _ANYTHING for choice in choices):
        return _ANYTHING
    quick = frozenset[type]().union(*(choice.quick for choice in choices))
    slow = [choice.fits for choice in choices if choice is not _PLAIN[types.NoneType]]
    one = slow[0]

    def fits_one(value: object) -> bool:
        return type(value) in quick or one(value)

    def fits_any(value: object) -> bool:
        return type(value) in quick or any(fits(value) for fits in slow)

    return _Kind(
        _listed([choice.one for choice in choices]),
        _listed([choice.many for choice in choices]),
        fits_one if len(slow) == 1 else fits_any,
        quick,
        words=tuple(word for choice in choices for word in choice.words),
        choices=tuple(choices),
    )


def _listed(parts: list[str]) -> str:
    parts = list(dict.fromkeys(parts))
    if "None" in parts:
        parts = [part for part in parts if part != "None"] + ["None"]
    return f"{', '.join(parts[:-1])} or {parts[-1]}" if len(parts) > 1 else parts[0]


def _collection(is_sequence: bool, args: tuple[Any, ...]) -> _Kind:
    items = _kind(args[0]) if args and (len(args) == 1 or args[1] is ...) else _ANYTHING
    if len(args) > 1 and args[1] is not ...:
        items = _either([_kind(choice) for choice in args])
    kinds = abc.Sequence if is_sequence else abc.Collection
    all_quick = items.quick.issuperset

    def holds(value: object) -> bool:
        return type(value) in (list, tuple) or (isinstance(value, kinds) and not isinstance(value, _NO_COLLECTIONS))

    def fits(value: JSONValue) -> bool:
        if not holds(value):
            return False
        return items is _ANYTHING or all_quick(map(type, value)) or all(map(items.fits, value))

    of = "" if items is _ANYTHING else f" of {items.many}"
    return _Kind(f"a list{of}", f"lists{of}", fits, holds=holds, items=items)


def _mapping(key: Any = Any, value: JSONValue = Any) -> _Kind:
    keys, items = _kind(key), _kind(value)
    all_quick = keys.quick.issuperset

    def holds(value: object) -> bool:
        return type(value) is dict or isinstance(value, abc.Mapping)

    def fits(value: JSONValue) -> bool:
        if type(value) is not dict and not holds(value):
            return False
        if items is _ANYTHING:  # arguments of tools: each step of a chain passes here
            return all_quick(map(type, value)) or all(map(keys.fits, value))
        return all(keys.fits(key) and items.fits(item) for key, item in value.items())

    of = "" if keys is _ANYTHING else f" of {keys.many}"
    to = "" if items is _ANYTHING else f" to {items.many}"
    return _Kind(f"a mapping{of}{to}", f"mappings{of}{to}", fits, holds=holds, keys=keys, items=items)


def _instance(cls: type) -> _Kind:
    name = cls.__name__
    one, many = f"{'an' if name[0] in 'AEIOU' else 'a'} {name}", f"{name} objects"
    if not getattr(cls, "_is_protocol", False):
        reads = cls if hasattr(cls, "from_dict") else None
        return _Kind(one, many, lambda value: isinstance(value, cls), frozenset({cls}), reads=reads)
    members = _members(cls)
    if members == ("__call__",):
        return _FUNCTION
    return _Kind(
        one,
        many,
        lambda value: not isinstance(value, type) and all(_has(value, member) for member in members),
        members=members,
    )


def _members(protocol: type) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False) and base is not typing.Protocol:
            names = (*base.__dict__, *inspect.get_annotations(base))
            found |= {name: None for name in names if not name.startswith("_") or name == "__call__"}
    return tuple(found)


def _has(value: object, member: str) -> bool:
    if any(member in base.__dict__ for base in type(value).__mro__):
        return True  # by its class: nothing of a property is run
    try:
        return hasattr(value, member)
    except Exception:
        return True  # it has one, which is not ready


# -- messages -----------------------------------------------------------------------------------------------------


def _explain(what: str, kind: _Kind, value: JSONValue, place: str, secret: bool = False) -> str:
    """Return what is wrong with a value that does not fit, at the deepest place."""
    secret = secret or is_telling(place)
    if kind.bounds and any(choice.fits(value) for choice in kind.choices):
        return f"{what}: {place} must be {kind.bounds}, not {value!r}"
    for choice in kind.choices or (kind,):
        if choice.holds is None or not choice.holds(value):
            continue
        if choice.keys is not None and choice.items is not None:
            for key, item in value.items():
                if not choice.keys.fits(key):
                    return f"{what}: the keys of {place} must be {choice.keys.many}, not {_shown(key, secret)}"
                if not choice.items.fits(item):
                    return _explain(what, choice.items, item, f"{place}[{_shown(key, False)}]", True)
        elif choice.items is not None:
            for number, item in enumerate(value):
                if not choice.items.fits(item):
                    return _explain(what, choice.items, item, f"{place}[{number}]", secret)
    choices = kind.choices or (kind,)
    hint = ""
    if kind.words and isinstance(value, str):
        hint = did_you_mean(value, kind.words, otherwise="")
    elif isinstance(value, type):
        hint = f"give an instance: {value.__name__}(...)"
    elif isinstance(value, abc.Mapping):
        hint = next((f"{choice.reads.__name__}.from_dict reads one" for choice in choices if choice.reads), "")
    elif type(value).__module__ != "builtins":
        missing = next((choice.members for choice in choices if choice.members), ())
        hint = f"it has no {', '.join(name for name in missing if not _has(value, name))}" if missing else ""
    scalar = any(choice.words or choice in _SCALARS for choice in choices)
    return f"{what}: {place} must be {kind.one}, not {_shown(value, secret or not scalar)}{f'; {hint}' if hint else ''}"


def _shown(value: object, secret: bool) -> str:
    """Return the value as a message can show it: short, and nothing that may be a secret."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 10**18):
        return repr(value)
    if isinstance(value, str) and not secret and len(value) <= _MAX_SHOWN:
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, abc.Mapping):
        return "a mapping"
    name = "string" if isinstance(value, str) else type(value).__name__
    return name if name == "bytes" else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"

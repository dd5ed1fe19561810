"""Semantic versions, constraints on them, and a matrix of which component versions work together.

Versions follow SemVer 2.0 and constraints read like those of npm:

>>> str(Constraint.parse("^1.2 || 3.x").best([Version(1, 9, 0), Version(3, 0, 1), Version(4, 0, 0)]))
'3.0.1'
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from toolexec.errors import InvalidVersionError
from toolexec.model.patterns import lazy_pattern

__all__ = ["Compatibility", "CompatibilityMatrix", "CompatibilityReport", "Constraint", "Version"]

_MAX_VERSION = 256
_MAX_CONSTRAINT = 1024
_Precedence = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]

_N = r"(?:0|[1-9][0-9]*)"
_WORD = rf"(?:{_N}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_LABELS = rf"(?:-({_WORD}(?:\.{_WORD})*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
_VERSION = lazy_pattern(rf"({_N}\.{_N}\.{_N}){_LABELS}")
_OPERATOR = r"(>=|<=|[<>=^~])"
_COMPARATOR = lazy_pattern(
    rf"{_OPERATOR}?v?(?:(({_N}\.{_N}\.{_N}){_LABELS})|({_N}\.{_N})(?:\.[xX*])?|({_N})(?:\.[xX*]){{0,2}})"
)
_WILDCARD = lazy_pattern(r"(?:>=|<=|[=^~])?v?[xX*](?:\.[xX*]){0,2}")
_BLANK_AFTER_OPERATOR = lazy_pattern(rf"{_OPERATOR}[ \t]+(?=[v0-9xX*])")
_SEPARATOR = lazy_pattern(r"[ \t]*,[ \t]*|[ \t]+")


@dataclass(frozen=True, slots=True)
class Version:
    """One semantic version of at most 256 characters; `str()` writes it without a `v`.

    `<`, `<=`, `>` and `>=` follow SemVer precedence, which ignores `build`. `==` and `hash()` compare every field, so
    `1.0.0+a` and `1.0.0+b` differ although neither comes first; `same_precedence` compares only the precedence.

    >>> Version(1, 0, 0, "alpha.2") < Version(1, 0, 0, "alpha.10") < Version(1, 0, 0)
    True
    """

    major: int
    minor: int
    patch: int
    prerelease: str = ""
    build: str = ""

    def __post_init__(self) -> None:
        numbers = (self.major, self.minor, self.patch)
        match = _VERSION.fullmatch(_bounded(str(self), _MAX_VERSION, "version"))
        # Looking at the parts as well finds a pre-release that smuggles in a build.
        parts = (".".join(map(str, numbers)), self.prerelease, self.build)
        if match is None or match.groups(default="") != parts or any(type(number) is not int for number in numbers):
            raise _no_version(str(self))

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read `1.2.3`, `v1.2.3`, `1.2.3-rc.1` or `1.2.3+build`; raises InvalidVersionError for anything else.

        >>> str(Version.parse("v1.2.3-rc.1+linux"))
        '1.2.3-rc.1+linux'
        """
        match = _VERSION.fullmatch(_bounded(text, _MAX_VERSION + 1, "version").removeprefix("v"))
        if match is None:
            raise _no_version(text)
        release, prerelease, build = match.groups(default="")
        major, minor, patch = map(int, release.split("."))
        return cls(major, minor, patch, prerelease, build)

    def __str__(self) -> str:
        prerelease = f"-{self.prerelease}" if self.prerelease else ""
        build = f"+{self.build}" if self.build else ""
        return f"{self.major}.{self.minor}.{self.patch}{prerelease}{build}"

    @property
    def precedence(self) -> _Precedence:
        """A sort key in SemVer order: pre-releases before their release, numbers before words, build ignored."""
        words = self.prerelease.split(".") if self.prerelease else []
        identifiers = tuple((False, int(word), "") if word.isdigit() else (True, 0, word) for word in words)
        return self.major, self.minor, self.patch, not words, identifiers

    # Python swaps the sides of `>` and `>=`. functools.total_ordering would take `<=` from `==`, which sees the build.
    def __lt__(self, other: object) -> bool:
        return self.precedence < other.precedence if isinstance(other, Version) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self.precedence <= other.precedence if isinstance(other, Version) else NotImplemented

    def same_precedence(self, other: Version) -> bool:
        """Return whether neither version comes before the other, that is, they differ in `build` at most."""
        return self.precedence == other.precedence

    def compatible_with(self, other: Version) -> bool:
        """Return whether this version can stand in for *other*: same major (for 0.x same minor) and not older.

        >>> Version(1, 4, 0).compatible_with(Version(1, 2, 0)), Version(0, 4, 0).compatible_with(Version(0, 2, 0))
        (True, False)
        """
        return self.major == other.major and (self.major > 0 or self.minor == other.minor) and self >= other


_Bound = tuple[str, Version]
_HOLDS = {"=": Version.same_precedence, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


@dataclass(frozen=True, slots=True)
class Constraint:
    """Which versions are acceptable, as in `^1.2`, `>=1.2 <2 || 3.x` or `*`; at most 1024 characters.

    Comparators are `=` (also when none is written), `>`, `>=`, `<`, `<=`, `^` (same major; same minor for 0.x; same
    patch for 0.0.x) and `~` (same minor). Blanks or commas between them mean "and", `||` means "or". A version may
    leave out its last parts or write them as `x` or `*`. `text`, which `str()` returns, is the normalised spelling.

    A pre-release is only acceptable where a comparator names a pre-release of the same major, minor and patch.
    """

    text: str
    _alternatives: tuple[tuple[_Bound, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        source = _bounded(self.text, _MAX_CONSTRAINT, "version constraint")
        alternatives = [_parse_alternative(part.strip(" \t"), source) for part in source.split("||")]
        # Normalising never makes a text longer, so the text of a constraint can always be parsed again.
        object.__setattr__(self, "text", "||".join(spelling for spelling, _ in alternatives))
        object.__setattr__(self, "_alternatives", tuple(bounds for _, bounds in alternatives))

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read a constraint; raises InvalidVersionError naming the part that makes no sense.

        >>> str(Constraint.parse(">= v1.2, <2 || =3.x"))
        '>=1.2 <2||3'
        """
        return cls(text)

    def __str__(self) -> str:
        return self.text

    def allows(self, version: Version) -> bool:
        """Return whether *version* is acceptable; its build does not matter.

        >>> Constraint.parse("^0.2.3").allows(Version(0, 3, 0))
        False
        """
        release = version.precedence[:3]
        for bounds in self._alternatives:
            named = any(bound.prerelease and bound.precedence[:3] == release for _, bound in bounds)
            if (named or not version.prerelease) and all(_HOLDS[how](version, bound) for how, bound in bounds):
                return True
        return False

    def best(self, versions: Iterable[Version]) -> Version:
        """Return the highest acceptable version; raises InvalidVersionError listing *versions* if there is none."""
        available = tuple(versions)
        allowed = [version for version in available if self.allows(version)]
        if not allowed:
            raise _none_fits(f"no version satisfies {self.text!r:.80}", available)
        return max(allowed)


def _parse_alternative(text: str, source: str) -> tuple[str, tuple[_Bound, ...]]:
    pieces = _SEPARATOR.split(_BLANK_AFTER_OPERATOR.sub(r"\1", text))
    comparators = [_parse_comparator(piece, source) for piece in pieces]
    return " ".join(spelling for spelling, _ in comparators), tuple(b for _, bounds in comparators for b in bounds)


def _parse_comparator(piece: str, source: str) -> tuple[str, tuple[_Bound, ...]]:
    """Return the normalised spelling of one comparator, and the plain bounds that it stands for."""
    if _WILDCARD.fullmatch(piece):
        return "*", ()
    match = _COMPARATOR.fullmatch(piece)
    if match is None:
        problem = f"{piece!r:.80} makes no sense" if piece else "a part of it is empty"
        raise InvalidVersionError(f"{source!r:.80} is not a version constraint: {problem}; write one like ^1.2")
    relation, exact, release, prerelease, _build, two, one = match.groups(default="")
    numbers = tuple(map(int, (release or two or one).split(".")))
    return relation.removeprefix("=") + (exact or two or one), _expand(relation or "=", numbers, prerelease)


def _expand(relation: str, numbers: tuple[int, ...], prerelease: str) -> tuple[_Bound, ...]:
    """Rewrite a comparator on one to three numbers as plain bounds."""
    # An upper end of `-0`, the lowest pre-release there is, keeps out every pre-release of the version it ends at.
    if relation == ">=" or (len(numbers) == 3 and relation not in "^~"):
        return ((relation, _pad(numbers, prerelease)),)
    if relation == ">":
        return ((">=", _pad(numbers, step=1)),)
    if relation in ("<", "<="):
        return (("<", _pad(numbers, "0", step=int(relation == "<="))),)
    leading = next((place for place, number in enumerate(numbers, 1) if number), len(numbers))
    fixed = {"^": leading, "~": 2}.get(relation, len(numbers))
    return (">=", _pad(numbers, prerelease)), ("<", _pad(numbers[:fixed], "0", step=1))


def _pad(numbers: tuple[int, ...], prerelease: str = "", *, step: int = 0) -> Version:
    major, minor, patch = (*numbers[:-1], numbers[-1] + step, 0, 0)[:3]
    return Version(major, minor, patch, prerelease)


@dataclass(frozen=True, slots=True)
class Compatibility:
    """A range of versions of a component that works, both ends included; without `max_version` it has no end.

    Only precedence counts, also for pre-releases. `message` says what users of a `deprecated` range should do; a
    version is deprecated as soon as one of the ranges that have it is.
    """

    component: str
    min_version: Version
    max_version: Version | None = None
    deprecated: bool = False
    message: str = ""

    def __post_init__(self) -> None:
        if self.max_version is not None and self.max_version < self.min_version:
            raise InvalidVersionError(f"{self.component!r:.80} has a minimum over its maximum: {self}; swap the two")

    def __str__(self) -> str:
        return f">={self.min_version}" + (f" <={self.max_version}" if self.max_version else "")

    def refusal(self, version: Version) -> str:
        """Return why *version* is outside of this range; empty if it is inside."""
        if version < self.min_version:
            return f"{self.component} {version} is below the minimum {self.min_version}"
        if self.max_version is not None and version > self.max_version:
            return f"{self.component} {version} is above the maximum {self.max_version}"
        return ""


@dataclass(frozen=True, slots=True)
class CompatibilityReport:
    """What a matrix found out about one version; `messages` are in the order in which the ranges were added."""

    compatible: bool
    deprecated: bool = False
    messages: tuple[str, ...] = ()


class CompatibilityMatrix:
    """Which versions of which components work; any number of threads may add and ask.

    >>> matrix = CompatibilityMatrix()
    >>> matrix.add(Compatibility("index", Version(1, 0, 0), Version(1, 9, 9), deprecated=True, message="move to 2.0"))
    >>> matrix.check("index", Version(1, 5, 0))
    CompatibilityReport(compatible=True, deprecated=True, messages=('move to 2.0',))
    """

    def __init__(self) -> None:
        self._adding = threading.Lock()  # readers need none: a tuple of ranges is replaced, never changed
        self._ranges: dict[str, tuple[Compatibility, ...]] = {}

    def add(self, entry: Compatibility) -> None:
        """Accept one more range of versions; a version is compatible if any range of its component has it."""
        with self._adding:
            self._ranges[entry.component] = (*self._ranges.get(entry.component, ()), entry)

    def check(self, component: str, version: Version) -> CompatibilityReport:
        """Return whether *version* works, and why (not); a component without ranges takes every version."""
        ranges = self._ranges.get(component, ())
        refusals = tuple(entry.refusal(version) for entry in ranges)
        if ranges and all(refusals):
            return CompatibilityReport(compatible=False, messages=refusals)
        inside = [entry for entry, refusal in zip(ranges, refusals, strict=True) if not refusal]
        deprecated = any(item.deprecated for item in inside)
        notes = (item.message or (f"{component} {item} is deprecated" if item.deprecated else "") for item in inside)
        return CompatibilityReport(compatible=True, deprecated=deprecated, messages=tuple(filter(None, notes)))

    def negotiate(self, component: str, available: Iterable[Version]) -> Version:
        """Return the highest compatible version, deprecated only if all are; raises InvalidVersionError if none
        fits.
        """
        reports = {version: self.check(component, version) for version in available}
        usable = [version for version, report in reports.items() if report.compatible]
        if not usable:
            accepted = " || ".join(map(str, self._ranges.get(component, ()))) or "*"
            raise _none_fits(f"no version of {component!r:.80} satisfies {accepted!r:.200}", tuple(reports))
        return max(usable, key=lambda version: (not reports[version].deprecated, version.precedence))


def _none_fits(problem: str, available: Sequence[Version]) -> InvalidVersionError:
    names = [str(version) for version in sorted(available, reverse=True)]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    shown = f"available: {', '.join(names[:10])}{more}" if names else "none is available"
    return InvalidVersionError(f"{problem}; {shown}", details={"available": names})


def _no_version(text: str) -> InvalidVersionError:
    return InvalidVersionError(f"{text!r:.80} is not a semantic version; write one like 1.2.3 or 1.2.3-rc.1")


def _bounded(text: object, limit: int, what: str) -> str:
    if not isinstance(text, str) or len(text) > limit:
        raise InvalidVersionError(f"{text!r:.80} is not a {what}: it must be a text of at most {limit} characters")
    return text

"""Versions, constraints and the compatibility matrix."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.errors import InvalidVersionError
from toolexec.model.version import Compatibility, CompatibilityMatrix, CompatibilityReport, Constraint, Version

v = Version.parse

numbers = st.one_of(st.integers(0, 3), st.integers(0, 10**30))
words = st.one_of(
    st.integers(0, 20).map(str),
    st.from_regex(r"[0-9A-Za-z-]{0,4}[A-Za-z-][0-9A-Za-z-]{0,4}", fullmatch=True),
)
prereleases = st.lists(words, max_size=3).map(".".join)
builds = st.lists(st.from_regex(r"[0-9A-Za-z-]{1,6}", fullmatch=True), max_size=3).map(".".join)
versions = st.builds(Version, numbers, numbers, numbers, prereleases, builds)
near_versions = st.builds(
    Version, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.sampled_from(["", "0", "a", "a.1"])
)
partials = st.lists(st.integers(0, 2), max_size=3).map(lambda parts: ".".join(map(str, parts)) or "*")
signs = st.sampled_from(["", "=", ">=", "<=", "^", "~"])
comparators = st.one_of(
    st.tuples(signs, st.one_of(partials, near_versions.map(str))).map("".join),
    st.tuples(st.sampled_from("<>"), near_versions.map(str)).map("".join),
)
constraints = st.lists(st.lists(comparators, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=3).map(
    " || ".join
)


class TestParse:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1.0.0", Version(1, 0, 0)),
            ("v1.0.0", Version(1, 0, 0)),
            ("1.2.3", Version(1, 2, 3)),
            ("0.0.0", Version(0, 0, 0)),
            ("10.20.30", Version(10, 20, 30)),
            ("1.0.0-alpha", Version(1, 0, 0, "alpha")),
            ("1.0.0-alpha.1", Version(1, 0, 0, "alpha.1")),
            ("1.0.0-0", Version(1, 0, 0, "0")),
            ("1.0.0-0a", Version(1, 0, 0, "0a")),
            ("1.0.0--", Version(1, 0, 0, "-")),
            ("1.0.0-x-y.z", Version(1, 0, 0, "x-y.z")),
            ("1.0.0+build", Version(1, 0, 0, build="build")),
            ("1.0.0+007", Version(1, 0, 0, build="007")),
            ("1.0.0+a-b", Version(1, 0, 0, build="a-b")),
            ("1.0.0-beta+build.123", Version(1, 0, 0, "beta", "build.123")),
        ],
    )
    def test_reads_semantic_versions(self, text: str, expected: Version) -> None:
        """Every form that SemVer 2.0 allows is read, with or without a leading v."""
        assert Version.parse(text) == expected

    @pytest.mark.parametrize(
        "text",
        ["", "invalid", "1", "1.0", "1.0.0.0", "v", "vv1.0.0", "V1.0.0", "1.0.x", "-1.0.0", "+1.0.0", "1_0.0.0"]
        + ["01.0.0", "1.00.0", "1.0.01", "1.0.0-01", "1.0.0-a.01"]
        + ["1.0.0-", "1.0.0+", "1.0.0-+b", "1.0.0-a..b", "1.0.0-.a", "1.0.0-a.", "1.0.0+a..b", "1.0.0+a+b", "1.0.0-ä"]
        + [" 1.0.0", "1.0.0 ", "1.0.0\n", "1.0.0-a\n", "١.0.0", "1.0.²", "1.0.0-a_b"],
    )
    def test_refuses_everything_else(self, text: str) -> None:
        """Leading zeros, empty identifiers, blanks, foreign digits and missing parts are errors."""
        with pytest.raises(InvalidVersionError):
            Version.parse(text)

    def test_error_shows_the_text_and_an_example(self) -> None:
        """The message quotes the input and shows what a version looks like."""
        with pytest.raises(InvalidVersionError, match=r"'1\.0' is not a semantic version; write one like 1\.2\.3"):
            Version.parse("1.0")

    def test_error_shortens_a_long_text(self) -> None:
        """A hostile input does not flood the message."""
        with pytest.raises(InvalidVersionError) as caught:
            Version.parse("9" * 100_000)
        assert len(str(caught.value)) < 200

    @pytest.mark.parametrize("prefix", ["", "v"])
    def test_reads_up_to_256_characters(self, prefix: str) -> None:
        """A version may have 256 characters, and the v does not count."""
        assert len(str(Version.parse(f"{prefix}1.0.0-{'a' * 250}"))) == 256

    @pytest.mark.parametrize("prefix", ["", "v"])
    def test_refuses_more_than_256_characters(self, prefix: str) -> None:
        """The length of a version is bounded."""
        with pytest.raises(InvalidVersionError, match="at most 25"):
            Version.parse(f"{prefix}1.0.0-{'a' * 251}")

    def test_refuses_what_is_not_a_text(self) -> None:
        """A number that slipped in is reported like any other bad version."""
        with pytest.raises(InvalidVersionError):
            Version.parse(1.0)  # pyright: ignore[reportArgumentType]

    def test_huge_numbers_keep_their_value(self) -> None:
        """Numbers beyond 64 bits stay exact."""
        assert v(f"{2**70}.0.0") < v(f"{2**70 + 1}.0.0")

    @pytest.mark.full
    @given(versions)
    def test_str_can_be_parsed_again(self, version: Version) -> None:
        """Writing a version and reading it gives the same version."""
        assert Version.parse(str(version)) == version

    @given(st.text(max_size=20))
    def test_any_text_is_a_version_or_an_error(self, text: str) -> None:
        """Whatever is accepted is written back unchanged, except for the v."""
        try:
            version = Version.parse(text)
        except InvalidVersionError:
            return
        assert str(version) == text.removeprefix("v")


class TestVersionValue:
    @pytest.mark.parametrize(
        ("version", "text"),
        [
            (Version(1, 2, 3), "1.2.3"),
            (Version(1, 2, 3, "rc.1"), "1.2.3-rc.1"),
            (Version(1, 2, 3, build="7"), "1.2.3+7"),
            (Version(1, 2, 3, "rc.1", "7"), "1.2.3-rc.1+7"),
        ],
    )
    def test_str_has_no_v(self, version: Version, text: str) -> None:
        """A version is written the way that SemVer spells it."""
        assert str(version) == text

    @pytest.mark.parametrize(
        "fields",
        [(-1, 0, 0), (True, 0, 0), (1.5, 0, 0), ("1", 0, 0), (1, 0, 0, "a+b"), (1, 0, 0, "01"), (1, 0, 0, "", "a..b")]
        + [(1, 0, 0, "a" * 300), (1, 0, 0, None)],
    )
    def test_constructor_refuses_what_parse_refuses(self, fields: tuple[object, ...]) -> None:
        """There is no way to make a version that is not a semantic version."""
        with pytest.raises(InvalidVersionError):
            Version(*fields)  # pyright: ignore[reportArgumentType]

    def test_cannot_be_changed(self) -> None:
        """A version is a value."""
        with pytest.raises(dataclasses.FrozenInstanceError):
            v("1.0.0").major = 2  # pyright: ignore[reportAttributeAccessIssue]

    def test_equality_sees_the_build(self) -> None:
        """Two builds of one release are different values."""
        assert v("1.0.0+a") != v("1.0.0+b")

    def test_precedence_ignores_the_build(self) -> None:
        """Two builds of one release rank alike."""
        assert v("1.0.0+a").same_precedence(v("1.0.0+b"))

    def test_builds_are_neither_before_nor_after_each_other(self) -> None:
        """`<=` and `>=` both hold between two builds of one release."""
        assert v("1.0.0+a") <= v("1.0.0+b") <= v("1.0.0+a")
        assert not v("1.0.0+a") < v("1.0.0+b")
        assert not v("1.0.0+a") > v("1.0.0+b")

    def test_a_pre_release_does_not_rank_like_its_release(self) -> None:
        """`same_precedence` tells pre-releases apart."""
        assert not v("1.0.0-a").same_precedence(v("1.0.0"))

    def test_works_as_a_dictionary_key(self) -> None:
        """Equal versions find each other in a dictionary."""
        assert {v("v1.2.3"): "here"}[Version(1, 2, 3)] == "here"

    def test_can_be_pickled(self) -> None:
        """A version survives the way to another process."""
        assert pickle.loads(pickle.dumps(v("1.2.3-a+b"))) == v("1.2.3-a+b")

    @pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge])
    def test_does_not_compare_with_strings(self, compare: Callable[[object, object], bool]) -> None:
        """Comparing with something else is a mistake, not an answer."""
        with pytest.raises(TypeError):
            compare(v("1.0.0"), "1.0.0")


class TestOrder:
    def test_semver_example(self) -> None:
        """The order that the SemVer document gives as its example holds."""
        order = ["alpha", "alpha.1", "alpha.beta", "beta", "beta.2", "beta.11", "rc.1", ""]
        ranked = [Version(1, 0, 0, prerelease) for prerelease in order]
        assert all(lower < higher for lower, higher in itertools.pairwise(ranked))

    @pytest.mark.parametrize(
        ("lower", "higher"),
        [
            ("1.0.0", "2.0.0"),
            ("1.9.0", "1.10.0"),
            ("1.0.9", "1.0.10"),
            ("1.0.0-alpha.2", "1.0.0-alpha.10"),
            ("1.0.0-2", "1.0.0-11"),
            ("1.0.0-999", "1.0.0-a"),
            ("1.0.0-999", "1.0.0--"),
            ("1.0.0-Z", "1.0.0-a"),
            ("1.0.0-a", "1.0.0-a.0"),
            ("1.0.0-rc", "1.0.0"),
            ("1.0.0", "1.0.1-rc"),
        ],
    )
    def test_lower_comes_first(self, lower: str, higher: str) -> None:
        """Numbers count as numbers, come before words, and a pre-release comes before its release."""
        assert v(lower) < v(higher)
        assert v(higher) > v(lower)

    @given(versions, versions)
    def test_is_antisymmetric(self, a: Version, b: Version) -> None:
        """Of two versions exactly one is lower, or they rank alike."""
        assert [a < b, a > b, a.same_precedence(b)].count(True) == 1
        assert (a <= b <= a) == a.same_precedence(b)

    @given(st.lists(near_versions, min_size=3, max_size=3))
    def test_is_transitive(self, three: list[Version]) -> None:
        """Lower than something lower is lower."""
        for a, b, c in itertools.permutations(three):
            assert not a <= b <= c or a <= c

    @pytest.mark.full
    @given(versions, versions)
    def test_equal_versions_rank_alike(self, a: Version, b: Version) -> None:
        """Equality is never at odds with the order."""
        assert a != b or a.same_precedence(b)

    @pytest.mark.parametrize(
        ("ours", "wanted", "expected"),
        [
            ("1.0.0", "1.0.0", True),
            ("1.4.0", "1.2.0", True),
            ("1.2.0", "1.4.0", False),
            ("2.0.0", "1.0.0", False),
            ("0.2.5", "0.2.3", True),
            ("0.3.0", "0.2.3", False),
            ("1.0.0-a", "1.0.0", False),
            ("1.0.0", "1.0.0-a", True),
        ],
    )
    def test_compatible_with(self, ours: str, wanted: str, expected: bool) -> None:
        """A version stands in for older ones of its major line, or minor line below 1.0."""
        assert v(ours).compatible_with(v(wanted)) is expected


class TestConstraint:
    @pytest.mark.parametrize(
        ("text", "allowed", "refused"),
        [
            ("1.2.3", "1.2.3 1.2.3+b", "1.2.4 1.2.2"),
            ("=1.2.3", "1.2.3", "1.2.4"),
            ("=1.2.3+a", "1.2.3 1.2.3+b", "1.2.4"),
            (">1.2.3", "1.2.4 2.0.0", "1.2.3 1.2.3+b"),
            (">=1.2.3", "1.2.3 9.0.0", "1.2.2"),
            ("<1.2.3", "1.2.2 0.0.0", "1.2.3"),
            ("<=1.2.3", "1.2.3 1.0.0", "1.2.4"),
            ("^1.2.3", "1.2.3 1.9.0", "1.2.2 2.0.0"),
            ("^0.2.3", "0.2.3 0.2.9", "0.2.2 0.3.0 0.9.0 1.0.0"),
            ("^0.0.3", "0.0.3", "0.0.2 0.0.4"),
            ("^0.0.0", "0.0.0", "0.0.1"),
            ("~1.2.3", "1.2.3 1.2.9", "1.2.2 1.3.0"),
            ("~0.2.3", "0.2.3 0.2.9", "0.3.0"),
        ],
    )
    def test_operators(self, text: str, allowed: str, refused: str) -> None:
        """Each operator draws its line where npm draws it; the build never matters."""
        constraint = Constraint.parse(text)
        assert [version for version in allowed.split() if not constraint.allows(v(version))] == []
        assert [version for version in refused.split() if constraint.allows(v(version))] == []

    @pytest.mark.parametrize(
        ("text", "allowed", "refused"),
        [
            ("*", "0.0.0 9.9.9", ""),
            ("x.X.*", "0.0.0 9.9.9", ""),
            (">=*", "0.0.0 9.9.9", ""),
            ("1", "1.0.0 1.9.9", "0.9.9 2.0.0"),
            ("1.x", "1.0.0 1.9.9", "0.9.9 2.0.0"),
            ("1.*.*", "1.0.0 1.9.9", "2.0.0"),
            ("=1.2", "1.2.0 1.2.9", "1.1.9 1.3.0"),
            ("1.2.x", "1.2.0 1.2.9", "1.3.0"),
            ("^1", "1.0.0 1.9.9", "0.9.9 2.0.0"),
            ("^1.2", "1.2.0 1.9.0", "1.1.9 2.0.0"),
            ("^0", "0.0.0 0.9.9", "1.0.0"),
            ("^0.0", "0.0.0 0.0.9", "0.1.0"),
            ("^0.2", "0.2.0 0.2.9", "0.1.9 0.3.0"),
            ("~1", "1.0.0 1.9.9", "2.0.0"),
            ("~1.2", "1.2.0 1.2.9", "1.3.0"),
            (">1.2", "1.3.0", "1.2.0 1.2.9"),
            (">1", "2.0.0", "1.9.9"),
            (">=1.2", "1.2.0", "1.1.9"),
            ("<1.2", "1.1.9", "1.2.0"),
            ("<=1.2", "1.2.9", "1.3.0"),
        ],
    )
    def test_partial_versions(self, text: str, allowed: str, refused: str) -> None:
        """Parts that are left out stand for all that could be there."""
        constraint = Constraint.parse(text)
        assert [version for version in allowed.split() if not constraint.allows(v(version))] == []
        assert [version for version in refused.split() if constraint.allows(v(version))] == []

    @pytest.mark.parametrize(
        ("text", "allowed", "refused"),
        [
            (">=1.2 <2", "1.2.0 1.9.0", "1.1.0 2.0.0"),
            (">=1.2,<2", "1.2.0 1.9.0", "1.1.0 2.0.0"),
            ("  >= v1.2 ,\t< 2  ", "1.2.0 1.9.0", "1.1.0 2.0.0"),
            ("^1 ^1.2 <1.5", "1.2.0 1.4.9", "1.1.0 1.5.0"),
            ("1.x||3.x", "1.5.0 3.5.0", "2.0.0 4.0.0"),
            ("<1 || >=2 <3 || =5.0.0", "0.1.0 2.5.0 5.0.0", "1.0.0 3.0.0 5.0.1"),
            (">2 <1", "", "1.5.0 3.0.0 0.1.0"),
        ],
    )
    def test_and_binds_tighter_than_or(self, text: str, allowed: str, refused: str) -> None:
        """Blanks and commas narrow a range, double bars add another."""
        constraint = Constraint.parse(text)
        assert [version for version in allowed.split() if not constraint.allows(v(version))] == []
        assert [version for version in refused.split() if constraint.allows(v(version))] == []

    @pytest.mark.parametrize(
        ("text", "allowed", "refused"),
        [
            ("*", "", "1.0.0-a"),
            ("^1.0.0", "", "1.1.0-a 1.0.0-a 2.0.0-a"),
            ("<2.0.0", "", "2.0.0-a 1.0.0-a"),
            (">=1", "", "1.5.0-a"),
            (">1.2", "", "1.3.0-a"),
            ("=1.0.0-a", "1.0.0-a 1.0.0-a+b", "1.0.0 1.0.0-b"),
            ("^1.2.3-beta", "1.2.3-beta 1.2.3-rc 1.2.3 1.3.0", "1.2.3-alpha 1.3.0-beta 2.0.0-a"),
            ("~1.2.3-beta.2", "1.2.3-beta.10 1.2.9", "1.2.3-beta.1 1.2.4-beta.3 1.3.0-a"),
            (">=1.0.0-a <1.0.0", "1.0.0-b", "1.0.0 0.9.0"),
            (">=2.0.0-a <2", "", "2.0.0-b 2.0.0"),
            (">=2.0.0-a ^1.5", "", "2.0.0-b"),
            (">=1.3.0-a >1.2", "1.3.0 1.4.0", "1.3.0-b"),
            ("^1.0.0 || =2.0.0-a", "1.5.0 2.0.0-a", "1.5.0-a 2.0.0"),
            ("^0.0.3-a", "0.0.3-b 0.0.3", "0.0.4-a 0.0.4"),
        ],
    )
    def test_pre_releases_have_to_be_named(self, text: str, allowed: str, refused: str) -> None:
        """A pre-release is in a range only beside a named pre-release of the same major, minor and patch."""
        constraint = Constraint.parse(text)
        assert [version for version in allowed.split() if not constraint.allows(v(version))] == []
        assert [version for version in refused.split() if constraint.allows(v(version))] == []

    @pytest.mark.parametrize(
        "text",
        ["", " ", "latest", "==1.0.0", "!=1.0.0", "~>1.0", "=>1.0", "> =1.0", ">", "^", ">*", "<x", "1.0.0.0", "1.-1"]
        + ["01.0.0", "1.2.3-01", "1.2.3-a..b", "1.2-a", "1.2+b", "1.x.3", "x.1", "*-a", "^ ^1", "1 - 2", ">=1<2"]
        + ["||", "1 ||", "|| 1", "1 | 2", "1,", ",1", "1,,2", "1 , , 2", "^1\n", "1\n2", "١", "v", "^vv1"],
    )
    def test_refuses_what_makes_no_sense(self, text: str) -> None:
        """Unknown operators, empty parts and malformed versions are errors."""
        with pytest.raises(InvalidVersionError):
            Constraint.parse(text)

    def test_error_names_the_bad_part(self) -> None:
        """The message quotes the whole constraint and the part that is wrong."""
        with pytest.raises(InvalidVersionError, match=r"'>=1 !2' is not a version constraint: '!2' makes no sense"):
            Constraint.parse(">=1 !2")

    def test_error_says_that_a_part_is_empty(self) -> None:
        """A dangling `||` is named as such."""
        with pytest.raises(InvalidVersionError, match="a part of it is empty"):
            Constraint.parse("^1 ||")

    @pytest.mark.parametrize("text", ["1" * 1025, "^1 || " * 200 + "^1", ">=" + "9" * 256, "<=" + "9" * 251])
    def test_refuses_long_input(self, text: str) -> None:
        """Neither the constraint nor a version in it can be of any size."""
        with pytest.raises(InvalidVersionError, match="at most"):
            Constraint.parse(text)

    def test_refuses_what_is_not_a_text(self) -> None:
        """A missing constraint is an error, not `*`."""
        with pytest.raises(InvalidVersionError):
            Constraint.parse(None)  # pyright: ignore[reportArgumentType]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1.0.0", "1.0.0"),
            ("= v1.0.0", "1.0.0"),
            ("^1.2.3", "^1.2.3"),
            ("~ 1.2", "~1.2"),
            ("1.2.x", "1.2"),
            (">=v1.0.0-a+b", ">=1.0.0-a+b"),
            (">=1 , <2", ">=1 <2"),
            (" 1.x || X ", "1||*"),
        ],
    )
    def test_str_is_normalised(self, text: str, expected: str) -> None:
        """Different spellings of one constraint are written alike."""
        assert str(Constraint.parse(text)) == expected

    def test_spelling_does_not_matter_for_equality(self) -> None:
        """Constraints are values that compare by their normalised text."""
        assert Constraint.parse(">= 1, <2") == Constraint(">=1 <2")

    def test_can_be_pickled(self) -> None:
        """A constraint still decides in another process."""
        assert pickle.loads(pickle.dumps(Constraint.parse("^1"))).allows(v("1.5.0"))

    def test_can_be_replaced(self) -> None:
        """A constraint made from another one follows its own text."""
        assert dataclasses.replace(Constraint.parse("^1"), text="^2").allows(v("2.5.0"))

    @pytest.mark.full
    @given(constraints, near_versions)
    def test_str_means_the_same(self, text: str, version: Version) -> None:
        """Reading what a constraint writes gives an equal constraint with the same answers."""
        constraint = Constraint.parse(text)
        again = Constraint.parse(str(constraint))
        assert again == constraint
        assert again.allows(version) is constraint.allows(version)
        assert len(str(constraint)) <= len(text)

    @given(near_versions, near_versions)
    def test_caret_agrees_with_compatible_with(self, a: Version, b: Version) -> None:
        """From 0.1 on, `^` allows exactly the releases that can stand in for the version."""
        if not b.prerelease and (a.major or a.minor):
            assert Constraint.parse(f"^{a}").allows(b) is b.compatible_with(a)

    @given(st.text(alphabet="0123xv*.<>=^~|, -+a", max_size=20))
    def test_any_text_is_a_constraint_or_an_error(self, text: str) -> None:
        """No input fails in any other way, and whatever is accepted can be written and read again."""
        try:
            constraint = Constraint.parse(text)
        except InvalidVersionError:
            return
        assert Constraint.parse(str(constraint)) == constraint


class TestBest:
    def test_is_the_highest_allowed(self) -> None:
        """The best version is the highest one, wherever it is in the list."""
        available = map(v, ["1.9.0", "1.10.0", "2.0.0", "1.11.0-rc", "1.2.0"])
        assert Constraint.parse("^1").best(available) == v("1.10.0")

    def test_error_lists_what_is_available(self) -> None:
        """If nothing fits, the message shows the choice, highest first."""
        with pytest.raises(InvalidVersionError, match=r"no version satisfies '\^3'; available: 2\.0\.0, 1\.0\.0-a"):
            Constraint.parse("^3").best([v("1.0.0-a"), v("2.0.0")])

    def test_error_carries_the_whole_list(self) -> None:
        """The message stops at ten versions, `details` does not."""
        with pytest.raises(InvalidVersionError, match="and 2 more") as caught:
            Constraint.parse("^3").best(Version(1, minor, 0) for minor in range(12))
        assert len(caught.value.details["available"]) == 12

    def test_error_for_no_versions(self) -> None:
        """An empty choice is named as such."""
        with pytest.raises(InvalidVersionError, match="none is available"):
            Constraint.parse("*").best([])


def matrix_of(*entries: Compatibility) -> CompatibilityMatrix:
    matrix = CompatibilityMatrix()
    for entry in entries:
        matrix.add(entry)
    return matrix


class TestMatrixCheck:
    @pytest.mark.parametrize(
        ("version", "expected"),
        [("1.0.0", True), ("1.5.0", True), ("2.0.0", True), ("2.0.0+b", True), ("0.9.0", False), ("2.0.1", False)],
    )
    def test_both_ends_are_included(self, version: str, expected: bool) -> None:
        """A version is compatible from the minimum to the maximum."""
        matrix = matrix_of(Compatibility("db", v("1.0.0"), v("2.0.0")))
        assert matrix.check("db", v(version)).compatible is expected

    def test_no_maximum_has_no_end(self) -> None:
        """Without a maximum every later version is compatible."""
        assert matrix_of(Compatibility("db", v("1.0.0"))).check("db", v("99.0.0")) == CompatibilityReport(True)

    def test_unknown_component_is_compatible(self) -> None:
        """An undescribed component is taken to be compatible."""
        assert matrix_of(Compatibility("db", v("1.0.0"))).check("other", v("0.0.1")) == CompatibilityReport(True)

    def test_one_range_is_enough(self) -> None:
        """The ranges of a component add up, so that gaps between them are possible."""
        matrix = matrix_of(Compatibility("db", v("1.0.0"), v("1.5.0")), Compatibility("db", v("2.0.0")))
        found = [matrix.check("db", v(version)).compatible for version in ("1.2.0", "1.7.0", "2.2.0")]
        assert found == [True, False, True]

    def test_refusal_reports_every_range(self) -> None:
        """An incompatible version learns what it misses in each range."""
        matrix = matrix_of(Compatibility("db", v("1.0.0"), v("1.5.0")), Compatibility("db", v("2.0.0")))
        assert matrix.check("db", v("1.7.0")).messages == (
            "db 1.7.0 is above the maximum 1.5.0",
            "db 1.7.0 is below the minimum 2.0.0",
        )

    def test_deprecated_is_compatible_with_a_message(self) -> None:
        """A deprecated version still works, and says what to do."""
        matrix = matrix_of(Compatibility("db", v("1.0.0"), deprecated=True, message="move to 2.0"))
        assert matrix.check("db", v("1.0.0")) == CompatibilityReport(True, deprecated=True, messages=("move to 2.0",))

    def test_deprecated_without_a_message_gets_one(self) -> None:
        """Deprecation never comes without a word."""
        matrix = matrix_of(Compatibility("db", v("1.0.0"), v("2.0.0"), deprecated=True))
        assert matrix.check("db", v("1.0.0")).messages == ("db >=1.0.0 <=2.0.0 is deprecated",)

    def test_deprecated_range_elsewhere_does_not_matter(self) -> None:
        """Only the ranges that have the version speak about it."""
        old = Compatibility("db", v("1.0.0"), v("1.5.0"), deprecated=True, message="old")
        assert matrix_of(old, Compatibility("db", v("2.0.0"))).check("db", v("2.0.0")) == CompatibilityReport(True)

    def test_later_ranges_speak_too(self) -> None:
        """A deprecated range does not hide what the ranges after it have to say."""
        matrix = matrix_of(
            Compatibility("db", v("1.0.0"), deprecated=True, message="first"),
            Compatibility("db", v("1.0.0"), message="second"),
        )
        assert matrix.check("db", v("1.0.0")).messages == ("first", "second")

    def test_range_without_versions_is_refused(self) -> None:
        """A minimum over the maximum is a mistake."""
        with pytest.raises(InvalidVersionError, match=r"'db' .*>=2\.0\.0 <=1\.0\.0"):
            Compatibility("db", v("2.0.0"), v("1.0.0"))


class TestNegotiate:
    def test_picks_the_highest(self) -> None:
        """Among good versions the highest wins."""
        available = map(v, ["0.5.0", "2.0.0", "1.0.0", "1.5.0"])
        assert matrix_of(Compatibility("db", v("1.0.0"))).negotiate("db", available) == v("2.0.0")

    def test_prefers_what_is_not_deprecated(self) -> None:
        """A lower version wins over a higher one that is deprecated."""
        matrix = matrix_of(
            Compatibility("db", v("1.0.0"), v("1.9.9")), Compatibility("db", v("2.0.0"), deprecated=True)
        )
        assert matrix.negotiate("db", map(v, ["1.0.0", "1.5.0", "2.0.0"])) == v("1.5.0")

    def test_takes_a_deprecated_version_rather_than_none(self) -> None:
        """Deprecated versions are good enough if there is nothing else."""
        matrix = matrix_of(Compatibility("db", v("1.0.0"), deprecated=True))
        assert matrix.negotiate("db", map(v, ["1.0.0", "1.5.0", "0.5.0"])) == v("1.5.0")

    def test_unknown_component_gets_the_highest(self) -> None:
        """Without ranges every version is acceptable."""
        assert CompatibilityMatrix().negotiate("db", map(v, ["1.0.0", "3.0.0", "2.0.0"])) == v("3.0.0")

    def test_error_shows_ranges_and_versions(self) -> None:
        """If nothing fits, the message shows both sides."""
        matrix = matrix_of(Compatibility("db", v("1.0.0"), v("2.0.0")), Compatibility("db", v("3.0.0")))
        expected = r"'db' satisfies '>=1\.0\.0 <=2\.0\.0 \|\| >=3\.0\.0'; available: 0\.9\.0, 0\.5\.0"
        with pytest.raises(InvalidVersionError, match=expected):
            matrix.negotiate("db", [v("0.5.0"), v("0.9.0")])

    def test_error_for_no_versions(self) -> None:
        """An empty offer is an error even for an unknown component."""
        with pytest.raises(InvalidVersionError, match="none is available"):
            CompatibilityMatrix().negotiate("db", [])


def test_threads_lose_nothing() -> None:
    """Ranges added by many threads, while others ask, are all there in the end."""
    matrix = CompatibilityMatrix()

    def work(number: int) -> None:
        version = Version(number, 0, 0)
        matrix.add(Compatibility("db", version, version, message=str(number)))
        assert matrix.check("db", version).messages == (str(number),)
        assert matrix.negotiate("db", [version]) == version

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(60)))
    assert len(matrix.check("db", Version(999, 0, 0)).messages) == 60

"""A program's value has the same JSON in the sandbox as on the host."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from toolexec import Exec
from toolexec.model.json_value import NotJSONError, to_json
from toolexec.runtime.guest.python import values

SETUP = """
import collections, dataclasses, datetime as dt, decimal, enum, fractions, ipaddress, pathlib, re, types, typing, uuid
@dataclasses.dataclass
class Point:
    x: object
    y: object = None
class Pair(typing.NamedTuple):
    a: object
    b: object
class Colour(enum.Enum):
    RED = "red"
    MIX = (1, 2)
    ONE = 1
class Level(enum.IntEnum):
    HIGH = 3
class Word(str, enum.Enum):
    YES = "yes"
class Text(str): pass
def zone(**offset): return dt.timezone(dt.timedelta(**offset))
def doubled(levels):
    value = 1
    for _ in range(levels): value = [value, value]
    return value
def nested(levels):
    value = 1
    for _ in range(levels): value = [value]
    return value
"""
EXPRESSIONS = r"""
[None, True, 2**80, -0.0, 1.5, "\u00fc\u2028", {"a": []}]
{"a": 1, 2: 3, None: 4, True: 5, 1.5: 6}
{1: 1, "1": 2}
{float("nan"): 1}
{b"x": 1}
{(1, 2): 1}
{Colour.RED: 1, Level.HIGH: 2, Word.YES: 3, Text("t"): 4, Colour.ONE: 5}
{dt.date(2026, 1, 2): 1, decimal.Decimal("1.10"): 2, uuid.UUID(int=1): 3, dt.timedelta(1): 4}
{dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc): 1}
[(1, (2,)), {3}, frozenset([3]), range(3), collections.deque([1]), {"a": 1}.keys(), {"a": 1}.values()]
[collections.OrderedDict(a=1), collections.Counter("aab"), collections.defaultdict(int, a=1)]
[Point(1, Point(b"x")), Pair(1, dt.timedelta(hours=1)), Colour.RED, Colour.MIX, Level.HIGH, Word.YES, Text("x")]
[dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3, 4), dt.datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=dt.timezone.utc)]
[dt.datetime(2026, 1, 2, tzinfo=zone(hours=2)), dt.datetime(2026, 1, 2, tzinfo=zone(hours=-5, minutes=-30))]
[dt.datetime(2026, 1, 2, tzinfo=zone(hours=0)), dt.time(3, 4), dt.time(3, 4, 5, 6), dt.time(1, 2, tzinfo=dt.timezone.utc)]
[dt.timedelta(0), dt.timedelta(1, 3), dt.timedelta(seconds=-3), dt.timedelta(-1, 3), dt.timedelta(microseconds=5)]
[dt.timedelta(hours=5, minutes=2, seconds=3.5), dt.timedelta(400), dt.timedelta(-400, 0, -1), dt.timedelta(365)]
[dt.timedelta.max, dt.timedelta.min, dt.timedelta(seconds=1.000001), dt.timedelta(minutes=10)]
[decimal.Decimal("1.10"), decimal.Decimal("1E+5"), fractions.Fraction(1, 3), fractions.Fraction(3, 1)]
[uuid.UUID(int=7), pathlib.PurePosixPath("/a/b"), b"text", bytearray(b"x"), b""]
[types.MappingProxyType({"a": 1}), collections.UserDict(a=1), collections.ChainMap({"a": 1}, {"b": 2}), {"a": 1}.items()]
[collections.UserList([1]), collections.UserString("u"), ipaddress.ip_address("::1"), ipaddress.ip_network("10.0.0.0/8")]
[re.compile("a+"), pathlib.PureWindowsPath("a", "b"), decimal.Decimal("NaN")]
{ipaddress.ip_address("10.0.0.1"): 1}
memoryview(b"x")
Exception("x")
iter([1])
b"\xff"
float("nan")
[float("-inf")]
object()
[1j]
print
(x for x in [1])
nested(120)
nested(121)
doubled(10)
doubled(40)
"""


ARRAYS = r"""
[np.int64(3), np.uint8(255), np.float32(0.5), np.float64(1.5), np.bool_(True), np.str_("x")]
[np.arange(3), np.eye(2), np.array([[1, 2], [3, 4]]), np.array(7), np.array([]), np.array(["a"]), np.array([True])]
[np.datetime64("2026-01-02"), np.datetime64("2026-01-02T03:04:05"), np.timedelta64(3, "s")]
{np.int64(3): 1, np.str_("x"): 2}
{np.float64(0.5): 1}
{"mean": np.mean([1, 2]), "rows": (np.int8(1), {np.int16(2)}), "date": np.array(["2026-01-02"], dtype="M8[D]")}
np.float64("nan")
np.array([1.0, np.inf])
np.complex64(1)
np.array([object()])
np.longdouble("1.5")
"""


def cases(text: str = EXPRESSIONS) -> list[str]:
    """The expressions, each of them one that Python can read."""
    found = text.strip().splitlines()
    for one in found:
        ast.parse(one, mode="eval")
    return found


def _read(expression: str) -> Any:
    names: dict[str, Any] = {}
    exec(SETUP, names)
    if "np." in expression:
        import numpy as np

        names["np"] = np
    return eval(expression, names)


def on_the_host(expression: str) -> Any:
    """The JSON of a value by `to_json`; None in a list if it has none."""
    try:
        return to_json(_read(expression))
    except NotJSONError:
        return ["refused"]


def by_the_guest(expression: str) -> Any:
    """The same by the guest's own converter, here."""
    try:
        return json.loads(values.to_text(_read(expression)))
    except values.NotJSONError:
        return ["refused"]


@pytest.mark.parametrize("expression", [*cases(), *cases(ARRAYS)])
def test_the_two_converters_agree(expression: str) -> None:
    """On what a value becomes, and on what is refused."""
    assert json.dumps(by_the_guest(expression)) == json.dumps(on_the_host(expression))


async def test_the_sandbox_agrees() -> None:
    """As the value of a program."""
    async with Exec() as ex:
        for expression in cases():
            result = await ex.execute_code(f"{SETUP}\nreturn {expression}", timeout=60)
            found = ["refused"] if result.error is not None else result.value
            assert result.error is None or result.error.code == "code_error", (expression, result.error)
            assert json.dumps(found) == json.dumps(on_the_host(expression)), expression

"""The documented list of modules is true: each can be imported, works, or says why not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolexec.runtime.wasm import stdlib


@pytest.mark.full
def test_importable(built: Any) -> None:
    """Every documented module can be imported, which asks the host for nothing; what is ready is there from the start."""
    asked: list[str] = []
    code = f"""
import importlib, sys
before, wrong = set(sys.modules), []
for name in {list(stdlib.STDLIB)!r}:
    try:
        importlib.import_module(name)
    except Exception as error:
        wrong.append([name, repr(error)])
for name in {list(stdlib.READY)!r}:
    if name not in before:
        wrong.append([name, "is loaded late"])
value = [wrong, "xml.dom" in before]
"""
    assert built.run(code, asked=asked) == [[], False]
    assert asked == []


def test_loaded_when_they_are_imported(built: Any) -> None:
    """A module that is not ready is like any other once it is imported, and its package leads to it before that."""
    code = """
import sys, xml, unittest, inspect
found = ["xml.dom" in sys.modules, xml.dom.minidom.parseString("<a/>").documentElement.tagName]
spec = xml.dom.minidom.__spec__
found += [spec.name, spec.origin == xml.dom.minidom.__file__, spec.loader.get_code("xml.dom.minidom") is not None]
found += [hasattr(xml, "none"), inspect.getmodule(xml.dom.minidom.parseString).__name__]
from email import mime
import email.mime.text
found += [mime.text is email.mime.text, email.__path__ != [], email.mime.text.__package__]
try:
    import xml.none
except ModuleNotFoundError as error:
    found.append(str(error))
value = found
"""
    assert built.run(code) == [
        False, "a", "xml.dom.minidom", True, True, False, "xml.dom.minidom", True, True, "email.mime",
        "No module named 'xml.none'",
    ]  # fmt: skip


def test_all_modules_of_the_library(built: Any) -> None:
    """Every module that Python itself imports somewhere in its library is there, private ones too."""
    code = """
import importlib
value = []
for name in ["_pydecimal", "_pyio", "email._header_value_parser", "json.tool", "encodings.cp437", "encodings.punycode",
             "importlib.metadata._adapters", "_pylong", "asyncio.graph"]:
    importlib.import_module(name)
"""
    assert built.run(code) == []


def test_unavailable(built: Any) -> None:
    """Every module that cannot be had gives its reason, as a ModuleNotFoundError with its name."""
    code = f"""
import importlib
value = {{}}
for name in {sorted(stdlib.UNAVAILABLE)!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        value[name] = [error.name, str(error)]
"""
    asked: list[str] = []
    expected = {
        name: [name, f"no module {name!r} in the sandbox: {reason}"] for name, reason in stdlib.UNAVAILABLE.items()
    }
    assert built.run(code, asked=asked) == expected
    assert asked == []


def test_nothing_is_left_out(built: Any) -> None:
    """Each public module of the standard library is in one of the two lists, and in one only."""
    known = set(built.run("import sys; value = sorted(n for n in sys.stdlib_module_names if not n.startswith('_'))"))
    tops = {name.partition(".")[0] for name in stdlib.STDLIB}
    assert known - tops - set(stdlib.UNAVAILABLE) == set()
    assert set(stdlib.STDLIB) & set(stdlib.UNAVAILABLE) == set()


def test_lists_are_tidy() -> None:
    """No name is listed twice, and what is limited can be imported."""
    assert len(stdlib.STDLIB) == len(set(stdlib.STDLIB))
    assert set(stdlib.LIMITED) <= set(stdlib.STDLIB)
    assert len(stdlib.READY) == len(set(stdlib.READY))
    assert {name for name in stdlib.READY if not name.startswith("_")} <= set(stdlib.STDLIB)


WORKING = {
    "json": ("import json; value = json.loads(json.dumps({'a': [1, None]}, indent=2))", {"a": [1, None]}),
    "re": ("import re; value = re.findall(r'\\d+', 'a1b22')", ["1", "22"]),
    "math": ("import math, cmath; value = [math.isqrt(17), cmath.sqrt(-4).imag]", [4, 2.0]),
    "statistics": ("import statistics; value = statistics.median([3, 1, 2])", 2),
    "datetime": ("import datetime; value = str(datetime.date(2026, 2, 28) + datetime.timedelta(1))", "2026-03-01"),
    "strptime": ("import datetime as d; value = d.datetime.strptime('2 Jan 2026', '%d %b %Y').isoformat()[:10]", "2026-01-02"),
    "calendar": ("import calendar; value = calendar.monthrange(2028, 2)[1]", 29),
    "csv": ("import csv, io; value = list(csv.DictReader(io.StringIO('a,b\\n1,2\\n')))", [{"a": "1", "b": "2"}]),
    "dataclasses": ("import dataclasses as d\n@d.dataclass\nclass P:\n    x: int\nvalue = d.asdict(P(1))", {"x": 1}),
    "decimal": ("from decimal import Decimal; value = str(Decimal('0.1') + Decimal('0.2'))", "0.3"),
    "fractions": ("from fractions import Fraction; value = str(Fraction(1, 3) * 2)", "2/3"),
    "collections": ("from collections import Counter; value = Counter('aab').most_common(1)", [["a", 2]]),
    "itertools": ("import itertools; value = list(itertools.batched('abc', 2))", [["a", "b"], ["c"]]),
    "functools": ("import functools; value = functools.reduce(int.__mul__, range(1, 6))", 120),
    "hashlib": ("import hashlib; value = [hashlib.new(n, b'').hexdigest()[:6] for n in ('md5', 'sha256', 'sha3_256')]", ["d41d8c", "e3b0c4", "a7ffc6"]),
    "hmac": ("import hmac; value = hmac.new(b'k', b'm', 'sha256').hexdigest()[:6]", "b60090"),
    "base64": ("import base64; value = base64.b64encode(b'abc').decode()", "YWJj"),
    "compression": ("import gzip, zlib; value = gzip.decompress(gzip.compress(b'x' * 9, mtime=0)).decode()", "x" * 9),
    "zipfile": ("import io, zipfile; b = io.BytesIO(); z = zipfile.ZipFile(b, 'w', zipfile.ZIP_DEFLATED); z.writestr(zipfile.ZipInfo('a'), 'b'); z.close(); value = zipfile.ZipFile(b).read('a').decode()", "b"),
    "tarfile": ("import io, tarfile; b = io.BytesIO(); t = tarfile.TarFile(fileobj=b, mode='w'); t.addfile(tarfile.TarInfo('a')); t.close(); b.seek(0); value = tarfile.open(fileobj=b).getnames()", ["a"]),
    "xml": ("import xml.etree.ElementTree as E; value = E.fromstring('<a b=\"1\"><c/></a>').find('c').tag", "c"),
    "minidom": ("import xml.dom.minidom as m; value = m.parseString('<a/>').documentElement.tagName", "a"),
    "html": ("import html, html.parser; value = html.unescape('&eacute;&lt;')", "é<"),
    "urllib": ("from urllib.parse import urlencode, urlsplit; value = [urlencode({'a': 'é'}), urlsplit('x://h/p').path]", ["a=%C3%A9", "/p"]),
    "sqlite3": ("import sqlite3; value = sqlite3.connect(':memory:').execute('select upper(?)', ['a']).fetchall()", [["A"]]),
    "tomllib": ("import tomllib; value = tomllib.loads('a = [1]')", {"a": [1]}),
    "configparser": ("import configparser as c; p = c.ConfigParser(); p.read_string('[a]\\nb=1'); value = p['a']['b']", "1"),
    "email": ("import email; value = email.message_from_string('Subject: =?utf-8?q?=C3=A9?=\\n\\nx', policy=__import__('email.policy').policy.default)['subject']", "é"),
    "difflib": ("import difflib; value = difflib.get_close_matches('appel', ['ape', 'apple'])[0]", "apple"),
    "textwrap": ("import textwrap; value = textwrap.wrap('aa bb cc', 5)", ["aa bb", "cc"]),
    "string": ("import string; value = string.Template('$a!').substitute(a=1)", "1!"),
    "t-strings": ("from string.templatelib import Template; x = 1; value = isinstance(t'{x}', Template)", True),
    "unicodedata": ("import unicodedata; value = unicodedata.name('é')", "LATIN SMALL LETTER E WITH ACUTE"),
    "struct": ("import struct; value = struct.unpack('<I', b'\\1\\0\\0\\0')", [1]),
    "pickle": ("import pickle; value = pickle.loads(pickle.dumps({'a': (1,)}))", {"a": [1]}),
    "ast": ("import ast; value = ast.unparse(ast.parse('x=1'))", "x = 1"),
    "inspect": ("import inspect; value = str(inspect.signature(lambda a, *, b=1: 0))", "(a, *, b=1)"),
    "big numbers": ("import sys; sys.set_int_max_str_digits(0); value = len(str(7 ** 20000))", 16902),
    "uuid": ("import uuid; value = str(uuid.uuid5(uuid.NAMESPACE_DNS, 'a'))[:8]", "4f3f2898"),
    "ipaddress": ("import ipaddress; value = ipaddress.ip_network('10.0.0.0/30').num_addresses", 4),
    "logging": ("import io, logging\ns = io.StringIO()\nlogging.getLogger('a').addHandler(logging.StreamHandler(s))\nlogging.lastResort = None\nvalue = logging.getLevelName(20)", "INFO"),
    "argparse": ("import argparse; p = argparse.ArgumentParser(prog='p'); p.add_argument('x', type=int); value = p.parse_args(['3']).x", 3),
    "unittest.mock": ("from unittest.mock import Mock; m = Mock(return_value=3); value = m(1)", 3),
    "threading": ("import threading\nwith threading.Lock():\n    value = threading.local().__class__.__name__", "_local"),
    "encodings": ("value = ['é€'.encode(n).hex() for n in ('cp1252', 'utf-16-le', 'iso8859-15')] + ['漢'.encode('shift_jis').hex()]", ["e980", "e900ac20", "e9a4", "8abf"]),
    "idna": ("value = 'bücher.example'.encode('idna').decode()", "xn--bcher-kva.example"),
    "zoneinfo": ("import datetime, zoneinfo; value = str(datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Paris')))", "2026-07-01 00:00:00+02:00"),
    "zones": ("import zoneinfo; names = zoneinfo.available_timezones(); value = len(names) > 500 and all(zoneinfo.ZoneInfo(n) for n in names)", True),
    "help": ("import pydoc; value = 'len(obj' in pydoc.plain(pydoc.render_doc(len))", True),
}  # fmt: skip


@pytest.mark.parametrize("name", WORKING)
def test_working(built: Any, name: str) -> None:
    """Common uses of these modules work, with nothing of the host."""
    code, expected = WORKING[name]
    assert built.run(code) == expected


LIMITS = {
    "threading": ("import threading; threading.Thread(target=print).start()", "can't start new thread"),
    "concurrent.futures": ("from concurrent.futures import ThreadPoolExecutor as T; T().submit(int)", "can't start new thread"),
    "subprocess": ("import subprocess; subprocess.run(['ls'])", "does not support processes"),
    "hashlib": ("import hashlib; hashlib.pbkdf2_hmac", "no attribute 'pbkdf2_hmac'"),
    "zipfile": ("import io, zipfile; zipfile.ZipFile(io.BytesIO(), 'w', zipfile.ZIP_LZMA)", "lzma"),
    "tarfile": ("import io, tarfile; tarfile.open(fileobj=io.BytesIO(), mode='w:xz')", "lzma"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_limited(built: Any, name: str) -> None:
    """Parts of a module that do not work fail with an ordinary exception."""
    code, text = LIMITS[name]
    assert name in stdlib.LIMITED
    wrapped = f"try:\n    {code}\nexcept Exception as error:\n    value = str(error)"
    assert text in json.dumps(built.run(wrapped))


def test_same_start_same_run(built: Any) -> None:
    """With the same random bytes two instances of one component are the same; nothing else of the world is in them."""
    code = "import logging, random; value = [logging._startTime, random.random(), hash('a')]"
    assert built.run(code) == built.run(code)

"""A large result behaves as the value that it stands for: a program gives the same value, and makes the same calls, with
a result budget of one byte as with one that everything fits."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from tests.tiers import missing

from toolexec import Exec
from toolexec.code.limits import Limits
from toolexec.model.declare import declare

PLENTY = 1 << 30
ROWS = [
    {"id": number, "name": f"row {number}", "tags": ["a", "b"][: number % 3], "at": {"x": number % 4, "y": None}}
    for number in range(30)
]
DOC = {
    "items": [{"id": number, "parts": [number, [number]]} for number in range(6)],
    "next": None,
    "text": "some words, more words",
    "count": 12,
    "ratio": 0.5,
    "ok": True,
    "empty": {},
    "none": [],
    'é\n"': "ü😀",
}
TEXT = "".join(f"line {number}: é😀\n" for number in range(40))

PYTHON = {
    "iteration": "for row in rows():\n    send(row['id'])\nreturn 'done'",
    "iteration twice": "r = rows()\nreturn [[x['id'] for x in r], [x['name'] for x in r]]",
    "early end": "for row in rows():\n    if row['id'] == 3:\n        break\n    send(row['id'])\nreturn row",
    "length": "r = rows()\nreturn [len(r), len(r[0]), len(r[1]['tags']), bool(r), len(doc()), len(text())]",
    "empty": "d = doc()\nreturn [bool(d['empty']), bool(d['none']), not d['none'], d['empty'] == {}, list(d['none']), d['none'] or 5]",
    "index": "r = rows()\nreturn [r[0], r[-1], r[len(r) - 1], r[-len(r)], r[7]['at']['x']]",
    "index errors": """
r, out = rows(), []
for key in (len(r), -len(r) - 1, 'x', 1.5, None):
    try:
        r[key]
    except Exception as error:
        out.append([type(error).__name__, str(error)])
return out""",
    "slices": "r = rows()\nreturn [r[:3], r[-2:], r[5:2:-1], r[::10], r[::-7], r[100:], r[:0], r[3:3], r[:], r[len(r):]]",
    "random access": "r = rows()\nreturn [r[i]['id'] for i in (20, 3, 21, 19, 0, 29, 4, 20)]",
    "membership": "r = rows()\nreturn [{'x': 1} in r, r[4] in r, 5 in [x['id'] for x in r], 'next' in doc(), 'nope' in doc(), 'words' in doc()['text'], None in r]",
    "unpacking": "a, b, *rest = rows()\nreturn [a['id'], b['id'], len(rest), [*rows()][3], max(*[x['id'] for x in rows()])]",
    "comprehensions": "return [{x['id']: x['name'] for x in rows() if x['tags']}, sum(x['id'] for x in rows()), sorted({t for x in rows() for t in x['tags']})]",
    "sorting": "r = rows()\nreturn [sorted(r, key=lambda x: -x['id'])[:2], sorted(x['name'] for x in r)[:4], max(r, key=lambda x: x['at']['x']), min(ids())]",
    "sort in place": "r = ids()\nr.sort(reverse=True)\nreturn [r[:3], sorted(r)[:3], sorted(ids()) == sorted(r)]",
    "builtins": "r = rows()\nreturn [list(enumerate(r))[2], list(zip(r, ids()))[1], any(x['id'] == 9 for x in r), all(r), list(map(len, r))[:3], list(filter(None, ids()))[:2], list(reversed(r))[0], tuple(r)[2], sum(ids())]",
    "reversed": "return [x['id'] for x in reversed(rows())]",
    "iterators": "import itertools\ni = iter(rows())\nreturn [next(i)['id'], next(i)['id'], [x['id'] for x in itertools.islice(i, 2)], list(itertools.chain(ids(), ids()))[-3:]]",
    "equality": "r, d = rows(), doc()\nreturn [r == rows(), r == list(r), list(r) == r, r != rows(), d == doc(), dict(d) == d, d == dict(d), r == [], [] == r, r[:2] == [r[0], r[1]], ids() < [5], [5] > ids(), text() == text()]",
    "identity": "r = rows()\nreturn [r[0] is r[0], r[-1] is r[len(r) - 1], doc() is doc(), [x is y for x, y in zip(r, r)][:3]]",
    "index and count": "r = ids()\nout = [r.index(5), r.count(5), rows().index(rows()[3])]\ntry:\n    r.index(99)\nexcept ValueError as error:\n    out.append(type(error).__name__)\nreturn out",
    "changes of items": "r = rows()\nr[0]['seen'] = True\nfor x in r:\n    x['n'] = x['id'] * 2\nr[2]['tags'].append('new')\nreturn [r[0], r[2], r[-1], seen(r), seen(r[2])]",
    "changes of lists": """
r = ids()
r.append(100)
r.extend([101, 102])
r.insert(0, -1)
r[1] = 'one'
r[2:4] = []
del r[5]
last = r.pop()
r.remove(100)
r.reverse()
r += [7]
r *= 1
return [r, last, len(r), seen(r)]""",
    "changes of dicts": """
d = doc()
d['new'] = 1
d.update(count=13)
d.setdefault('next', 5)
d.setdefault('more', [])
del d['ratio']
gone = d.pop('text')
d |= {'z': 1}
d['items'][1]['parts'].append(9)
return [d, gone, d.pop('nope', 'no'), seen(d), list(d), len(d)]""",
    "changes while it goes": "r, n = ids(), 0\nfor x in r:\n    n += 1\n    if x == 3 and n < 10:\n        r.append(50)\nreturn [n, r[-1]]",
    "clear": "r, d = rows(), doc()\nr.clear()\nd.clear()\nreturn [r, d, len(r), len(d), seen([r, d])]",
    "sums of lists": "r = ids()\nreturn [r + [1], [1] + r, r * 2, 2 * r, r + r, len(rows() + rows())]",
    "objects": "d = doc()\nreturn [d['count'], d.get('next'), d.get('nope'), d.get('nope', 5), d['items'][2]['parts'][1], d['é\\n\"']]",
    "object keys": "d = doc()\nreturn [list(d), list(d.keys()), sorted(d), [k for k in d], list(reversed(d)), sorted(d.keys() & {'next', 'x'})]",
    "object items": "d = doc()\nreturn [[[k, v] for k, v in d.items()], list(d.values()), len(d.items()), ('count', 12) in d.items()]",
    "missing key": "try:\n    doc()['nope']\nexcept KeyError as error:\n    return repr(error)",
    "object merges": "d = doc()\nreturn [{**d}, d | {'a': 1}, {'a': 1} | d, dict(d, a=2), dict(d), d.copy()]",
    "object as arguments": "def f(**kw):\n    return sorted(kw)\nreturn f(**doc()['items'][0])",
    "object formats": "d = doc()['items'][3]\nreturn ['%(id)s' % d, '{id} {parts}'.format(**d), '{id}'.format_map(d), f\"{d['parts']}\"]",
    "text of values": "return [repr(rows()[:2]), str(doc()), f'{ids()}', '%s' % ids(), '{}'.format(doc()['items'])]",
    "printing": "print(rows()[0], doc(), *ids())\nprint(text()[:9])",
    "pretty": "import pprint\nreturn [pprint.pformat(rows()), pprint.pformat(doc())]",
    "types": "r, d = rows(), doc()\nreturn [type(r).__name__, type(d).__name__, type(text()).__name__, type(r[0]).__name__, str(type(r)), type(r) == list, type(d) == dict, type(r) in (list, tuple), type(r) != list, type(r) == type(rows()), type(text()) is str]",
    "instances": "import collections.abc as c\nr, d = rows(), doc()\nreturn [isinstance(r, list), isinstance(d, dict), isinstance(text(), str), isinstance(r, c.Sequence), isinstance(d, c.Mapping), isinstance(r, dict), callable(r), issubclass(type(r), list), isinstance(r, (str, list))]",
    "patterns": """
match doc():
    case {'items': [first, *_], 'count': int(count), **rest}:
        return [first, count, sorted(rest)]""",
    "sequence pattern": "match ids():\n    case [a, b, *rest]:\n        return [a, b, len(rest)]",
    "json": "import json\nr, d = rows(), doc()\nreturn [json.dumps(r), json.dumps(d), json.dumps(d, sort_keys=True, indent=2), json.dumps({'a': [r, d]}, separators=(',', ':')), json.loads(json.dumps(d)) == d]",
    "json first": "import json\nreturn [json.dumps(doc()), json.dumps(doc()['empty']), json.dumps(doc()['none']), json.dumps([doc()]), json.dumps(ids())]",
    "copies": "import copy\nr = rows()\na, b = copy.copy(r), copy.deepcopy(r)\nr[0]['id'] = 'changed'\nreturn [a[0]['id'], b[0]['id'], type(a).__name__, copy.deepcopy(doc()) == doc(), copy.copy(doc()) == doc()]",
    "pickle": "import pickle\nreturn [pickle.loads(pickle.dumps(rows())) == rows(), pickle.loads(pickle.dumps(doc())) == doc()]",
    "not hashable": "try:\n    {rows(): 1}\nexcept TypeError as error:\n    return str(error)",
    "collections": "from collections import Counter, OrderedDict, ChainMap, deque, defaultdict\nd = defaultdict(list)\nfor x in rows():\n    d[x['at']['x']].append(x['id'])\nreturn [Counter(t for x in rows() for t in x['tags']), Counter(words()), OrderedDict(doc())['count'], ChainMap({}, doc())['count'], list(deque(ids(), 2)), d]",
    "functions of libraries": "import functools, statistics, heapq, bisect, random, operator, math\nr = ids()\nreturn [functools.reduce(operator.add, r), statistics.mean(r), heapq.nlargest(2, r), heapq.nsmallest(2, rows(), key=lambda x: x['name']), bisect.bisect(r, 4), math.fsum(r), random.Random(1).choice(r), random.Random(1).sample(r, 3), operator.itemgetter('count', 'next')(doc())]",
    "array": "import array\nreturn [list(array.array('i', ids())), list(bytes(ids())), list(bytearray(ids()))]",
    "csv": "import csv, io\nout = io.StringIO()\nw = csv.DictWriter(out, ['id', 'name'], extrasaction='ignore')\nw.writerows(rows())\nreturn out.getvalue()",
    "shuffle": "import random\nr = ids()\nrandom.Random(3).shuffle(r)\nreturn r",
    "strings": "t = text()\nreturn [t[:6], t[-5:], t[::50], t.upper()[:8], t.splitlines()[3], t.count('line'), t.find('line 7'), t.split()[:3], 'line 9' in t, t.startswith('line'), t.replace('line', 'x')[:9], t + '!', '<' + t, len(t), t.encode()[:4].decode(), hash(t) == hash(text()), {t: 1}[text()]]",
    "characters": "return [c for c in doc()['text']][:5] + [ord(doc()['text'][0])]",
    "text functions": "import re, json, textwrap\nt = text()\nreturn [re.findall(r'line (\\d+)', t), re.sub('[^0-9]', '', t), json.loads(number()), int(number()), textwrap.shorten(t, 30), ''.join(words()), ' '.join(sorted(words()))]",
    "text in a file": "open('out.txt', 'w').write(text())\nreturn open('out.txt').read() == text()",
    "argument": "return [seen(rows()), seen(doc()), seen(text()), seen({'a': [rows()[1], doc()['items']]}), seen(ids()[2:4])]",
    "argument after reading": "r = rows()\nx = [row['id'] for row in r]\nreturn [seen(r) == seen(rows()), seen(r[3]), seen([r, x])]",
    "argument of one item": "r = rows()\nfor row in r:\n    send(row['at'])\nreturn seen(r[5])",
    "result": "return rows()",
    "result object": "return {'rows': rows(), 'doc': doc(), 'text': text(), 'part': doc()['items'][1:3]}",
    "last expression": "doc()",
    "nested": "d = doc()\nreturn [[i['parts'][1][0] for i in d['items']], d['items'][-1]['parts'][-1]]",
    "await": "import asyncio\nr = await tools.kit.rows()\nxs = await asyncio.gather(*(tools.kit.send(x=row['id']) for row in r))\nreturn [xs, len(await tools.kit.doc()), (await tools.kit.text())[:4]]",
    "await arguments": "import asyncio\nasync def one():\n    return await tools.kit.seen(value=await tools.kit.rows())\nreturn await asyncio.gather(*(one() for _ in range(3)))",
    "not awaited": "import asyncio\nawait asyncio.sleep(0)\nr = tools.kit.rows()\nreturn [len(r), r[3]['id'], [x['id'] for x in r][:3]]",
    "chain": "return tools.run_chain([{'tool_id': 'kit:rows'}, {'tool_id': 'kit:previous', 'use_previous': True}])",
    "many results": "n = 0\nfor i in range(20):\n    n += len(rows()) + rows()[i]['id']\nreturn n",
    "data like a handle": "return [{'$handle': 'h7'}, seen({'$handle': 'h1'}), seen({'$handle': rows()[0]['name']})]",
    "generators": "def walk(v):\n    if isinstance(v, dict):\n        for k, x in v.items():\n            yield k\n            yield from walk(x)\n    elif isinstance(v, list):\n        for x in v:\n            yield from walk(x)\n    else:\n        yield v\nreturn list(walk(doc())) + list(walk(rows()))",
    "threads of names": "d = doc()\ne = d\ne['count'] = 99\nitems = d['items']\nitems.append('x')\nreturn [d['count'], d['items'][-1], len(items), d]",
    "dict in set operations": "d = doc()\nreturn sorted(set(d) - {'items'}) + sorted(d.keys() - ['next'])",
    "errors": "try:\n    doc().nope\nexcept AttributeError as error:\n    return str(error)",
    "multiplication": "try:\n    rows() + 5\nexcept TypeError as error:\n    return str(error)",
}  # fmt: skip
HEAD = """
def rows(): return tools.kit.rows()
def ids(): return tools.kit.ids()
def words(): return tools.kit.words()
def doc(): return tools.kit.doc()
def text(): return tools.kit.text()
def number(): return tools.kit.number()
def send(x): return tools.kit.send(x=x)
def seen(value): return tools.kit.seen(value=value)
"""
JS_QUICK = ("iteration", "random access", "changes of items", "object keys", "strings", "argument", "json first")
QUICK = ("iteration", "slices", "index errors", "changes of items", "object items", "strings", "argument", "await")


JAVASCRIPT = {
    "iteration": "for (const row of await rows()) await send(row.id);\nreturn 'done'",
    "early end": "const r = await rows();\nfor (const row of r) { if (row.id === 3) break; await send(row.id); }\nreturn r[3]",
    "length": "const r = await rows();\nreturn [r.length, r[0].tags.length, Object.keys(await doc()).length, (await text()).length, (await doc()).none.length]",
    "index": "const r = await rows();\nreturn [r[0], r.at(-1), r[r.length - 1], r[r.length] === undefined, r[-1] === undefined, r[7].at.x, '5' in r, 30 in r, r['5'].id]",
    "random access": "const r = await rows();\nreturn [20, 3, 21, 19, 0, 29, 4, 20].map((i) => r[i].id)",
    "slices": "const r = await ids();\nreturn [r.slice(0, 3), r.slice(-2), r.slice(5, 2), r.slice(), r.slice(100)]",
    "array methods": "const r = await rows();\nreturn [r.map((x) => x.id), r.filter((x) => x.tags.length).length, r.find((x) => x.id === 4).name, r.reduce((n, x) => n + x.id, 0), r.some((x) => x.id === 9), r.every((x) => x.name), r.flatMap((x) => x.tags).length, r.findIndex((x) => x.id === 7)]",
    "more array methods": "const r = await ids();\nreturn [r.includes(5), r.indexOf(7), r.lastIndexOf(7), r.join('-'), r.concat([1], r).length, [0].concat(r).length, r.toSorted((a, b) => b - a)[0], [...r.entries()][2], [...r.keys()].length, r.flat().length, r.toString()]",
    "spread": "const r = await ids(); const d = await doc();\nreturn [[...r], Math.max(...r), { ...d }, Array.from(r, (x) => x * 2), new Set(r).size, Object.fromEntries(Object.entries(d)).count]",
    "destructuring": "const [a, b, ...rest] = await rows(); const { items: [first], count, ...others } = await doc();\nreturn [a, b.id, rest.length, first, count, Object.keys(others)]",
    "changes of arrays": "const r = await ids(); r.push(1); r.unshift(0); r[2] = 'x'; r.splice(4, 2); r.reverse(); const last = r.pop(); r.length = 6; r.sort(); delete r[1];\nreturn [r.length, last, r.filter((x) => x !== undefined), await seen(r.slice(2))]",
    "changes of items": "const r = await rows(); r[0].seen = true; for (const x of r) x.n = x.id * 2; r[2].tags.push('new');\nreturn [r[0], r[2], r.at(-1), await seen(r), await seen(r[2])]",
    "changes of objects": "const d = await doc(); d.added = 1; d.count += 1; delete d.ratio; d.items[1].parts.push(9); Object.assign(d, { z: 1 });\nreturn [d, Object.keys(d), await seen(d), 'ratio' in d]",
    "objects": "const d = await doc();\nreturn [d.count, d.next, d.nope === undefined, d['é\\n\"'], d.items[2].parts[1][0], 'next' in d, 'nope' in d, d.hasOwnProperty('ok'), Object.hasOwn(d, 'ok'), d.nope?.deeper === undefined]",
    "object keys": "const d = await doc(); const out = []; for (const key in d) out.push(key);\nreturn [out, Object.keys(d), Object.values(d), Object.entries(d), Object.getOwnPropertyNames(d)]",
    "types": "const r = await rows(); const d = await doc();\nreturn [Array.isArray(r), Array.isArray(d), typeof r, typeof d, typeof (await text()), r instanceof Array, d instanceof Object, r.constructor === Array, Object.prototype.toString.call(r), Array.isArray(d.items), String(d)]",
    "json": "const r = await rows(); const d = await doc();\nreturn [JSON.stringify(r), JSON.stringify(d), JSON.stringify({ a: [r[1], d] }, null, 2), JSON.parse(JSON.stringify(d))]",
    "json first": "return [JSON.stringify(await doc()), JSON.stringify(await rows()), `${await ids()}`]",
    "identity": "const r = await rows();\nreturn [r[0] === r[0], r.at(-1) === r[29], r.includes(r[3]), r.indexOf(r[4])]",
    "printing": "console.log(await rows(), await doc()); console.log((await ids()).slice(0, 3)); console.log(await text());",
    "strings": "const t = await text();\nreturn [t.slice(0, 6), t.toUpperCase().slice(0, 8), t.split('\\n').length, t.includes('line 9'), t.replace('line', 'x').slice(0, 5), [...t].length, t.length, t + '!', t === (await text()), t.match(/line \\d+/g), JSON.parse(await number()), Number(await number())]",
    "argument": "return [await seen(await rows()), await seen(await doc()), await seen(await text()), await seen({ a: [(await rows())[1], (await doc()).items] })]",
    "argument after reading": "const r = await rows(); const x = r.map((row) => row.id);\nreturn [(await seen(r)) === (await seen(await rows())), await seen(r[3]), await seen([r, x])]",
    "result": "return await rows()",
    "result object": "return { rows: await rows(), doc: await doc(), text: await text(), part: (await doc()).items.slice(1, 3) }",
    "last expression": "await doc()",
    "at the same time": "const all = await Promise.all([rows(), doc(), text(), ids(), rows()]);\nreturn [all[0][3], all[1].count, all[2].length, all[3].length, all[4][29].id, await Promise.all(all[4].map((row) => send(row.id)))]",
    "chain": "return await tools.runChain([{ toolId: 'kit:rows' }, { toolId: 'kit:previous', usePrevious: true }])",
    "many results": "let n = 0; for (let i = 0; i < 20; i++) n += (await rows()).length + (await rows())[i].id;\nreturn n",
    "map and set": "const r = await rows();\nreturn [[...new Map(r.map((x) => [x.id, x.name]))][3], Object.groupBy ? 1 : 1, [...new Set(r.flatMap((x) => x.tags))]]",
    "walk": "const walk = (v) => Array.isArray(v) ? v.flatMap(walk) : v !== null && typeof v === 'object' ? Object.entries(v).flatMap(([k, x]) => [k, ...walk(x)]) : [v];\nreturn [...walk(await doc()), ...walk(await rows())]",
    "data like a handle": "return [{ $handle: 'h7' }, await seen({ $handle: 'h1' })]",
    "empty": "const d = await doc(); d.none.push(1); d.empty.x = 1;\nreturn [d.none, d.empty, await seen(d)]",
}  # fmt: skip
JS_HEAD = """
const rows = () => tools.kit.rows(), ids = () => tools.kit.ids(), words = () => tools.kit.words();
const doc = () => tools.kit.doc(), text = () => tools.kit.text(), number = () => tools.kit.number();
const send = (x) => tools.kit.send({ x }), seen = (value) => tools.kit.seen({ value });
"""


class Kit:
    """Tools with results of all shapes, and what they were called with."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def add_to(self, ex: Exec) -> None:
        """Add them all."""
        for name in ("rows", "ids", "words", "doc", "text", "number", "send", "seen", "previous"):
            ex.add(declare(getattr(self, name), f"kit:{name}"))

    def rows(self) -> list[dict[str, Any]]:
        """Give rows."""
        return self._counted("rows", json.loads(json.dumps(ROWS)))

    async def ids(self) -> list[int]:
        """Give numbers."""
        return self._counted("ids", [*range(12), 100])

    def words(self) -> list[str]:
        """Give words."""
        return self._counted("words", ["b", "ab", "c", "ab"])

    async def doc(self) -> dict[str, Any]:
        """Give an object."""
        return self._counted("doc", json.loads(json.dumps(DOC)))

    def text(self) -> str:
        """Give a text."""
        return self._counted("text", TEXT)

    def number(self) -> str:
        """Give digits."""
        return self._counted("number", "123456")

    def send(self, x: Any) -> Any:
        """Do something that one does not want done twice."""
        return self._counted(f"send {json.dumps(x)}", x)

    async def seen(self, value: Any) -> str:
        """Tell what arrives."""
        return self._counted("seen", json.dumps(value))

    def previous(self, previous: list[Any]) -> list[Any]:
        """Give the end of what the step before gave."""
        return self._counted("previous", previous[-3:])

    def _counted(self, call: str, value: Any) -> Any:
        self.calls.append(call)
        return value


class Pair:
    """The same tools twice: with a budget of one byte, and with plenty."""

    def __init__(self, **settings: Any) -> None:
        self.runner = asyncio.Runner()
        self.settings = settings
        self.kits = [Kit(), Kit()]
        limits = Limits(max_tool_calls=500)
        self.execs = [
            Exec(result_bytes=budget, code_limits=limits, max_tool_calls=500, unsafe_opt_in=True, default_timeout=60)
            for budget in (1, PLENTY)
        ]
        for ex, kit in zip(self.execs, self.kits, strict=True):
            kit.add_to(ex)
        self.run("1")  # what this starts stays until `close`, and is no leak of the first test

    def run(self, code: str) -> list[dict[str, Any]]:
        """Run a program in both, and return the result."""
        return self.runner.run(self._run(code))

    async def _run(self, code: str) -> list[dict[str, Any]]:
        outcomes: list[dict[str, Any]] = []
        for ex, kit in zip(self.execs, self.kits, strict=True):
            kit.calls.clear()
            result = await ex.execute_code(code, **self.settings)
            error = str(result.error) if result.error is not None else None
            outcomes.append({"value": result.value, "error": error, "stdout": result.stdout, "calls": [*kit.calls]})
        return outcomes

    def close(self) -> None:
        """Close both."""
        for ex in self.execs:
            self.runner.run(ex.aclose())
        self.runner.close()

    def check(self, code: str) -> None:
        """Raise AssertionError unless the program does the same in both, and does not fail."""
        small, plenty = self.run(code)
        if "gather" in code or "Promise.all" in code:  # calls at the same time come in any order
            for outcome in (small, plenty):
                outcome["calls"].sort()
        assert small == plenty
        assert plenty["error"] is None


@pytest.fixture(scope="module")
def python() -> Iterator[Pair]:
    """Python in the embedded sandbox."""
    pair = Pair()
    yield pair
    pair.close()


@pytest.fixture(scope="module")
def javascript() -> Iterator[Pair]:
    """JavaScript in the embedded sandbox."""
    pytest.importorskip("quickjs_rs")
    pair = Pair(language="javascript")
    yield pair
    pair.close()


@pytest.mark.full
@pytest.mark.parametrize("name", JS_QUICK)
def test_javascript_programs(name: str, javascript: Pair) -> None:
    """A program does the same whatever the budget."""
    javascript.check(JS_HEAD + JAVASCRIPT[name])


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in JAVASCRIPT if name not in JS_QUICK])
def test_more_javascript_programs(name: str, javascript: Pair) -> None:
    """Every other program of the corpus does the same, too."""
    javascript.check(JS_HEAD + JAVASCRIPT[name])


@pytest.mark.full
def test_javascript_programs_in_a_process() -> None:
    """All of them do the same in Node.js."""
    if shutil.which("node") is None:
        missing("node is not installed", "bash .ci/run")
    pair = Pair(profile="dev", language="javascript")
    try:
        for code in JAVASCRIPT.values():
            pair.check(JS_HEAD + code)
    finally:
        pair.close()


@pytest.mark.full
@pytest.mark.parametrize("name", QUICK)
def test_python_programs(name: str, python: Pair) -> None:
    """A program does the same whatever the budget."""
    python.check(HEAD + PYTHON[name])


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in PYTHON if name not in QUICK])
def test_more_python_programs(name: str, python: Pair) -> None:
    """Every other program of the corpus does the same, too."""
    python.check(HEAD + PYTHON[name])


@pytest.mark.full
def test_python_programs_in_a_process() -> None:
    """All of them do the same in the Python of this machine."""
    pair = Pair(profile="dev")
    try:
        for code in PYTHON.values():
            pair.check(HEAD + code)
    finally:
        pair.close()


async def test_results_of_earlier_runs_of_a_session() -> None:
    """A result stays what it is: a later run reads it, and a new result never answers for an old one."""
    kit = Kit()
    async with Exec(result_bytes=1) as ex:
        kit.add_to(ex)
        async with ex.session() as session:
            await session.execute_code("old = tools.kit.rows()")
            await session.execute_code("new = tools.kit.doc()")
            result = await session.execute_code("[old[3], len(old), new['count'], tools.kit.seen(value=old[:2]), old]")
            assert result.raise_for_error().value == [ROWS[3], 30, 12, json.dumps(ROWS[:2]), ROWS]


async def test_what_a_program_drops_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may get far more in all than the host keeps for it at once (100,000 bytes here)."""
    monkeypatch.setattr("toolexec.code.handles._MAX_KEPT", 100_000)
    kit = Kit()
    async with Exec(result_bytes=1, max_tool_calls=500) as ex:
        kit.add_to(ex)
        result = await ex.execute_code("n = 0\nfor _ in range(200):\n    n += len(tools.kit.rows())\nreturn n")
        assert result.raise_for_error().value == 6000

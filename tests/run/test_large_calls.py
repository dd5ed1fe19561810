"""Calls with many values in their arguments or results leave the event loop to others."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from hashlib import blake2s
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.waiting import until

from toolexec import Exec, Gate, Policy, Rule, Step, Tool, tool
from toolexec.errors import InputValidationError, Outcome, PolicyError
from toolexec.model.json_value import NotJSONError, to_json
from toolexec.model.redaction import Redactor
from toolexec.model.tree_size import MANY, has_many
from toolexec.run.audit import AuditLog
from toolexec.run.audit.record import args_digest, redacted_args
from toolexec.run.layer import Layer
from toolexec.run.layers.approval import Approval
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.budget import Budget
from toolexec.run.layers.cache import Cache
from toolexec.run.layers.ledger import Ledger
from toolexec.run.results import ResultStore
from toolexec.run.types import Result
from toolexec.testing import loop_not_held

ROWS: Any = [[number % 10, 2, 3, 4, 5, True] for number in range(20_000)] + [{"a": 1, "b": "x"}] * 2000
OWN: Any = json.loads(json.dumps(ROWS))  # no part is in it twice
SOME: Any = OWN[:3000]  # enough to be walked elsewhere


def taken(rows: list[Any]) -> int:
    """Take them."""
    return len(rows)


def given() -> Any:
    """Give many."""
    return {"rows": OWN}


def gated(directory: Path, args: Literal["digest", "redacted"]) -> Gate:
    """A gate whose rules look at the arguments."""
    rules = [
        Rule("deny", tools="kit:take", when={"rows[5]": {"exists": False}}),
        Rule("allow", tools="*"),
        Rule("allow", runs="chain"),
    ]
    return Gate(audit=Audit(AuditLog.open(directory / "audit.jsonl", args=args)), policy=Policy(rules))


@pytest.mark.untraced  # the CPU time of a tracer is not the loop's
class TestLoop:
    """Whatever walks them does so elsewhere."""

    @pytest.mark.parametrize("kind", ["no gate", "digest", "redacted"])
    async def test_arguments_and_results(self, tmp_path: Path, kind: Any) -> None:
        """120,000 values go in and come out, alone and in chains; the loop is not held."""
        async with Exec(gate=None if kind == "no gate" else gated(tmp_path, kind)) as ex:
            ex.add(taken, "kit:take")
            ex.add(given, "kit:give")
            await ex.run_tool("kit:take", {"rows": [0] * 6})  # what is compiled once
            steps = [{"tool": "kit:give"}, {"tool": "kit:take", "args": {"rows": {"$ref": "steps.0.rows"}}}]
            async with loop_not_held():
                assert (await ex.run_tool("kit:take", {"rows": OWN})).value == len(OWN)
            async with loop_not_held():
                result = await ex.run_tool("kit:give")
            async with loop_not_held():
                chain = await ex.run_chain(steps)
            async with loop_not_held():
                assert (await ex.run_chain([{"tool": "kit:take", "args": {"rows": OWN}}])).value == len(OWN)
        assert chain.value == len(OWN)
        assert result.value == {"rows": OWN}
        assert result.value["rows"] is not OWN

    async def test_long_strings(self, tmp_path: Path) -> None:
        """A record of 2 MB of text begins with it, and does not look for secrets in the rest."""
        async with Exec(gate=gated(tmp_path, "redacted")) as ex:
            ex.add(taken, "kit:take")
            async with loop_not_held():
                await ex.run_tool("kit:take", {"rows": ["two words "] * 5 + ["hello world " * 200_000]})


class Walks:
    """The walks over many values in a test: by name, whether each was off the event loop."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: dict[str, set[bool]] = {}
        self.count: Counter[str] = Counter()
        for name in WALKS:
            module, _, function = name.rpartition(".")
            owner: Any = Redactor if module == "Redactor" else import_module(module)
            patch.setattr(owner, function, self._watched(name, getattr(owner, function)))

    def _watched(self, name: str, walk: Any) -> Any:
        def watched(*args: Any, **more: Any) -> Any:
            if any(map(has_many, args)):
                self.seen.setdefault(name, set()).add(threading.current_thread() is not threading.main_thread())
            made = walk(*args, **more)
            self.count[name] += any(map(has_many, args))
            return made

        return watched


WALKS = (
    "toolexec.run.approval_requests.canonical",
    "toolexec.run.layers.approval.to_json",
    "Redactor.value",
    "toolexec.run.layers.ledger.canonical",
    "toolexec.run.layers.cache.canonical_text",
    "copy.deepcopy",
    "toolexec.run.results.json_pieces",
    "toolexec.run.door.own_parts",
    "toolexec.run.resolve.are_same",
)
WHOLE = {"rows": OWN}


class TestWhereTheyAreWalked:
    """No part of a gate walks many values on the event loop."""

    async def made(self, gate: Gate, *tools: Any, args: Any, **options: Any) -> Result:
        """The result of a call of the first tool."""
        async with Exec(gate=gate, **options) as ex:
            for each in tools:
                ex.add(each)
            return await ex.run_tool(tools[0].tool.id, args)

    @pytest.fixture
    def walks(self, monkeypatch: pytest.MonkeyPatch) -> Walks:
        """What walked, and where."""
        return Walks(monkeypatch)

    async def test_an_approval(self, walks: Walks) -> None:
        """Arguments are copied, digested and looked through for secrets elsewhere, before and after the answer."""
        policy = Policy([Rule("ask", tools="*")])
        gate = Gate(policy=policy, approval=Approval(policy.decide, ask=lambda _: "once"))
        assert (await self.made(gate, tool("kit:take")(taken), args=WHOLE)).value == len(OWN)
        names = ("approval_requests.canonical", "layers.approval.to_json", "Redactor.value", "door.own_parts")
        self.were_elsewhere(walks, *names)

    async def test_the_approval_of_a_run(self, walks: Walks) -> None:
        """The arguments of a chain are looked through elsewhere, too."""
        policy = Policy([Rule("allow", tools="*"), Rule("ask", runs="chain")])
        gate = Gate(policy=policy, approval=Approval(policy.decide, ask=lambda _: "once"))
        async with Exec(gate=gate) as ex:
            ex.add(taken, "kit:take")
            assert (await ex.run_chain([{"tool": "kit:take", "args": WHOLE}])).value == len(OWN)
        self.were_elsewhere(walks, "Redactor.value")

    async def test_the_ledger(self, walks: Walks, tmp_path: Path) -> None:
        """The digest by which equal calls are found is made elsewhere."""
        ledger = Ledger(tmp_path / "effects.db")
        try:
            assert (await self.made(Gate(ledger=ledger), tool("kit:take")(taken), args=WHOLE)).value == len(OWN)
        finally:
            ledger.close()
        self.were_elsewhere(walks, "ledger.canonical")

    async def test_the_cache(self, walks: Walks) -> None:
        """The key is made elsewhere, and so is the copy for a second caller of what is too large to be kept."""
        going = asyncio.Event()

        @tool("kit:echo", read_only=True)
        async def echo(rows: Any) -> Any:
            """Give back."""
            await going.wait()
            return rows

        async with Exec(gate=Gate(cache=Cache(max_entry_bytes=1000))) as ex:
            ex.add(echo)
            calls = [asyncio.create_task(ex.run_tool("kit:echo", WHOLE)) for _ in range(2)]
            await until(lambda: walks.count["toolexec.run.layers.cache.canonical_text"] == 2)
            going.set()
            first, second = [await call for call in calls]
        assert first.value == second.value == OWN
        assert first.value is not second.value
        self.were_elsewhere(walks, "cache.canonical_text")

    async def test_the_budget(self, walks: Walks) -> None:
        """A result that is over the budget is written elsewhere."""
        result = await self.made(Gate(budget=Budget(ResultStore())), tool("kit:give")(given), args={})
        assert result.handle
        self.were_elsewhere(walks, "results.json_pieces")

    async def test_layers_of_the_user(self, walks: Walks) -> None:
        """The copy by which a change after the rules is found is made and compared elsewhere."""
        assert (await self.made(Gate(), tool("kit:take")(taken), args=WHOLE, layers=[Layer])).value == len(OWN)
        self.were_elsewhere(walks, "door.own_parts", "resolve.are_same")

    def were_elsewhere(self, walks: Walks, *names: str) -> None:
        """All walks were off the loop, and these are among them."""
        assert {name for name, off in walks.seen.items() if off != {True}} == set()
        assert {name for name in names if not any(seen.endswith(name) for seen in walks.seen)} == set()


async def test_a_time_limit_that_passes_during_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool was not called, and the error says so."""

    async def never(walk: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("toolexec.run.runner.walked", never)
    async with Exec() as ex:
        ex.add(taken, "kit:take")
        result = await ex.run_tool("kit:take", {"rows": OWN}, timeout=0.01)
    assert result.outcome is Outcome.NOT_SENT
    assert "its arguments to be checked" in str(result.error)


class TestSameAsSmall:
    """What is done elsewhere comes to the same."""

    async def test_a_rule_holds(self, tmp_path: Path) -> None:
        """A condition on many values is decided, and refuses."""
        async with Exec(gate=gated(tmp_path, "digest")) as ex:
            ex.add(lambda rows: 1 / 0, "kit:take")
            with pytest.raises(PolicyError):
                await ex.run_tool("kit:take", {"rows": [SOME]})

    async def test_the_schema_holds(self) -> None:
        """Arguments that do not fit are refused, and nothing is called."""
        async with Exec() as ex:
            ex.add(taken, "kit:take")
            with pytest.raises(InputValidationError, match="rows"):
                await ex.run_tool("kit:take", {"rows": {str(number): [] for number in range(MANY + 1)}})

    @pytest.mark.parametrize("large", [SOME, {"a": SOME, "b": 1}, dict.fromkeys(map(str, range(MANY + 1)), "x")])
    def test_a_copy_in_slices(self, large: Any) -> None:
        """The copy is equal and shares nothing."""
        assert has_many(large)
        own = to_json(large)
        assert own == large
        assert own is not large

    @pytest.mark.parametrize("odd", [float("nan"), "\ud800", {"\ud800": 1}, object(), {1j: 2}], ids=range(5))
    def test_what_is_not_json_in_a_large_value(self, odd: Any) -> None:
        """Its place is reported."""
        with pytest.raises(NotJSONError) as refused:
            to_json({"rows": [*SOME, [odd]]})
        assert refused.value.violations[0].path.startswith(f"/rows/{len(SOME)}/0")

    @pytest.mark.parametrize("large", [{"rows": SOME}, {"b": SOME, "a": {str(n): n for n in range(MANY + 1)}}])
    def test_the_digest_of_many_values(self, large: Any) -> None:
        """The digest is that of the whole text, with keys in order."""
        whole = json.dumps(large, sort_keys=True, separators=(",", ":")).encode()
        assert args_digest(large, b"key") == blake2s(whole, key=b"key").hexdigest()


class TestRedactedBeginning:
    """A record has the beginning of large arguments, and no secret."""

    def kept(self, args: Any, *known: str) -> str:
        redact = Redactor()
        redact.add(*known)
        record = json.loads(redacted_args(args, redact, None))
        assert record["left_out"]
        assert len(record["start"]) <= 1024
        return record["start"]

    def test_it_begins_like_the_arguments(self) -> None:
        """The first values are there in their order."""
        assert self.kept({"rows": OWN}).startswith('{"rows":[[0,2,3,4,5,true],[1,2,3')

    def test_what_is_secret_by_a_key_that_comes_later(self) -> None:
        """The name beside a value counts wherever it stands."""
        many = {f"k{number}": [] for number in range(3000)}
        assert "hunter22" not in self.kept({"value": "hunter22", **many, "name": "password"})

    def test_a_secret_at_the_cut(self) -> None:
        """Half a secret is not known as one, so nothing of such a text is shown."""
        secret = "swordfish-swordfish-swordfish"
        text = (secret * 4000)[: (1 << 16) - 10] + secret + "x" * 1000
        kept = self.kept({"text": text}, secret)
        assert "sword" not in kept


@pytest.mark.parametrize("kind", ["arguments", "result", "chain"])
async def test_an_object_of_many_names_is_walked_elsewhere(kind: str) -> None:
    """Nothing is nested in it, and yet it is too much for the loop, which turns meanwhile; a short one is not."""

    async def answer(args: dict[str, Any]) -> Any:
        return wide if kind == "result" else len(args)

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Exec() as ex:
        output = {"type": "object"} if kind == "result" else None
        ex.add(Tool(name="t", namespace="kit", input_schema={"type": "object"}, output_schema=output), handler=answer)
        for many in (10, MANY + 1):
            wide, turns = {f"k{number}": number for number in range(many)}, 0
            args = {} if kind == "result" else wide
            turning = asyncio.create_task(turn())
            if kind == "chain":
                value = (await ex.run_chain([Step("kit:t", args)])).value
            else:
                value = (await ex.run_tool("kit:t", args)).value
            turning.cancel()
            assert value == (wide if kind == "result" else many)
            assert (turns > 0) is (many > MANY)

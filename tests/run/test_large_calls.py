"""Calls with many values in their arguments or results leave the event loop to others."""

from __future__ import annotations

import asyncio
import json
from hashlib import blake2s
from pathlib import Path
from typing import Any, Literal

import pytest

from toolexec import Exec, Gate, Policy, Rule
from toolexec.errors import InputValidationError, Outcome, PolicyError
from toolexec.model.json_value import NotJSONError, to_json
from toolexec.model.redaction import Redactor
from toolexec.model.tree_size import MANY, has_many
from toolexec.run.audit import AuditLog
from toolexec.run.audit.record import args_digest, redacted_args
from toolexec.run.layers.audit import Audit
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


@pytest.mark.no_cover  # the CPU time of a tracer is not the loop's
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

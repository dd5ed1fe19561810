"""What the server gets to see of runs: payloads that are encrypted, compressed and kept elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload

from toolexec import Exec
from toolexec.errors import ConfigurationError, JournalError, RunError
from toolexec_temporal import TemporalEngine, TemporalSettings
from toolexec_temporal.codec import codec_of

KEY = "a secret of more than sixteen characters"


def _payload(data: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("key", ["", KEY])
async def test_payloads_come_back_as_they_were(size: int, key: str, tmp_path: Path) -> None:
    """Small and large ones, encrypted or not."""
    codec = codec_of(TemporalSettings(key=key, large_directory=tmp_path, large_bytes=50))
    given = _payload(json.dumps("x" * size).encode())
    [packed] = await codec.encode([given])
    assert len(packed.data) < 200
    assert await codec.decode([packed]) == [given]


async def test_nothing_is_readable_with_a_key(tmp_path: Path) -> None:
    """Neither in the payload nor in the files."""
    codec = codec_of(TemporalSettings(key=KEY, large_directory=tmp_path, large_bytes=50))
    [packed] = await codec.encode([_payload(b'"the secret word is swordfish"')])
    assert b"swordfish" not in packed.SerializeToString()
    [file] = tmp_path.iterdir()
    assert b"swordfish" not in file.read_bytes()


async def test_old_keys_are_still_read() -> None:
    """A payload of an older key is read with `old_keys`, and with the new key alone it is not."""
    old = TemporalSettings(key=KEY)
    [packed] = await codec_of(old).encode([_payload(b"1")])
    new = TemporalSettings(key="another secret, long enough", old_keys=[KEY])
    assert (await codec_of(new).decode([packed]))[0].data == b"1"
    with pytest.raises(JournalError, match="old_keys"):
        await codec_of(replace(new, old_keys=[])).decode([packed])


@pytest.mark.parametrize("size", [1, 100_000])
async def test_a_payload_in_plain_text_is_refused_where_there_is_a_key(size: int, tmp_path: Path) -> None:
    """Refuse answers that a client of the server has made up, also compressed and as a file."""
    plain = TemporalSettings(large_directory=tmp_path, large_bytes=50)
    [packed] = await codec_of(plain).encode([_payload(b"1" * size)])
    with pytest.raises(JournalError, match="not encrypted"):
        await codec_of(replace(plain, key=KEY)).decode([packed])


async def test_a_changed_payload_is_refused(tmp_path: Path) -> None:
    """One bit is enough; so is a file that was changed or is gone."""
    codec = codec_of(TemporalSettings(key=KEY, large_directory=tmp_path, large_bytes=1000))
    [packed] = await codec.encode([_payload(b"1")])
    packed.data = packed.data[:-1] + bytes([packed.data[-1] ^ 1])
    with pytest.raises(JournalError, match="was changed"):
        await codec.decode([packed])
    plain = codec_of(TemporalSettings(large_directory=tmp_path, large_bytes=1))
    [large] = await plain.encode([_payload(b"12345")])
    [file] = tmp_path.iterdir()
    file.write_bytes(b"other")
    with pytest.raises(JournalError, match="was changed"):
        await plain.decode([large])
    file.unlink()
    with pytest.raises(JournalError, match="cannot be read"):
        await plain.decode([large])


def test_a_short_key_is_refused() -> None:
    """A key of a few characters protects nothing."""
    with pytest.raises(ConfigurationError, match="16 characters"):
        TemporalSettings(key="short")


async def test_the_history_of_an_encrypted_run_says_nothing(settings: TemporalSettings, tmp_path: Path) -> None:
    """Arguments, results, failures and signals of a run with a key are not in its history, nor in the files."""
    settings = replace(settings, key=KEY, large_directory=tmp_path, large_bytes=2000)
    engine = TemporalEngine(settings)
    ex = Exec(journal=engine)
    ex.add(lambda text: [text.upper(), *(str(n * 7919 % 104729) for n in range(3000))], "t:shout")

    @ex.add
    def fail(text: str) -> None:
        """Fails with its argument."""
        raise ValueError(f"no {text} here")

    async with ex, ex.worker():
        steps = [
            {"tool": "t:shout", "args": {"text": "swordfish"}},
            {"tool": fail.id, "args": {"text": "swordfish"}, "stop_on_error": False},
            {"tool": "run:signal", "args": {"name": "go"}},
        ]
        waiting = await ex.run_chain(steps, durable="secret")
        assert waiting.error is not None
        assert waiting.error.code == "run_waiting"
        await ex.runs.signal("secret", "go", "swordfish")
        result = await ex.runs.resume("secret")
        assert result.value == "swordfish"
        assert [step.ok for step in result.steps] == [True, False, True]
        client = await engine.client()
        history = await client.get_workflow_handle(f"{settings.prefix}secret").fetch_history()
    seen = b"".join(event.SerializeToString() for event in history.events).lower()
    assert len(history.events) > 10
    assert b"swordfish" not in seen
    assert [*tmp_path.iterdir()]
    assert all(b"swordfish" not in file.read_bytes().lower() for file in tmp_path.iterdir())


async def test_a_large_value_goes_through(settings: TemporalSettings, tmp_path: Path) -> None:
    """A value of 8 MiB that does not compress is kept as a file, and the run has it exactly."""
    settings = replace(settings, large_directory=tmp_path, large_bytes=10_000)
    ex = Exec(journal=TemporalEngine(settings))
    value = "".join(chr(0x4E00 + (n * 7919) % 20_000) for n in range(2_800_000))
    ex.add(lambda: value, "t:large")
    ex.add(lambda text: len(text), "t:size")
    async with ex, ex.worker():
        steps = [{"tool": "t:large"}, {"tool": "t:size", "args": {"text": {"$ref": "steps.0"}}}]
        result = await ex.run_chain(steps, durable="large")
    assert result.raise_for_error().value == len(value)


async def test_a_value_that_is_too_large_is_the_calls_failure(settings: TemporalSettings) -> None:
    """Without a place for large values, the call fails and says what to set; the run goes on."""
    ex = Exec(journal=TemporalEngine(settings))
    ex.add(lambda: "".join(chr(0x4E00 + (n * 7919) % 20_000) for n in range(1_000_000)), "t:large")
    ex.add(lambda: 1, "t:small")
    async with ex, ex.worker():
        steps = [{"tool": "t:large", "stop_on_error": False}, {"tool": "t:small"}]
        result = await ex.run_chain(steps, durable="too-large")
    error = result.steps[0].error
    assert error is not None
    assert error.code == "invalid_result"
    assert "large_directory" in error.message
    assert result.value == 1


async def test_a_run_of_another_key_is_not_read(settings: TemporalSettings) -> None:
    """A caller without the key gets an error that says so."""
    engine = TemporalEngine(replace(settings, key=KEY))
    ex = Exec(journal=engine)
    ex.add(lambda: 1, "t:one")
    async with ex, ex.worker():
        await ex.run_chain([{"tool": "t:one"}], durable="mine")
    other = TemporalEngine(settings)
    with pytest.raises((JournalError, RunError), match="key"):
        await other.get("mine")

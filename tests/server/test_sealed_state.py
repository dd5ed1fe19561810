"""Records of a server's state with keys: what the file has then, rotation, and records that no key opens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from toolexec.errors import ConfigurationError, SecretError, StateError
from toolexec.server.sealed_state import SealedState, read_keys
from toolexec.server.server_state import ServerState
from toolexec.server.settings import ServeSettings
from toolexec.server.state import FileState, StateKind
from toolexec.testing import check_state

OLD, NEW = "old-key-of-at-least-32-characters", "new-key-of-at-least-32-characters"


async def test_it_keeps_the_contract(tmp_path: Path) -> None:
    """Two stores over one file answer as one dictionary, and of several changes at once one succeeds."""
    path = tmp_path / "state.db"
    await check_state(SealedState(FileState(path), [OLD]), SealedState(FileState(path), [OLD]))


async def test_a_server_with_keys_encrypts_its_file(tmp_path: Path) -> None:
    """With `state_keys` nothing of a record can be read in the file; without them it can."""
    found: list[bool] = []
    for number, keys in enumerate(((), (NEW, OLD))):
        path = tmp_path / str(number) / "state.db"
        path.parent.mkdir()
        state = ServerState(ServeSettings(state_path=str(path), state_keys=keys))
        store = state.store()
        assert store is not None
        await store.put("session", "one", "the-words-of-a-record", 60)
        assert await store.get("session", "one") == "the-words-of-a-record"
        found.append(any(b"the-words-of" in each.read_bytes() for each in path.parent.iterdir()))
        await state.aclose()
    assert found == [True, False]


async def test_rotation(tmp_path: Path) -> None:
    """All keys open, the first seals; so servers with the keys in either order share records, and those of a key that
    is gone count as not there, until they are written again."""
    path = tmp_path / "state.db"
    before, between, after = (SealedState(FileState(path), keys) for keys in ([OLD], [NEW, OLD], [NEW]))
    await before.put("session", "one", "a", 60)
    await before.put("session", "two", "a", 60)
    assert await between.get("session", "one") == "a"
    assert await between.swap("session", "one", "a", "a", 60)
    assert await after.get("session", "one") == "a"
    assert await before.get("session", "one") is None
    assert await after.get("session", "two") is None
    assert not await after.swap("session", "two", "a", "b", 60)
    assert not await after.add("session", "two", "b", 60)
    await after.put("session", "two", "b", 60)
    assert await after.get("session", "two") == "b"
    for store in (before, between, after):
        await store.aclose()


@pytest.mark.parametrize("what", ["plain", "changed", "moved", "of another kind", "empty"])
async def test_a_record_that_others_have_written(tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str) -> None:
    """One who can write in the store, and has no key, makes no record that is believed: not one without encryption, not one
    that was changed, nor the record of another key or kind. The log says so, and quotes nothing."""
    raw = FileState(tmp_path / "state.db")
    store = SealedState(raw, [OLD])
    await store.put("session", "mine", '{"owner": "mallory"}', 60)
    sealed = await raw.get("session", "mine")
    assert sealed is not None
    kind: StateKind = "suspended" if what == "of another kind" else "session"
    key = "yours" if what == "moved" else "mine"
    middle = len(sealed) // 2
    changed = f"{sealed[:middle]}{'A' if sealed[middle] != 'A' else 'B'}{sealed[middle + 1 :]}"
    written = {"plain": '{"owner": "mallory"}', "changed": changed, "empty": ""}
    await raw.put(kind, key, written.get(what, sealed), 60)
    assert await store.get(kind, key) is None
    assert not await store.swap(kind, key, '{"owner": "mallory"}', "b", 60)
    assert "none of state_keys opens it" in caplog.text
    assert "mallory" not in caplog.text
    await store.aclose()


def test_keys_that_are_kept_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference to a secret is looked up, never used as a key; what is too short or there twice is refused, and not
    quoted."""
    monkeypatch.setenv("THE_FIRST_KEY_OF_THE_STATE_OF_A_SERVER", OLD)
    monkeypatch.setenv("SHORT", "hidden-word")
    reference = "secretref:env:THE_FIRST_KEY_OF_THE_STATE_OF_A_SERVER"
    assert read_keys([reference, NEW]) == (OLD, NEW)
    for keys in ((NEW, "secretref:env:SHORT"), (OLD, reference)):
        with pytest.raises(ConfigurationError, match=r"server\.state_keys\[1\]") as caught:
            ServerState(ServeSettings(state_keys=keys))
        assert "hidden" not in str(caught.value)
        assert OLD not in str(caught.value)
    with pytest.raises(SecretError):
        ServerState(ServeSettings(state_keys=("secretref:env:NOT_THERE",)))


class _Shared(FileState):
    """All have looked before the first one changes anything."""

    async def get(self, kind: StateKind, key: str) -> str | None:
        found = await super().get(kind, key)
        await asyncio.sleep(0)
        return found


async def test_many_who_keep_a_record_as_it_is(tmp_path: Path) -> None:
    """Many may swap a record for the same one at once, and each succeeds, as without keys."""
    path = tmp_path / "state.db"
    stores = [SealedState(_Shared(path), [OLD]) for _ in range(8)]
    await stores[0].put("session", "one", "a", 60)
    assert all(await asyncio.gather(*(each.swap("session", "one", "a", "a", 60) for each in stores)))
    for store in stores:
        await store.aclose()


class _Restless(FileState):
    """Another process changes each record between a look and a swap."""

    async def swap(self, kind: StateKind, key: str, old: str, new: str, ttl: float) -> bool:
        return False


async def test_a_record_that_never_rests(tmp_path: Path) -> None:
    """A swap that others prevent again and again ends with an error that may be tried again, not with a no."""
    store = SealedState(_Restless(tmp_path / "state.db"), [OLD])
    await store.put("session", "one", "a", 60)
    with pytest.raises(StateError, match="keep changing") as caught:
        await store.swap("session", "one", "a", "b", 60)
    assert caught.value.retryable
    await store.aclose()

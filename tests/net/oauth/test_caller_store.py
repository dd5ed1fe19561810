"""Where the logins of callers are kept."""

from __future__ import annotations

import base64
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import keyring
import pytest
from tests.net.oauth.test_store import LOGIN, URL, Ring

from toolexec.errors import BackendUnavailableError, SecretError
from toolexec.net.oauth.caller_store import KEY_VARIABLE, CallerStore
from toolexec.net.oauth.session import OAuthSession
from toolexec.net.oauth.settings import OAuthSettings
from toolexec.net.oauth.store import key_of

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.urlsafe_b64encode(b"\xff" * 32).decode()
WITH_KEY = {KEY_VARIABLE: KEY}


class Weak(Ring):
    """A keyring that keeps nothing safely."""

    priority = 0


@pytest.fixture(autouse=True)
def same_ring() -> Iterator[None]:
    """Put the keyring back that was there."""
    before = keyring.get_keyring()
    yield
    keyring.set_keyring(before)


async def test_a_login_is_encrypted_and_its_file_private(tmp_path: Path) -> None:
    """Neither a token nor a name is in the file; the same caller has it again, another and another key have not."""
    ann = "ann@example.com"  # a short name is sometimes in the encrypted text
    store = CallerStore(ann, tmp_path, environment=WITH_KEY)
    mark = store.mark("notes", URL)
    await store.save("notes", LOGIN)
    assert store.mark("notes", URL) != mark
    assert await CallerStore(ann, tmp_path, environment=WITH_KEY).load("notes", URL) == LOGIN
    assert await CallerStore("bob", tmp_path, environment=WITH_KEY).load("notes", URL) is None
    (file,) = tmp_path.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for word in (b"access", b"example.com", b"ann@", b"notes"):
        assert word not in file.read_bytes()
    with pytest.raises(SecretError, match="encrypted with another key than TOOLEXEC_LOGIN_KEY, or for another caller"):
        await CallerStore(ann, tmp_path, environment={KEY_VARIABLE: OTHER_KEY}).load("notes", URL)


async def test_a_file_that_is_copied_gives_no_one_the_login_of_another(tmp_path: Path) -> None:
    """A file of one caller, server or URL is refused as that of another."""
    store = CallerStore("ann", tmp_path, environment=WITH_KEY)
    await store.save("notes", LOGIN)
    own = tmp_path / f"{key_of('notes', URL, 'ann')}.json"
    for name, url, caller in (("notes", URL, "bob"), ("other", URL, "ann"), ("notes", f"{URL}/more", "ann")):
        shutil.copy(own, tmp_path / f"{key_of(name, url, caller)}.json")
        with pytest.raises(SecretError, match="for another caller"):
            await CallerStore(caller, tmp_path, environment=WITH_KEY).load(name, url)


def test_no_two_logins_have_the_same_place() -> None:
    """An ID of a caller, which strangers choose, cannot make one login look like another."""
    parts = ["a", "b", "a\nb", "", '", "', "a/b", "[", '["a", "b", "c"]']
    known = {key_of(name, server, caller) for name in ("n", "m") for server in (URL, "http://x") for caller in parts}
    assert len(known) == 2 * 2 * len(parts)


async def test_without_a_key_nothing_is_kept_or_read(tmp_path: Path) -> None:
    """There is no way back to files in the clear: the error says what to set."""
    keyring.set_keyring(Weak())
    store = CallerStore("ann", tmp_path, environment={})
    with pytest.raises(SecretError, match="set TOOLEXEC_LOGIN_KEY, to what openssl rand -base64 32 prints"):
        await store.load("notes", URL)
    with pytest.raises(SecretError, match="there is no keyring"):
        await store.save("notes", LOGIN)
    assert not [*tmp_path.glob("*.json")]
    for wrong in ("short", "%", base64.b64encode(b"x" * 31).decode(), f"{KEY}{KEY}"):
        with pytest.raises(SecretError, match="must be 32 bytes in base64") as raised:
            await CallerStore("ann", tmp_path, environment={KEY_VARIABLE: wrong}).load("notes", URL)
        assert len(wrong) < 5 or wrong not in str(raised.value)


async def test_the_keyring_has_the_key_where_no_variable_does(tmp_path: Path) -> None:
    """The key is made once, for all callers; a file whose key is gone is refused."""
    ring = Ring()
    keyring.set_keyring(ring)
    store = CallerStore("ann", tmp_path, environment={})
    assert await store.load("notes", URL) is None
    assert not ring.kept
    await store.save("notes", LOGIN)
    (key,) = ring.kept.values()
    assert len(base64.b64decode(key)) == 32
    other = CallerStore("bob", tmp_path, environment={})
    await other.save("notes", replace(LOGIN, access_token="of-bob"))
    assert [*ring.kept.values()] == [key]
    assert await store.load("notes", URL) == LOGIN
    ring.kept.clear()
    with pytest.raises(SecretError, match="is gone"):
        await store.load("notes", URL)


async def test_a_login_that_cannot_be_read_is_an_error_and_can_be_forgotten(tmp_path: Path) -> None:
    """A call is not sent without its token, and logging out clears the way for another login."""
    await CallerStore("ann", tmp_path, environment=WITH_KEY).save("notes", LOGIN)
    store = CallerStore("ann", tmp_path, environment={KEY_VARIABLE: OTHER_KEY})
    session = OAuthSession("notes", URL, OAuthSettings(per="caller"), store, caller="ann")
    with pytest.raises(BackendUnavailableError, match="encrypted with another key"):
        await session.needed_token()
    assert await session.logout()
    assert await store.load("notes", URL) is None
    (tmp_path / f"{key_of('notes', URL, 'ann')}.json").write_text('{"sealed": 1}')
    (tmp_path / f"{key_of('notes', URL, 'ann')}.json").chmod(0o600)
    with pytest.raises(SecretError, match="damaged"):
        await store.load("notes", URL)

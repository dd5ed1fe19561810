"""Where logins are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

from toolexec.errors import ConfigurationError, SecretError
from toolexec.net.oauth.store import Login, LoginStore

URL = "https://notes.example.com/mcp"
LOGIN = Login(
    server=URL,
    issuer="https://login.example.com",
    token_endpoint="https://login.example.com/token",
    client_id="me",
    access_token="the-access-token",
    until=1000.0,
)


class Ring(KeyringBackend):
    """A keyring in memory, which may be locked."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        """Return what is kept."""
        if self.locked:
            raise RuntimeError("the-access-token is locked away")
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep it."""
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        """Forget it."""
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError("none")


@pytest.fixture
def ring() -> Iterator[Ring]:
    """Make a keyring that of the system."""
    before, found = keyring.get_keyring(), Ring()
    keyring.set_keyring(found)
    yield found
    keyring.set_keyring(before)


async def test_a_login_is_in_the_keyring_where_there_is_one(ring: Ring, tmp_path: Path) -> None:
    """No file has it, another URL is another login, and it can be forgotten."""
    store = LoginStore(environment={"XDG_STATE_HOME": str(tmp_path)})
    mark = store.mark("notes", URL)
    await store.save("notes", LOGIN)
    assert store.mark("notes", URL) != mark
    assert await store.load("notes", URL) == LOGIN
    assert await store.load("notes", "https://evil.example/mcp") is None
    assert not [*store.directory.glob("*.json")]
    assert len(ring.kept) == 1
    assert await store.delete("notes", URL)
    assert not await store.delete("notes", URL)


async def test_a_keyring_that_fails_is_an_error_without_its_words(ring: Ring, tmp_path: Path) -> None:
    """A locked keyring is not passed by in silence, and what it says is not shown."""
    ring.locked = True
    with pytest.raises(SecretError, match="the keyring cannot be used") as raised:
        await LoginStore(environment={"XDG_STATE_HOME": str(tmp_path)}).load("notes", URL)
    assert "the-access-token" not in str(raised.value)


async def test_a_file_for_another_server_or_damaged_is_no_login(tmp_path: Path) -> None:
    """A file under the name of a login is taken only where it says the same server."""
    store = LoginStore(tmp_path / "logins")
    await store.save("notes", LOGIN)
    (file,) = store.directory.glob("*.json")
    for text in (LOGIN.to_json().replace(URL, "https://evil.example/mcp"), "{", "[]"):
        file.write_text(text)
        assert await store.load("notes", URL) is None


async def test_a_directory_that_others_write_to_is_refused(tmp_path: Path) -> None:
    """Nothing is stored where another user could replace it."""
    store = LoginStore(tmp_path / "logins")
    store.directory.mkdir()
    store.directory.chmod(0o777)
    with pytest.raises(ConfigurationError, match="may be written to by others"):
        await store.save("notes", LOGIN)

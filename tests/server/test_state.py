"""The store of a server's state: the contract, and addresses of stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolexec.errors import ConfigurationError
from toolexec.server.state import FileState
from toolexec.server.state_plugins import open_state
from toolexec.testing import check_state


async def test_a_file_keeps_the_contract(tmp_path: Path) -> None:
    """Two stores over one file answer as one dictionary, and of several changes at once one succeeds."""
    path = tmp_path / "state.db"
    await check_state(FileState(path), FileState(path))


@pytest.mark.parametrize("address", ["postgres://me:hidden@db", "hidden", "hidden://x"])
def test_an_address_of_no_store(address: str) -> None:
    """An address that no store has is refused with those that there are, and not quoted."""
    with pytest.raises(ConfigurationError, match=r"begins with one of .*valkeys, and ://") as caught:
        open_state(address)
    assert "hidden" not in str(caught.value)

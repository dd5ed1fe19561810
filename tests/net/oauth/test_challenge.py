"""The Bearer challenge of a server."""

import pytest

from toolexec.net.oauth.challenge import Challenge, read_challenge


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        ("Bearer", Challenge()),
        ('Basic realm="x"', Challenge()),
        ('bearer scope="a b"', Challenge(scopes=("a", "b"))),
        ("Bearer scope=a, error=invalid_token", Challenge(scopes=("a",), error="invalid_token")),
        ('Basic realm="Bearer scope=x", Bearer error="insufficient_scope"', Challenge(error="insufficient_scope")),
        ('Bearer realm="a \\"b\\", c", scope="d"', Challenge(scopes=("d",))),
        ('Bearer resource_metadata="https://a/b"', Challenge(resource_metadata="https://a/b")),
        ('Bearer scope=""', Challenge(scopes=())),
    ],
)
def test_the_parameters_of_bearer_are_read(header: str, challenge: Challenge) -> None:
    """Of several challenges that of Bearer counts, quoted or not."""
    assert read_challenge([header]) == challenge

"""Signatures for AWS: the published test suite of version 4, and what is signed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from toolexec.net.sigv4 import SigV4

HOST = ("Host", "example.amazonaws.com")
FORM = ("Content-Type", "application/x-www-form-urlencoded")
TOKEN = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"


def signer(**settings: str) -> SigV4:
    """Return the signer of the test suite."""
    given = {
        "access_key_id": "AKIDEXAMPLE",
        "secret_access_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        "region": "us-east-1",
        "service": "service",
    }
    return SigV4(**{**given, **settings}, now=lambda: datetime(2015, 8, 30, 12, 36, tzinfo=UTC))


def signed(method: str, target: str, headers: list[tuple[str, str]], body: bytes = b"", **settings: str) -> str:
    """Return the header of a request."""
    url = f"https://example.amazonaws.com{target}"
    return dict(next(signer(**settings).flow(method, url, [HOST, *headers], body)))["Authorization"]


@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "signature"),
    [
        ("GET", "/", [], b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", [], b"", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            [],
            b"",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "GET",
            "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            [],
            b"",
            "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
        ),
        ("GET", "/\u1234", [], b"", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
        (
            "GET",
            "/example space/",
            [],
            b"",
            "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
        ),
        ("GET", "//", [], b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("GET", "/example/..", [], b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        (
            "GET",
            "/",
            [("My-Header1", "value2"), ("My-Header1", "value2"), ("My-Header1", "value1")],
            b"",
            "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
        ),
        (
            "GET",
            "/",
            [("My-Header1", " value1"), ("My-Header2", ' "a   b   c"')],
            b"",
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        ),
        (
            "POST",
            "/",
            [FORM],
            b"Param1=value1",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
    ids=[
        "get-vanilla",
        "post-vanilla",
        "get-vanilla-query-order-key-case",
        "get-unreserved",
        "get-utf8",
        "get-space",
        "get-slash",
        "get-relative",
        "get-header-key-duplicate",
        "get-header-value-trim",
        "post-x-www-form-urlencoded",
    ],
)
def test_published_vectors(
    method: str, target: str, headers: list[tuple[str, str]], body: bytes, signature: str
) -> None:
    """The signature is the one that the test suite of AWS has, whose paths are written as they are before encoding."""
    found = signed(method, target, headers, body)
    names = ";".join(sorted({"host", "x-amz-date", *(name.lower() for name, _ in headers)}))
    scope = "Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
    assert found == f"AWS4-HMAC-SHA256 {scope}, SignedHeaders={names}, Signature={signature}"


def test_a_path_that_is_encoded_already_is_encoded_once_more() -> None:
    """A percent sign on the wire is a part of what is signed, as all services but S3 expect."""
    assert signed("GET", "/a%20b", []) != signed("GET", "/a b", [])
    assert signed("GET", "/a%20b?x=%20", []) == signed("GET", "/a%20b?x= ", [])


@pytest.mark.parametrize("name", ["Accept", "Accept-Encoding", "User-Agent", "Content-Length"])
def test_headers_that_proxies_change_are_not_signed(name: str) -> None:
    """The signature holds after a proxy has changed them."""
    assert signed("GET", "/", [(name, "x")]) == signed("GET", "/", [])


def test_temporary_keys_and_the_content_of_s3() -> None:
    """A session token is sent and signed; S3 gets the digest of the body, and its path as it is sent."""
    found = dict(next(signer(session_token=TOKEN).flow("GET", "https://x.amazonaws.com/", [HOST], b"")))
    assert found["X-Amz-Security-Token"] == TOKEN
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token" in found["Authorization"]
    stored = dict(next(signer(service="s3").flow("PUT", "https://x.amazonaws.com/a//b%20c", [HOST], b"body")))
    assert stored["X-Amz-Content-Sha256"] == "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5"
    assert signed("GET", "/a//b", [], service="s3") != signed("GET", "/a/b", [], service="s3")
    assert signed("GET", "/a//b", []) == signed("GET", "/a/b", [])
    assert TOKEN not in repr(signer(session_token=TOKEN))

"""Tokens: which are accepted, and what is read in them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from toolexec.errors import ConfigurationError
from toolexec.server.auth.credentials import BadCredentialError, UncheckableError
from toolexec.server.auth.jwks import IssuerKeys
from toolexec.server.auth.jwt import Tokens

from .conftest import AUDIENCE, ISSUER, Clock, Issuer


def tokens(issuer: Issuer, clock: Clock | None = None, **settings: Any) -> Tokens:
    made = issuer.settings(**settings)
    keys = IssuerKeys(made, clock) if clock is not None else None
    return Tokens(made, AUDIENCE, keys=keys)


async def refused(checker: Tokens, token: str) -> str:
    with pytest.raises(BadCredentialError) as caught:
        await checker.identify(token)
    return str(caught.value)


def unsigned(header: dict[str, Any], body: dict[str, Any]) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, body)]
    return ".".join(parts)


def good_claims(**more: Any) -> dict[str, Any]:
    return {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 60} | more


@pytest.mark.parametrize("kid", ["rsa0", "ec"])
async def test_a_good_token(issuer: Issuer, kid: str) -> None:
    """A good token identifies the caller, with roles, scopes and tenant."""
    token = issuer.token(kid, roles=["admin"], scope="read write", tenant="acme", client_id="app")
    identity = await tokens(issuer).identify(token)
    caller = identity.caller
    assert (caller.id, caller.roles, caller.scopes) == ("ann", ("admin",), ("read", "write"))
    assert (caller.tenant, caller.method, caller.claims["client_id"]) == ("acme", "jwt", "app")
    assert (identity.client, identity.issuer, identity.subject) == ("app", ISSUER, "ann")
    assert identity.user().access_token.token == ""


async def test_claims_may_be_elsewhere(issuer: Issuer) -> None:
    """Names with dots lead into objects, a claim of that very name comes first, and `scp` stands in for `scope`."""
    settings = {"id_claim": "email", "roles_claim": "realm_access.roles", "tenant_claim": "https://x/org"}
    token = issuer.token(
        email="ann@example.com", realm_access={"roles": ["a", 7, "b"]}, scp=["read"], **{"https://x/org": "acme"}
    )
    caller = (await tokens(issuer, **settings).identify(token)).caller
    assert (caller.id, caller.roles, caller.scopes, caller.tenant) == ("ann@example.com", ("a", "b"), ("read",), "acme")


async def test_a_program_without_a_user(issuer: Issuer) -> None:
    """Without `sub` the client itself is the caller; without both there is none."""
    checker = tokens(issuer)
    assert (await checker.identify(issuer.token(sub=None, azp="robot"))).caller.id == "robot"
    assert "does not say who" in await refused(checker, issuer.token(sub=None))
    assert "does not say who" in await refused(checker, issuer.token(sub="an\nn"))


@pytest.mark.full
@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": int(time.time()) - 31}, "has expired"),
        ({"exp": None}, "lacks exp, iss or aud"),
        ({"exp": "soon"}, "is not valid"),
        ({"exp": 1e999}, "is not valid"),
        ({"nbf": int(time.time()) + 100_000}, "is not valid"),
        ({"iat": int(time.time()) + 100_000}, "is not valid"),
        ({"iss": "https://evil.example"}, "of another issuer"),
        ({"iss": None}, "lacks exp, iss or aud"),
        ({"aud": "https://other.example"}, "not meant for this server"),
        ({"aud": AUDIENCE + "/"}, "not meant for this server"),
        ({"aud": None}, "lacks exp, iss or aud"),
        ({"sub": 7}, "is not valid"),
    ],
)
async def test_a_token_that_does_not_count(issuer: Issuer, claims: dict[str, Any], reason: str) -> None:
    """Each is refused, with a reason that gives nothing away."""
    assert reason in await refused(tokens(issuer), issuer.token(**claims))


async def test_the_leeway_for_clocks(issuer: Issuer) -> None:
    """A token that expired a moment ago still counts."""
    await tokens(issuer).identify(issuer.token(exp=int(time.time()) - 10))
    assert "expired" in await refused(tokens(issuer, leeway=0), issuer.token(exp=int(time.time()) - 10))
    await tokens(issuer).identify(issuer.token(exp=10**400))


async def test_one_audience_of_several(issuer: Issuer) -> None:
    """A token may be meant for others, too."""
    await tokens(issuer).identify(issuer.token(aud=["https://other.example", AUDIENCE]))


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, 7, ["RS256"]])
async def test_a_token_without_a_signature(issuer: Issuer, alg: Any) -> None:
    """The token does not choose how it is checked."""
    for signature in ("", "AAAA"):
        forged = f"{unsigned({'alg': alg, 'kid': 'rsa0', 'typ': 'JWT'}, good_claims())}.{signature}"
        assert "is" in await refused(tokens(issuer), forged)


@pytest.mark.parametrize("form", ["pem", "der", "jwk"])
async def test_a_public_key_is_no_shared_secret(issuer: Issuer, form: str) -> None:
    """Signing with the public key as if it were a secret (HS256) does not work, whatever form of it is used."""
    public = issuer.keys["rsa0"].public_key()
    secret = {
        "pem": public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        "der": public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(json.loads(issuer.jwks())["keys"][0]).encode(),
    }[form]
    text = unsigned({"alg": "HS256", "kid": "rsa0"}, good_claims())
    signature = base64.urlsafe_b64encode(hmac.new(secret, text.encode(), hashlib.sha256).digest()).rstrip(b"=").decode()
    assert "not accepted" in await refused(tokens(issuer), f"{text}.{signature}")


async def test_a_key_of_somebody_else(issuer: Issuer) -> None:
    """Refuses such a key even when it claims the issuer's key, or brings its own along."""
    own = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    checker = tokens(issuer)
    assert "not valid" in await refused(checker, issuer.token("rsa0", key=own))
    forged = jwt.encode(
        good_claims(),
        own,
        algorithm="RS256",
        headers={"jwk": jwt.algorithms.RSAAlgorithm.to_jwk(own.public_key(), as_dict=True), "jku": issuer.url},
    )
    assert "not valid" in await refused(checker, forged)


async def test_an_algorithm_of_another_kind(issuer: Issuer) -> None:
    """A key is used for its own kind only, and only algorithms that were allowed."""
    checker = tokens(issuer, algorithms=("RS256", "ES256", "ES384"))
    assert "not accepted" in await refused(checker, issuer.token(alg="RS512"))
    mixed = unsigned({"alg": "ES256", "kid": "rsa0"}, good_claims()) + ".AAAA"
    assert "does not have" in await refused(checker, mixed)
    curve = ec.generate_private_key(ec.SECP384R1())
    assert "not valid" in await refused(checker, issuer.token("ec", key=curve, alg="ES384"))


async def test_tampered_tokens(issuer: Issuer) -> None:
    """A changed byte anywhere, and what is no token at all."""
    checker = tokens(issuer)
    head, body, signature = issuer.token().split(".")
    other = unsigned({"alg": "RS256", "kid": "rsa0"}, good_claims(sub="root")).split(".")[1]
    for forged in (f"{head}.{other}.{signature}", f"{head}.{body}.{signature[:-8]}AAAAAAAA", f"{head}.{body}."):
        assert "not valid" in await refused(checker, forged)
    for nonsense in (
        "a.b.c",
        "..",
        "\xff.\xff.\xff",
        f"{'[' * 3000}.a.b",
        base64.b64encode(b"[" * 9000).decode() + ".a.b",
    ):
        assert "the token is" in await refused(checker, nonsense)
    assert "too long" in await refused(checker, "x" * 20_000)
    critical = jwt.encode(good_claims(), issuer.keys["rsa0"], "RS256", headers={"kid": "rsa0", "crit": ["x"], "x": 1})
    assert "the token is" in await refused(checker, critical)


async def test_no_token_has_the_name_of_an_api_key(issuer: Issuer) -> None:
    """Rules for that caller must not fit another one who chose the same name elsewhere."""
    checker = Tokens(issuer.settings(), AUDIENCE, reserved=frozenset({"ann"}))
    assert "who has an API key" in await refused(checker, issuer.token())


async def test_keys_are_read_once(issuer: Issuer, clock: Clock) -> None:
    """For an hour they are remembered; then they are read again."""
    checker = tokens(issuer, clock)
    for _ in range(3):
        await checker.identify(issuer.token())
    assert issuer.asked == 1
    clock.now += 3601
    await checker.identify(issuer.token())
    assert issuer.asked == 2


async def test_a_new_key_of_the_issuer(issuer: Issuer, clock: Clock) -> None:
    """Finds a new key by reading the keys again, at most once a minute; the old one is gone then."""
    checker = tokens(issuer, clock)
    await checker.identify(issuer.token())
    issuer.rotate()
    assert "does not have" in await refused(checker, issuer.token("rsa1"))
    assert issuer.asked == 1
    clock.now += 61
    await checker.identify(issuer.token("rsa1"))
    assert issuer.asked == 2
    for _ in range(5):
        assert "does not have" in await refused(checker, issuer.token("rsa0"))
    assert issuer.asked == 2


@pytest.mark.full
@pytest.mark.parametrize("trouble", ["status", "garbage", "empty", "long", "deep", "private"])
async def test_keys_that_cannot_be_read(
    issuer: Issuer, clock: Clock, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Those from before stay in use; without any, the token can not be checked, which is not its fault."""
    known = tokens(issuer, clock)
    await known.identify(issuer.token())
    private = jwt.algorithms.RSAAlgorithm.to_jwk(issuer.keys["rsa0"], as_dict=True)
    documents = {
        "status": None,
        "garbage": b"<html>",
        "empty": b'{"keys":[{"kty":"oct","k":"AAAA"},7]}',
        "long": b" " * 2**21,
        "deep": b"[" * 100_000,
        "private": json.dumps({"keys": [private]}).encode(),
    }
    issuer.broken, issuer.document = trouble == "status", documents[trouble]
    clock.now += 3601
    await known.identify(issuer.token())
    assert "those from before are kept" in caplog.text
    with pytest.raises(UncheckableError):
        await tokens(issuer, clock).identify(issuer.token())
    assert issuer.asked == 3


async def test_a_token_without_a_key_id(issuer: Issuer) -> None:
    """Such a token is fine while there is only one key that it can mean."""
    checker = tokens(issuer)
    await checker.identify(issuer.token(None))
    issuer.keys["rsa9"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert "does not have" in await refused(tokens(issuer), issuer.token(None))


async def test_keys_from_a_file(issuer: Issuer, tmp_path: Path) -> None:
    """No network is needed then."""
    checker = Tokens(issuer.settings(jwks_url="", jwks_file=issuer.file(tmp_path)), AUDIENCE)
    await checker.identify(issuer.token())
    assert "does not have" in await refused(checker, issuer.token("rsa1"))
    assert issuer.asked == 0


def test_a_file_without_keys(issuer: Issuer, tmp_path: Path) -> None:
    """Refuses a file without keys at the start."""
    (tmp_path / "empty.json").write_text("{}")
    for name in ("empty.json", "missing.json"):
        with pytest.raises(ConfigurationError, match=r"jwks_file .* cannot be used"):
            Tokens(issuer.settings(jwks_url="", jwks_file=str(tmp_path / name)), AUDIENCE)


async def test_a_short_key_is_no_key(issuer: Issuer) -> None:
    """RSA of 1024 bits can be broken."""
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    issuer.keys = {"rsa0": weak}
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = issuer.token("rsa0", key=weak)
    assert "not valid" in await refused(tokens(issuer), token)

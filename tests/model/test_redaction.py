"""Redactor: no secret survives, whatever it is wrapped in, and what is none stays as it is."""

from __future__ import annotations

import base64
import copy
import json
import threading
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.model.redaction import REDACTED, Redactor, has_secret_marks, redactor
from toolexec.model.secret_keys import is_telling, is_telling_parameter

TELLING = """password passwd PassWord passphrase db.password password2 new_password passwordHash client_secret
clientSecret Secret token TOKEN access_token refreshToken id_token x-auth-token api_key apikey API-KEY apiKey x-api-key
X-Goog-Api-Key authorization Proxy-Authorization cookie Set-Cookie cookies private_key privateKey SECRET_ACCESS_KEY
AWS_SECRET_ACCESS_KEY credential credentials connection_string ConnectionString dbConnectionString secret_value
SecretString tokens access_tokens ｐａｓｓｗｏｒｄ pass\u200bword signingKey jwt pwd""".split()
INNOCENT = """token_count max_tokens maxTokens next_page_token nextPageToken pageToken continuationToken progressToken
stop_token public_key key monkey author authority tokenizer password_policy secret_name cookie_domain signature
primary_key session input_tokens keyboard secretary passenger compass_direction""".split()

TEXTS = {
    "Authorization: Bearer HIDE": "bearer header",
    "authorization: Digest username=x, response=HIDE": "whole header line",
    "Cookie: a=HIDE; b=HIDE": "cookies",
    "sent Bearer HIDE to x": "bearer in prose",
    "postgres://ann:HIDE@db/x": "password in an address",
    "amqp://:HIDE@db/x": "password without a user",
    "https://x.y/?Access_Token=HIDE&page=2": "query",
    "https://x.y/a?b=1&X-Amz-Signature=HIDE": "signed address",
    "https://x.y/cb#access_token=HIDE": "fragment",
    "password=HIDE": "assignment",
    "PGPASSWORD=HIDE psql": "environment",
    "Password: HIDE": "line",
    '{"user": "ann", "Password": "HIDE"}': "JSON",
    '{\\"user\\": \\"ann\\", \\"apiKey\\": \\"HIDE\\"}': "JSON in JSON",
    "{'secret': 'HIDE'}": "Python",
    "Login(password='HIDE x')": "repr",
    "os.environ['API_KEY'] = 'HIDE'": "program",
    "tool --password HIDE --user ann": "option",
    "tool --api-key=HIDE": "option with =",
    "curl -u ann:HIDE https://x.y": "user and password",
    "<password>HIDE</password>": "XML",
    'credentials: {"a": ["HIDE", {"b": "HIDE"}]} rest': "object",
    "client_secret := HIDE": "walrus",
    "AccountName=x;AccountKey=HIDE;y=z": "connection string",
}
KEYS = [
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
    "sk-proj-abcdefghijklmnop1234",
    "sk-ant-api03-abcdefghijklmnop1234",
    "xoxb-123456789012-abcdefghijkl",
    "AIzaSyDabcdefghijklmnopqrstuvwxyz12345",
    "glpat-abcdefghijklmnopqrst",
    "sk_live_abcdefghijklmnop",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "123456789:AAabcdefghijklmnopqrstuvwxyz1234567",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nMIIEabc and then it was cut",
]
HARMLESS = [
    "the token expired, ask for a new token",
    "token_count=5 max_tokens: 100 next_page_token=abcdef",
    "Basic authentication failed for ann",
    "Bearer authentication is needed",
    "https://host:8080/a/b?page=2&sort=name",
    "ssh://git@github.com/x/y.git",
    "task-management-for-everyone-in-the-office",
    "2026-01-02T03:04:05Z 127.0.0.1:8080",
    "key=value; a: b",
    "x" * 5000,
]


@pytest.mark.parametrize("key", TELLING)
def test_a_telling_key_hides_its_value(key: str) -> None:
    """However a telling key is spelt, what is under it is replaced: strings, numbers and whole objects. A number
    of tokens is not one of them."""
    assert is_telling(key)
    for value in ("hunter2", *([1234] if key != "tokens" else []), {"a": "hunter2"}, ["hunter2"]):
        assert Redactor().value({"x": [{key: value}]}) == {"x": [{key: REDACTED}]}


@pytest.mark.parametrize("key", INNOCENT)
def test_an_innocent_key_hides_nothing(key: str) -> None:
    """Names that only resemble those of secrets leave their values alone."""
    assert not is_telling(key)
    assert Redactor().value({key: "plain"}) == {key: "plain"}


def test_under_a_telling_key_what_says_nothing_stays() -> None:
    """The presence of a password is not secret."""
    value = {"password": None, "token": "", "secret": True, "cookie": False}
    assert Redactor().value(value) == value


@pytest.mark.parametrize("text", TEXTS, ids=TEXTS.values())
def test_a_secret_in_a_text_is_replaced(text: str) -> None:
    """Secrets are found in strings by what stands around them, and a second time changes nothing more."""
    shown = Redactor().text(text.replace("HIDE", "hunter2x9"))
    assert "hunter2x9" not in shown
    assert REDACTED in shown
    assert Redactor().text(shown) == shown


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:12])
@pytest.mark.parametrize("around", ["{}", "a {} b", '"{}"', "x={}", "line\\n{}", "a%3D{}", "({})"])
def test_a_key_of_a_service_is_replaced(key: str, around: str) -> None:
    """Keys of well-known services are known by how they look."""
    assert key[4:] not in Redactor().text(around.format(key))


def test_basic_credentials_are_known_by_what_they_encode() -> None:
    """`Basic` hides what is a user and a password in base64."""
    credentials = base64.b64encode(b"ann:hunter2").decode()
    assert Redactor().text(f"sent Basic {credentials} to x") == f"sent Basic {REDACTED} to x"


@pytest.mark.parametrize("text", HARMLESS)
def test_a_harmless_text_stays(text: str) -> None:
    """A harmless string stays the same."""
    assert Redactor().text(text) == text


def test_url_parameters_with_general_names_count_only_in_urls() -> None:
    """`key` and `sig` are secrets in a query and nowhere else."""
    assert is_telling_parameter("key")
    assert not is_telling("key")
    assert Redactor().text("https://x/?key=abc&sig=def&q=1") == f"https://x/?key={REDACTED}&sig={REDACTED}&q=1"


SECRET = "Tr0ub4dor&3 ✓/+x"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        SECRET.upper(),
        quote(SECRET),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        json.dumps(SECRET),
        json.dumps(json.dumps(SECRET, ensure_ascii=False)),
        SECRET.encode().hex(),
        *(base64.b64encode(b"x" * n + SECRET.encode() + b"yz").decode() for n in range(3)),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_a_known_value_is_replaced_in_every_form(form: str) -> None:
    """A known secret is found as it is, in any case, and encoded."""
    redact = Redactor()
    redact.add(SECRET)
    shown = redact.text(f"before {form} after")
    assert REDACTED in shown
    assert form not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_known_values_go_from_keys_and_numbers_too() -> None:
    """A known secret is replaced where it is the key of an object, or a number; keys stay distinct."""
    redact = Redactor()
    redact.add("87654321", "hunter2hunter2")
    shown = redact.value({"hunter2hunter2": 1, "HUNTER2hunter2": 2, "n": 87654321, "m": 5})
    assert shown == {REDACTED: 1, f"{REDACTED} 1": 2, "n": REDACTED, "m": 5}


def test_very_short_values_are_ignored() -> None:
    """A value that is too short to stand out is not taken for a secret; short ones count in their own case."""
    redact = Redactor()
    redact.add("abc", "Abcdef")
    assert redact.text("abc abcdef Abcdef") == f"abc abcdef {REDACTED}"
    assert redact.knows("Abcdef")


def test_the_lines_of_a_long_value_count_each() -> None:
    """One line of a key in many lines is as secret as the whole."""
    redact = Redactor()
    redact.add("-----BEGIN X-----\nMIIEowIBAAKCAQEA12\nQyDABCDEFGHIJKLMN\n-----END X-----")
    assert redact.text("got QyDABCDEFGHIJKLMN") == f"got {REDACTED}"


def test_lists_of_names_and_values() -> None:
    """Command lines and headers as lists hide what follows a telling name."""
    redact = Redactor()
    value = [["--password", "hunter2", "-v"], [["X-Api-Key", "hunter2"]], [{"name": "Cookie", "value": "hunter2"}]]
    assert "hunter2" not in json.dumps(redact.value(value))
    assert redact.value(["--verbose", "yes", "--token", "--x"]) == ["--verbose", "yes", "--token", "--x"]


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pin": {"type": "string", "writeOnly": True},
        "deep": {"$ref": "#/$defs/deep~1er"},
        "choice": {"anyOf": [{"type": "null"}, {"type": "string", "format": "password"}]},
        "rows": {
            "type": "array",
            "prefixItems": [{"x-secret": True}],
            "items": {"properties": {"k": {"x-secret": True}}},
        },
        "open": {"type": "string"},
        "loop": {"$ref": "#/properties/loop"},
        "gone": {"$ref": "#/nowhere/0/x"},
        "other": {"$ref": "https://example.com/x"},
        "past": {"$ref": "#/oneOf/7"},
    },
    "patternProperties": {"^x-": {"writeOnly": True}},
    "oneOf": [{}, {"properties": {}}],
    "$defs": {"deep/er": {"allOf": [{"properties": {"inner": {"writeOnly": True}}}], "dependentSchemas": {"a": {}}}},
}


def test_a_schema_marks_secrets() -> None:
    """`writeOnly`, `format: password` and `x-secret` hide a value wherever the schema puts them."""
    value = {
        "pin": "a1",
        "deep": {"inner": "b2", "outer": "c3"},
        "choice": "d4",
        "rows": ["e5", {"k": "f6", "l": "g7"}],
        "open": "h8",
        "loop": "i9",
        "gone": "j0",
        "other": "k1",
        "past": "l2",
        "x-any": "m3",
    }
    shown = Redactor().value(value, SCHEMA)
    hidden = {"pin": REDACTED, "deep": {"inner": REDACTED, "outer": "c3"}, "choice": REDACTED, "x-any": REDACTED}
    assert shown == value | hidden | {"rows": [REDACTED, {"k": REDACTED, "l": "g7"}]}


def test_a_reference_may_lead_into_a_list() -> None:
    """A schema may refer to one of several by its number."""
    schema = {"properties": {"a": {"$ref": "#/$defs/all/1"}}, "$defs": {"all": [{}, {"x-secret": True}]}}
    assert Redactor().value({"a": "b"}, schema) == {"a": REDACTED}


def test_a_schema_without_marks_changes_nothing() -> None:
    """A schema is only walked along when it marks something."""
    assert not has_secret_marks({"properties": {"a": {"type": "string"}}, "required": ["a"]})
    assert Redactor().value({"a": "b"}, {"properties": {"a": {"type": "string"}}}) == {"a": "b"}


class Odd(dict[str, Any]):
    """A mapping that fails."""

    def items(self) -> Any:
        raise RuntimeError("no")


@pytest.mark.full
def test_it_never_raises() -> None:
    """Loops, strange objects and mappings that fail give something without secrets."""
    loop: list[Any] = []
    loop.append(loop)
    redact = Redactor()
    assert REDACTED in json.dumps(redact.value(loop))
    assert redact.value(Odd(a=1)) == REDACTED
    assert redact.value({1: (2.5, {"password='hunter2x'"})}) == {"1": [2.5, f"{{\"password='{REDACTED}'\"}}"]}
    assert redact.text(5) == REDACTED  # type: ignore[arg-type]
    wide: Any = "x"
    for _ in range(60):
        wide = [wide, wide]
    redact.value(wide)


def test_it_changes_nothing_it_is_given() -> None:
    """The value that is given stays as it was."""
    value = {"password": "x", "l": [{"token": "y"}, "Bearer abcdefgh"]}
    before = copy.deepcopy(value)
    Redactor().value(value)
    assert value == before


def test_secrets_can_be_added_from_several_threads() -> None:
    """Secrets added by several threads are all known in the end."""
    redact = Redactor()
    threads = [threading.Thread(target=redact.add, args=(f"secret-value-{n}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(redact.knows(f"secret-value-{n}") for n in range(20))


def test_everything_here_uses_one() -> None:
    """There is one redactor for the process."""
    assert isinstance(redactor, Redactor)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\"'<>\\{}[]=:;,&?#@/ \t\r\n"), min_size=1, max_size=20)
SECRETS = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=8, max_size=30).filter(
    lambda s: s.lower() not in REDACTED.lower()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.full
@given(JSON, st.sampled_from(TELLING), SECRETS, st.data())
def test_no_planted_secret_survives(value: Any, key: str, secret: str, data: st.DataObject) -> None:
    """A secret under a telling key, known by its value, or within a text is in no copy."""
    redact = Redactor()
    redact.add(secret)
    planted = {"a": value, "b": [{key: secret}, f"x {secret} y", {f"k{secret}": value}], "c": json.dumps({key: secret})}
    text = json.dumps(redact.value(planted), ensure_ascii=False)
    assert secret.lower() not in text.lower()
    around = data.draw(st.sampled_from(["https://u:{}@h/", "https://h/?token={}", "error: {}", "{{'x': '{}'}}"]))
    assert secret.lower() not in redact.text(around.format(secret)).lower()


@given(
    st.sampled_from([key for key in TELLING if key.isascii()]),
    SECRETS,
    st.sampled_from(['{{"{}": "{}"}}', "{}={}", "--{} {}", "?a=1&{}={}"]),
)
def test_no_unknown_secret_survives_behind_its_name(key: str, secret: str, form: str) -> None:
    """A text that says that something is a secret is enough."""
    name = key.removesuffix("2")
    assert secret not in Redactor().text(form.format(name, secret))


@pytest.mark.full
@given(JSON)
def test_redacting_twice_is_redacting_once(value: Any) -> None:
    """Redacting a redacted string changes nothing."""
    redact = Redactor()
    once = redact.value(value)
    assert redact.value(once) == once


@given(st.text(alphabet="pasword=:;{}[]\"'\\?&#@/-tkn eyJ._0", max_size=200))
def test_no_text_makes_it_fail(text: str) -> None:
    """Strings full of marks are looked through without failing, and a second time changes nothing."""
    once = Redactor().text(text)
    assert isinstance(once, str)
    assert once == REDACTED or once != "" or not text


def test_tokens_that_were_renewed_twice_are_forgotten() -> None:
    """Tokens before the last two of an owner are shown again; those of others, and what lasts, never are."""
    ours = Redactor()
    ours.add("lasting-secret")
    for number in range(50):
        ours.add_renewed("wiki", f"access-{number}-of-wiki", "lasting-secret")
    ours.add_renewed("mail", "access-of-mail")
    kept = [number for number in range(50) if ours.has_known(f"access-{number}-of-wiki")]
    assert kept == [48, 49]
    assert ours.text("lasting-secret access-of-mail") == f"{REDACTED} {REDACTED}"

"""References in a configuration: what they stand for, what is refused, and what stays hidden."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import threading
import types

import pytest

from toolexec.backend.secrets import Scrubber, SecretResolver, has_reference, providers
from toolexec.errors import MissingExtraError, SecretError
from toolexec.model.redaction import REDACTED, Redactor

SECRET = "s3cr3t-Value/with+signs=42"


@pytest.fixture
def redact():
    return Redactor()


@pytest.fixture
def resolver(redact):
    def make(own=None, strict=True, **environment):
        return SecretResolver(own, environment=environment, redact=redact, strict=strict)

    return make


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${NAME}", "value"),
        ("a ${NAME} b ${NAME}", "a value b value"),
        ("${NAME:-other}", "value"),
        ("${MISSING:-other}", "other"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY}", ""),
        ("${env:NAME}", "value"),
        ("${env:NAME WITH BLANKS}", "odd"),
        ("$NAME and $1 stay, $$ is one", "$NAME and $1 stay, $ is one"),
        ("$${NAME}", "${NAME}"),
        ("$$${NAME}", "$value"),
        ("${NESTED}", "${NAME}"),
        ("secretref:env:NAME", "value"),
        ("Bearer secretref:env:NAME", "Bearer value"),
        ("https://h/?a=secretref:env:NAME&b=secretref:env:NAME;c", "https://h/?a=value&b=value;c"),
        ('{"a":"secretref:env:NAME"}', '{"a":"value"}'),
        ("no-secretref:env:NAME", "no-secretref:env:NAME"),
        ("${userHome}/x", os.path.expanduser("~/x")),
    ],
)
def test_what_references_stand_for(resolver, text, expected):
    """Each form is replaced by its value, and nothing that was filled in is looked at again."""
    names = {"NAME": "value", "EMPTY": "", "NESTED": "${NAME}", "NAME WITH BLANKS": "odd"}
    assert resolver(**names).resolve(text, "here") == expected
    assert has_reference(text) == (text != expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${MISSING}", "the environment variable MISSING is not set"),
        ("${env:MISSING}", "the environment variable MISSING is not set"),
        ("secretref:env:MISSING", "the environment variable MISSING is not set"),
        ("secretref:env:EMPTY", "the environment variable EMPTY is empty"),
        ("${input:token}", "${input:token} is not known here; use ${NAME}"),
        ("${workspaceFolder}/x", "${workspaceFolder} is not known here"),
        ("${NAME:?message}", "is not known here"),
        ("${}", "${} is not known here"),
        ("a ${NAME", "there is a ${ without its }"),
        ("secretref:", "must be secretref:PROVIDER:REF"),
        ("secretref:env", "must be secretref:PROVIDER:REF"),
        ("Bearer secretref: x", "must be secretref:PROVIDER:REF"),
        ("secretref:vault:a/b", "no provider 'vault' of secrets; there are command, env, file, keyring"),
        ("${" + "x" * 100 + " }", "${" + "x" * 40 + "...} is not known here"),
    ],
)
def test_what_is_refused(resolver, text, reason):
    """An unresolvable reference is an error that gives its location and the reason."""
    with pytest.raises(SecretError) as caught:
        resolver(NAME="value", EMPTY="").resolve(text, "server gh")
    assert str(caught.value).startswith("server gh: ")
    assert reason in str(caught.value)
    assert caught.value.code == "secret"


def test_all_that_is_missing_is_named_at_once(resolver):
    """One error names every field and every variable, and no value."""
    with pytest.raises(SecretError) as caught:
        resolver(HAVE=SECRET).resolve_all({"a": "${ONE} ${TWO}", "b": "${HAVE}${THREE}", "c": "${HAVE}"}, "gh")
    for words in ("a: the environment variable ONE", "a: the environment variable TWO", "b: the environment variable"):
        assert words in str(caught.value)
    assert len(caught.value.details["problems"]) == 3
    assert SECRET not in str(caught.value.to_dict())


def test_without_strict_a_missing_variable_stays(resolver):
    """strict=False leaves `${NAME}` as it is written."""
    assert resolver(strict=False).resolve("${MISSING} ${env:ALSO}", "x") == "${MISSING} ${env:ALSO}"


def test_the_environment_is_read_when_asked(redact):
    """A variable that changes is seen at the next time, also through secretref:env."""
    environment = {"NAME": "first-value"}
    found = SecretResolver(environment=environment, redact=redact)
    assert found.resolve("${NAME} secretref:env:NAME", "x") == "first-value first-value"
    environment["NAME"] = "second-value"
    assert found.resolve("${NAME} secretref:env:NAME", "x") == "second-value second-value"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("GH_TOKEN", SECRET, True),
        ("ANYTHING", SECRET, True),
        ("KEY_HOST", SECRET, True),
        ("DB_HOST", "db.example.org", False),
        ("region", "eu-central-1", False),
        ("PROJECT", os.path.dirname(__file__), False),
        ("PWD", "not-really-a-path", False),
        ("TOKEN", "short", False),
        ("CREDENTIALS", __file__, False),
        ("LONG", "/" + "x" * 5000, True),
        ("NUL", "/a\0bcdefgh", True),
    ],
)
def test_which_variables_count_as_secret(resolver, redact, name, value, secret):
    """A variable is a secret unless its name or its value shows that it is none."""
    found = resolver(**{name: value}).expand({"f": f"${{{name}}}"}, "x")
    assert found.secrets == ({value} if secret else frozenset())
    assert redact.text(f"a {value} b") == (f"a {REDACTED} b" if secret else f"a {value} b")


def test_under_public_labels_only_telling_names_count(resolver):
    """In arguments of a command an ordinary variable is no secret, one that is called a token is."""
    found = resolver(PROJECT="my-project", GH_TOKEN=SECRET).expand(
        {"arg": "${PROJECT} ${GH_TOKEN}", "env": "x"}, "x", public={"arg"}
    )
    assert found.secrets == {SECRET}


def test_a_default_is_no_secret(resolver):
    """A default from the configuration itself is not hidden."""
    assert resolver().expand({"a": "${TOKEN:-from-the-file}"}, "x").secrets == frozenset()


def test_nothing_shows_a_value(resolver):
    """Neither the resolver nor what it gives has secrets in its repr."""
    found = resolver(TOKEN=SECRET)
    assert SECRET not in repr(found)
    assert SECRET not in repr(found.expand({"a": "${TOKEN}"}, "x")).replace(SECRET, "", 1)


# -- providers ---------------------------------------------------------------------------------------------------


def test_a_file(resolver, tmp_path, caplog):
    """A file's text is the secret, without one line break at its end."""
    path = tmp_path / "with blank"
    for text, expected in ((f"{SECRET}\n", SECRET), (f"{SECRET}\r\n", SECRET), (f"{SECRET}\n\n", f"{SECRET}\n")):
        path.write_bytes(text.encode())
        path.chmod(0o600)
        assert resolver().resolve(f"secretref:file:{path}", "x") == expected
    assert not caplog.records


def test_a_file_that_all_can_read(resolver, redact, tmp_path, caplog):
    """A file that all can read is used, with a warning that does not have its content."""
    path = tmp_path / "open"
    path.write_text(SECRET)
    path.chmod(0o644)
    assert resolver().resolve(f"secretref:file:{path}", "x") == SECRET
    assert "chmod 600" in caplog.text
    assert SECRET not in caplog.text
    assert redact.text(SECRET) == REDACTED


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff\xfe\xfd", "is not UTF-8 text"),
        (b"x" * (64 * 1024 + 1), "more than 64 KiB"),
    ],
)
def test_files_that_cannot_be_secrets(resolver, tmp_path, content, reason):
    """A missing, empty, binary or huge file is refused."""
    path = tmp_path / "f"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(SecretError, match=reason):
        resolver().resolve(f"secretref:file:{path}", "x")


def test_what_is_no_regular_file(resolver, tmp_path):
    """A directory, a pipe or a path that cannot be is refused, without waiting."""
    os.mkfifo(tmp_path / "pipe")
    for ref in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(SecretError, match="is not a regular file"):
            resolver().resolve(f"secretref:file:{ref}", "x")
    for ref in ("a\0b", "~nobody-has-this-name/x"):
        with pytest.raises(SecretError, match="cannot read the file"):
            resolver().resolve(f"secretref:file:{ref}", "x")


def python(code: str) -> str:
    return f"secretref:command:{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def test_a_command(resolver, redact):
    """The output of a command is the secret, stripped of whitespace; no shell reads the command."""
    assert resolver().resolve(python(f"print(' {SECRET} ')"), "x") == SECRET
    assert resolver().resolve(python("print('$HOME; echo `x` | cat > y')"), "x") == "$HOME; echo `x` | cat > y"
    assert redact.text(f"token={SECRET}&") == f"token={REDACTED}&"


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        (python(f"import sys; print('{SECRET}', file=sys.stderr); sys.exit(3)"), "exited with 3"),
        (python(f"import os; print('{SECRET}', flush=True); os.kill(os.getpid(), 9)"), "was ended by signal 9"),
        (python("pass"), "printed is empty"),
        (python("import sys; sys.stdout.buffer.write(b'\\xff')"), "is not UTF-8 text"),
        (python("while True: print('x' * 1000)"), "more than 64 KiB"),
        ("secretref:command:no-such-program-here a", "'no-such-program-here' cannot be started: No such file"),
        ("secretref:command:'open", "open quote"),
        ("secretref:command:  ", "is empty"),
        ("secretref:command:a\0b", "NUL"),
    ],
)
def test_commands_that_fail(resolver, ref, reason):
    """Whatever goes wrong, the error says what, and has nothing that the command wrote."""
    with pytest.raises(SecretError, match=reason) as caught:
        resolver().resolve(ref, "x")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_command_that_never_ends(resolver, monkeypatch):
    """Stops a command with all its children, even when a child holds its output open."""
    monkeypatch.setattr(providers, "COMMAND_SECONDS", 0.2)
    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
    with pytest.raises(SecretError, match=r"did not end within 0\.2 s"):
        resolver().resolve(python(code), "x")


@pytest.fixture
def keyring(monkeypatch):
    """A keyring module with one password."""
    module = types.ModuleType("keyring")
    module.get_password = lambda service, name: {("git hub/x", "ann"): SECRET}.get((service, name))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    return module


def test_the_keyring(resolver, keyring):
    """The reference is a service and a name; the last slash parts them."""
    assert resolver().resolve("secretref:keyring:git hub/x/ann", "x") == SECRET
    with pytest.raises(SecretError, match="has no password for bob of s"):
        resolver().resolve("secretref:keyring:s/bob", "x")
    with pytest.raises(SecretError, match="is not keyring:<service>/<name>"):
        resolver().resolve("secretref:keyring:bob", "x")


def test_a_keyring_that_fails(resolver, keyring):
    """Only the kind of its failure is told."""

    def locked(service, name):
        raise RuntimeError(f"locked {SECRET}")

    keyring.get_password = locked
    with pytest.raises(SecretError, match=r"cannot be used \(RuntimeError\)") as caught:
        resolver().resolve("secretref:keyring:s/bob", "x")
    assert SECRET not in str(caught.value)


def test_without_the_extra_the_keyring_says_so(resolver, monkeypatch):
    """The error names the extra to install."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(MissingExtraError, match="keyring"):
        resolver().resolve("secretref:keyring:s/n", "x")


def test_own_providers(resolver):
    """A provider is a function; it may take the place of a given one, and what it raises is not shown."""

    def broken(ref):
        raise ValueError(f"cannot read {SECRET}")

    def refusing(ref):
        raise SecretError(f"vault has no {ref}")

    own = {
        "vault": lambda ref: f"v-{ref}",
        "env": lambda ref: "mine",
        "broken": broken,
        "no": refusing,
        "none": lambda _: None,
    }
    found = resolver(own)
    assert found.resolve("secretref:vault:a/b#c secretref:env:X", "x") == "v-a/b#c secretref:env:X"
    assert found.resolve("- secretref:vault:a/b#c secretref:env:X", "x") == "- v-a/b#c mine"
    for name, reason in (("broken", "failed with ValueError"), ("no", "vault has no q"), ("none", "gave no text")):
        with pytest.raises(SecretError, match=reason) as caught:
            found.resolve(f"secretref:{name}:q", "x")
        assert SECRET not in str(caught.value)


def test_a_secret_is_kept_until_it_is_wanted_fresh(resolver, monkeypatch):
    """A provider is asked once in ten minutes; `fresh` asks again, and a failure is not kept."""
    asked = []

    def vault(ref):
        asked.append(ref)
        if len(asked) == 1:
            raise SecretError("not yet")
        return f"value-{len(asked)}"

    found = resolver({"vault": vault})
    text = {"a": "secretref:vault:x"}
    with pytest.raises(SecretError):
        found.expand(text, "x")
    assert [found.expand(text, "x").strings["a"] for _ in range(2)] == ["value-2", "value-2"]
    assert found.expand(text, "x", fresh=True).strings["a"] == "value-3"
    assert found.expand(text, "x").strings["a"] == "value-3"
    monkeypatch.setattr("toolexec.backend.secrets.resolver._KEEP_SECONDS", 0.0)
    assert found.expand(text, "x").strings["a"] == "value-4"


def test_who_asks_at_the_same_time_shares_the_answer(resolver):
    """Several threads that want one secret make one question."""
    asked, begun, go = [], threading.Event(), threading.Event()

    def vault(ref):
        asked.append(ref)
        begun.set()
        assert go.wait(30)
        return SECRET

    found = resolver({"vault": vault})
    values = []
    threads = [
        threading.Thread(target=lambda: values.append(found.resolve("secretref:vault:x", "x"))) for _ in range(4)
    ]
    threads[0].start()
    assert begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert values == [SECRET] * 4
    assert len(asked) == 1


# -- scrubbing ---------------------------------------------------------------------------------------------------


def test_secrets_are_taken_out_of_values():
    """Strings and keys at any depth lose the secret in every spelling; what has none is the same object."""
    scrub = Scrubber([SECRET, "tiny", ""])
    dirty = {"a": [{"TOKEN": f"x{SECRET}y"}, {SECRET: 1}], "n": 1, "b": None, "u": "s3cr3t-Value%2Fwith%2Bsigns%3D42"}
    assert scrub.value(dirty) == {
        "a": [{"TOKEN": f"x{REDACTED}y"}, {REDACTED: 1}],
        "n": 1,
        "b": None,
        "u": REDACTED,
    }
    assert dirty["a"][0] == {"TOKEN": f"x{SECRET}y"}
    clean = {"a": [1, "tiny", {"b": True}], "c": {}}
    assert scrub.value(clean) is clean
    assert scrub
    assert scrub.longest > len(SECRET)


@pytest.mark.parametrize(
    "text",
    [
        "s3cr3t-Value%2fwith%2bsigns%3d42",
        "s3cr3t-Value/with%2Bsigns%3D42",
        "czNjcjN0LVZhbHVlL3dpdGgrc2lnbnM9NDI",
        "7333637233742d56616c75652f776974682b7369676e733d3432",
    ],
)
def test_spellings(text):
    """Percent-encoded, base64 and hex forms are known."""
    assert Scrubber([SECRET]).text(f"<{text}>") == f"<{REDACTED}>"


def test_spellings_with_quotes_and_lines():
    """A secret within JSON or Python text, and single lines of a key, are known."""
    key = 'line one "quoted" of it\nline two of the key\n'
    scrub = Scrubber([key])
    assert scrub.text('{"k": "line one \\"quoted\\" of it\\nline two of the key\\n"}') == f'{{"k": "{REDACTED}"}}'
    assert scrub.text("there is line two of the key here") == f"there is {REDACTED} here"


def test_an_empty_scrubber():
    """Without secrets of a useful length there is nothing to do."""
    scrub = Scrubber(["12345"])
    assert not scrub
    assert scrub.longest == 0
    assert scrub.text("12345") == "12345"


def test_logging_of_arguments_is_discreet(tmp_path, caplog, resolver):
    """No step of resolving logs a value at any level."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "s"
    path.write_text(SECRET)
    resolver(TOKEN=SECRET).resolve_all(
        {"a": "${TOKEN}", "b": f"secretref:file:{path}", "c": python(f"print({SECRET!r})")}, "x"
    )
    assert SECRET not in caplog.text

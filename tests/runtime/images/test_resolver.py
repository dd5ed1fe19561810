"""Names of images, when to pull, and pins."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.runtime.images.resolver import PullPolicy, Reference, check_pin, missing_image, next_step, parse_reference

DIGEST = f"sha256:{'ab' * 32}"


@pytest.mark.parametrize(
    ("text", "parts", "plain", "full"),
    [
        ("py", Reference(path="py"), "py:latest", "docker.io/library/py:latest"),
        ("py:3.12", Reference(path="py", tag="3.12"), "py:3.12", "docker.io/library/py:3.12"),
        ("team/py", Reference(path="team/py"), "team/py:latest", "docker.io/team/py:latest"),
        (f"py@{DIGEST}", Reference(path="py", digest=DIGEST), "py:latest", f"docker.io/library/py@{DIGEST}"),
        (f"py:1@{DIGEST}", Reference(path="py", tag="1", digest=DIGEST), "py:1", f"docker.io/library/py@{DIGEST}"),
        ("localhost/py", Reference(registry="localhost", path="py"), "localhost/py:latest", "localhost/py:latest"),
        ("r.io/a/b:c", Reference(registry="r.io", path="a/b", tag="c"), "r.io/a/b:c", "r.io/a/b:c"),
        ("h:5000/a", Reference(registry="h:5000", path="a"), "h:5000/a:latest", "h:5000/a:latest"),
        ("[::1]:5000/a:1", Reference(registry="[::1]:5000", path="a", tag="1"), "[::1]:5000/a:1", "[::1]:5000/a:1"),
        (
            "docker.io/py",
            Reference(registry="docker.io", path="py"),
            "docker.io/py:latest",
            "docker.io/library/py:latest",
        ),
        (DIGEST, Reference(digest=DIGEST), DIGEST, DIGEST),
    ],
)
def test_a_name_is_taken_apart(text: str, parts: Reference, plain: str, full: str) -> None:
    found = parse_reference(text)
    assert found == parts
    assert found.plain == plain
    assert found.full == full
    assert found.can_be_pulled == bool(parts.path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Py",
        "py:",
        "py:a b",
        "/rootfs",
        "a//b",
        "a/",
        "-py",
        "py@sha256:12",
        "py@md5:12",
        "py@",
        "h:port/a",
        "h:123456/a",
        "../a",
        "py\n",
        "py:tag:tag",
        f"py@{DIGEST}@{DIGEST}",
        "-.-/a",
        "p" * 500,
        "sha256:abc/../x",
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"not a name of an image|pinned to no digest"):
        parse_reference(text)


@given(st.text(max_size=60))
def test_no_text_passes_that_could_be_anything_else_than_a_name(text: str) -> None:
    try:
        found = parse_reference(text)
    except ConfigurationError:
        return
    assert not set(text) & set(" ?#%&\\\n\t'\"")
    assert parse_reference(found.full).full == found.full


def test_what_to_do_about_an_image() -> None:
    steps = {
        (policy, present): next_step(policy, present=present)  # type: ignore[arg-type]
        for policy in get_args(PullPolicy)
        for present in (False, True)
    }
    assert steps == {
        ("never", False): "refuse",
        ("never", True): "use",
        ("missing", False): "pull",
        ("missing", True): "use",
        ("always", False): "pull",
        ("always", True): "pull",
    }


@pytest.mark.parametrize("policy", get_args(PullPolicy))
def test_what_the_store_has_is_never_pulled(policy: str) -> None:
    assert next_step(policy, present=False, stored=True) == "load"  # type: ignore[arg-type]
    assert next_step(policy, present=True, stored=True) == "use"  # type: ignore[arg-type]
    assert next_step(policy, present=True, stored=True, outdated=True) == "load"  # type: ignore[arg-type]


def test_a_pin_must_match() -> None:
    check_pin(parse_reference("py"), [], "py")
    check_pin(parse_reference(f"py@{DIGEST}"), ["sha256:other", DIGEST], "py")
    with pytest.raises(SandboxUnavailableError, match="digests are: sha256:other") as caught:
        check_pin(parse_reference(f"py@{DIGEST}"), ["sha256:other"], "py")
    assert caught.value.details == {"image": "py", "digests": ["sha256:other"]}
    with pytest.raises(SandboxUnavailableError, match="digests are: none"):
        check_pin(parse_reference(f"py@{DIGEST}"), [], "py")


def test_a_missing_image_says_what_to_do() -> None:
    """The error names the command, and that the images of other users are not seen."""
    message = missing_image("py", "the daemon has none").message
    assert "`toolexec image build` as this user" in message
    assert "root or another user" in message

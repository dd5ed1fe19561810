"""The commands for images: build, import, list, verify, remove."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engines.images import TEST_IMAGE, test_image
from tests.runtime.images.test_build import require_debootstrap
from tests.runtime.images.trees import make_tree

from toolexec.runtime.images import store as store_module
from toolexec.runtime.images.build import Recipe
from toolexec.runtime.images.lock import Lock
from toolexec.runtime.images.store import Facts, ImageStore, StoredImage

Cli = Callable[..., Any]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own."""
    monkeypatch.setenv("TOOLEXEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small root file system."""
    return make_tree(tmp_path / "tree", motd="hello")


def keep(name: str, recipe: Recipe | None = None, **facts: Any) -> StoredImage:
    """Put a small image into the store of the test."""
    store = ImageStore()
    if recipe is not None:
        facts["recipe"] = {**recipe.to_json(), "lock": recipe.lock.digest if recipe.lock is not None else ""}
    with store.scratch() as work:
        return store.add(name, make_tree(work / "rootfs"), Facts(**facts))


def test_an_image_is_imported_listed_and_removed(cli: Cli, cache: Path, tree: Path) -> None:
    """Each command says what it did."""
    said = cli("image", "list").stderr
    assert str(cache / "images") in said.replace("\n", "")
    assert "root and other users have their own; toolexec image build makes one" in " ".join(said.split())
    done = cli("image", "import", tree, "--name", "team/small:2")
    assert done.exit_code == 0
    assert "reading tree" in done.stderr
    assert "team/small:2 is ready, after " in done.stdout
    assert f"in {cache / 'images'}" in done.stdout.replace("\n", "")
    listed = json.loads(cli("image", "list", "--json").stdout)
    assert listed["directory"] == str(cache / "images")
    [image] = listed["images"]
    assert (image["name"], image["packages"], image["python"]) == ("team/small:2", {}, "")
    assert image["digest"].startswith("sha256:")
    assert image["imageId"].startswith("sha256:")
    assert (Path(image["root"]) / "etc/motd").read_text() == "hello"
    assert "team/small:2" in cli("image", "list").stdout
    freed = json.loads(cli("image", "remove", "team/small:2", "--json").stdout)["freedBytes"]
    assert freed == image["bytes"]
    assert json.loads(cli("image", "list", "--json").stdout)["images"] == []


def test_an_image_that_was_changed_is_found(cli: Cli, cache: Path) -> None:
    """Reads everything again, names what was written to, and goes by the digest where the times are hidden."""
    image, other = keep("tools"), keep("others")
    done = cli("image", "verify")
    assert done.exit_code == 0
    assert f"tools is as it was kept: {image.digest}" in " ".join(done.stdout.split())
    shell = image.root / "usr/bin/sh"
    kept = shell.stat()
    shell.write_bytes(b"#!llehs\n" * 10)
    os.utime(shell, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    done = cli("image", "verify", "--json")
    assert done.exit_code == 1
    found = {each["name"]: each for each in json.loads(done.stdout)["images"]}
    assert found["others"] == {"name": "others", "digest": other.digest, "ok": True, "problems": [], "changed": []}
    assert found["tools"]["changed"] == ["usr/bin/dash", "usr/bin/sh"]
    assert "and were kept with sha256:" in found["tools"]["problems"][0]
    shown = " ".join(cli("image", "verify", "tools").stdout.split())
    assert "tools was changed on the disk; remove it and make it again" in shown
    assert "changed: usr/bin/sh" in shown
    assert cli("image", "verify", "others").exit_code == 0
    missing = cli("image", "verify", "tool")
    assert missing.exit_code == 2
    assert "did you mean tools" in " ".join(missing.stderr.split())


def test_the_list_says_what_is_in_an_image(cli: Cli, cache: Path) -> None:
    """Languages and packages."""
    keep("tools", python="3.11.2", node="18.20.4", packages={"rich": "15.0.0"})
    text = " ".join(cli("image", "list").stdout.split())
    for part in ("tools", "Python 3.11.2", "node 18.20.4", "rich 15.0.0"):
        assert part in text
    done = cli("image", "remove", "--all")
    assert "MB set free" in done.stdout
    assert ImageStore().list() == []


def test_an_import_tells_in_json(cli: Cli, cache: Path, tree: Path) -> None:
    """One document, and nothing on stderr."""
    done = cli("image", "import", tree, "--name", "small", "--json")
    data = json.loads(done.stdout)
    assert (data["image"]["name"], data["built"], done.stderr) == ("small", True, "")
    assert data["durationMs"] > 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["remove", "absent"], "there is no image 'absent' to remove; in "),
        (["remove"], "give the name of an image, or --all"),
        (["remove", "a", "--all"], "give the name of an image, or --all"),
        (["import", "absent.tar", "--name", "a"], "neither a file nor a directory"),
        (["import", ".", "--name", "A!"], "is not a name for an image"),
        (["build", "--with", "../evil"], "is not a package"),
        (["build", "--suite", "../evil"], "is not a release of Debian"),
        (["build", "--dockerfile", "absent"], "there is no file absent"),
        (["build", "--dockerfile", "absent", "--node", "--with", "rich"], "--with, --node: what the image has"),
        (["build", "--lock", "."], "cannot read"),
    ],
)
def test_what_makes_no_sense(cli: Cli, cache: Path, words: list[str], message: str) -> None:
    """Exit code 2, with the reason."""
    done = cli("image", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert json.loads(cli("image", *words, "--json").stdout)["error"]["code"]


@pytest.mark.full
def test_what_is_there_is_not_built_again(cli: Cli) -> None:
    """The image of the tests is; it takes no time."""
    test_image()
    words = ("image", "build", "--name", TEST_IMAGE, "--node", "--with", "Humanize")
    done = cli(*words)
    assert done.exit_code == 0
    assert f"{TEST_IMAGE} is ready, it was built before: " in done.stdout
    data = json.loads(cli(*words, "--json").stdout)
    assert (data["built"], data["image"]["packages"].keys()) == (False, {"humanize"})
    done = cli("image", "build", "--name", TEST_IMAGE)
    assert done.exit_code == 2
    assert "made from something else" in done.stderr


def test_a_lock_says_what_is_wanted(cli: Cli, cache: Path, tmp_path: Path) -> None:
    """A lock replaces the list of requirements; one that cannot be written any more is reported missing."""
    lock = Lock(suite="trixie", node=True, go=True, requirements=("rich",), system={}, packages={})
    lock.write(tmp_path / "image.lock")
    keep("locked", Recipe(suite="trixie", node=True, go=True, packages=("rich",), lock=lock))
    data = json.loads(cli("image", "build", "--name", "locked", "--lock", tmp_path / "image.lock", "--json").stdout)
    assert (data["built"], data["lock"]) == (False, str(tmp_path / "image.lock"))
    done = cli("image", "build", "--name", "locked", "--lock", tmp_path / "image.lock", "--with", "humanize")
    assert "the lock is that of an image with something else" in " ".join(done.stderr.split())
    keep("plain", Recipe())
    done = cli("image", "build", "--name", "plain", "--lock", tmp_path / "new.lock")
    assert done.exit_code == 2
    assert "--replace builds it again and writes" in " ".join(done.stderr.split())


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_that_is_interrupted(cache: Path, number: signal.Signals) -> None:
    """Nothing of it is left, and nothing runs on."""
    require_debootstrap()
    words = [sys.executable, "-m", "toolexec", "image", "build", "--name", "small"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        ends = time.monotonic() + 60
        while not [*cache.glob("images/new/*/rootfs/debootstrap")]:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < ends
            time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert "installing Debian" in said
    assert os.listdir(cache / "images" / "new") == []
    assert str(cache) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize("words", [["build"], ["import"], ["list"], ["remove"], []])
def test_every_command_has_help(cli: Cli, words: list[str]) -> None:
    """Every command has help and JSON."""
    text = cli("image", *words, "--help").stdout
    assert ("--json" in text) == bool(words)


def test_an_image_for_machines_is_listed_with_its_kernel(cli: Cli, cache: Path) -> None:
    """Listed beside the languages; in JSON also the digest of what is booted."""
    keep("machine", python="3.11.2", kernel="6.1.0-50")
    assert "Linux" in cli("image", "list").stdout
    [image] = json.loads(cli("image", "list", "--json").stdout)["images"]
    assert (image["kernel"], image["vmDigest"]) == ("6.1.0-50", "")


def test_a_dockerfile_makes_no_image_for_machines(cli: Cli, cache: Path, tmp_path: Path) -> None:
    """Both together are refused."""
    done = cli("image", "build", "--kind", "vm", "--dockerfile", tmp_path / "Dockerfile")
    assert done.exit_code != 0
    assert "--kind" in done.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root shares images")
def test_an_image_is_shared_with_all_users(
    cli: Cli, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shown as that, kept from being removed as one's own, and shared no longer on request."""
    machine = tmp_path / "machine"
    monkeypatch.setattr(store_module, "MACHINE_DIRECTORY", machine)
    image = keep("team/tools")
    done = cli("image", "share", "team/tools", "--json")
    assert done.exit_code == 0, done.output
    shared = {"name": "team/tools", "digest": image.digest, "shared": True}
    assert json.loads(done.stdout) == {"directory": str(machine), "image": shared}
    assert cli("image", "remove", "team/tools").exit_code == 0
    assert f"shared by root, in {machine}: team/tools" in " ".join(cli("image", "list").stderr.split())
    refused = cli("image", "remove", "team/tools")
    assert refused.exit_code == 2
    assert "toolexec image share --remove team/tools" in " ".join(refused.stderr.split())
    assert cli("image", "share", "team/tools").exit_code == 2
    assert "is not shared any more" in cli("image", "share", "--remove", "team/tools").stdout
    assert ImageStore().find("team/tools") is None


def test_an_image_is_exported(cli: Cli, cache: Path, tmp_path: Path) -> None:
    """The command prints the digest of the file, and import takes that file only."""
    keep("team/tools")
    file = tmp_path / "image.tar"
    data = json.loads(cli("image", "export", "team/tools", file, "--json").stdout)
    assert (data["file"], data["sizeBytes"], data["image"]["name"]) == (str(file), file.stat().st_size, "team/tools")
    assert cli("image", "import", file, "--name", "again", "--digest", data["fileDigest"]).exit_code == 0
    refused = cli("image", "import", file, "--name", "no", "--digest", "sha256:0")
    assert (refused.exit_code, [each.name for each in ImageStore().list()]) == (2, ["again", "team/tools"])
    assert "get it again" in " ".join(refused.stderr.split())
    said = cli("image", "export", "team/tool", tmp_path / "other.tar")
    assert said.exit_code == 2
    assert "team/tools" in said.stderr
    assert f"team/tools is in {tmp_path / 'b.tar'}: " in cli(
        "image", "export", "team/tools", tmp_path / "b.tar"
    ).stdout.replace("\n", "")

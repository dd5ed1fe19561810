"""Images from elsewhere come in whole, or not at all; nothing in them can do harm."""

from __future__ import annotations

import gzip
import json
import os
import socket
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.images.trees import SHELL, Entry, digest, docker_files, entry, make_tree, oci_files, tar_of

from toolexec.errors import ConfigurationError
from toolexec.process.steps import BuildStep
from toolexec.runtime.images import contents as contents_module
from toolexec.runtime.images import sources as sources_module
from toolexec.runtime.images.import_ import import_image
from toolexec.runtime.images.store import ImageStore, StoredImage

Bring = Callable[..., StoredImage]
DIRECTORY, LINK, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    """A store of the test's own."""
    return ImageStore(tmp_path / "images")


@pytest.fixture
def bring(store: ImageStore, tmp_path: Path) -> Bring:
    """Imports bytes, the entries of a tar, or the files of an archive."""

    def do(what: bytes | tuple[Entry, ...] | Mapping[str, bytes]) -> StoredImage:
        if isinstance(what, Mapping):
            what = tuple(what.items())
        path = tmp_path / "source.tar"
        path.write_bytes(what if isinstance(what, bytes) else tar_of(what))
        return import_image(store, path, "small")

    return do


def refused(store: ImageStore, bring: Bring, what: Any, why: str) -> None:
    """Check that the import is refused for this reason, and leaves nothing."""
    with pytest.raises(ConfigurationError, match=why):
        bring(what)
    assert store.list() == []
    assert os.listdir(store.directory / "new") == []


def test_a_root_file_system(bring: Bring) -> None:
    """Modes and times stay; names with ./ or / in front are the same names."""
    image = bring(
        (*SHELL, ("./etc/motd", b"hello"), ("/opt/tool", b"x"), entry("srv/a", DIRECTORY, mode=0o700, mtime=5))
    )
    assert (image.root / "etc/motd").read_bytes() == b"hello"
    assert (image.root / "opt/tool").read_bytes() == b"x"
    status = (image.root / "srv/a").stat()
    assert (status.st_mode & 0o777, status.st_mtime) == (0o700, 5)
    assert image.recipe == {"source": "source.tar", "form": "tar"}
    for name in ("dev", "proc", "sys", "tmp", "work"):
        assert (image.root / name).is_dir()


def test_a_compressed_one(bring: Bring) -> None:
    """With gzip."""
    assert (bring(gzip.compress(tar_of(SHELL))).root / "bin/sh").read_bytes() == b"shell"


def test_a_directory(store: ImageStore, tmp_path: Path) -> None:
    """The same content has the same digest, however it came; sockets in it are left out."""
    root = make_tree(tmp_path / "root", motd="hello")
    for path in (*root.rglob("*"), root):
        os.utime(path, (7, 7), follow_symlinks=False)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(root / "tmp/socket"))
    os.mkfifo(root / "usr/pipe")
    os.utime(root / "usr", (7, 7))
    image = import_image(store, root, "small")
    assert (image.root / "etc/motd").read_text() == "hello"
    assert (image.root / "bin").readlink() == Path("usr/bin")
    assert (image.root / "usr/bin/sh").stat().st_mode & 0o777 == 0o755
    assert not (image.root / "usr/pipe").exists()
    assert os.listdir(image.root / "tmp") == []
    again = import_image(store, image.root, "again")
    assert again.digest == image.digest


def test_what_the_store_gives_it_takes(store: ImageStore, bring: Bring) -> None:
    """The digest is the same, and so is the id."""
    first = bring((*SHELL, ("etc/motd", b"hello"), entry("sh", LINK, "bin/sh"), entry("dash", HARD, "bin/sh")))
    assert (first.root / "dash").samefile(first.root / "bin/sh")
    again = import_image(store, store.archive(first), "small")
    assert again.digest == first.digest
    assert again.recipe["form"] == "oci"
    assert again.env["PATH"]


def test_layers_cover_each_other(bring: Bring) -> None:
    """A deletion by an upper layer counts, its own files stay, and links to files below become files."""
    lower = tar_of(
        (
            *SHELL,
            ("a/old", b"1"),
            ("a/gone", b"2"),
            ("b/x/deep", b"3"),
            ("c/file", b"4"),
            entry("lib", LINK, "usr/lib"),
            entry("usr/lib", DIRECTORY),
            ("kind", b"5"),
            entry("kinds", DIRECTORY),
            ("kinds/in", b"6"),
        )
    )
    upper = tar_of(
        (
            ("a/.wh.gone", b""),
            ("a/.wh.never", b""),
            ("b/new", b"new"),
            ("b/.wh..wh..opq", b""),
            (".wh.c", b""),
            ("lib/through", b"through"),
            entry("kind", DIRECTORY, mode=0o700),
            ("kinds", b"a file now"),
            entry("a/hard", HARD, "a/old"),
        )
    )
    image = bring(oci_files([lower, gzip.compress(upper)][:1] + [upper], packed=[lower, gzip.compress(upper)]))
    root = image.root
    assert sorted(os.listdir(root / "a")) == ["hard", "old"]
    assert (root / "a/hard").samefile(root / "a/old")
    assert os.listdir(root / "b") == ["new"]
    assert not (root / "c").exists()
    assert (root / "usr/lib/through").read_bytes() == b"through"
    assert (root / "lib").is_symlink()
    assert (root / "kind").stat().st_mode & 0o777 == 0o700
    assert (root / "kinds").read_bytes() == b"a file now"


def test_what_a_layer_has_itself_outlives_its_own_whiteout(bring: Bring) -> None:
    """In whatever order they come."""
    lower = tar_of((*SHELL, ("a/one", b"1"), ("a/two", b"2")))
    upper = tar_of((("a/one", b"new"), (".wh.a", b"")))
    assert os.listdir(bring(oci_files([lower, upper])).root / "a") == ["one"]


def test_an_oci_layout_in_a_directory(store: ImageStore, tmp_path: Path) -> None:
    """With the variables of the image, and an index in the index, of which ours is taken."""
    files = oci_files([tar_of(SHELL)], config={"config": {"Env": ["A=b=c", "odd", 5]}})
    inner = json.loads(files["index.json"])
    other = {"digest": f"sha256:{'0' * 64}", "platform": {"os": "linux", "architecture": "pdp11"}}
    middle = json.dumps({"manifests": [other, *inner["manifests"]]}).encode()
    files[f"blobs/{digest(middle).replace(':', '/')}"] = middle
    files["index.json"] = json.dumps({"manifests": [{"digest": digest(middle), "size": len(middle)}]}).encode()
    for name, data in files.items():
        (tmp_path / "layout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "layout" / name).write_bytes(data)
    image = import_image(store, tmp_path / "layout", "small")
    assert (image.root / "bin/sh").read_bytes() == b"shell"
    assert image.env == {"A": "b=c"}


def test_what_docker_saves(bring: Bring) -> None:
    """Imports Docker's archive, even where a layer is a link to another one."""
    lower, upper = tar_of((*SHELL, ("a", b"1"))), tar_of((("a", b"2"),))
    files = docker_files({"x/layer.tar": lower, "y/layer.tar": upper}, config={"Env": ["A=b"]})
    image = bring(files)
    assert (image.root / "a").read_bytes() == b"2"
    assert (image.recipe["form"], image.env) == ("docker", {"A": "b"})
    files = docker_files({"x/layer.tar": lower, "y/layer.tar": lower})
    linked = tuple(item for item in files.items() if item[0] != "y/layer.tar")
    assert (bring((*linked, entry("y/layer.tar", LINK, "../x/layer.tar"))).root / "a").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (("../evil", b"x"), "leads out of the image"),
        (("a/../../evil", b"x"), "leads out of the image"),
        (entry("etc/disk", tarfile.BLKTYPE), "device"),
        (entry("etc/tty", tarfile.CHRTYPE), "device"),
        (entry("etc/pipe", tarfile.FIFOTYPE), "device"),
        (entry("etc/shadow", HARD, "../../etc/shadow"), "leads out of the image"),
        (entry("etc/shadow", HARD, "/etc/shadow"), "not a file of the image"),
        (entry("etc/shadow", HARD, "bin"), "not a file of the image"),
        (entry("etc/shadow", HARD, "."), "not a file of the image"),
        (("bin/sh/inner", b"x"), "used as a directory"),
        (("/".join("d" * 120), b"x"), "too deep"),
        (("a/" + "n" * 256, b"x"), "too long"),
        (("/".join(["n" * 200] * 11), b"x"), "too deep or too long"),
    ],
)
def test_hostile_names_are_refused(store: ImageStore, bring: Bring, item: Entry, why: str) -> None:
    """The image as a whole is."""
    refused(store, bring, (*SHELL, item), why)


def test_links_lead_nowhere_outside(bring: Bring, tmp_path: Path) -> None:
    """Links are kept as they are, and paths through them stay in the tree."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    up = "../" * 30
    image = bring(
        (
            *SHELL,
            entry("out", LINK, str(outside)),
            ("out/written", b"through an absolute link"),
            entry("etc", LINK, f"{up}{outside}"),
            ("etc/written", b"through a relative one"),
            entry("opt-1", LINK, "/opt"),
            ("opt-1/absolute", b"inside"),
            entry("opt-2", LINK, f"{up}opt"),
            ("opt-2/relative", b"inside"),
            entry("stolen", LINK, str(outside / "secret")),
            ("stolen", b"over a link"),
        )
    )
    assert os.listdir(outside) == ["secret"]
    assert (image.root / "opt/absolute").read_bytes() == (image.root / "opt/relative").read_bytes() == b"inside"
    assert (image.root / "stolen").read_bytes() == b"over a link"
    assert (outside / "secret").read_text() == "secret"


@pytest.mark.parametrize("name", ["proc", "tmp", "work", "dev"])
def test_places_of_the_sandbox_are_directories(bring: Bring, tmp_path: Path, name: str) -> None:
    """Whatever the image has there: a link would lead mounts elsewhere."""
    items = (
        *SHELL,
        entry(name, LINK, "/etc"),
        entry("dev/sda", tarfile.BLKTYPE),
        entry(f"{name}/hard", HARD, "bin/sh"),
    )
    image = bring(items)
    assert (image.root / name).is_dir()
    assert not (image.root / name).is_symlink()
    assert os.listdir(image.root / name) == []


@pytest.mark.parametrize(
    "links",
    [
        (entry("a", LINK, "a"), ("a/x", b"")),
        (entry("a", LINK, "b"), entry("b", LINK, "a"), ("a/x", b"")),
        tuple(entry(f"l{n}", LINK, f"l{n + 1}/l{n + 1}") for n in range(60)) + (("l0/x", b""),),
    ],
)
def test_circles_of_links_are_refused(store: ImageStore, bring: Bring, links: tuple[Entry, ...]) -> None:
    """Rather than followed for ever."""
    refused(store, bring, (*SHELL, *links), "too many links")


def test_rights_of_others_are_taken_away(bring: Bring) -> None:
    """No program of an image runs as another user."""
    image = bring((*SHELL, entry("su", mode=0o6755)))
    assert (image.root / "su").stat().st_mode & 0o7777 == 0o755


def test_too_much_is_refused(store: ImageStore, bring: Bring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many files, too many bytes, and gzip that unpacks to too many."""
    monkeypatch.setattr(contents_module, "MAX_ENTRIES", 50)
    refused(store, bring, (*SHELL, *((f"f{number}", b"") for number in range(60))), "too large")
    monkeypatch.setattr(sources_module, "MAX_ENTRIES", 50)
    refused(store, bring, (*SHELL, *((f"f{number}", b"") for number in range(60))), "more than 50 entries")
    monkeypatch.setattr(contents_module, "MAX_BYTES", 1000)
    refused(store, bring, (*SHELL, ("big", bytes(1001))), "too large")
    monkeypatch.setattr(sources_module, "MAX_BYTES", 1 << 20)
    refused(store, bring, gzip.compress(bytes(3 << 20)), "holds more than")


def test_a_header_of_megabytes_is_refused(store: ImageStore, bring: Bring) -> None:
    """Such a header would be read into memory at once."""
    header = entry("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=8 << 20).tobuf(tarfile.GNU_FORMAT)
    refused(store, bring, header + b"n" * (8 << 20) + tar_of(SHELL), "header of many megabytes")


@pytest.mark.parametrize("cut", [700, 1100, 1600])
def test_a_cut_archive_is_refused(store: ImageStore, bring: Bring, cut: int) -> None:
    """Wherever it was cut."""
    refused(store, bring, tar_of((*SHELL, ("a", b"x" * 900)))[:cut], "damaged|ends in the middle")
    refused(store, bring, gzip.compress(tar_of((*SHELL, ("a", os.urandom(2000)))))[:cut], "damaged")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x28\xb5\x2f\xfd rest", "zstd"),
        (b"\xfd7zXZ rest", "xz"),
        (b"no tar at all" * 100, "not a tar"),
        (b"", "not a tar"),
        (tar_of((("a", b"x"),)), "no root file system"),
        (gzip.compress(b"no tar at all" * 100, mtime=0), "not a tar"),
    ],
)
def test_what_is_no_image(store: ImageStore, bring: Bring, data: bytes, why: str) -> None:
    """Refuses what is not an image with a reason."""
    refused(store, bring, data, why)


def changed(files: dict[str, bytes], name: str, data: bytes) -> dict[str, bytes]:
    """The files of an archive with another content for one."""
    return {**files, next(key for key in files if key.endswith(name)): data}


LAYER = tar_of(SHELL)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (changed(oci_files([LAYER]), digest(LAYER)[7:], tar_of((*SHELL, ("evil", b"x")))), "the content of sha256:"),
        (oci_files([LAYER], packed=[gzip.compress(tar_of((("evil", b"x"),)))]), "the content of layer 1"),
        (oci_files([LAYER], config={"architecture": "pdp11"}), "is for pdp11"),
        (oci_files([LAYER], config={"rootfs": {"diff_ids": []}}), "not those that it names"),
        (oci_files([LAYER], config={"rootfs": 5}), "lacks a part"),
        (changed(oci_files([LAYER]), "index.json", b"{"), "not JSON"),
        (changed(oci_files([LAYER]), "index.json", b"[]"), "lacks a part"),
        (changed(oci_files([LAYER]), "index.json", b'{"manifests": 5}'), "lacks a part"),
        (changed(oci_files([LAYER]), "index.json", b'{"manifests": []}'), "0 images"),
        (changed(oci_files([LAYER]), "index.json", b'{"manifests": [{"digest": "md5:1"}]}'), "no digest"),
        (changed(oci_files([LAYER]), "index.json", b'{"manifests": [{"digest": "sha256:../../x"}]}'), "no digest"),
        (changed(oci_files([LAYER]), "index.json", b" " * (5 << 20)), "too long"),
        ({k: v for k, v in oci_files([LAYER]).items() if digest(LAYER)[7:] not in k}, "is missing"),
        (docker_files({"../../etc/passwd": LAYER}) | {"x": b""}, "is missing|leads out"),
        (docker_files({"l.tar": LAYER}, rootfs={"diff_ids": [digest(b"")]}), "content of layer 1"),
        (changed(docker_files({"l.tar": LAYER}), "manifest.json", b"[{},{}]"), "2 images"),
        (changed(docker_files({"l.tar": LAYER}), "manifest.json", b'[{"Config":"config.json"}]'), "layers is missing"),
        (changed(docker_files({"l.tar": LAYER}), "manifest.json", b'[{"Config":"/etc/passwd"}]'), "is missing"),
    ],
)
def test_archives_that_are_not_what_they_say(
    store: ImageStore, bring: Bring, files: dict[str, bytes], why: str
) -> None:
    """Digests are compared, and nothing is looked for outside."""
    if "../../etc/passwd" in files:
        files = {key: value for key, value in files.items() if key != "../../etc/passwd"}
    refused(store, bring, files, why)


def test_an_index_that_leads_to_itself(store: ImageStore, bring: Bring) -> None:
    """Refuses a long path of indexes; with digests, a loop is impossible."""
    files = oci_files([LAYER])
    for _ in range(5):
        inner = files["index.json"]
        files[f"blobs/{digest(inner).replace(':', '/')}"] = inner
        files["index.json"] = json.dumps({"manifests": [{"digest": digest(inner)}]}).encode()
    refused(store, bring, files, "on and on")


def test_what_is_not_there(store: ImageStore, tmp_path: Path) -> None:
    """Or is not a file."""
    for path in (tmp_path / "none", Path("/dev/null")):
        with pytest.raises(ConfigurationError, match="neither a file nor a directory"):
            import_image(store, path, "small")
    (tmp_path / "t.tar").write_bytes(LAYER)
    with pytest.raises(ConfigurationError, match="not a name"):
        import_image(store, tmp_path / "t.tar", "../x")


def test_the_old_image_stays_when_the_new_one_is_no_good(store: ImageStore, bring: Bring) -> None:
    """Whole."""
    old = bring(SHELL)
    with pytest.raises(ConfigurationError):
        bring((*SHELL, ("../evil", b"x")))
    assert store.find("small") == old


def test_an_import_can_be_stopped(store: ImageStore, tmp_path: Path) -> None:
    """At its next step; nothing of it stays."""
    (tmp_path / "t.tar").write_bytes(LAYER)
    steps: list[BuildStep] = []

    def stop(step: BuildStep) -> None:
        steps.append(step)
        if len(steps) > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_image(store, tmp_path / "t.tar", "small", progress=stop)
    assert steps[0].message == "reading t.tar"
    assert store.list() == []
    assert os.listdir(store.directory / "new") == []


def test_what_is_known_of_an_image_without_debian(bring: Bring) -> None:
    """From the files that Python, node and Go bring along."""
    image = bring(
        (
            *SHELL,
            entry("usr/local/lib/python3.12/site-packages/rich-15.0.0.dist-info", DIRECTORY),
            ("usr/local/lib/python3.12/site-packages/single.py", b""),
            ("usr/local/include/python3.12/patchlevel.h", b'#define PY_VERSION "3.12.4"'),
            entry("usr/lib/python3.9", DIRECTORY),
            (
                "usr/local/include/node/node_version.h",
                b"#define NODE_MAJOR_VERSION 20\n#define NODE_MINOR_VERSION 1\n#define NODE_PATCH_VERSION 2\n",
            ),
            ("usr/local/go/VERSION", b"go1.27.3\ntime x\n"),
        )
    )
    assert (image.python, image.node, image.go) == ("3.12.4", "20.1.2", "1.27.3")
    assert image.packages == {"rich": "15.0.0"}


def test_what_is_known_of_debian(bring: Bring) -> None:
    """Reads what Debian's package manager lists."""
    status = (
        b"Package: python3\nStatus: install ok installed\nVersion: 3.11.2-1+b1\nDescription: x\n y: z\n\n"
        b"Package: nodejs\nStatus: install ok installed\nVersion: 1:18.20.4+dfsg-1\n\n"
        b"Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    )
    image = bring((*SHELL, ("var/lib/dpkg/status", status), entry("usr/lib/python3.11", DIRECTORY)))
    assert (image.python, image.node) == ("3.11.2", "18.20.4")
    assert image.system == {"nodejs": "1:18.20.4+dfsg-1", "python3": "3.11.2-1+b1"}

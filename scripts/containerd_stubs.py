# ruff: noqa: INP001, S603 - a program of its own, which runs others
"""Write the messages of containerd's API as Python: `python scripts/containerd_stubs.py`, once per version of the API.

Needs Linux and the .proto files that are in Debian, of containerd 1.6 in Debian 12:
`apt-get install golang-github-containerd-containerd-dev golang-github-gogo-protobuf-dev`.
The compiler comes from PyPI into a temporary directory: grpcio-tools 1.62.3, which needs a Python below 3.13. That old
one writes code that every protobuf from 4.25 on loads; what newer ones write demands a protobuf that is at least as
new, and not much newer.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

SOURCES = Path("/usr/share/gocode/src")
CONTAINERD = "github.com/containerd/containerd"
TARGET = Path(__file__).parent.parent / "packages/containers/src/toolexec_containers/containerd/api"
COMPILER = "grpcio-tools==1.62.3"
FILES = {
    f"{CONTAINERD}/api/types/mount.proto": "mount",
    f"{CONTAINERD}/api/types/descriptor.proto": "descriptor",
    f"{CONTAINERD}/api/types/metrics.proto": "metrics",
    f"{CONTAINERD}/api/types/task/task.proto": "task",
    f"{CONTAINERD}/api/services/containers/v1/containers.proto": "containers",
    f"{CONTAINERD}/api/services/content/v1/content.proto": "content",
    f"{CONTAINERD}/api/services/diff/v1/diff.proto": "diff",
    f"{CONTAINERD}/api/services/images/v1/images.proto": "images",
    f"{CONTAINERD}/api/services/leases/v1/leases.proto": "leases",
    f"{CONTAINERD}/api/services/snapshots/v1/snapshots.proto": "snapshots",
    f"{CONTAINERD}/api/services/tasks/v1/tasks.proto": "tasks",
    f"{CONTAINERD}/api/services/version/v1/version.proto": "version",
    f"{CONTAINERD}/runtime/v2/runc/options/oci.proto": "options",
}
PACKAGE = "containerd_api"


# What runs in the compiler's own Python: the descriptors without what only Go needs, under names of our own, so that
# they collide with nobody else's messages; names are not part of what goes over the wire.
CLEAN = """
import sys
from google.protobuf import descriptor_pb2

files = dict(part.split("=") for part in sys.argv[3:])
found = descriptor_pb2.FileDescriptorSet.FromString(open(sys.argv[1], "rb").read())
kept = descriptor_pb2.FileDescriptorSet()


def clean(message):
    message.ClearField("options") if not message.options.map_entry else None
    for field in message.field:
        field.ClearField("options")
        if field.type_name:
            field.type_name = field.type_name.replace(".containerd.", ".toolexec.containerd.", 1)
    for inner in message.nested_type:
        clean(inner)
    for enum in message.enum_type:
        clean_enum(enum)


def clean_enum(enum):
    enum.ClearField("options")
    for value in enum.value:
        value.ClearField("options")


for file in found.file:
    if file.name.startswith("google/protobuf/") and file.name != "google/protobuf/descriptor.proto":
        kept.file.add().CopyFrom(file)
    if file.name not in files:
        continue
    mine = kept.file.add()
    mine.CopyFrom(file)
    mine.name = "PACKAGE/" + files[file.name] + ".proto"
    mine.package = "toolexec." + file.package
    for name in ("options", "source_code_info", "service", "dependency", "weak_dependency", "public_dependency"):
        mine.ClearField(name)
    for name in file.dependency:
        if name in files:
            mine.dependency.append("PACKAGE/" + files[name] + ".proto")
        elif name.startswith("google/protobuf/") and name != "google/protobuf/descriptor.proto":
            mine.dependency.append(name)
    for message in mine.message_type:
        clean(message)
    for enum in mine.enum_type:
        clean_enum(enum)
open(sys.argv[2], "wb").write(kept.SerializeToString())
""".replace("PACKAGE", PACKAGE)


def main() -> None:
    """Write the package again."""
    with tempfile.TemporaryDirectory() as work:
        directory = Path(work)
        python = _compiler(directory)
        raw, clean, out = directory / "raw.pb", directory / "clean.pb", directory / "out"
        out.mkdir()
        protoc = [python, "-m", "grpc_tools.protoc"]
        roots = [SOURCES, SOURCES / "github.com/gogo/protobuf", SOURCES / "github.com/gogo/protobuf/protobuf"]
        includes = [f"-I{root}" for root in roots]
        _run([*protoc, *includes, "--include_imports", f"--descriptor_set_out={raw}", *FILES])
        _run([python, "-c", CLEAN, raw, clean, *(f"{path}={name}" for path, name in FILES.items())])
        names = [f"{PACKAGE}/{name}.proto" for name in FILES.values()]
        _run([*protoc, f"--descriptor_set_in={clean}", f"--python_out={out}", f"--pyi_out={out}", *names])
        for old in TARGET.glob("*_pb2.py*"):
            old.unlink()
        for file in sorted((out / PACKAGE).iterdir()):
            text = file.read_text("utf-8")
            text = re.sub(rf"^from {PACKAGE} import ", "from . import ", text, flags=re.MULTILINE)
            (TARGET / file.name).write_text(text, "utf-8")


def _compiler(directory: Path) -> str:
    """The Python of a new environment that has the compiler."""
    home = directory / "venv"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    _run([python, "-m", "pip", "install", "--quiet", COMPILER, "setuptools"])
    return python


def _run(command: list[object]) -> None:
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    sys.exit(main())

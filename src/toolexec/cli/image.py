"""`toolexec image`: build, import, export, list, verify, share and remove images for container sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from toolexec.cli.exit_codes import OK
from toolexec.cli.options import AsJson, perform_command
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.table import Table

    from toolexec.cli.building import BuildView
    from toolexec.cli.session import Session
    from toolexec.model.json_value import JSONDict
    from toolexec.runtime.images.build import ImageKind
    from toolexec.runtime.images.store import ImageStore, StoredImage

_DEFAULT_NAME: Final = "toolexec-sandbox"
_VM_NAME: Final = "toolexec-vm"

image: typer.Typer = typer.Typer(
    no_args_is_help=True,
    help="Build, import, export, list, verify, share and remove the images that container sandboxes run programs in.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """What the command line says about the image to be built."""

    name: str = ""
    kind: ImageKind = "container"
    packages: tuple[str, ...] = ()
    node: bool = False
    go: bool = False
    suite: str = ""
    mirror: str = ""
    lock: Path | None = None
    dockerfile: Path | None = None
    replace: bool = False


def _perform(context: typer.Context, command: object, as_json: bool) -> None:
    """Perform a command that has to do with the images of this user, and no tools."""
    from toolexec.exec import Exec

    perform_command(context, command, None, as_json, make=Exec)


@image.command("build")
def image_build(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Option(
            "--name", "-n", metavar="NAME", help=f"What to call it (default: {_DEFAULT_NAME}, for a vm {_VM_NAME})."
        ),
    ] = "",
    kind: Annotated[
        Literal["container", "vm"], typer.Option(help="Purpose: vm adds a kernel, for virtual machines.")
    ] = "container",
    packages: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE", help="A package from PyPI, such as rich; may be repeated."),
    ] = None,
    node: Annotated[bool, typer.Option("--node", help="With Debian's node, for JavaScript.")] = False,
    go: Annotated[bool, typer.Option("--go", help="With the Go toolchain.")] = False,
    suite: Annotated[str, typer.Option(metavar="NAME", help="The release of Debian (default: bookworm).")] = "",
    mirror: Annotated[str, typer.Option(metavar="URL", help="Mirror to fetch Debian from.")] = "",
    lock: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take the versions in this file; if there is none, write it."),
    ] = None,
    dockerfile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Have docker or podman build this file instead.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Rebuild an existing image of that name.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build an image with Python, from Debian's packages and no registry; nothing is done if it is there already.

    The same packages give the same image, byte for byte. It takes about a minute, and root for debootstrap.
    """
    options = ImageOptions(
        name=name,
        kind=kind,
        packages=tuple(packages or ()),
        node=node,
        go=go,
        suite=suite,
        mirror=mirror,
        lock=lock,
        dockerfile=dockerfile,
        replace=replace,
    )
    _perform(context, lambda session: build(session, options), as_json)


@image.command("import")
def image_import(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A file of image export; a tar of an OCI layout, docker save or a root file system; or a directory.",
        ),
    ],
    name: Annotated[str, typer.Option("--name", "-n", metavar="NAME", help="Name, such as team/tools:2.")],
    digest: Annotated[str, typer.Option(metavar="sha256:…", help="Accept only a file with this digest.")] = "",
    as_json: AsJson = False,
) -> None:
    """Import an image from a file or directory, replacing one of the same name."""
    _perform(context, lambda session: import_(session, source, name, digest=digest), as_json)


@image.command("export")
def image_export(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the image.")],
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A new file; docker load takes it, too.")],
    as_json: AsJson = False,
) -> None:
    """Write an image to a file that image import takes on other machines, with what virtual machines boot."""
    from toolexec.cli.stored_images import export

    _perform(context, lambda session: export(session, name, target), as_json)


@image.command("list")
def image_list(context: typer.Context, as_json: AsJson = False) -> None:
    """List the images with contents and size; in JSON also digests."""
    _perform(context, list_images, as_json)


@image.command("verify")
def image_verify(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Of the image; all by default.", show_default=False)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Verify images against their recorded digests; exit code 1 if one has changed on disk."""
    from toolexec.cli.stored_images import verify

    _perform(context, lambda session: verify(session, name), as_json)


@image.command("share")
def image_share(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the image.")],
    as_json: AsJson = False,
    *,
    end: Annotated[bool, typer.Option("--remove", help="Stop sharing; root's own image stays.")] = False,
) -> None:
    """Copy an image of root, verified by its digest, to a place that all users can read."""
    from toolexec.cli.stored_images import share

    _perform(context, lambda session: share(session, name, end=end), as_json)


@image.command("remove")
def image_remove(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the image.", show_default=False)] = "",
    everything: Annotated[bool, typer.Option("--all", help="Remove every image.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove an image; running programs are not affected."""
    _perform(context, lambda session: remove(session, name, everything=everything), as_json)


async def build(session: Session, options: ImageOptions) -> int:
    """Build an image, unless it is there.

    Raises ConfigurationError for options that make no sense, and when it cannot be built.
    """
    from toolexec.runtime.images.dockerfile import build_dockerfile
    from toolexec.runtime.images.store import ImageStore

    store = ImageStore()
    if options.dockerfile is not None:
        file = options.dockerfile
        others = {
            "--kind": options.kind == "vm",
            "--with": options.packages,
            "--node": options.node,
            "--go": options.go,
            "--suite": options.suite,
            "--mirror": options.mirror,
            "--lock": options.lock,
        }
        if given := [name for name, value in others.items() if value]:
            raise ConfigurationError(f"{', '.join(given)}: what the image has is in the Dockerfile; leave that out")

        def by_docker(view: BuildView) -> tuple[StoredImage, bool]:
            made = build_dockerfile(store, options.name or _DEFAULT_NAME, file, replace=options.replace, progress=view)
            return made, True

        return await _make(session, store, by_docker, None)
    return await _make(session, store, lambda view: _from_debian(store, options, view), options.lock)


def _from_debian(store: ImageStore, options: ImageOptions, view: BuildView) -> tuple[StoredImage, bool]:
    from toolexec.runtime.images.build import Recipe, build_image
    from toolexec.runtime.images.lock import Lock

    known = Lock.read(options.lock) if options.lock is not None and options.lock.exists() else None
    recipe = Recipe(
        suite=options.suite or (known.suite if known is not None else Recipe().suite),
        mirror=options.mirror,
        packages=options.packages or (known.requirements if known is not None else ()),
        node=options.node or (known is not None and known.node),
        go=options.go or (known is not None and known.go),
        lock=known,
        kind=options.kind,
    )
    name = options.name or (_VM_NAME if options.kind == "vm" else _DEFAULT_NAME)
    made, lock = build_image(store, name, recipe, replace=options.replace, progress=view)
    if options.lock is not None and known is None:
        if lock is None:
            raise ConfigurationError(
                f"the image {made.name} is there already, and what it was built from cannot be told any more; "
                f"--replace builds it again and writes {options.lock}"
            )
        lock.write(options.lock)
    return made, lock is not None


async def _make(
    session: Session,
    store: ImageStore,
    work: Callable[[BuildView], tuple[StoredImage, bool]],
    lock: Path | None,
) -> int:
    """Have an image made by *work* in a thread, show how it goes on, and say what came of it."""
    from rich.text import Text

    from toolexec.cli.building import watch_build
    from toolexec.cli.sandbox import size_text
    from toolexec.cli.tables import duration_text

    began = perf_counter()
    with watch_build(session.screen, keep=True) as view:
        made, built = await view.during(asyncio.to_thread(work, view))
    took = perf_counter() - began
    screen = session.screen
    if screen.as_json:
        facts = {"directory": str(store.directory), "built": built, "durationMs": round(took * 1000, 3)}
        screen.document({"image": _data(made), **facts, **({"lock": str(lock)} if lock is not None else {})})
        return OK
    done = f"is ready, after {duration_text(took)}" if built else "is ready, it was built before"
    content = ", ".join([size_text(made.size_bytes), *_languages(made)])
    screen.value(Text.assemble((made.name, "cyan"), f" {done}: {content}"))
    screen.value(Text(f"{made.digest} in {store.directory}", style="dim"))
    return OK


async def import_(session: Session, source: Path, name: str, *, digest: str = "") -> int:
    """Bring in an image from *source*, a file with *digest* if one is given. Raises ConfigurationError when it is none,
    or not acceptable."""
    from toolexec.runtime.images.import_ import import_image
    from toolexec.runtime.images.store import ImageStore

    store = ImageStore()

    def by_import(view: BuildView) -> tuple[StoredImage, bool]:
        return import_image(store, source, name, digest=digest, progress=view), True

    return await _make(session, store, by_import, None)


async def list_images(session: Session) -> int:
    """Show every image of this user, and those that root shares."""
    from toolexec.cli.sandbox import size_text
    from toolexec.runtime.images.store import ImageStore

    store = ImageStore()
    found = await asyncio.to_thread(store.list)
    screen = session.screen
    if screen.as_json:
        screen.document({"directory": str(store.directory), "images": [_data(entry) for entry in found]})
    elif found:
        screen.show(_table(found))
        own = [entry for entry in found if store.owns(entry)]
        screen.note(f"{size_text(sum(entry.size_bytes for entry in own))} in {store.directory}")
        if shared := [entry.name for entry in found if not store.owns(entry)]:
            place = next(entry.root.parents[2] for entry in found if not store.owns(entry))
            screen.note(f"shared by root, in {place}: {', '.join(shared)}")
    else:
        screen.note(
            f"no images in {store.directory}, where those are that this user has built; root and other users "
            "have their own; toolexec image build makes one"
        )
    return OK


async def remove(session: Session, name: str, *, everything: bool) -> int:
    """Remove the image *name*, or all of them.

    Raises ConfigurationError for an image that is not there, and for a name together with *everything*, or neither.
    """
    from rich.text import Text

    from toolexec.cli.sandbox import size_text
    from toolexec.cli.stored_images import no_image
    from toolexec.runtime.images.store import ImageStore

    if bool(name) == everything:
        raise ConfigurationError("give the name of an image, or --all for every image")
    store = ImageStore()
    found = [entry for entry in await asyncio.to_thread(store.list) if store.owns(entry)]
    known = None if everything else await asyncio.to_thread(store.find, name)
    if known is not None and not store.owns(known):
        raise ConfigurationError(
            f"the image {name} is shared by root, who ends that: toolexec image share --remove {name}"
        )
    if not everything and known is None:
        raise no_image(name, "remove", store, found)
    freed = 0
    for entry in found if known is None else [known]:
        freed += await asyncio.to_thread(store.remove, entry.name)
    if session.screen.as_json:
        session.screen.document({"directory": str(store.directory), "freedBytes": freed})
    else:
        session.screen.value(Text(f"{size_text(freed)} set free in {store.directory}"))
    return OK


def _languages(entry: StoredImage) -> list[str]:
    found = (("Python", entry.python), ("node", entry.node), ("Go", entry.go), ("Linux", entry.kernel))
    return [f"{name} {version}" for name, version in found if version]


def _table(found: list[StoredImage]) -> Table:
    from rich.text import Text

    from toolexec.cli.sandbox import size_text
    from toolexec.cli.tables import plain_table
    from toolexec.model.visible import visible_line

    table = plain_table(
        ("Image", {"overflow": "fold", "min_width": 16}),
        ("Languages", {"overflow": "fold", "max_width": 16}),
        ("Packages in it", {"overflow": "fold", "ratio": 1, "min_width": 14}),
        ("Size", {"justify": "right", "no_wrap": True}),
        ("Made", {"no_wrap": True}),
    )
    table.expand = True
    for entry in found:
        packages = ", ".join(f"{name} {version}" for name, version in entry.packages.items())
        table.add_row(
            Text(visible_line(entry.name), style="cyan"),
            Text(visible_line(", ".join(_languages(entry)))),
            Text(visible_line(packages), style="dim"),
            size_text(entry.size_bytes),
            f"{entry.created.astimezone():%Y-%m-%d}",
        )
    return table


def _data(entry: StoredImage) -> JSONDict:
    return {
        "name": entry.name,
        "digest": entry.digest,
        "imageId": entry.image_id,
        "root": str(entry.root),
        "created": entry.created.isoformat(),
        "bytes": entry.size_bytes,
        "packages": dict(entry.packages),
        "python": entry.python,
        "node": entry.node,
        "go": entry.go,
        "kernel": entry.kernel,
        "vmDigest": entry.vm_digest,
        "recipe": dict(entry.recipe),
    }

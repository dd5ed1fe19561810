"""Backends that offer more than tools, and the IDs of that: apart from the offers, which few programs load."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from toolexec.backend.offers import Offered, OfferListener, Offers
    from toolexec.model.transform import Transforms

KIND_MARKS: Final = (":+prompt", ":+resource", ":+completion")
"""How the IDs end by which rules know of what is not a tool: `docs:review:+prompt`. They stand in the place of a
version, and are kept for this: what has such an ID is looked for among these offers only."""


def is_offer_id(tool_id: object) -> bool:
    """Return whether this is the ID of something that is offered beside tools."""
    return isinstance(tool_id, str) and tool_id.endswith(KIND_MARKS)


@runtime_checkable
class OffersMore(Protocol):
    """A backend that offers more than tools."""

    @property
    def name(self) -> str:
        """The backend's name."""
        ...

    @property
    def may_offer(self) -> frozenset[str]:
        """What it says that it has, of `resources`, `subscribe`, `prompts` and `completion`; all of it while that is
        not known, as nothing could be asked yet."""
        ...

    @property
    def has_offers(self) -> bool:
        """Whether it has said that it has resources or prompts."""
        ...

    async def offers(self) -> Offers:
        """Return what it offers, read now where that is not known; connects first, if need be.

        Raises BackendError where it cannot be asked, and ExecutionError for an answer that cannot be read.
        """
        ...

    def offered(self, offer_id: str) -> Offered | None:
        """Return the offer with this ID, of those that were read last."""
        ...

    def show_offers(self, transforms: Transforms) -> None:
        """Have what it offers be as *transforms* show it, from the next reading on, for every caller. Given again, they
        have changed: so have its lists."""
        ...

    def on_offers(self, listener: OfferListener) -> Callable[[], None]:
        """Have *listener* called on the event loop with what has changed; returns how to stop that."""
        ...

    async def watch(self, uri: str) -> None:
        """Have changes of the resource reported to the listeners; raises as `offers` does."""
        ...

    async def unwatch(self, uri: str) -> None:
        """Have them reported no more; raises nothing where it cannot be asked."""
        ...

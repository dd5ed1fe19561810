"""Search by words, by meaning, and by both: which of eight tools comes first, with five weights of the lexical side.

    pip install 'toolexec[semantic]'
    python examples/hybrid.py

Prints:

                get my money back        delte mesage             make an appointment
    alpha 1.00  payments:create_invoice  mail:delete_message      calendar:create_event
    alpha 0.75  payments:refund_charge   mail:delete_message      calendar:create_event
    alpha 0.50  payments:refund_charge   mail:delete_message      calendar:create_event
    alpha 0.25  payments:refund_charge   mail:delete_message      calendar:create_event
    alpha 0.00  payments:refund_charge   -                        calendar:create_event
    rrf         payments:refund_charge   mail:delete_message      calendar:create_event
    get my money back -> payments:refund_charge by bm25 and embedding
    delte mesage -> mail:delete_message by bm25
    make an appointment -> calendar:create_event by bm25 and embedding
"""

from collections.abc import Sequence

from toolexec import tool
from toolexec.discovery import BM25Searcher, InMemoryIndex
from toolexec.discovery.semantic import EmbeddingSearcher, HybridSearcher, StaticEmbedder
from toolexec.model.binding import LocalBinding


@tool("mail:delete_message")
def delete_message(message_id: str) -> None:
    """Moves a message to the bin."""


@tool("mail:send_message")
def send_message(to: str, text: str) -> None:
    """Sends a message to somebody."""


@tool("calendar:create_event")
def create_event(title: str, start: str) -> None:
    """Puts an appointment into the calendar."""


@tool("calendar:list_events")
def list_events(day: str) -> None:
    """Shows what is planned for a day."""


@tool("payments:refund_charge")
def refund_charge(charge_id: str) -> None:
    """Gives a customer back what was paid."""


@tool("payments:create_invoice")
def create_invoice(customer: str) -> None:
    """Bills a customer."""


@tool("weather:forecast")
def forecast(city: str) -> None:
    """Tells whether it will rain."""


@tool("files:read_file")
def read_file(path: str) -> None:
    """Gives the text of a file."""


TOOLS = (delete_message, send_message, create_event, list_events, refund_charge, create_invoice, forecast, read_file)
QUERIES = ("get my money back", "delte mesage", "make an appointment")
EMBEDDER = StaticEmbedder()  # offline: it looks up a vector for each token in a table that a package contains


def index_with(searcher: HybridSearcher) -> InMemoryIndex:
    """Index the tools; their vectors are computed at the first search."""
    index = InMemoryIndex(searcher)
    for each in TOOLS:
        index.register(each.tool, LocalBinding(each.tool.id))
    return index


def row(name: str, cells: Sequence[str]) -> str:
    return f"{name:12}{''.join(f'{cell:25}' for cell in cells)}".rstrip()


def main() -> None:
    searchers = {
        f"alpha {alpha:.2f}": HybridSearcher(BM25Searcher(), EmbeddingSearcher(EMBEDDER), fusion="alpha", alpha=alpha)
        for alpha in (1.0, 0.75, 0.5, 0.25, 0.0)
    }
    searchers["rrf"] = HybridSearcher(BM25Searcher(), EmbeddingSearcher(EMBEDDER), fusion="rrf")
    print(row("", QUERIES))
    for name, searcher in searchers.items():
        index = index_with(searcher)
        best = [next(iter(index.search(query, limit=1).ids()), "-") for query in QUERIES]
        print(row(name, best))

    # Explain the hits: which searchers found each one.
    index = index_with(searchers["alpha 0.50"])
    for query in QUERIES:
        found = index.search(query, limit=1, explain=True)[0]
        print(query, "->", found.id, "by", " and ".join(sorted(found.explanation.parts)))


if __name__ == "__main__":
    main()

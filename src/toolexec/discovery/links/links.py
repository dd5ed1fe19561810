"""Which tools make the arguments that other tools need: kept for a whole index, asked for one argument or one tool."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from toolexec.discovery.index import ChangeEvent, Index
from toolexec.discovery.links.leaves import Argument
from toolexec.discovery.links.matching import described, echoes, merge, portable, score_of, type_factor
from toolexec.discovery.links.observations import Observations, Observed
from toolexec.discovery.links.openapi import ApiLink, api_links_of, operation_key
from toolexec.discovery.links.producer import LinkSource, Producer
from toolexec.discovery.links.profile import Input, Output, input_called, inputs_of, outputs_of
from toolexec.errors import ConfigurationError, ToolNotFoundError
from toolexec.model.tool import Tool

VisibleID: TypeAlias = Callable[[str], bool]
"""Whether a tool may be known of, by its ID."""

_MIN_SCORE: Final = 0.3
_GOOD_AT_HOME: Final = 0.45
_NEAR_BEST: Final = 0.55
_PER_KEY: Final = 40
_OBSERVED_AT_LEAST: Final = 2
_MAX_INPUTS: Final = 20_000
_MAX_QUESTION: Final = 600


class _Bucket:
    """The tools that give a value with one key, best sources first."""

    __slots__ = ("_ranked", "by_tool")

    def __init__(self) -> None:
        self.by_tool: dict[str, Output] = {}
        self._ranked: list[Output] | None = None

    def put(self, output: Output) -> None:
        self.by_tool[output.tool_id] = output
        if self._ranked is not None:
            insort(self._ranked, output, key=_rank)

    def drop(self, tool_id: str) -> None:
        output = self.by_tool.pop(tool_id)
        if self._ranked is not None:
            del self._ranked[bisect_left(self._ranked, _rank(output), key=_rank)]

    def ranked(self) -> list[Output]:
        if self._ranked is None:
            self._ranked = sorted(self.by_tool.values(), key=_rank)
        return self._ranked


def _rank(output: Output) -> tuple[float, str]:
    return -output.factor, output.tool_id


class Links:
    """The links between the tools of *index*: by schemas and names, by OpenAPI links, and by what calls have shown.

    A tool is looked at when the first question comes after it was registered or changed; `build` does that ahead of
    time. *observations* are what a `LinkWatch` around calls has seen. Nothing in a tool is trusted: of over-long
    schemas and names only a part counts. Safe to use from several threads. `close` ends listening to the index.
    """

    def __init__(self, index: Index, *, observations: Observations | None = None) -> None:
        self.observations: Observations = observations if observations is not None else Observations()
        self._index = index
        self._lock = threading.RLock()
        self._due_lock = threading.Lock()  # never held for long: who changes the index must not wait for a build
        self._due: dict[str, None] = {}
        self._all_due = True
        self._everywhere: dict[str, _Bucket] = {}
        self._by_namespace: dict[tuple[str, str], _Bucket] = {}
        self._keys: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._api: dict[str, dict[str, list[ApiLink]]] = {}
        self._api_of: dict[str, list[ApiLink]] = {}
        self._inputs: dict[str, list[Input]] = {}
        self._stop = index.on_change(self._heard)

    # -- keeping up ---------------------------------------------------------------------------------------------

    def _heard(self, event: ChangeEvent) -> None:
        if event.type in ("registered", "updated", "tool_removed"):
            with self._due_lock:
                self._due[event.tool_id] = None

    @property
    def pending(self) -> int:
        """How many tools have to be looked at before the next answer (some 50 µs each)."""
        return len(self._index) if self._all_due else len(self._due)

    def build(self) -> None:
        """Look at all tools that are due; every question does so by itself. For many tools, call it in a thread."""
        if not self.pending:
            return
        with self._lock:
            first = self._all_due
            with self._due_lock:
                due, self._due = self._due, {}
            if first:
                due = dict.fromkeys(entry.tool.id for entry in self._index.tools())
            for tool_id in due:
                entry = self._index.find(tool_id)
                self.remove(tool_id)
                if entry is not None and entry.tool.id == tool_id:
                    self.add(entry.tool)
            for bucket in (*self._everywhere.values(), *self._by_namespace.values()) if first else ():
                bucket.ranked()  # from now on kept in order
            self._all_due = False

    def add(self, tool: Tool) -> None:
        """Take in a tool, in place of what was known of one with its ID. Those of the index come by themselves."""
        outputs, links = outputs_of(tool), api_links_of(tool)
        with self._lock:
            self.remove(tool.id)
            self._keys[tool.id] = (tool.namespace, tuple(outputs))
            for key, output in outputs.items():
                for bucket in self._buckets(key, tool.namespace):
                    bucket.put(output)
            if links:
                self._api_of[tool.id] = links
                for link in links:
                    self._api.setdefault(link.operation, {}).setdefault(tool.id, []).append(link)

    def _buckets(self, key: str, namespace: str) -> tuple[_Bucket, _Bucket]:
        everywhere = self._everywhere.get(key)
        if everywhere is None:
            everywhere = self._everywhere[key] = _Bucket()
        at_home = self._by_namespace.get((namespace, key))
        if at_home is None:
            at_home = self._by_namespace[namespace, key] = _Bucket()
        return everywhere, at_home

    def remove(self, tool_id: str) -> None:
        """Forget a tool, as one that gives and as one that takes; unknown ones are ignored."""
        with self._lock:
            self._inputs.pop(tool_id, None)
            namespace, keys = self._keys.pop(tool_id, ("", ()))
            for key in keys:
                for bucket in self._buckets(key, namespace):
                    bucket.drop(tool_id)
                if not self._everywhere[key].by_tool:
                    del self._everywhere[key]
                if not self._by_namespace[namespace, key].by_tool:
                    del self._by_namespace[namespace, key]
            for link in self._api_of.pop(tool_id, ()):
                self._api[link.operation].pop(tool_id, None)
                if not self._api[link.operation]:
                    del self._api[link.operation]

    def close(self) -> None:
        """Stop listening to the index."""
        self._stop()

    # -- questions ----------------------------------------------------------------------------------------------

    def producers_of(self, what: str, *, limit: int = 10, visible: VisibleID | None = None) -> list[Producer]:
        """Return the tools that give a value for *what*, best first: an argument's name (`issue_id`), or the argument
        of a tool (`github:close_issue.issue_id`; inside of an object `github:close_issue.body.issue_id`).

        Only tools that *visible* accepts are known of. Raises ToolNotFoundError for an unknown tool and
        ConfigurationError for an argument that the tool does not have, or a text that is neither.
        """
        self.build()
        tool, name = self._question(what, visible)
        if tool is None:
            return self.candidates(input_called(name), None, visible)[: max(limit, 0)]
        return self._asked(tool, name, visible)[: max(limit, 0)]

    def _question(self, what: str, visible: VisibleID | None) -> tuple[Tool | None, str]:
        if not 0 < len(what) <= _MAX_QUESTION:
            raise ConfigurationError("name an argument, such as issue_id or github:close_issue.issue_id")
        for place, character in enumerate(what):
            if character == "." and 0 < place < len(what) - 1:
                found = self._tool(what[:place], visible)
                if found is not None:
                    return found, what[place + 1 :]
        if ":" in what:
            raise ToolNotFoundError(what.rpartition(".")[0] or what)
        return None, what

    def _asked(self, tool: Tool, name: str, visible: VisibleID | None) -> list[Producer]:
        for taken in self.inputs(tool):
            if taken.name == name:
                return self.candidates(taken, tool, visible)
        raise ConfigurationError(
            f"{tool.id} has no argument {name[:100]!r}; it has "
            f"{', '.join(taken.name for taken in self.inputs(tool)[:20]) or 'none that are described'}",
            tool_id=tool.id,
        )

    def producers_for(
        self, tool_id: str, *, limit: int = 3, visible: VisibleID | None = None
    ) -> dict[str, list[Producer]]:
        """For each argument of a tool that others produce, the best *limit* tools; required arguments come first. Tools
        that are much worse than the best are left out.

        Only tools that *visible* accepts are known of; raises ToolNotFoundError for others.
        """
        self.build()
        tool = self._tool(tool_id, visible)
        if tool is None:
            raise ToolNotFoundError(tool_id)
        found: dict[str, list[Producer]] = {}
        for taken in self.inputs(tool):
            producers = self.candidates(taken, tool, visible)
            if producers:
                enough = _NEAR_BEST * producers[0].score
                found[taken.name] = [each for each in producers[: max(limit, 0)] if each.score >= enough]
        return found

    def inputs(self, tool: Tool) -> list[Input]:
        """Return the arguments of a tool, required ones first: those of its schema, and after them those that calls
        were seen to have."""
        known = self._described(tool)
        names = {taken.name for taken in known}
        more = dict.fromkeys(o.argument for o in self._observed(tool.id) if o.argument not in names)
        return [*known, *(Input(Argument(tuple(name.split(".")), not known, {}), (), "", "", "") for name in more)]

    def _described(self, tool: Tool) -> list[Input]:
        with self._lock:
            known = self._inputs.get(tool.id)
            if known is None:
                known = inputs_of(tool)
                if len(self._inputs) >= _MAX_INPUTS:
                    self._inputs.clear()
                self._inputs[tool.id] = known
        return known

    def _observed(self, tool_id: str) -> list[Observed]:
        return self.observations.into(tool_id, at_least=_OBSERVED_AT_LEAST)

    # -- answers ------------------------------------------------------------------------------------------------

    def candidates(self, taken: Input, tool: Tool | None, visible: VisibleID | None = None) -> list[Producer]:
        """Return all that gives *taken*, one of the `inputs` of *tool* (None: of no tool in particular), best first."""
        found: dict[str, Producer] = {}
        with self._lock:
            for producer in self._by_schema(taken, tool, visible):
                merge(found, producer)
            if tool is not None:
                for producer in self._by_evidence(taken, tool):
                    if producer.tool_id != tool.id and self._tool(producer.tool_id, visible) is not None:
                        merge(found, producer)
        return sorted(found.values(), key=lambda producer: (-producer.score, producer.tool_id))

    def _by_schema(self, taken: Input, tool: Tool | None, visible: VisibleID | None) -> Iterator[Producer]:
        namespace = tool.namespace if tool is not None else None
        best = 0.0
        if namespace is not None:
            for _, producer in self._from(taken, tool, namespace, visible):
                best = max(best, producer.score)
                yield producer
        for key, producer in self._from(taken, tool, None, visible):
            if best < _GOOD_AT_HOME or portable(key):
                yield producer

    def _from(
        self, taken: Input, tool: Tool | None, namespace: str | None, visible: VisibleID | None
    ) -> Iterator[tuple[str, Producer]]:
        """Yield the producers of one namespace (None: of any), each with its key; at most 40 for each key."""
        for key, base in taken.wanted:
            bucket = self._everywhere.get(key) if namespace is None else self._by_namespace.get((namespace, key))
            left = _PER_KEY
            for output in bucket.ranked() if bucket is not None else ():
                if not left or base * output.factor < _MIN_SCORE:
                    break
                if tool is not None and output.tool_id == tool.id:
                    continue
                fit = type_factor(output, taken)
                source = self._tool(output.tool_id, visible) if fit else None
                if source is None:
                    continue
                left -= 1
                score = score_of(base, output, fit, key, source, tool)
                if score >= _MIN_SCORE and not echoes(self._described(source), key):
                    yield key, described(output, key, score, source)

    def _by_evidence(self, taken: Input, tool: Tool) -> Iterator[Producer]:
        """Yield what an API's author wrote down, and what calls have shown."""
        for tool_id, links in self._api.get(operation_key(tool.namespace, tool.name), {}).items():
            for link in links:
                if link.argument in (taken.name, taken.argument.names[-1]):
                    yield self._evident(tool_id, link.path, 0.98, "the API's own description links them", "openapi")
        for seen in self._observed(tool.id):
            if seen.argument == taken.name:
                score = (0.5 + 0.45 * seen.seen / (seen.seen + 2)) * (0.5 + 0.5 * seen.seen / seen.of)
                reason = f"in {seen.seen} of {seen.of} calls the value came from there"
                yield self._evident(seen.producer_id, seen.path, score, reason, "observed")

    def _evident(self, tool_id: str, path: str, score: float, reason: str, source: LinkSource) -> Producer:
        entry = self._index.find(tool_id)
        read_only = entry is not None and entry.tool.annotations.read_only
        return Producer(tool_id=tool_id, path=path, score=score, reason=reason, source=source, read_only=read_only)

    def _tool(self, tool_id: str, visible: VisibleID | None) -> Tool | None:
        entry = self._index.find(tool_id)
        return entry.tool if entry is not None and (visible is None or visible(entry.tool.id)) else None

"""A server of many APIs that answers nothing and judges each request by the document of its API, with openapi-core."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jsonschema.exceptions import best_match
from openapi_core import Config, OpenAPI
from openapi_core.contrib.werkzeug import WerkzeugOpenAPIRequest
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

_JSON = ("application/json-patch+json", "application/merge-patch+json", "application/scim+json")
_CONFIG = Config(spec_validator_cls=None, extra_media_type_deserializers=dict.fromkeys(_JSON, json.loads))
_IGNORED = ("accept", "content-type", "authorization")
"""Headers that OpenAPI says no parameter can be."""


class Judge:
    """Keeps what is wrong with each request, by API and route; `url` is where it is."""

    def __init__(self, documents: Mapping[str, dict[str, Any]]) -> None:
        self.url = ""
        self.requests = 0
        self.wrong: list[str] = []
        self._documents = documents
        self._known: dict[tuple[str, str], OpenAPI] = {}

    def __call__(self, environ: Any, start_response: Any) -> Any:
        """Answer 204 for a valid request, 400 for another one."""
        request = Request(environ)
        name, _, path = request.path.removeprefix("/").partition("/")
        problems = self._problems(name, request)
        self.requests += 1
        if problems:
            target = environ.get("RAW_URI", path)
            body = request.get_data()[:300]
            self.wrong.append(f"{request.method} {target[:300]} {request.content_type} {body!r}: {'; '.join(problems)}")
        return Response(status=400 if problems else 204)(environ, start_response)

    def _problems(self, name: str, request: Request) -> list[str]:
        route = request.headers["x-route"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parameters that are deprecated
            try:
                errors = list(self._api(name, route).request_validator.iter_errors(WerkzeugOpenAPIRequest(request)))
            except Exception as error:  # a request that cannot be judged counts as invalid
                errors = [error]
        return [_words(error) for error in errors]

    def _api(self, name: str, route: str) -> OpenAPI:
        """Return the API with nothing but one path, which is found without others of its form."""
        found = self._known.get((name, route))
        if found is None:
            document = self._documents[name]
            paths = document["paths"]
            plain = {route.partition("#")[0]: _plain(paths[route])}
            judged = {**document, "servers": [{"url": f"{self.url}/{name}"}], "paths": plain}
            found = OpenAPI.from_dict(judged, config=_CONFIG)
            self._known[name, route] = found
        return found


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    """Return a path without servers of its own, without parameters that are to be ignored, and without the schemas of
    bodies that are bytes: the judge compares them as text."""
    kept = {key: value for key, value in item.items() if key != "servers"}
    for key, value in kept.items():
        if isinstance(value, dict):
            kept[key] = {} if key == "application/octet-stream" else _plain(value)
    if isinstance(kept.get("parameters"), list):
        kept["parameters"] = [each for each in kept["parameters"] if str(each.get("name")).lower() not in _IGNORED]
    return kept


def _words(error: BaseException | None) -> str:
    """Return an error with its causes."""
    words: list[str] = []
    while error is not None:
        words.append(f"{type(error).__name__}: {error}"[:300])
        for each in getattr(error, "schema_errors", ()):
            deepest = best_match([each]) or each
            words.append(f"/{'/'.join(map(str, deepest.absolute_path))}: {deepest.message}"[:300])
        error = error.__cause__
    return " <- ".join(words)


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def judging(documents: Mapping[str, dict[str, Any]]) -> Iterator[Judge]:
    """Run a judge of *documents*, by name, on loopback."""
    judge = Judge(documents)
    server = make_server("127.0.0.1", 0, judge, threaded=True, request_handler=_Quiet)
    server.daemon_threads = False
    judge.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

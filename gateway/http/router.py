"""Finds the endpoint of a request. Both spellings of a trailing slash are the same path, and `/latest` is `/v1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.ids import Prefix, is_id
from gateway.http.problems import DO_NOT_RETRY, Problem, invalid_id, not_found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.http.endpoint import Endpoint

# Path parameters that must be ids of a kind. Runs, messages and conversations have rules of their own.
IDS: Final = {
    "agent_id": Prefix.AGENT,
    "tool_id": Prefix.TOOL,
    "block_id": Prefix.BLOCK,
    "step_id": Prefix.STEP,
}
_ALIAS: Final = "latest"
_VERSION: Final = "v1"


class _Node:
    __slots__ = ("children", "endpoints", "later", "parameter")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.parameter: tuple[str, _Node] | None = None
        self.endpoints: dict[str, Endpoint] = {}
        self.later = False


class Router:
    """A tree of path segments. A literal segment goes before a parameter."""

    def __init__(self, endpoints: Iterable[Endpoint], later: Iterable[str] = ()) -> None:
        self._root = _Node()
        for endpoint in endpoints:
            self._add(endpoint)
        for path in later:
            self._node(path).later = True

    def _node(self, path: str) -> _Node:
        node = self._root
        for segment in _segments(path):
            if segment.startswith("{"):
                name = segment[1:-1]
                if node.parameter is None:
                    node.parameter = (name, _Node())
                if node.parameter[0] != name:
                    raise ValueError(f"{path}: this segment is called {node.parameter[0]} elsewhere")
                node = node.parameter[1]
            else:
                node = node.children.setdefault(segment, _Node())
        return node

    def _add(self, endpoint: Endpoint) -> None:
        node = self._node(endpoint.path)
        if endpoint.method in node.endpoints:
            raise ValueError(f"{endpoint.method} {endpoint.path} is there twice")
        node.endpoints[endpoint.method] = endpoint

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint and its path parameters, or 404, 405, 422, 501."""
        segments = _segments(path)
        if segments and segments[0] == _ALIAS:
            segments[0] = _VERSION
        parameters: dict[str, str] = {}
        node = _match(self._root, segments, 0, parameters)
        if node is None:
            raise not_found(f"There is no {path[:200]} here.")
        endpoint = node.endpoints.get(method)
        if endpoint is None and node.later:
            raise Problem(501, {"detail": f"{method} {path[:200]} is not served by this server."}, DO_NOT_RETRY)
        if endpoint is None:
            allowed = ", ".join(sorted(node.endpoints))
            raise Problem(405, {"detail": f"Method not allowed; this path knows {allowed}."}, {"allow": allowed})
        for name, value in parameters.items():
            prefix = IDS.get(name)
            if prefix is not None and not is_id(prefix, value):
                raise invalid_id(name, prefix, value)
        return endpoint, parameters


def _segments(path: str) -> list[str]:
    return path.strip("/").split("/")


def _match(node: _Node, segments: list[str], at: int, parameters: dict[str, str]) -> _Node | None:
    if at == len(segments):
        return node if node.endpoints or node.later else None
    child = node.children.get(segments[at])
    if child is not None:
        found = _match(child, segments, at + 1, parameters)
        if found is not None:
            return found
        if child.later:
            return child
    if node.parameter is None or not segments[at]:
        return None
    name, child = node.parameter
    found = _match(child, segments, at + 1, parameters)
    if found is not None:
        parameters[name] = segments[at]
    return found

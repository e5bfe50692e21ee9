"""Documents that came out of a search, with what `$meta` says of them."""

from collections.abc import Mapping
from typing import Any


class Scored(dict[str, Any]):
    """A document and its metadata, such as `searchScore`."""

    __slots__ = ("meta",)

    def __init__(self, document: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        super().__init__(document)
        self.meta = meta


_NONE: Mapping[str, Any] = {}


def metadata(document: Any) -> Mapping[str, Any]:
    """What a search said of a document; nothing where none was."""
    return document.meta if isinstance(document, Scored) else _NONE


def carried(origin: Any, document: dict[str, Any]) -> dict[str, Any]:
    """A document made of another one, which keeps its metadata."""
    return Scored(document, origin.meta) if isinstance(origin, Scored) else document

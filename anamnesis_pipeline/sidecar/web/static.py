"""Static files of the pages: our scripts and styles, and third-party libraries, all from this server."""

import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

PREFIX = "/static/"
_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_PACKAGED = {f"vendor/{name}": name for name in ("swagger-ui-bundle.js", "swagger-ui.css")}
"""Files of `fastapi-offline`; the other libraries are in `static/vendor`."""
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
"""A URL contains a digest of its content."""

router = APIRouter(include_in_schema=False)


@cache
def address(name: str) -> str:
    """Return the URL of a file; it changes with the content.

    :raises FileNotFoundError: there is no such file.
    """
    return f"{PREFIX}{hashlib.sha256(_content(name)).hexdigest()[:12]}/{name}"


@router.get(PREFIX + "{digest}/{name:path}")
async def get_file(digest: str, name: str) -> Response:
    """Serve a file with caching. A page of another version that is still open gets the current file."""
    kind = _KINDS.get(name.rpartition(".")[2])
    if kind is None or name not in _names():
        raise HTTPException(404)
    kept = _FOREVER if address(name) == f"{PREFIX}{digest}/{name}" else {}
    return Response(_content(name), headers={"Content-Type": kind, **kept})


@cache
def _names() -> frozenset[str]:
    """Return the allowed names, so that no path leads out of the folder."""
    root = files(__package__) / "static"
    own = {entry.name for entry in root.iterdir() if entry.is_file()}
    return frozenset(own | _PACKAGED.keys() | {f"vendor/{entry.name}" for entry in (root / "vendor").iterdir()})


@cache
def _content(name: str) -> bytes:
    package = "fastapi_offline" if name in _PACKAGED else __package__
    return (files(package) / "static" / _PACKAGED.get(name, name)).read_bytes()

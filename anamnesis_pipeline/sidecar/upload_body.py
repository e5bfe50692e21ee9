"""Streaming parser for upload bodies: stops at the size limits and writes nothing to disk."""

from dataclasses import dataclass, field
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import Request

from anamnesis_pipeline.services.uploads import MAX_BYTES

MAX_FIELD_BYTES = 64 * 1024
MAX_FIELDS = 100
REPEATABLE = frozenset({"tags"})


@dataclass(slots=True)
class _Part:
    headers: dict[str, str] = field(default_factory=dict)
    name: str = ""
    filename: str | None = None
    data: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Form:
    """A form as it arrives. `file` is (name, media type, bytes) of the one file; `fields` holds the rest, as in
    JSON.
    """

    file: tuple[str, str, bytes] | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    is_complete: bool = False
    _part: _Part = field(default_factory=_Part)
    _header: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    _parts: int = 0

    def begin_part(self) -> None:
        """Begin a part."""
        self._part = _Part()
        self._parts += 1
        if self._parts > MAX_FIELDS:
            raise HTTPException(400, f"a form has at most {MAX_FIELDS} fields")

    def header_name(self, data: bytes, start: int, end: int) -> None:
        """Append to a header's name."""
        self._header[0].extend(data[start:end])

    def header_value(self, data: bytes, start: int, end: int) -> None:
        """Append to a header's value."""
        self._header[1].extend(data[start:end])

    def end_header(self) -> None:
        """Store the complete header."""
        name, value = (bytes(piece).decode("latin-1") for piece in self._header)  # raw bytes
        self._part.headers[name.lower()] = value
        self._header = bytearray(), bytearray()

    def end_headers(self) -> None:
        """Read the name of the part, and whether it is a file."""
        _, options = parse_options_header(self._part.headers.get("content-disposition", ""))
        self._part.name = options.get(b"name", b"").decode("utf-8", "replace")
        if b"filename" in options:
            self._part.filename = options[b"filename"].decode("utf-8", "replace")

    def part_data(self, data: bytes, start: int, end: int) -> None:
        """Append to the content."""
        self._part.data += data[start:end]
        most = MAX_FIELD_BYTES if self._part.filename is None else MAX_BYTES
        if len(self._part.data) > most:
            raise HTTPException(413, f"{self._part.name or 'a field'} has more than {most:,} bytes")

    def end_part(self) -> None:
        """Store the complete part."""
        part = self._part
        if part.filename is not None:
            if self.file is not None:
                raise HTTPException(400, "one file a call; send the others in calls of their own")
            media_type = part.headers.get("content-type", "")
            self.file = part.filename, media_type, bytes(part.data)
        elif part.name in REPEATABLE:
            self.fields.setdefault(part.name, []).append(part.data.decode("utf-8", "replace"))
        else:
            self.fields[part.name] = part.data.decode("utf-8", "replace")
        part.data = bytearray()

    def end(self) -> None:
        """Mark the form as complete."""
        self.is_complete = True


async def read_form(request: Request, boundary: bytes) -> Form:
    """Parse a multipart form.

    :raises HTTPException: 400, it is malformed; 413, it is too large.
    """
    form = Form()
    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": form.begin_part,
            "on_header_field": form.header_name,
            "on_header_value": form.header_value,
            "on_header_end": form.end_header,
            "on_headers_finished": form.end_headers,
            "on_part_data": form.part_data,
            "on_part_end": form.end_part,
            "on_end": form.end,
        },
    )
    try:
        async for chunk in request.stream():
            parser.write(chunk)
        parser.finalize()
    except FormParserError:
        raise HTTPException(400, "the body is no multipart form") from None
    if not form.is_complete:
        raise HTTPException(400, "the form breaks off before its end")
    return form

"""Open documents that are zip archives, with a limit on their unpacked size."""

import io
import zipfile
from collections.abc import Iterator

from anamnesis_pipeline.errors import DocumentUnreadable

MAX_UNPACKED_BYTES = 512 << 20
"""Limit of all members together."""
MAX_XML_BYTES = 64 << 20
"""Limit of a document's text; a parsed tree takes several times as much."""
MAX_MEMBERS = 20_000

_OLE = b"\xd0\xcf\x11\xe0"
_XML = (".xml", ".rels", ".vml")


def opened(data: bytes) -> zipfile.ZipFile:
    """Open the archive `data` after checking the size of every member.

    :raises DocumentUnreadable: it is no archive, is encrypted, or would unpack to more than 512 MB, or 64 MB of XML.
    """
    if data.startswith(_OLE):
        raise DocumentUnreadable("it is protected by a password, or of an older format than its name says")
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as exc:
        raise DocumentUnreadable(f"it is damaged, or not of this format ({exc})") from exc
    members = archive.infolist()
    if any(member.flag_bits & 1 for member in members):
        raise DocumentUnreadable("it is encrypted")
    size = sum(member.file_size for member in members)
    xml = sum(member.file_size for member in members if member.filename.endswith(_XML))
    if size > MAX_UNPACKED_BYTES or xml > MAX_XML_BYTES or len(members) > MAX_MEMBERS:
        raise DocumentUnreadable(f"it would unpack to {size} bytes, {xml} of them XML; that is more than is read")
    return archive


def member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of one member, never more than its listed size.

    :raises DocumentUnreadable: there is none of that name, or it is damaged.
    """
    try:
        return archive.read(name)
    except KeyError as exc:
        raise DocumentUnreadable(f"it holds no {name}") from exc
    except Exception as exc:  # zipfile and zlib raise any exception on damaged archives
        raise DocumentUnreadable(f"its {name} is damaged ({exc})") from exc


def chunks(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    """Yield the bytes of one member in pieces of 1 MB; a size or checksum other than the listed one is an error."""
    try:
        with archive.open(name) as stream:
            while chunk := stream.read(1 << 20):
                yield chunk
    except Exception as exc:  # as above
        raise DocumentUnreadable(f"its {name} is damaged ({exc})") from exc

"""Documents that are zip archives, opened so that none unpacks to more than fits."""

import io
import zipfile
from collections.abc import Iterator

from anamnesis_pipeline.errors import DocumentUnreadable

MOST_UNPACKED_BYTES = 512 << 20
"""Of all members together."""
MOST_XML_BYTES = 64 << 20
"""Of a document's text; a parsed tree takes several times as much."""
MOST_MEMBERS = 20_000

_OLE = b"\xd0\xcf\x11\xe0"
_XML = (".xml", ".rels", ".vml")


def opened(data: bytes) -> zipfile.ZipFile:
    """The archive `data`, of which every member is known to be of bounded size.

    :raises DocumentUnreadable: if it is none, is encrypted, or would unpack to more than 512 MB, or 64 MB of XML.
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
    if size > MOST_UNPACKED_BYTES or xml > MOST_XML_BYTES or len(members) > MOST_MEMBERS:
        raise DocumentUnreadable(f"it would unpack to {size} bytes, {xml} of them XML; that is more than is read")
    return archive


def member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of one member, never more than the archive's list says.

    :raises DocumentUnreadable: if there is none of that name, or it is damaged.
    """
    try:
        return archive.read(name)
    except KeyError as exc:
        raise DocumentUnreadable(f"it holds no {name}") from exc
    except Exception as exc:  # zipfile and zlib raise whatever fits the damage
        raise DocumentUnreadable(f"its {name} is damaged ({exc})") from exc


def chunks(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    """The bytes of one member in pieces of 1 MB; a size or checksum other than the listed one is an error."""
    try:
        with archive.open(name) as stream:
            while chunk := stream.read(1 << 20):
                yield chunk
    except Exception as exc:  # as above
        raise DocumentUnreadable(f"its {name} is damaged ({exc})") from exc

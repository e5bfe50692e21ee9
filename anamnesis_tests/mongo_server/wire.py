"""MongoDB's wire protocol: messages in, messages out.

https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/. The driver's first hello comes as OP_QUERY and is
answered as OP_REPLY; everything else is OP_MSG. Compression is not offered.
"""

import socket
import struct
from dataclasses import dataclass
from itertools import count

import bson
from bson.codec_options import CodecOptions, DatetimeConversion

from anamnesis_tests.mongo_server.values import Document

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
MAX_MESSAGE_BYTES = 48_000_000
MAX_COMMAND_OVERHEAD = 16 * 1024

_HEADER = struct.Struct("<iiii")
_LENGTH = struct.Struct("<i")
_FLAGS = struct.Struct("<I")
_REPLY = struct.Struct("<iqii")
_CHECKSUM, _MORE_TO_COME, _EXHAUST_ALLOWED = 1, 2, 1 << 16
CODEC: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)

_numbers = count(1)


class BadMessage(Exception):  # noqa: N818
    """What came is no message that this server knows; the connection is closed."""


@dataclass(frozen=True, slots=True)
class Message:
    """A command as it came, its document sequences put back into their fields."""

    number: int
    opcode: int
    command: Document
    size: int
    """Bytes, all in all."""
    flags: int = 0

    @property
    def wants_answer(self) -> bool:
        """Not so for unacknowledged writes."""
        return not self.flags & _MORE_TO_COME

    @property
    def takes_many_answers(self) -> bool:
        """Whether the client goes on listening, as monitors do."""
        return bool(self.flags & _EXHAUST_ALLOWED)


def read(connection: socket.socket) -> Message | None:
    """The next message; None: the client is gone.

    :raises BadMessage: it is none.
    """
    header = _exactly(connection, _HEADER.size)
    if header is None:
        return None
    length, number, _, opcode = _HEADER.unpack(header)
    if not _HEADER.size <= length <= MAX_MESSAGE_BYTES + MAX_COMMAND_OVERHEAD:
        raise BadMessage(f"a message of {length} bytes")
    body = _exactly(connection, length - _HEADER.size)
    if body is None:
        return None
    if opcode == OP_MSG:
        return _message(number, body)
    if opcode == OP_QUERY:
        return _query(number, body)
    raise BadMessage(f"operation {opcode}")


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    buffer = bytearray(size)
    view, done = memoryview(buffer), 0
    while done < size:
        got = connection.recv_into(view[done:])
        if not got:
            return None
        done += got
    return bytes(buffer)


def _message(number: int, body: bytes) -> Message:
    (flags,) = _FLAGS.unpack_from(body)
    end = len(body) - (4 if flags & _CHECKSUM else 0)
    at, command, sequences = _FLAGS.size, None, {}
    while at < end:
        kind = body[at]
        at += 1
        (size,) = _LENGTH.unpack_from(body, at)
        part = body[at : at + size]
        at += size
        if kind == 0:
            command = bson.decode(part, CODEC)
        elif kind == 1:
            name, _, documents = part[_LENGTH.size :].partition(b"\0")
            sequences[name.decode()] = bson.decode_all(documents, CODEC)
        else:
            raise BadMessage(f"a section of kind {kind}")
    if command is None:
        raise BadMessage("no section of kind 0")
    return Message(number, OP_MSG, command | sequences, len(body), flags)


def _query(number: int, body: bytes) -> Message:
    """flags, the full name of a collection, skip and count, then the command."""
    database = body[_FLAGS.size : body.index(b"\0", _FLAGS.size)].decode().partition(".")[0]
    start = body.index(b"\0", _FLAGS.size) + 1 + 8
    (size,) = _LENGTH.unpack_from(body, start)
    command = bson.decode(body[start : start + size], CODEC)
    return Message(number, OP_QUERY, command | {"$db": database}, len(body))


def answer(connection: socket.socket, message: Message, reply: Document, *, more: bool = False) -> int:
    """Send a reply in the form of what was asked; returns its number.

    `more`: others will follow it.
    """
    number = next(_numbers)
    document = bson.encode(reply)
    if message.opcode == OP_QUERY:
        body, opcode = _REPLY.pack(8, 0, 0, 1) + document, OP_REPLY
    else:
        body, opcode = _FLAGS.pack(_MORE_TO_COME if more else 0) + b"\0" + document, OP_MSG
    connection.sendall(_HEADER.pack(_HEADER.size + len(body), number, message.number, opcode) + body)
    return number

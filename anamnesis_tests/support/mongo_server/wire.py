"""Messages of MongoDB's wire protocol, as far as the relay must know them to answer some and hand on the others.

https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/
"""

import socket
import struct
from collections.abc import Mapping
from itertools import count
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

OP_MSG = 2013
MAX_MESSAGE_BYTES = 48_000_000 + 16 * 1024

_HEADER = struct.Struct("<iiii")
_FLAGS_AT, _BODY_AT, _NAME_AT = 16, 21, 26
_MORE_TO_COME = 2
_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
_numbers = count(1)


class Message:
    """A message as it came. What it says is read where somebody asks."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.is_command = _HEADER.unpack_from(raw)[3] == OP_MSG and raw[_BODY_AT - 1] == 0

    @property
    def name(self) -> str:
        """Of the command; nothing for the first greeting, which comes in an older form."""
        return self.raw[_NAME_AT : self.raw.index(b"\0", _NAME_AT)].decode() if self.is_command else ""

    @property
    def has_more_after_it(self) -> bool:
        """A request of this kind gets no answer; an answer, another one after it."""
        return self.is_command and bool(self.raw[_FLAGS_AT] & _MORE_TO_COME)

    @property
    def command(self) -> Mapping[str, Any]:
        """Its fields, each decoded when it is asked for. Documents that are sent beside it are not among them."""
        return RawBSONDocument(self._body(), CodecOptions(document_class=RawBSONDocument))

    def decoded(self) -> dict[str, Any]:
        """All its fields."""
        return bson.decode(self._body(), _CODEC)

    def answered(self, reply: Mapping[str, Any]) -> bytes:
        """The message that answers this one."""
        return _packed(reply, struct.unpack_from("<i", self.raw, 4)[0])

    def _body(self) -> bytes:
        (size,) = struct.unpack_from("<i", self.raw, _BODY_AT)
        return self.raw[_BODY_AT : _BODY_AT + size]


def asked(command: Mapping[str, Any]) -> bytes:
    """A command as a message."""
    return _packed(command, 0)


def _packed(document: Mapping[str, Any], answers: int) -> bytes:
    body = bson.encode(document)
    return _HEADER.pack(_BODY_AT + len(body), next(_numbers), answers, OP_MSG) + b"\0" * 5 + body


def read(connection: socket.socket) -> Message | None:
    """The next message; None: the other end is gone, or talks in another way."""
    head = _exactly(connection, _HEADER.size)
    if head is None or not _HEADER.size < (length := _HEADER.unpack(head)[0]) <= MAX_MESSAGE_BYTES:
        return None
    body = _exactly(connection, length - _HEADER.size)
    return None if body is None else Message(head + body)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    buffer = bytearray(size)
    view, done = memoryview(buffer), 0
    while done < size:
        got = connection.recv_into(view[done:])
        if not got:
            return None
        done += got
    return bytes(buffer)

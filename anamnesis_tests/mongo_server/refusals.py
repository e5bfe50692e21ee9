"""What the server refuses, with the code, the name and the labels that MongoDB gives it.

https://www.mongodb.com/docs/manual/reference/error-codes/
"""

from typing import Any

NAMES = {
    1: "InternalError",
    2: "BadValue",
    9: "FailedToParse",
    11: "UserNotFound",
    13: "Unauthorized",
    14: "TypeMismatch",
    18: "AuthenticationFailed",
    20: "IllegalOperation",
    26: "NamespaceNotFound",
    27: "IndexNotFound",
    28: "PathNotViable",
    40: "ConflictingUpdateOperators",
    43: "CursorNotFound",
    48: "NamespaceExists",
    50: "MaxTimeMSExpired",
    52: "DollarPrefixedFieldName",
    56: "EmptyFieldName",
    59: "CommandNotFound",
    61: "ShardKeyNotFound",
    66: "ImmutableField",
    67: "CannotCreateIndex",
    72: "InvalidOptions",
    73: "InvalidNamespace",
    85: "IndexOptionsConflict",
    86: "IndexKeySpecsConflict",
    91: "ShutdownInProgress",
    112: "WriteConflict",
    117: "ConflictingOperationInProgress",
    121: "DocumentValidationFailure",
    125: "CommandFailed",
    171: "CannotIndexParallelArrays",
    189: "PrimarySteppedDown",
    225: "TransactionTooOld",
    238: "NotImplemented",
    239: "SnapshotTooOld",
    251: "NoSuchTransaction",
    256: "TransactionCommitted",
    263: "OperationNotSupportedInTransaction",
    10107: "NotWritablePrimary",
    10334: "BSONObjectTooLarge",
    11000: "DuplicateKey",
    11602: "InterruptedDueToReplStateChange",
    13435: "NotPrimaryNoSecondaryOk",
    14031: "OutOfDiskSpace",
    16945: "BadValue",
}
"""Codes that have no name of their own are answered as MongoDB does, as `Location<code>`."""

RETRYABLE = frozenset({91, 189, 10107, 11602, 13435})
"""Another try may meet a primary."""
TRANSIENT = RETRYABLE | {112, 251}
"""The whole transaction may be tried again."""


class Refusal(Exception):  # noqa: N818
    """An answer with `ok: 0`, or one entry of `writeErrors`."""

    def __init__(self, code: int, message: str, *, labels: tuple[str, ...] = (), **fields: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.labels = labels
        self.fields = fields

    @property
    def name(self) -> str:
        """As in `codeName`."""
        return NAMES.get(self.code, f"Location{self.code}")

    def answer(self) -> dict[str, Any]:
        """The reply to a command that failed as a whole."""
        labels = {"errorLabels": list(self.labels)} if self.labels else {}
        return {"ok": 0.0, "errmsg": self.message, "code": self.code, "codeName": self.name} | self.fields | labels

    def write_error(self, index: int) -> dict[str, Any]:
        """As one entry of `writeErrors`."""
        return {"index": index, "code": self.code, "errmsg": self.message} | self.fields


def bad_value(message: str) -> Refusal:
    return Refusal(2, message)


def failed_to_parse(message: str) -> Refusal:
    return Refusal(9, message)


def type_mismatch(message: str) -> Refusal:
    return Refusal(14, message)


def not_supported(what: str) -> Refusal:
    """MongoDB could do it; this server cannot, and says so."""
    return Refusal(238, f"{what} is not known to the loopback server")


def refuse_unknown(given: Any, known: frozenset[str] | set[str], what: str, code: int = 9) -> None:
    """Nothing that is asked is passed over in silence."""
    for name in given:
        if name not in known:
            raise Refusal(code, f"{what}: unknown option {name!r}")

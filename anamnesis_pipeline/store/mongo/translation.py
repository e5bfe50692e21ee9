"""`pymongo`'s errors as ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.errors import (
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)

from anamnesis_pipeline.errors import AnamnesisError, GiveUp, StoreBusy, StoreFull

_UNAUTHORIZED, _AUTHENTICATION_FAILED, _ATLAS_ERROR = 13, 18, 8000
_ILLEGAL_OPERATION = 20
_OUT_OF_DISK_SPACE, _QUOTA_EXCEEDED = 14031, 12501
_TOO_LARGE = {10334, 17419, 17420, 17280}
_COME_AGAIN = {
    50,  # MaxTimeMSExpired
    112,  # WriteConflict
    24,  # LockTimeout
    251,  # NoSuchTransaction
    246,  # SnapshotUnavailable
    91, 11600, 11602, 10107, 13435, 13436, 189, 262,  # shutting down, no primary, stepped down, time limit
}  # fmt: skip
"""https://www.mongodb.com/docs/manual/reference/error-codes/"""


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise our errors for those of `pymongo`; what only a mistake in this package can cause passes as it is."""
    try:
        yield
    except DuplicateKeyError:
        raise
    except PyMongoError as exc:
        if (ours := _ours(place, exc)) is None:
            raise
        raise ours from exc


def _ours(place: str, exc: PyMongoError) -> AnamnesisError | None:
    if isinstance(exc, DocumentTooLarge):
        return _too_large(place, exc)
    if isinstance(exc, OperationFailure):
        return _refused(place, exc)
    if isinstance(exc, ConnectionFailure | ExecutionTimeout | WTimeoutError):
        return StoreBusy(f"{place} does not answer ({_short(exc)}); it is asked again with the next call")
    return None


def _refused(place: str, exc: OperationFailure) -> AnamnesisError | None:
    code = exc.code
    if code in (_AUTHENTICATION_FAILED, _UNAUTHORIZED, _ATLAS_ERROR):
        return GiveUp(f"{place} refuses the user or what it may do ({_short(exc)}); check ANAMNESIS_MONGO_URI")
    if code in (_OUT_OF_DISK_SPACE, _QUOTA_EXCEEDED):
        return StoreFull(f"{place} has no room to write ({_short(exc)}); free some there; nothing was half written")
    if code in _TOO_LARGE:
        return _too_large(place, exc)
    if code == _ILLEGAL_OPERATION and "replica set" in str(exc):
        return GiveUp(f"{place} is a server of its own, and transactions need a replica set; start it with --replSet")
    if code in _COME_AGAIN or exc.has_error_label("TransientTransactionError"):
        return StoreBusy(f"{place} could not do it just now ({_short(exc)}); try again")
    return None


def _too_large(place: str, exc: PyMongoError) -> GiveUp:
    return GiveUp(f"{place} takes no document of more than 16 MB ({_short(exc)}); split the text")


def _short(exc: PyMongoError) -> str:
    return str(exc).splitlines()[0][:200]

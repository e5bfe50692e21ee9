"""`pymongo`'s errors as ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WTimeoutError,
)

from anamnesis_pipeline.errors import AnamnesisError, StoreBusy, StoreFull, StoreRefused, TooLarge

_UNAUTHORIZED, _AUTHENTICATION_FAILED, _ATLAS_ERROR = 13, 18, 8000
_ILLEGAL_OPERATION = 20
_FULL = {
    14031,  # OutOfDiskSpace
    12501,  # quota exceeded
    371,  # UserWritesBlocked: since 8.0 also where a disk is nearly full
}
_OVER_QUOTA = "space quota"
"""In what Atlas says with its one code for everything."""
_TOO_LARGE = {10334, 17419, 17420, 17280}
_COME_AGAIN = frozenset[int]().union(
    (6, 7, 89, 202, 9001),  # the network between servers
    (24, 46, 112, 117, 314),  # LockTimeout, LockBusy, WriteConflict, ConflictingOperationInProgress, ObjectIsBusy
    (43, 175, 237),  # CursorNotFound, QueryPlanKilled, CursorKilled: the server was another one meanwhile
    (365, 402, 462, 489),  # TemporarilyUnavailable, ResourceExhausted, and refused because others ask too much
    (50, 262),  # MaxTimeMSExpired, ExceededTimeLimit
    (64,),  # WriteConcernTimeout
    (225, 239, 246, 251, 290),  # transaction or snapshot too old, gone, or longer than it may be
    (91, 189, 10107, 11600, 11601, 11602, 13435, 13436),  # shutting down, stepped down, interrupted, no primary
    (134,),  # ReadConcernMajorityNotAvailableYet
)
"""https://www.mongodb.com/docs/manual/reference/error-codes/"""
_NOT_REACHED = {
    "no primary": "its replica set has no primary now",
    "match selector": "its replica set has no primary now",
    "for replica set name": "the replica set there has another name",
    "could not reach any": "its members name addresses that are not reached from here: add directConnection=true",
    "certificate": "its certificate is not trusted here",
    "ssl": "it speaks no TLS, or this side does not",
    "refused": "nothing listens there",
    "name or service": "its host name is not known here",
    "name resolution": "its host name is not known here",
    "no address associated": "its host name is not known here",
    "timed out": "no connection was made in time",
}
"""What the driver says of why it finds no server (`pymongo.topology_shared`), and what that means."""
_COME_AGAIN_LABELS = ("TransientTransactionError", "SystemOverloadedError")


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise our errors for those of `pymongo`; errors that only a fault of this package causes pass unchanged."""
    try:
        yield
    except DuplicateKeyError:
        raise
    except (PyMongoError, DocumentTooLarge) as exc:
        if (ours := our_error(place, exc)) is None:
            raise
        raise ours from exc


def our_error(place: str, exc: PyMongoError | DocumentTooLarge) -> AnamnesisError | None:
    """Our error for one of the driver's; None for what only a mistake in this package can cause."""
    if isinstance(exc, DocumentTooLarge):
        return _too_large(place, exc)
    if isinstance(exc, ConnectionFailure | ExecutionTimeout | WTimeoutError):
        return StoreBusy(f"{place} does not answer ({_silence(exc)}); it is asked again with the next call")
    if isinstance(exc, OperationFailure):
        return _refused(place, exc)
    return None


def _refused(place: str, exc: OperationFailure) -> AnamnesisError | None:
    codes = _codes(exc)
    if codes & _FULL or (_ATLAS_ERROR in codes and _OVER_QUOTA in str(exc)):
        return StoreFull(f"{place} has no room to write ({_short(exc)}); free some there; nothing was half written")
    if codes & {_AUTHENTICATION_FAILED, _UNAUTHORIZED, _ATLAS_ERROR}:
        return StoreRefused(f"{place} refuses the user or what it may do ({_short(exc)}); check ANAMNESIS_MONGO_URI")
    if codes & _TOO_LARGE:
        return _too_large(place, exc)
    if _ILLEGAL_OPERATION in codes and "replica set" in str(exc):
        return StoreRefused(
            f"{place} is a standalone server, and transactions need a replica set; start it with --replSet"
        )
    if codes & _COME_AGAIN or any(exc.has_error_label(label) for label in _COME_AGAIN_LABELS):
        return StoreBusy(f"{place} could not do it just now ({_short(exc)}); try again")
    return None


def _silence(exc: Exception) -> str:
    """In which way a server does not answer, without the driver's words, which name its own settings."""
    match exc:
        case ServerSelectionTimeoutError():
            told = said(exc).lower()
            return next((words for sign, words in _NOT_REACHED.items() if sign in told), "it is not reached")
        case NetworkTimeout() | ExecutionTimeout():
            return "it took too long"
        case WTimeoutError():
            return "a majority of its members did not confirm in time"
        case _:
            return "the connection broke"


def _codes(exc: OperationFailure) -> set[int]:
    """The code of an error, and those of the single writes of a bulk of which some failed."""
    codes = {exc.code} if exc.code is not None else set()
    if isinstance(exc, BulkWriteError):
        details = exc.details
        codes |= {each["code"] for kind in ("writeErrors", "writeConcernErrors") for each in details.get(kind, ())}
    return codes


def _too_large(place: str, exc: Exception) -> TooLarge:
    """`Collection` notes which one the document was for."""
    collection = " ".join(getattr(exc, "__notes__", ("a collection",)))
    return TooLarge(
        f"{place}: one document for {collection} has more than the 16 MB it may ({_short(exc)}); split the text"
    )


def said(exc: Exception) -> str:
    """What the server says, in a line; the driver appends its whole reply, or the state of every server of the set."""
    told = exc.details.get("errmsg") if isinstance(exc, OperationFailure) and exc.details else None
    return str(told or exc).partition(", Topology Description")[0].partition(", full error: ")[0].partition("\n")[0]


def _short(exc: Exception) -> str:
    """What went wrong; of a bulk, with the first write that failed."""
    if isinstance(exc, BulkWriteError) and (errors := exc.details.get("writeErrors")):
        return str(errors[0].get("errmsg", ""))[:200]
    return said(exc)[:200]


# --- what the search service refuses ---------------------------------------------------------------------

_UNKNOWN_ERROR = 8
_AWAY = {
    6,  # HostUnreachable
    7,  # HostNotFound
    89,  # NetworkTimeout
    125,  # CommandFailed: the service that manages search indexes is not reached
    202,  # NetworkInterfaceExceededTimeLimit
    365,
    402,
    462,
    489,  # the server, or the way to the search process, has too much to do
}
_NO_SEARCH = {
    31082,  # SearchNotEnabled
    115,  # CommandNotSupported
    59,  # CommandNotFound
}
_OF_THE_QUERY = (
    '" must be',
    "must be indexed as",
    '" is required',
    '" cannot be',
    '" unrecognized field',
    "is not indexed as",
    "but queried with",
    "against a zero vector",
    "Cannot execute",
)
"""In messages of code 8: the query is wrong. All else that comes so is taken for a trouble of the search process, which
has no own code for being overloaded, out of memory or in the midst of building, and may change its words.
"""


class IndexDown(StoreBusy):
    """A search index cannot be asked just now. What it is made of can be read."""


class NoSearchService(IndexDown):
    """The server was set up without a search service: waiting for it does not help."""


@contextmanager
def asking(index: str) -> Iterator[None]:
    """Around calls that ask a search index, or ask after it.

    :raises IndexDown: it does not answer, is not built, or fails.
    :raises NoSearchService: nor will it ever.
    :raises StoreRefused: it does not take the query, which is a mistake of ours.
    """
    try:
        yield
    except OperationFailure as exc:
        told = said(exc)[:300]
        if exc.code in _AWAY:
            raise IndexDown(f"search index {index}: the search service does not answer ({told})") from exc
        if exc.code in _NO_SEARCH:
            raise NoSearchService(
                f"search index {index}: this server has no search service; take MongoDB Atlas, or the image "
                f"mongodb-atlas-local ({told})"
            ) from exc
        if exc.code == _UNKNOWN_ERROR:
            if any(words in told for words in _OF_THE_QUERY):
                raise StoreRefused(f"search index {index} does not take the query ({told})") from exc
            raise IndexDown(f"search index {index} cannot be asked just now ({told})") from exc
        raise

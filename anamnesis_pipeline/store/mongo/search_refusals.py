"""What the search process says when it does not search, as our errors.

A server hands on what it says as code 8 (UnknownError), and what is wrong with the way there under codes of its own:
https://www.mongodb.com/docs/manual/reference/error-codes/.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.errors import OperationFailure

from anamnesis_pipeline.errors import StoreBusy, StoreRefused
from anamnesis_pipeline.store.mongo.translation import said

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
    '" must be', "must be indexed as", '" is required', '" cannot be', '" unrecognized field', "is not indexed as",
    "but queried with", "against a zero vector", "Cannot execute",
)  # fmt: skip
"""In messages of code 8: the query is wrong. All else that comes so is taken for a trouble of the search process, which
has no code of its own for being overloaded, out of memory or in the midst of building, and may change its words.
"""


class IndexDown(StoreBusy):
    """A search index cannot be asked just now. What it is made of can be read."""


class NoSearchService(IndexDown):
    """The server was set up without a search service: waiting for it is in vain."""


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

"""What the search process says when it does not search, as our errors.

A server hands on what it says as code 8 (UnknownError), and what is wrong with the way there under codes of its own:
https://www.mongodb.com/docs/manual/reference/error-codes/.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.errors import OperationFailure

from anamnesis_pipeline.errors import GiveUp, StoreBusy

_UNKNOWN_ERROR = 8
_AWAY = {
    6,  # HostUnreachable
    7,  # HostNotFound
    89,  # NetworkTimeout
    125,  # CommandFailed: the service that manages search indexes is not reached
    202,  # NetworkInterfaceExceededTimeLimit
    489,  # too many queries wait for the search process
}
_NO_SEARCH = {
    31082,  # SearchNotEnabled
    115,  # CommandNotSupported
    59,  # CommandNotFound
}
_NOT_YET = ("not initialized", "while in state", "needs to be indexed")
"""In messages of code 8: the index is being built, or was built before a field was added to its definition."""


class IndexDown(StoreBusy):
    """A search index cannot be asked just now. What it is made of can be read."""


class NoSearchService(IndexDown):
    """The server was set up without a search service: waiting for it is in vain."""


@contextmanager
def asking(index: str) -> Iterator[None]:
    """Around calls that ask a search index, or ask after it.

    :raises IndexDown: it does not answer, or is not built.
    :raises NoSearchService: nor will it ever.
    :raises GiveUp: it does not take the query, which is a mistake of ours.
    """
    try:
        yield
    except OperationFailure as exc:
        said = str(exc).splitlines()[0][:300]
        if exc.code in _AWAY:
            raise IndexDown(f"search index {index}: the search service does not answer ({said})") from exc
        if exc.code in _NO_SEARCH:
            raise NoSearchService(
                f"search index {index}: this server has no search service; take MongoDB Atlas, or the image "
                f"mongodb-atlas-local ({said})"
            ) from exc
        if exc.code == _UNKNOWN_ERROR:
            if any(words in said for words in _NOT_YET):
                raise IndexDown(f"search index {index} cannot be asked yet ({said})") from exc
            raise GiveUp(f"search index {index} does not take the query ({said})") from exc
        raise

"""What the search service refuses, with the codes that a MongoDB server hands on.

Codes: https://www.mongodb.com/docs/manual/reference/error-codes/. What a search process refuses comes as 8
(UnknownError), wrapped by the aggregation that asked it.
"""

FAILED_TO_PARSE = (9, "FailedToParse")
HOST_UNREACHABLE = (6, "HostUnreachable")
UNKNOWN_ERROR = (8, "UnknownError")
NAMESPACE_NOT_FOUND = (26, "NamespaceNotFound")
INDEX_NOT_FOUND = (27, "IndexNotFound")
INDEX_ALREADY_EXISTS = (68, "IndexAlreadyExists")
COMMAND_FAILED = (125, "CommandFailed")
IN_TRANSACTION = (263, "OperationNotSupportedInTransaction")


class SearchRefused(Exception):  # noqa: N818
    """The service does not do what was asked. `code` and `code_name` go into the reply of the command."""

    def __init__(self, code: tuple[int, str], message: str) -> None:
        super().__init__(message)
        self.code, self.code_name = code
        self.message = message


class NotEmulated(Exception):  # noqa: N818
    """MongoDB may well do this; this stand-in does not, and says so rather than guess."""


def query_refused(message: str) -> SearchRefused:
    """A query that the search process refuses, in the words in which it reaches the client of a server 8.0."""
    return SearchRefused(UNKNOWN_ERROR, f"PlanExecutor error during aggregation :: caused by :: {message}")


def unreachable() -> SearchRefused:
    """What a query gets while the search process does not run."""
    return SearchRefused(
        HOST_UNREACHABLE,
        "PlanExecutor error during aggregation :: caused by :: Error connecting to localhost:27027 "
        "(127.0.0.1:27027) :: caused by :: onInvoke :: caused by :: Connection refused",
    )


def management_unreachable() -> SearchRefused:
    """What the commands for search indexes get while the search process does not run."""
    return SearchRefused(COMMAND_FAILED, "Error connecting to Search Index Management service.")

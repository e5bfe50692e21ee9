"""Each error of driver, server and search process is one of ours, and what is shown of an address has no password."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo import errors
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    DocumentTooLarge,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)

from anamnesis_pipeline.errors import AnamnesisError, StoreBusy, StoreFull, StoreRefused, TooLarge
from anamnesis_pipeline.store.mongo.address import hosts_of, masked
from anamnesis_pipeline.store.mongo.translation import IndexDown, NoSearchService, asking, our_error, translated

MISTAKES_OF_OURS = {
    "CollectionInvalid",
    "ConfigurationError",
    "DuplicateKeyError",
    "EncryptedCollectionError",
    "EncryptionError",
    "InvalidDocument",
    "InvalidName",
    "InvalidOperation",
    "InvalidURI",
    "OperationFailure",
    "PyMongoError",
    "ProtocolError",
    "WriteConcernError",
    "WriteError",
    "BulkWriteError",
    "ClientBulkWriteException",
    "CursorNotFound",
}
"""Of these it depends on the code, or only a mistake in this package can cause them; what `mongo_uri` may cause is told
where the client is made.
"""


def unreached(why: str) -> errors.PyMongoError:
    topology = "Topology Description: <TopologyDescription topology_type: ReplicaSetNoPrimary>"
    return errors.ServerSelectionTimeoutError(f"{why}, Timeout: 5.0s, {topology}")


def test_every_error_of_the_driver_is_ours_or_a_known_mistake() -> None:
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, Exception)]
    theirs = [each for each in classes if issubclass(each, PyMongoError | DocumentTooLarge)]
    told = {
        each.__name__
        for each in theirs
        if issubclass(each, ConnectionFailure | ExecutionTimeout | WTimeoutError | DocumentTooLarge)
    }
    assert {each.__name__ for each in theirs} - told <= MISTAKES_OF_OURS
    for each in theirs:
        if each.__name__ in told:
            error = each("problem", 50) if issubclass(each, OperationFailure) else each("problem")
            assert isinstance(our_error("here", error), AnamnesisError), each


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (14031, StoreFull),
        (12501, StoreFull),
        (371, StoreFull),
        (18, StoreRefused),
        (13, StoreRefused),
        (8000, StoreRefused),
        (10334, TooLarge),
        (17419, TooLarge),
        (112, StoreBusy),
        (189, StoreBusy),
        (10107, StoreBusy),
        (13435, StoreBusy),
        (91, StoreBusy),
        (50, StoreBusy),
        (251, StoreBusy),
        (246, StoreBusy),
        (290, StoreBusy),
        (43, StoreBusy),
        (175, StoreBusy),
        (237, StoreBusy),
        (365, StoreBusy),
        (402, StoreBusy),
        (462, StoreBusy),
        (489, StoreBusy),
        (2, None),
        (121, None),
        (11000, None),
    ],
)
def test_code_means_the_same_of_a_command_and_in_a_bulk(code: int, kind: type | None) -> None:
    alone = OperationFailure("problem", code)
    bulk = BulkWriteError({"writeErrors": [{"index": 0, "code": code, "errmsg": "problem"}]})
    for error in (alone, bulk):
        found = our_error("here", error)
        assert type(found) is (kind or type(None))
        assert found is None or "problem" in str(found)


def test_a_quota_of_atlas_is_a_full_store() -> None:
    error = OperationFailure("you are over your space quota, using 513 MB of 512 MB", 8000)
    assert isinstance(our_error("here", error), StoreFull)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (unreached("a:1: refused"), "nothing listens there"),
        (unreached("No primary available for writes"), "its replica set has no primary now"),
        (unreached("No servers found yet"), "it is not reached"),
        (unreached("a:1: [Errno -2] Name or service not known"), "its host name is not known here"),
        (errors.NetworkTimeout("a:1: timed out (configured timeouts: socketTimeoutMS)"), "it took too long"),
        (errors.AutoReconnect("a:1: connection closed"), "the connection broke"),
        (errors.WTimeoutError("waiting timed out"), "a majority of its members did not confirm in time"),
    ],
)
def test_silence_is_told_in_our_words(error: errors.PyMongoError, words: str) -> None:
    with pytest.raises(StoreBusy) as told, translated("MongoDB a:1/x"):
        raise error
    assert str(told.value) == f"MongoDB a:1/x does not answer ({words}); it is asked again with the next call"


def test_the_reply_that_the_driver_appends_is_not_told() -> None:
    reply = {"ok": 0.0, "errmsg": "plan executor\nand more", "code": 112, "$clusterTime": {"keyId": 7}}
    error = OperationFailure("plan executor\nand more", 112, reply)
    assert "full error" in str(error)
    assert str(our_error("here", error)) == "here could not do it just now (plan executor); try again"
    reply |= {"errmsg": "Index i not initialized", "code": 8}
    with pytest.raises(IndexDown) as told, asking("i"):
        raise OperationFailure("Index i not initialized", 8, reply)
    assert str(told.value) == "search index i cannot be asked just now (Index i not initialized)"


def test_overloaded_server_is_busy_whatever_its_code() -> None:
    error = OperationFailure("too much", 999, {"errmsg": "too much", "errorLabels": ["SystemOverloadedError"]})
    assert isinstance(our_error("here", error), StoreBusy)


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (8, "Index i not initialized", IndexDown),
        (8, "Path 'f' needs to be indexed as token", IndexDown),
        (8, "cannot query search index i while in state INITIAL_SYNC", IndexDown),
        (8, "some words of a process that ran out of memory", IndexDown),
        (6, "refused", IndexDown),
        (462, "too much", IndexDown),
        (8, '"compound.must[0].phrase.query" is required', StoreRefused),
        (8, '"numCandidates" must be positive', StoreRefused),
        (8, "text_vector is not indexed as vector", StoreRefused),
        (8, "vector field is indexed with 4 dimensions but queried with 8", StoreRefused),
        (31082, "not enabled", NoSearchService),
    ],
)
def test_only_a_query_that_is_wrong_is_given_up(code: int, message: str, kind: type[Exception]) -> None:
    with pytest.raises(kind), asking("i"):
        raise OperationFailure(message, code, {"errmsg": f"PlanExecutor error :: caused by :: {message}"})


# --- the address -----------------------------------------------------------------------------------------

SECRET = "Hunter2hunter"


@pytest.mark.parametrize(
    ("uri", "shown", "hosts"),
    [
        (
            "mongodb://127.0.0.1:5438/?directConnection=true",
            "mongodb://127.0.0.1:5438/?directConnection=true",
            "127.0.0.1:5438",
        ),
        (
            "mongodb://ann:p%40ss@one:27017,two:27017/db?authSource=admin&tls=true",
            "mongodb://ann:***@one:27017,two:27017/db?authSource=admin&tls=true",
            "one:27017,two:27017",
        ),
        ("mongodb+srv://ann:pa@ss@cluster.example/db", "mongodb+srv://ann:***@cluster.example/db", "cluster.example"),
        ("mongodb://h/?tlsCertificateKeyFilePassword=secret", "mongodb://h/?tlsCertificateKeyFilePassword=***", "h"),
        ("mongodb://[::1]:27017/", "mongodb://[::1]:27017/", "[::1]:27017"),
        ("mongodb://ann@h", "mongodb://ann@h", "h"),
        ("mongodb://ann:pa/ss@h/db", "***", ""),
        ("mongodb://h/?appName=ann@home", "***", ""),
        ("nonsense", "***", ""),
    ],
)
def test_what_holds_no_secret_is_shown(uri: str, shown: str, hosts: str) -> None:
    assert masked(uri) == shown
    assert hosts_of(uri) == hosts


@given(st.text("/?#@:%&=,a", max_size=4), st.text("/?#@:%&=,a", max_size=4), st.sampled_from(["", "db", "db?w=1"]))
def test_no_password_is_shown_whatever_signs_it_holds(before: str, after: str, rest: str) -> None:
    uri = f"mongodb://ann:{before}{SECRET}{after}@host:27017/{rest}"
    assert SECRET not in masked(uri) + hosts_of(uri)

"""Every error that this package raises on purpose, by whether waiting helps.

A command that ends in one of these prints its message on stderr and exits with status 1. A request is answered with its
HTTP status and `application/problem+json`, or with 500 if it has none here: no route is expected to end in it.
Adapters translate the exceptions of their library into these, so that a message holds no secret and says what to do.
"""


class AnamnesisError(Exception):
    """Root of the tree."""


class RetryLater(AnamnesisError):
    """Waiting helps: the same call may succeed later. A reply of 429 or 503 has `Retry-After`; `anamnesis up` and
    runs of Dagster try again on their own.
    """


class StoreBusy(RetryLater):
    """Another process holds the write lock of the store longer than the timeout.

    Try again in some seconds. A process that was killed can hold the lock of MongoDB for 60 seconds.
    """


class EmbeddingQueueFull(RetryLater):
    """More calls wait for the embedding model than `embed_queue_max` allows.

    Try again after `Retry-After`; raise `embed_cpu_pct` if it happens often.
    """


class ModelLoading(RetryLater):
    """The embedding model is not loaded yet.

    Wait for `/ready`, about 10 seconds after the start; searches by words work meanwhile.
    """


class RerankerSlow(RetryLater):
    """The cross-encoder of `rerank_model` does not answer in time.

    The search answers in its own order and says so. Use a smaller model, or more cores for embedding.
    """


class ServiceUnreachable(RetryLater):
    """The local service or Dagster does not answer.

    Start it with `anamnesis up`; `anamnesis doctor` says what is down.
    """


class LlmBusy(RetryLater):
    """An LLM asks to wait (429, 529).

    Wait. Lower `llm_requests_per_minute` if it happens often.

    :param retry_after_s: how long to wait, if the LLM says so.
    """

    def __init__(self, problem: str, retry_after_s: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after_s = retry_after_s


class LlmCallTaken(RetryLater):
    """Another process makes the same LLM call.

    Wait: its reply is shared.
    """


class LlmUnavailable(RetryLater):
    """An LLM does not answer, stalls, or closes the connection.

    Check its URL in the settings, and that its server runs; `anamnesis doctor` looks at all of them.
    """


class HostUnreachable(RetryLater):
    """A crawled machine does not answer, stalls, or closes the connection.

    Start it, or check its name with `ssh`. It is tried again at growing intervals of at most an hour.
    """


class PageUnreachable(RetryLater):
    """A web server does not answer, stalls, or closes the connection.

    Check the address, or try again later.
    """


class GiveUp(AnamnesisError):
    """Trying again changes nothing until the cause is removed; the message says what to change."""


class BadSetting(GiveUp):
    """A setting has an invalid value.

    Correct it where the message says: the store, the environment, or `config.toml`. `anamnesis config` lists all.
    """


class UnknownModel(GiveUp):
    """No embedding model has this name, or its files cannot be read.

    Choose a model that `anamnesis model` lists, or a valid id or path; put missing files back.
    """


class InvalidVectors(GiveUp):
    """A model returns vectors with invalid numbers, or far from its own in fp32.

    Set `precision` to `fp32`, or use another model.
    """


class DimensionMismatch(GiveUp):
    """Vectors of two models would be mixed.

    Embed again with one model: `anamnesis reembed start`.
    """


class SpaceNotFound(GiveUp):
    """No embedding space has this key.

    `anamnesis model` lists the keys.
    """


class SpaceConflict(GiveUp):
    """The state of a space forbids the call: another re-embed is under way, or the active space would be dropped.

    Wait for the re-embed, or end it: `anamnesis model use` with the active space.
    """


class StoreCorrupt(GiveUp):
    """The database file is damaged or from a newer version.

    Restore a backup (`anamnesis restore`), or update Anamnesis.
    """


class StoreFull(GiveUp):
    """The disk or the database has no space for the write.

    Free disk space; nothing of the write was stored.
    """


class StoreRefused(GiveUp):
    """The server of the store refuses the user or the request, or lacks a function.

    Check `mongo_uri`, the roles of its user (`readWrite`, `dbAdmin`), and that it is a replica set with search
    indexes.
    """


class EpisodeConflict(GiveUp):
    """An episode with this id exists with other content.

    Use another id, or change the stored one with PATCH.
    """


class EpisodeNotFound(GiveUp):
    """No episode has this id.

    Search for it; a deleted episode does not return.
    """


class ProposalConflict(GiveUp):
    """The proposal is not in the state that this needs.

    Read it again: it was decided on meanwhile, or it expired; its reason says why.
    """


class ProposalNotFound(GiveUp):
    """No proposal has this id.

    List them; one whose evidence was forgotten goes with it.
    """


class EntityNotFound(GiveUp):
    """No file, command or other thing is known by this name.

    `anamnesis entities NAME` lists similar names.
    """


class EntityConflict(GiveUp):
    """Two names lead to each other already, a thing is merged into itself, or the most names that are kept are stored.

    Name another thing, or delete an alias first, as the message says.
    """


class TopicChanged(GiveUp):
    """A topic file was changed since its new text was made.

    Nothing was written: read the file again; the proposal is made again from its present text.
    """


class TopicRefused(GiveUp):
    """A topic file cannot be written so: no topic has this place, or its text is not read as one.

    Correct what the message names.
    """


class IdAmbiguous(GiveUp):
    """Several ids begin with this text.

    Give more characters of the id.
    """


class InvalidEpisode(GiveUp):
    """A field is missing or has an invalid value.

    Correct the field that the message names.

    :param field: path of the field, e.g. ``summary``.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Excluded(GiveUp):
    """A rule keeps the text or file out.

    `anamnesis exclude list` shows the rule, `anamnesis exclude remove` lifts it.
    """


class RuleRefused(GiveUp):
    """An exclusion rule is invalid, or exceeds the number of rules.

    Correct the rule, or remove another one.
    """


class TooLarge(GiveUp):
    """A body or file exceeds the size limit.

    Send it in smaller pieces.
    """


class DocumentUnsupported(GiveUp):
    """Documents of this type are not read.

    Convert it to a supported format, such as text, Markdown or PDF.
    """


class PageRefused(GiveUp):
    """An address is not fetched, or the web server answers with an error.

    Use a public `http` or `https` address; download the page and upload the file.
    """


class LlmRefused(GiveUp):
    """An LLM service refuses all calls: wrong key, exhausted quota, unpaid bill, unknown model.

    Correct the key, the account or the model. Calls resume after an hour, or at once with `anamnesis summarize`.
    """


class LlmPromptRefused(GiveUp):
    """An LLM service refuses one prompt: too long, blocked, or malformed. Others may pass.

    Nothing: the extractive summary stays after 8 attempts.
    """


class LlmAnswerInvalid(GiveUp):
    """The reply of an LLM does not have the requested form.

    Nothing: it is asked once more. Use another model if it happens often.
    """


class SourceUnreadable(GiveUp):
    """A folder or file cannot be listed or read.

    Give the user of `anamnesis up` permission to read it, or exclude it.
    """


class SourceMissing(SourceUnreadable):
    """No folder or file has this name.

    Check the path with `anamnesis sources test`.
    """


class HostRefused(GiveUp):
    """The key of a crawled machine is unknown or has changed, or the machine refuses the login.

    Check and add the host key (`ssh-keyscan`), and try `ssh` with the same user and key.
    """


class NoSftp(HostRefused):
    """A crawled machine has no SFTP server.

    Nothing if a shell answers there: it is used instead. Else enable SFTP in `sshd_config`.
    """


class DocumentUnreadable(GiveUp):
    """The bytes of a document do not match its format, or its parser is missing.

    Open and save the document again, or convert it.
    """


class AlreadyRunning(GiveUp):
    """Another `anamnesis up` uses this home.

    End the other one, or set another `ANAMNESIS_HOME`.
    """


class PortInUse(GiveUp):
    """Another program listens on a port that is needed.

    End it, or set `ANAMNESIS_PORT`, `ANAMNESIS_DAGSTER_PORT` or `ANAMNESIS_CODE_PORT`.
    """

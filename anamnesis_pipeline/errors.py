"""Every error this package raises on purpose.

    AnamnesisError
    ├── RetryLater            waiting helps: the same call may succeed later
    │   ├── StoreBusy             another process holds the store's write lock
    │   ├── EmbeddingQueueFull    more queries wait for the model than it may queue
    │   ├── ModelLoading          the embedding model is not in memory yet
    │   ├── ServiceUnreachable    the sidecar or Dagster does not answer
    │   ├── LlmBusy               an LLM asks to wait (429, 529)
    │   ├── LlmCallTaken          another process is asking an LLM the very same
    │   ├── LlmUnavailable        an LLM does not answer, stalls, or breaks off
    │   ├── HostUnreachable       a crawled machine does not answer, stalls, or breaks off
    │   └── PageUnreachable       a web server does not answer, stalls, or breaks off
    └── GiveUp                trying again changes nothing; the text says what to change
        ├── BadSetting            a setting has a value it cannot have
        ├── UnknownModel          no such embedding model, or its files cannot be read
        ├── InvalidVectors        a model answers with vectors that are no numbers, or far from its own in fp32
        ├── DimensionMismatch     vectors of two models were about to meet
        ├── SpaceNotFound         no such embedding space
        ├── SpaceConflict         the space's state forbids it: one re-embed at a time, no drop of the active
        ├── StoreCorrupt          the database file is damaged or from a newer version
        ├── StoreFull             the disk has no room for the write
        ├── StoreRefused          the store's server refuses the user or the request, or cannot do what is needed
        ├── EpisodeConflict       the id exists with other content
        ├── EpisodeNotFound       no such id
        ├── IdAmbiguous           several ids begin so
        ├── InvalidEpisode        a field is missing or has a value it cannot have
        ├── Excluded              a rule keeps it away
        ├── RuleRefused           a rule that can mean nothing, or one too many
        ├── TooLarge              more bytes than are taken
        ├── DocumentUnsupported   a document of a type that is not read
        ├── PageRefused           an address that is not fetched, or a page that answers with an error
        ├── LlmRefused            an LLM's service refuses for good: key, quota, billing, unknown model
        ├── LlmPromptRefused      an LLM's service refuses one prompt: too long, blocked, not as it wants them
        ├── LlmAnswerInvalid      an LLM answers with something other than what was asked for
        ├── SourceUnreadable      a folder or file cannot be listed or read
        │   └── SourceMissing     there is none of that name
        ├── HostRefused           a crawled machine's key is not the known one, or it lets nobody in
        │   └── NoSftp                it serves no files over SFTP
        ├── DocumentUnreadable    a document's bytes are not of its format, or its parser is missing
        ├── AlreadyRunning        another `anamnesis up` owns this home
        └── PortInUse             another program listens on a port this one needs

Adapters translate their library's exceptions into these at the border.
"""


class AnamnesisError(Exception):
    """Root of the tree."""


class RetryLater(AnamnesisError):
    """The same call may succeed later."""


class StoreBusy(RetryLater):
    """Another process holds the store's write lock for longer than the time-out."""


class EmbeddingQueueFull(RetryLater):
    """More work waits for the embedding model than the queue may hold."""


class ModelLoading(RetryLater):
    """The embedding model is not in memory yet."""


class ServiceUnreachable(RetryLater):
    """A local service (sidecar or Dagster) does not answer."""


class LlmBusy(RetryLater):
    """An LLM asks to wait.

    :param retry_after_s: how long, where it says so.
    """

    def __init__(self, problem: str, retry_after_s: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after_s = retry_after_s


class LlmCallTaken(RetryLater):
    """Another process is asking an LLM the very same."""


class LlmUnavailable(RetryLater):
    """An LLM does not answer, stalls, or breaks off."""


class PageUnreachable(RetryLater):
    """A web server does not answer, stalls, or breaks off."""


class GiveUp(AnamnesisError):
    """Trying again changes nothing."""


class HostUnreachable(RetryLater):
    """A crawled machine does not answer, stalls, or breaks off."""


class HostRefused(GiveUp):
    """A crawled machine's key is unknown or another one, or it lets nobody in."""


class NoSftp(HostRefused):
    """A crawled machine serves no files over SFTP; a shell may."""


class BadSetting(GiveUp):
    """A setting has a value it cannot have."""


class UnknownModel(GiveUp):
    """No such embedding model, or its files cannot be read."""


class InvalidVectors(GiveUp):
    """A model answers with vectors that are no numbers, or far from its own in fp32."""


class DimensionMismatch(GiveUp):
    """Vectors of two models were about to meet."""


class SpaceNotFound(GiveUp):
    """No embedding space has this key."""


class SpaceConflict(GiveUp):
    """The state of a space forbids what was asked."""


class StoreCorrupt(GiveUp):
    """The database file is damaged or was written by a newer version."""


class StoreFull(GiveUp):
    """The disk has no room for the write."""


class StoreRefused(GiveUp):
    """The store's server refuses the user or what is asked of it, or cannot do what is needed."""


class EpisodeConflict(GiveUp):
    """The id exists with other content."""


class EpisodeNotFound(GiveUp):
    """No episode has this id."""


class IdAmbiguous(GiveUp):
    """Several episodes have an id that begins so."""


class InvalidEpisode(GiveUp):
    """A field is missing or has a value it cannot have.

    :param field: the field's path, e.g. ``summary``.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Excluded(GiveUp):
    """A rule keeps it away."""


class RuleRefused(GiveUp):
    """A rule of what to keep away that can mean nothing, or one too many."""


class TooLarge(GiveUp):
    """It has more bytes than are taken."""


class DocumentUnsupported(GiveUp):
    """A document of a type that is not read."""


class PageRefused(GiveUp):
    """An address that is not fetched, or a page that answers with an error."""


class LlmRefused(GiveUp):
    """An LLM's service refuses for good: wrong key, used-up quota, unpaid bill, unknown model."""


class LlmPromptRefused(GiveUp):
    """An LLM's service refuses this very prompt: too long, blocked, not of the form it wants. Another may pass."""


class LlmAnswerInvalid(GiveUp):
    """An LLM answers with something other than what was asked for."""


class SourceUnreadable(GiveUp):
    """A folder or file cannot be listed or read."""


class SourceMissing(SourceUnreadable):
    """There is no folder or file of that name."""


class DocumentUnreadable(GiveUp):
    """A document's bytes are not of its format, or its parser is missing."""


class AlreadyRunning(GiveUp):
    """Another `anamnesis up` owns this home."""


class PortInUse(GiveUp):
    """Another program listens on a port this one needs."""

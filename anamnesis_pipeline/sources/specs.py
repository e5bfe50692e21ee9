"""What people configure to be crawled: a root of logs or documents on one machine."""

from dataclasses import dataclass

LOGS = "claude_logs"
DOCUMENTS = "documents"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A configured source. One of logs gives a `Source` per Claude project folder, one of documents a single one.

    `host` is where it is: `user@host`, `user@host:port` or a name of `~/.ssh/config`; empty: this machine. `machine` is
    the name in results. `root` is absolute or begins with `~`, of that machine. `include` and `exclude` are patterns as
    in a `.gitignore`, relative to the root; empty `include`: the default ones. Of documents, `project` and `instance`
    stand instead of what is found out. `interval_s`: seconds between two looks; None: the setting. The text of a
    `private` one is sent to no LLM on another machine.
    """

    name: str
    kind: str
    root: str
    host: str = ""
    machine: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    project: str = ""
    instance: str = ""
    interval_s: int | None = None
    private: bool = False
    max_file_bytes: int = 1 << 20
    """Of a text or code file; others, such as a PDF, may have 50 times as much."""

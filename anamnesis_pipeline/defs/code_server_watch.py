"""How often Dagster's processes ask the code server whether it is still the same: a question that nobody can set, and
each second, as it is asked by itself, it is what an idle code server mostly does.
"""

from dagster._grpc import server_watcher

WATCHED_EVERY_S = 5.0


def watch_less_often() -> None:
    """From here on this process asks every WATCHED_EVERY_S; a code server that was started anew is noticed as late."""
    server_watcher.WATCH_INTERVAL = WATCHED_EVERY_S  # type: ignore[assignment]

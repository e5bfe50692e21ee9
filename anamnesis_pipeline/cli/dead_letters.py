"""`anamnesis dead-letters`: lines of logs that could not be read, and another try at them."""

from collections.abc import Callable, Sequence
from contextlib import closing

from anamnesis_pipeline.cli.searched_store import store_to_write
from anamnesis_pipeline.model import DeadLetter
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.dead_letters import RetryReport, retry_dead_letters
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.settings import Settings

SHOWN = 200


def letters(settings: Settings) -> tuple[list[DeadLetter], int, Private]:
    """The first ones, how many there are in all, and what is private."""
    if not settings.has_store:
        return [], 0, NOTHING_PRIVATE
    with closing(wiring.open_to_read(settings)) as store:
        found, total = store.messages.dead_letters(limit=SHOWN), store.overview.counts().dead_letters
        return found, total, wiring.what_is_private(store)


def retry(settings: Settings, say: Callable[[str], None]) -> None:
    """Read them again with this version, and publish what can be read now."""
    if not settings.has_store:
        say(render_retried(RetryReport()))
        return
    with store_to_write(settings) as store:
        settings = wiring.effective_settings(store)
        pipeline = wiring.open_pipeline(settings, store)
        report = retry_dead_letters(
            store, pipeline.archive_lines, labels=pipeline.labels, idle_minutes=settings.idle_minutes
        )
        for source in store.files.sources():
            if source.key in report.sources:
                pipeline.publish(source)
    say(render_retried(report))


def render(found: Sequence[DeadLetter], total: int, private: Private = NOTHING_PRIVATE) -> str:
    """One line per letter; the text itself may hold anything and stays in the archive. Pure."""
    if not found:
        return "Every line of every log could be read."
    lines = [
        f"{private.file_shown(each.source, f'{each.source}/{each.path}')}, line {each.line + 1}: {each.reason}"
        for each in found
    ]
    more = [f"... and {total - len(found):,} more"] if total > len(found) else []
    return "\n".join([*lines, *more, "", "After an upgrade, try them again: anamnesis dead-letters retry"])


def render_retried(report: RetryReport) -> str:
    """What a retry did. Pure."""
    return (
        f"{counted(report.letters, 'line')} read again: {counted(report.revived, 'is', 'are')} whole now, "
        f"{counted(report.messages, 'message is', 'messages are')} new, "
        f"{report.letters - report.revived:,} still cannot be read in full"
    )

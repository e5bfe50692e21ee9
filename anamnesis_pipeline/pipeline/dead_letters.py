"""Retry lines that could not be parsed: a later version may understand them."""

from dataclasses import dataclass, replace

from anamnesis_pipeline.errors import StoreBusy, StoreCorrupt
from anamnesis_pipeline.model import DeadLetter, FileCursor, Source
from anamnesis_pipeline.parsing.claude_logs.parser import Advance, FileState
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.pipeline.parse import ParseContext, Tally, commit_step
from anamnesis_pipeline.pipeline.projects import Labels
from anamnesis_pipeline.pipeline.tool_outputs import outputs_of
from anamnesis_pipeline.store.base import Store

ATTEMPTS = 5
"""Maximum attempts per letter while another run keeps writing the same file."""

EVERY_LETTER = 1_000_000


@dataclass(frozen=True, slots=True)
class RetryReport:
    """Result of `retry_dead_letters`. `revived`: letters resolved; `messages`: messages that were unreadable before."""

    letters: int = 0
    revived: int = 0
    messages: int = 0
    sources: tuple[str, ...] = ()


def retry_dead_letters(store: Store, archive_lines: ArchivedLines, *, labels: Labels, idle_minutes: int) -> RetryReport:
    """Parse every dead letter with this version. Newly readable content becomes separate chunks; content of the line
    read before is not written twice. A letter that is still partly unreadable stays, with the new reason.

    :param labels: projects of the directories of a source.

    :raises StoreBusy: another run keeps writing a file.
    """
    sources = {source.key: source for source in store.files.sources()}
    letters = store.messages.dead_letters(limit=EVERY_LETTER)
    revived, messages, changed = 0, 0, set()
    for letter in letters:
        source = sources.get(letter.source) or Source(letter.source)
        context = ParseContext(
            store,
            archive_lines,
            source,
            labels.of(source),
            idle_minutes,
            Tally(),
            {},
            store.forgetting.forgotten,
            outputs_of(store.files.cursors(letter.source).values()),
        )
        step, is_alive = _retry(context, letter)
        revived, messages = revived + is_alive, messages + len(step.keys)
        changed |= {letter.source} if step.parts else set()
    return RetryReport(len(letters), revived, messages, tuple(sorted(changed)))


def _retry(context: ParseContext, letter: DeadLetter) -> tuple[Advance, bool]:
    """Parse one line again, and commit the result. Return it, and whether the line is now fully readable."""
    for _ in range(ATTEMPTS):
        cursor = context.store.files.cursor(letter.source, letter.path)
        if cursor is None:
            raise StoreCorrupt(f"a dead letter is of {letter.path}, a file of which nothing else is known")
        line = next(context.archive_lines.read(replace(cursor, generation=letter.generation), letter.line), "")
        batch = context.read([line], letter.line)
        step = _as_addition(context.advance(_place_of(cursor), batch, letter.path))
        dead = [replace(letter, reason=reason) for _, reason in batch.dead[:1]]
        after = _with_ordinal(cursor, step)
        if commit_step(context.store.messages, cursor, after, step, "", dead, [] if dead else [letter]) is not None:
            return step, not dead
    raise StoreBusy(
        f"another run keeps writing {letter.path}; run `anamnesis dead-letters retry` again when it is done"
    )


def _place_of(cursor: FileCursor) -> FileState:
    """Return the parser's state of the file for a line anywhere in it: the file's owner, but not what came before."""
    state = FileState.from_json(cursor.parser_state) or FileState()
    return replace(state, exchange=None, part_id="", last_timestamp=None)


def _as_addition(step: Advance) -> Advance:
    """Return the step with closed chunks and no occurrences: messages that the line gave before are stored already."""
    return replace(step, parts=tuple(replace(part, closed=True) for part in step.parts), occurrences=())


def _with_ordinal(cursor: FileCursor, step: Advance) -> FileCursor:
    """Return the cursor with only its number of chunks advanced."""
    state = FileState.from_json(cursor.parser_state)
    if state is None:
        return cursor
    return replace(cursor, parser_state=replace(state, ordinal=step.state.ordinal).to_json())

"""Lines that could not be read are read again: a later version may understand them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from anamnesis_pipeline.archive_model import DeadLetter
from anamnesis_pipeline.errors import StoreBusy, StoreCorrupt
from anamnesis_pipeline.exchanges.parsing import Advance, FileState
from anamnesis_pipeline.model import FileCursor, Source
from anamnesis_pipeline.steps.exchanges import ArchiveLines, ParseContext, Tally, commit_step
from anamnesis_pipeline.steps.tool_outputs import outputs_of
from anamnesis_pipeline.store.base import Store

ATTEMPTS = 5
"""Times that a letter is tried while another run keeps writing the same file."""

EVERY_LETTER = 1_000_000


@dataclass(frozen=True, slots=True)
class RetryReport:
    """What `retry_dead_letters` did. `revived` letters are none any more; `messages` could not be read before."""

    letters: int = 0
    revived: int = 0
    messages: int = 0
    sources: tuple[str, ...] = ()


def retry_dead_letters(
    store: Store, archive_lines: ArchiveLines, *, label_of: Callable[[Source], Callable[[str], str]], idle_minutes: int
) -> RetryReport:
    """Parse every dead letter with this version. What can be read now becomes parts of their own; what was read of a
    line before is not written twice. A letter of which something still cannot be read stays, with today's reason.

    :param label_of: of a source: working directory -> project.

    :raises StoreBusy: another run keeps writing a file.
    """
    sources = {source.key: source for source in store.files.sources()}
    letters = store.messages.dead_letters(limit=EVERY_LETTER)
    revived, messages, changed = 0, 0, set()
    for letter in letters:
        source = sources.get(letter.source) or Source(letter.source)
        context = ParseContext(
            store, archive_lines, source, label_of(source), idle_minutes,
            Tally(), {}, store.forgetting.forgotten, outputs_of(store.files.cursors(letter.source).values()),
        )  # fmt: skip
        step, is_alive = _retry(context, letter)
        revived, messages = revived + is_alive, messages + len(step.keys)
        changed |= {letter.source} if step.parts else set()
    return RetryReport(len(letters), revived, messages, tuple(sorted(changed)))


def _retry(context: ParseContext, letter: DeadLetter) -> tuple[Advance, bool]:
    """Read one line again, and commit what it gives; whether nothing is wrong with it any more."""
    for _ in range(ATTEMPTS):
        cursor = context.store.files.cursor(letter.source, letter.path)
        if cursor is None:
            raise StoreCorrupt(f"a dead letter is of {letter.path}, a file of which nothing else is known")
        line = next(context.archive_lines(replace(cursor, generation=letter.generation), letter.line), "")
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
    """What the parser knows of the file, for a line somewhere in it: whose it is, but not what went before."""
    state = FileState.from_json(cursor.parser_state) or FileState()
    return replace(state, exchange=None, part_id="", last_timestamp=None)


def _as_addition(step: Advance) -> Advance:
    """Closed parts; a message that the line gave before is there already, and no copy of itself."""
    return replace(step, parts=tuple(replace(part, closed=True) for part in step.parts), occurrences=())


def _with_ordinal(cursor: FileCursor, step: Advance) -> FileCursor:
    """The cursor, moved on by nothing but the number of parts."""
    state = FileState.from_json(cursor.parser_state)
    if state is None:
        return cursor
    return replace(cursor, parser_state=replace(state, ordinal=step.state.ordinal).to_json())

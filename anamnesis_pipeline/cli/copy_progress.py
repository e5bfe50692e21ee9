"""How far a copy is: one bar on a terminal, else a line now and then; and what is left to do after it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.services.store_copies import Tell

_PLAIN_LINE_EVERY_S = 10.0


@contextmanager
def shown(console: Console, after: str) -> Iterator[Tell]:
    """What to tell of each step while the block runs.

    :param after: how things are where Ctrl-C ended it.
    :raises GiveUp: Ctrl-C ended it, in words.
    """
    try:
        with _bar(console) if console.is_terminal else nullcontext(_plain(console)) as tell:
            yield tell
    except KeyboardInterrupt:
        raise GiveUp(f"interrupted; {after}") from None


@contextmanager
def _bar(console: Console) -> Iterator[Tell]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def tell(step: str, done: int, of: int) -> None:
            progress.update(task, description=step, completed=done, total=max(done, of))

        yield tell


def _plain(console: Console) -> Tell:
    said_at = time.monotonic()

    def tell(step: str, done: int, of: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _PLAIN_LINE_EVERY_S:
            said_at = time.monotonic()
            console.print(f"  {step}: {done:,} of {max(done, of):,}", soft_wrap=True, highlight=False)

    return tell


def index_told(problem: str) -> str:
    """What to say where a copy is whole and its search index is not. Pure."""
    return (
        f"Its search index could not be built in time: {problem}. The copy is whole all the same; until the index is "
        "there, searches by meaning read all vectors, or go without where there are many; `anamnesis doctor` tells."
    )

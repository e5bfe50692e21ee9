"""How far a copy is: one bar on a terminal, else a line now and then."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from anamnesis_pipeline.steps.copying import Tell

_PLAIN_LINE_EVERY_S = 10.0


@contextmanager
def shown(console: Console) -> Iterator[Tell]:
    """What to tell of each step while the block runs."""
    if not console.is_terminal:
        yield _plain(console)
        return
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

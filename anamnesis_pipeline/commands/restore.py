"""`anamnesis restore`: archived logs as JSONL files again."""

from contextlib import closing
from pathlib import Path

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.home_wiring import open_archive
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.steps.restore import EVERY, RestoreReport, restorable, restore
from anamnesis_pipeline.wiring import open_store
from anamnesis_pipeline.wording import counted


def run_restore(
    settings: Settings,
    to: Path,
    *,
    session_id: str | None,
    source: str | None,
    path: str | None,
    everything: bool,
    generation: str | None,
    force: bool,
) -> str:
    """Write what is asked for below `to`; returns a line that says what was written.

    :raises GiveUp: none or several of the four ways to say what; nothing archived fits; a file is there already.
    """
    if sum(map(bool, (session_id, source, path, everything))) != 1:
        raise GiveUp("say what to restore, in one way: a session id, --source KEY, --path PATH or --all")
    if not settings.has_store:
        raise GiveUp(f"nothing is stored in {settings.home} yet; start it with: anamnesis up")
    with closing(open_store(settings)) as store:
        wanted = restorable(
            store, session_id=session_id or "", source=source or "", path=path or "", generation=_number(generation)
        )
        if not wanted:
            raise GiveUp(
                "nothing in the archive fits; `anamnesis status --json` lists the sources, and --all restores all"
            )
        return _text(restore(store, open_archive(settings), wanted, to, force=force), to)


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "all":
        return EVERY
    if not text.isdecimal():
        raise GiveUp(f"--generation {text!r} is neither a number nor `all`")
    return int(text)


def _text(report: RestoreReport, to: Path) -> str:
    return f"{counted(report.files, 'file')}, {counted(report.lines, 'line')}, {report.bytes / 1e6:.1f} MB are in {to}"

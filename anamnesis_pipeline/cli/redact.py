"""`anamnesis redact --rescan`: what is stored, masked by the rules of this version."""

import time
from collections.abc import Callable

from anamnesis_pipeline.cli.local_services import require_stored, store_to_write
from anamnesis_pipeline.parsing.redaction.masking import rules_version
from anamnesis_pipeline.runtime.home_wiring import open_archive, open_redactor
from anamnesis_pipeline.services.rescan import Rescan, RescanReport, Rules, Say
from anamnesis_pipeline.settings import Settings

SAID_EVERY_S = 2.0


def run_rescan(settings: Settings, *, dry_run: bool, say: Callable[[str], None]) -> RescanReport:
    """Mask everything stored again, or only count. An interrupted run is continued.

    :param say: told now and then how far it is.
    :raises GiveUp: nothing is stored.
    """
    require_stored(settings)
    redactor = open_redactor(settings)
    rules = Rules(redactor.mask_text, redactor.mask_line, rules_version())
    with store_to_write(settings) as store:
        return Rescan(store, open_archive(settings), rules, dry_run=dry_run, say=now_and_then(say)).run()


def now_and_then(say: Callable[[str], None], every_s: float = SAID_EVERY_S) -> Say:
    """`say` that leaves out what comes within `every_s` seconds of the last, but for the end of a step."""
    said_at, last = -every_s, ""

    def maybe(text: str, is_end: bool) -> None:
        nonlocal said_at, last
        is_due = is_end or time.monotonic() - said_at >= every_s
        if is_due and text != last:
            said_at, last = time.monotonic(), text
            say(text)

    return maybe


def render(report: RescanReport) -> str:
    """Render the report. Pure."""
    remains = [f"Not looked at: {place}" for place in report.remains]
    problems = [f"Not done: {problem}" for problem in report.problems]
    if not report.masked:
        where = "what could be read; some could not:" if problems else "what is stored."
        return "\n".join([f"No secret was found in {where}", *remains, *problems])
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.masked.items()))
    places = ", ".join(f"{count:,} {place}" for place, count in report.changed.items() if count)
    verb = "would be masked" if report.dry_run else "are masked"
    return "\n".join([f"{kinds} {verb}, copies counted, in {places}.", *remains, *problems])

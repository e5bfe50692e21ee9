"""`anamnesis redact --rescan`: what is stored, masked by the rules of this version."""

from contextlib import closing

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.steps.rescan import Rescan, RescanReport
from anamnesis_pipeline.wiring import open_archive, open_redactor, open_store


def run_rescan(settings: Settings, *, dry_run: bool) -> RescanReport:
    """Mask everything that is stored anew, or only count.

    :raises GiveUp: nothing is stored.
    """
    if not settings.database.exists():
        raise GiveUp(f"nothing is stored in {settings.home} yet; start it with: anamnesis up")
    redactor = open_redactor(settings)
    with closing(open_store(settings)) as store:
        rescan = Rescan(store, open_archive(settings), redactor.mask_text, redactor.mask_line, dry_run=dry_run)
        return rescan.run()


def render(report: RescanReport) -> str:
    """The report for people. Pure."""
    if not report.masked:
        return "No secret was found in what is stored."
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.masked.items()))
    places = ", ".join(f"{count:,} {place}" for place, count in report.changed.items() if count)
    verb = "would be masked" if report.dry_run else "are masked"
    return "\n".join([f"{kinds} {verb}, copies counted, in {places}.", *(f"Not done: {p}" for p in report.problems)])

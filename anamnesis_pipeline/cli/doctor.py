"""`anamnesis doctor`: what is wrong, and what to do about it."""

from collections.abc import Sequence
from contextlib import closing

from anamnesis_pipeline.cli.local_services import SAME_STORE, other_store, sidecar_status
from anamnesis_pipeline.cli.status import DIAGNOSED_WITHIN_S
from anamnesis_pipeline.errors import AnamnesisError, StoreBusy, StoreCorrupt
from anamnesis_pipeline.runtime.advice import log_of, start_it
from anamnesis_pipeline.services.machine_checks import CHECKS, Finding, dagster
from anamnesis_pipeline.services.store_checks import RESTORE, STORE_CHECKS
from anamnesis_pipeline.services.wiring import effective_settings, impatient, open_to_read
from anamnesis_pipeline.settings import Settings


def examine(settings: Settings) -> list[Finding]:
    """Run every check; those of the store only when there is one."""
    if not settings.has_store:
        missing = Finding(False, "store", f"{settings.database} does not exist yet", start_it(settings))
        return [*_general(settings), missing]
    try:
        with closing(open_to_read(impatient(settings, DIAGNOSED_WITHIN_S))) as store:
            return _general(effective_settings(store)) + [check(store) for check in STORE_CHECKS]
    except StoreCorrupt as exc:
        return [*_general(settings), Finding(False, "store", str(exc), RESTORE)]
    except AnamnesisError as exc:  # a full disk, a busy store: the text says what to do, and the file is sound
        advice = ""
        if settings.store == "mongo" and isinstance(exc, StoreBusy):
            advice = "./start.sh starts it (docs/guides/containers.md)" if settings.dagster_url else "start MongoDB"
            advice += ", or let ANAMNESIS_MONGO_URI say where it is; running processes then continue"
        return [*_general(settings), Finding(False, "store", str(exc), advice)]


def _general(settings: Settings) -> list[Finding]:
    return [*(check(settings) for check in CHECKS), sidecar(settings), dagster(settings)]


def render(findings: Sequence[Finding]) -> str:
    """Render one line per passed check, two per problem. Pure."""
    lines = []
    for finding in findings:
        lines.append(f"{'ok   ' if finding.ok else 'WRONG'} {finding.name}: {finding.detail}")
        if not finding.ok and finding.advice:
            lines.append(f"      -> {finding.advice}")
        if finding.note:
            lines.append(f"      note: {finding.note}")
    wrong = sum(not finding.ok for finding in findings)
    return "\n".join([*lines, "", f"{wrong} of {len(findings)} checks found something" if wrong else "All is well."])


def sidecar(settings: Settings) -> Finding:
    """Check that the sidecar answers and has its store and model."""
    status = sidecar_status(settings)
    if (other := other_store(settings, status)) is not None:
        return Finding(False, "sidecar", other, SAME_STORE)
    detail = f"{status['url']}: {'ready' if status['ready'] else '; '.join(status['missing']) or 'not ready'}"
    advice = f"see {log_of(settings, 'sidecar')}" if status["reachable"] else start_it(settings)
    return Finding(bool(status["ready"]), "sidecar", detail, advice)

"""Source form: its input, the dry run, and adding or changing the source."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.pipeline.source_specs import WANTED, SpecModel
from anamnesis_pipeline.services.crawler_control import CrawlerControl, FirstLookOut, TrialOut
from anamnesis_pipeline.services.fields import field_errors
from anamnesis_pipeline.sidecar.routes.crawler import Control, SourceName
from anamnesis_pipeline.sidecar.web.html import fragment, page_router, told
from anamnesis_pipeline.sidecar.web.settings_form import sent_form, text_of
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec, default_name, machine_of_host, place_and_root

PATH = "/dashboard/sources"
KINDS = {DOCUMENTS: "Documents and code", LOGS: "Claude Code's logs"}
BLANK = {
    "name": "",
    "place": "",
    "kind": DOCUMENTS,
    "machine": "",
    "include": "",
    "exclude": "",
    "project": "",
    "instance": "",
    "interval_s": "",
    "private": "",
    "max_mb": "1",
}
_FIELD_OF = {"root": "place", "host": "place", "max_file_bytes": "max_mb"}
"""Source field -> form field, where the names differ."""
MIB = 1 << 20

router = page_router()


class FormError(Exception):
    """Invalid input: `problems` maps fields to reasons."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__(*problems.values())
        self.problems = problems


@router.post(PATH + "/try")
async def try_typed(request: Request, control: Control) -> Response:
    """Dry run of the form's input, as `POST /api/sources/test`."""
    return await run_in_threadpool(_try_typed, control, await sent_form(request))


@router.post(PATH + "/source/{name}/try")
def try_configured(name: SourceName, control: Control) -> Response:
    """Dry run of an existing source."""
    spec = control.find(name)
    if spec is None:
        return told(f"There is no source {name} any more.", bad=True)
    return _trial(control.trial_out(spec), name)


@router.post(PATH + "/save")
async def save(request: Request, control: Control) -> Response:
    """Add or change a source, as `PUT /api/sources/{name}`; it is scanned and ingested at once."""
    return await run_in_threadpool(_save, control, await sent_form(request))


def filled_from(control: CrawlerControl, name: str) -> dict[str, Any]:
    """Return the form of a configured source, else a blank one."""
    spec = control.find(name) if name else None
    if spec is None or spec.is_built_in:
        return _form(BLANK)
    return _form(
        {
            "name": spec.name,
            "place": f"{spec.host}:{spec.root}" if spec.host else spec.root,
            "kind": spec.kind,
            "machine": spec.machine,
            "include": text_of(spec.include),
            "exclude": text_of(spec.exclude),
            "project": spec.project,
            "instance": spec.instance,
            "interval_s": text_of(spec.interval_s),
            "private": "on" if spec.private else "",
            "max_mb": text_of(spec.max_file_bytes / MIB),
            "editing": spec.name,
        }
    )


def _form(typed: Mapping[str, str], problems: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"source": {**BLANK, "editing": "", **typed}, "kinds": KINDS, "problems": problems or {}}


def spec_of_form(sent: Mapping[str, str], control: CrawlerControl) -> SourceSpec:
    """Return the source that a form describes; a missing name is derived from machine and folder.

    :raises FormError: a field is invalid.
    """
    host, root = _place(sent.get("place", "").strip())
    interval = sent.get("interval_s", "").strip()
    values = {
        "name": sent.get("editing") or sent.get("name", "").strip() or "draft",
        "kind": sent.get("kind", ""),
        "root": root,
        "host": host,
        "include": _lines(sent.get("include", "")),
        "exclude": _lines(sent.get("exclude", "")),
        "private": bool(sent.get("private")),
        "interval_s": int(interval) if interval.isascii() and interval.isdigit() else interval or None,
        "max_file_bytes": _octets(sent.get("max_mb", "")),
        **{name: sent.get(name, "").strip() for name in ("machine", "project", "instance")},
    }
    try:
        spec = SpecModel.model_validate(values).spec()
    except ValidationError as exc:
        found: dict[str, str] = {}
        for error in field_errors(exc.errors()):
            head = error["path"].partition(".")[0]
            found.setdefault(_FIELD_OF.get(head, head), WANTED.get(head) or error["message"])
        raise FormError(found) from exc
    return spec if spec.name != "draft" else _named(spec, control)


def _place(typed: str) -> tuple[str, str]:
    """Split the input into host and folder.

    :raises FormError: there is no folder.
    """
    if typed.startswith("."):  # valid on a command line only: a page has no working directory
        raise FormError({"place": f"{typed!r} has no fixed place: a folder of this machine begins with / or ~"})
    try:
        host, root = place_and_root(typed)
    except BadSetting as exc:
        raise FormError({"place": str(exc)}) from exc
    if not root:
        told = f"names the machine {host} alone: name its folder, e.g. {host}:~/.claude/projects; one of this machine"
        raise FormError({"place": f"{told} begins with / or ~"})
    return host, root


def _named(spec: SourceSpec, control: CrawlerControl) -> SourceSpec:
    machine = spec.machine or (machine_of_host(spec.host) if spec.host else control.here)
    name = default_name(machine, spec.root, spec.kind, {each.name for each in control.specs()})
    return replace(spec, name=name)


def _try_typed(control: CrawlerControl, sent: dict[str, str]) -> Response:
    try:
        spec = spec_of_form(sent, control)
    except FormError as exc:
        return told(f"Not tried: {exc}", bad=True)
    return _trial(control.trial_out(spec), spec.name)


def _trial(trial: TrialOut, name: str) -> Response:
    return fragment("sources_trial.html", trial=trial, name=name)


def _save(control: CrawlerControl, sent: dict[str, str]) -> Response:
    try:
        spec = spec_of_form(sent, control)
        is_changed = _put(spec, control, is_new=not sent.get("editing"))
    except FormError as exc:
        return fragment("sources_form.html", **_form(sent, exc.problems))
    look = control.first_look([spec.name] if is_changed else [])
    done = f"{spec.name}: {_told(look)}." if look else f"{spec.name} is as it was."
    reply = fragment("sources_form.html", toast=done, **_form(BLANK), done=done, look=look)
    reply.headers["HX-Replace-Url"] = PATH
    return reply


def _told(look: FirstLookOut) -> str:
    """Return the outcome without the URL, which is shown as a link beside it. Pure."""
    return look["text"].removesuffix(f": {look['link']}")


def _put(spec: SourceSpec, control: CrawlerControl, *, is_new: bool) -> bool:
    """Store the source; return whether it changed.

    :raises FormError: it conflicts with others.
    """
    if is_new and control.find(spec.name):
        raise FormError({"name": f"there is a source {spec.name} already: edit that one, or give another name"})
    try:
        return control.put(spec)
    except BadSetting as exc:
        field = "machine" if "is called" in str(exc) else "include" if "pattern" in str(exc) else "place"
        raise FormError({"name" if spec.is_built_in else field: str(exc)}) from exc


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _octets(text: str) -> int | str:
    try:
        return int(float(text or "1") * MIB)
    except (ValueError, OverflowError):
        return text

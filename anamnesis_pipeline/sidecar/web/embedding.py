"""Embedding page: model and coverage, switching the model, the re-embed, and its cores.

Every button corresponds to the endpoint of its name.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Form
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.embeddings.api_models import API_MODELS
from anamnesis_pipeline.embeddings.cores import available_cores, cores_for
from anamnesis_pipeline.errors import AnamnesisError, BadSetting
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.text.wording import counted, duration
from anamnesis_pipeline.services.embedding_control import EmbeddingControl, EmbeddingOut, StartedOut
from anamnesis_pipeline.services.wiring import stored_settings
from anamnesis_pipeline.settings import origins
from anamnesis_pipeline.sidecar.routes.embedding import Control, SpaceKey
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web.html import fragment, live, page, page_router, told
from anamnesis_pipeline.sidecar.web.settings_form import origin_told, text_of

PATH = "/dashboard/embedding"
SHARES = (25, 50, 100)
"""Selectable shares of the cores, in %."""
FURTHER = ("precision", "device", "token_vectors", "switch", "checkpoint_every", "embed_queue_max")
"""Settings shown here, and changed by `anamnesis config`."""

router = page_router()


@router.get(PATH)
def embedding_page(request: Request, services: Uses) -> Response:
    """Show the page; Dagster's part of a re-embed loads later."""
    control = EmbeddingControl(services.store, None, services.pool)
    config = control.config()
    rows = {row.name: row for row in origins(stored_settings(services.store))}
    return page(
        request,
        "embedding.html",
        "Embedding",
        **_progress(services, control),
        **_cores(config),
        **_models(config),
        further=[
            {
                "name": name,
                "value": text_of(rows[name].value),
                "origin": origin_told(rows[name].origin),
                "description": rows[name].description.replace("`", ""),
            }
            for name in FURTHER
        ],
    )


@router.get(PATH + "/progress")
def progress(services: Uses, control: Control, seen: str = "") -> Response:
    """Show the current spaces and re-embed."""
    return live("embedding_progress.html", seen, **_progress(services, control))


@router.post(PATH + "/pause")
def pause(control: Control) -> Response:
    """Pause, as `POST /api/episodes/reembed/pause`."""
    return _answer(
        lambda: (
            "Paused: its runs end at their next checkpoint."
            if control.pause()["state"] == "paused"
            else "Nothing is left to pause."
        )
    )


@router.post(PATH + "/resume")
def resume(control: Control) -> Response:
    """Resume, as `POST /api/episodes/reembed/resume`."""
    return _answer(lambda: "Resumed." if control.resume()["state"] == "running" else "Nothing was paused.")


@router.post(PATH + "/anew")
def embed_again(control: Control) -> Response:
    """Embed everything again with the active model, as `POST /api/episodes/reembed`."""
    return _answer(lambda: control.start_reembed(None))


@router.post(PATH + "/spaces/{key}/use")
def use_space(key: SpaceKey, control: Control) -> Response:
    """Switch, switch back, or cancel a build by keeping the active space, as `POST /api/embedding/spaces/{key}/use`."""
    return _answer(lambda: control.use_space(key))


@router.post(PATH + "/spaces/{key}/drop")
def drop_space(key: SpaceKey, control: Control) -> Response:
    """Delete a space, as `DELETE /api/embedding/spaces/{key}`."""

    def drop() -> str:
        control.drop(key)
        return f"{key} is forgotten, with its vectors."

    return _answer(drop)


@router.post(PATH + "/model")
def use_model(
    control: Control,
    model_id: Annotated[str, Form(max_length=500)] = "",
    other: Annotated[str, Form(max_length=500)] = "",
) -> Response:
    """Switch the model, as `POST /api/embedding/model`; show errors beside the field."""
    wanted = (other if model_id in {"", "other"} else model_id).strip()
    typed = {"chosen": model_id, "other": other}
    if not wanted:
        problem = "Choose a model, or name another one."
        return fragment("embedding_models.html", **_models(control.config(), **typed, problem=problem))
    try:
        started = control.use_model(wanted)
    except AnamnesisError as exc:
        return fragment("embedding_models.html", **_models(control.config(), **typed, problem=str(exc)))
    return fragment("embedding_models.html", toast=_started(started), **_models(control.config()))


@router.post(PATH + "/model/revert")
def revert_model(control: Control) -> Response:
    """Remove the stored model: environment, file or default applies."""
    try:
        started = control.revert_model()
    except AnamnesisError as exc:
        return fragment("embedding_models.html", **_models(control.config(), problem=str(exc)))
    return fragment("embedding_models.html", toast=_started(started), was_reverted="model", **_models(control.config()))


@router.post(PATH + "/cores")
def change_cores(
    control: Control,
    core: Annotated[int | None, Form(ge=0, le=65_535)] = None,
    share: Annotated[int | None, Form(ge=1, le=100)] = None,
) -> Response:
    """Toggle one core or set a share, as `POST /api/embedding/cpu`. Neither: remove the stored values."""
    try:
        if core is not None:
            control.set_cores(control.plan_cores(_toggled(control.config()["cores"], core), 100))
        elif share is not None:
            control.set_cores(control.plan_cores((), share))
        else:
            control.set_cores({"embed_cores": None, "embed_cpu_pct": None})
    except BadSetting as exc:
        return fragment("embedding_cores.html", **_cores(control.config(), problem=str(exc)))
    shown = _cores(control.config()) | {"was_reverted": core is None and share is None}
    toast = f"Embedding runs on {counted(len(shown['cores']), 'core')} now."
    return fragment("embedding_cores.html", toast=toast, **shown)


def _toggled(cores: Collection[int], core: int) -> list[int]:
    """Return the cores with one added or removed.

    :raises BadSetting: none would be left.
    """
    if set(cores) == {core}:
        raise BadSetting(f"core {core} is the only one that embeds; choose another one before it")
    return sorted({*cores} ^ {core})


def _answer(act: Callable[[], StartedOut | str]) -> Response:
    """Show the outcome of an action on spaces, in the line above them."""
    try:
        done = act()
    except AnamnesisError as exc:
        return told(f"Nothing was changed: {exc}", bad=True)
    return told(done) if isinstance(done, str) else told(_started(done), link=done["link"])


def _started(started: StartedOut) -> str:
    """Describe what was started. Pure."""
    stopped = f" {started['stopped']} is built no further; it keeps its vectors." if started["stopped"] else ""
    if started["active"]:
        return f"{started['model_id']} answers the searches.{stopped}"
    left = counted(started["missing"], "passage")
    return f"{left} to embed with {started['model_id']}; the present model answers until then.{stopped}"


def _progress(services: Services, control: EmbeddingControl) -> dict[str, Any]:
    status, pool = control.reembed_status(), services.pool
    spaces = control.list_spaces()
    waiting = pool.next_failure
    return {
        "reembed": status,
        "spaces": spaces,
        "active": next((space for space in spaces if space["status"] == "active"), None),
        "eta": duration(status["eta_s"]) if status["eta_s"] is not None else None,
        "model": {
            "state": "ready" if pool.ready else "failed" if pool.failure else "loading",
            "id": pool.model_id,
            "problem": pool.failure,
            "depth": pool.depth,
            "next": f"{waiting[0]} does not load, the model before it answers: {waiting[1]}" if waiting else None,
        },
        "is_empty": not services.store.episodes.page(EpisodeFilter(include_superseded=True), 1).items,
    }


def _cores(config: EmbeddingOut, problem: str | None = None) -> dict[str, Any]:
    by_share = {share: cores_for(share, (), available_cores()) for share in SHARES}
    is_stored = any(config["origin"][name] == "stored" for name in ("embed_cores", "embed_cpu_pct"))
    counts_by = "embed_cores" if config["origin"]["embed_cores"] != "default" else "embed_cpu_pct"
    return {
        "cores": config["cores"],
        "available": config["available_cores"],
        "shares": SHARES,
        "share": _share_of(config, by_share),
        "workers": config["workers"],
        "cores_origin": origin_told(config["origin"][counts_by]),
        "cores_stored": is_stored,
        "cores_problem": problem,
        "was_reverted": False,
    }


def _share_of(config: EmbeddingOut, by_share: Mapping[int, Sequence[int]]) -> int | None:
    """Return the selected share, since with few cores several shares are the same; for individually selected cores the
    least share that equals them. None: there is none. Pure.
    """
    same = [share for share, cores in by_share.items() if list(cores) == config["cores"]]
    is_by_core = config["origin"]["embed_cores"] != "default" and config["origin"]["embed_cpu_pct"] != "stored"
    if config["cpu_pct"] in same and not is_by_core:
        return config["cpu_pct"]
    return same[0] if same else None


def _models(config: EmbeddingOut, *, chosen: str = "", other: str = "", problem: str | None = None) -> dict[str, Any]:
    known = [model["model_id"] for model in config["known_models"]]
    if not chosen:
        chosen = config["model"] if config["model"] in known else "other"
        other = config["model"] if chosen == "other" else ""
    return {
        "config": config,
        "chosen": chosen,
        "other": other,
        "model_problem": problem,
        "model_origin": origin_told(config["origin"]["model"]),
        "model_stored": config["origin"]["model"] == "stored",
        "services_models": API_MODELS,
    }

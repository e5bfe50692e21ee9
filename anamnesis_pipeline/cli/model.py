"""`anamnesis model`: the embedding models and spaces, and moving from one to another."""

from collections.abc import Mapping
from typing import Any

from anamnesis_pipeline.cli.local_services import store_to_write
from anamnesis_pipeline.cli.reembed import Answer, ask
from anamnesis_pipeline.embeddings.models import named
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.services.embedding_control import EmbeddingControl
from anamnesis_pipeline.settings import Settings

_SPACES = "/api/embedding/spaces"
_MARKS = {"active": "*", "building": ">"}


def describe(settings: Settings) -> Answer:
    """Return everything that `anamnesis model` shows."""
    return ask(settings, "GET", "/api/embedding/config", None, lambda control: control.config())


def use(settings: Settings, name: str) -> Answer:
    """Use a space by its key, or a model by its name: what is missing is embedded first.

    :raises GiveUp: no such model, or another re-embed is under way.
    """
    name = named(name)
    listed, _ = ask(settings, "GET", _SPACES, None, lambda control: {"spaces": control.list_spaces()})
    if any(space["key"] == name for space in listed["spaces"]):
        return ask(settings, "POST", f"{_SPACES}/{name}/use", None, lambda control: control.use_space(name))
    body = {"model_id": name}
    return ask(settings, "POST", "/api/embedding/model", body, lambda control: control.use_model(name))


def add(settings: Settings, model_id: str) -> Space:
    """Make a space for a model without embedding anything; the model is downloaded when it is not here.

    :raises UnknownModel: no such model; the text names the choices.
    """
    with store_to_write(settings) as store:
        return EmbeddingControl(store).add(named(model_id))


def drop(settings: Settings, key: str) -> None:
    """Forget a space with its vectors.

    :raises GiveUp: no such space, or it answers the searches.
    """
    ask(settings, "DELETE", f"{_SPACES}/{key}", None, lambda control: control.drop(key))


def render(config: Mapping[str, Any]) -> str:
    """Render the configuration. Pure."""
    model = f"Model     {config['model']} ({config['origin']['model']})"
    if config["model_id"] is not None:
        if config["model_id"] != config["model"]:
            model += f"; searches are answered by {config['model_id']}"
        fidelity = f" (cosine to fp32: {config['fidelity']:.4f})" if config["fidelity"] is not None else ""
        model += f", {config['dims']} dimensions, {config['precision']}{fidelity}, on {config['device']}"
        if (now := config["computes_in"]) not in (None, config["precision"]):
            model += f"; computes in {now} now"
    origin = f"{config['cpu_pct']} %, {config['origin']['embed_cpu_pct']}"
    if config["origin"]["embed_cores"] != "default":
        origin = f"embed_cores, {config['origin']['embed_cores']}"
    used, there = (", ".join(map(str, config[name])) for name in ("cores", "available_cores"))
    spaces = []
    for space in config["spaces"]:
        share = space["embedded"] / space["stored"] if space["stored"] else 1.0
        tokens = f", {space['token_bytes'] / 1e6:,.1f} MB of token vectors" if space["token_dims"] else ""
        embedded = f"{space['embedded']:,} of {counted(space['stored'], 'passage')} ({share:.1%})"
        spaces.append(
            f"{_MARKS.get(space['status'], ' ')} {space['key']:<44} {space['status']:<9} {space['dims']:>4} d  "
            f"{space['precision']:<5} {embedded}{tokens}"
        )
    known = [
        f"  {each['model_id']:<54} {each['dims']:>4} d  window {each['window']:<5} {size:<9} "
        f"{each['licence']}: {each['description']}"
        for each in config["known_models"]
        for size in [f"{each['download_mb']:,} MB" if each["download_mb"] else "bundled"]
    ]
    problem = [f"Problem   {config['problem']}"] if config["problem"] else []
    return "\n".join(
        [
            model,
            f"Cores     {used or 'none'}; there are {there} ({origin})",
            *problem,
            "",
            "Spaces (* answers searches, > is being embedded)",
            *(spaces or ["  none yet; the first start makes one"]),
            "",
            "Known models; any other sentence-transformers model by hub id or path",
            *known,
        ]
    )


def render_started(started: Mapping[str, Any]) -> str:
    """Render the result of a request, and where to watch it. Pure."""
    name = f"{started['space']} ({started['model_id']})"
    if started["stopped"]:
        return (
            f"Searches stay with {name}. {started['stopped']} is no longer being built, and keeps what it has; go on "
            f"with: anamnesis model use {started['stopped']}"
        )
    if started["active"]:
        return f"Searches are answered from {name} now."
    lines = [
        f"{started['missing']:,} of {counted(started['total'], 'passage')} to be embedded with {started['model_id']} "
        f"into {started['space']}."
    ]
    if started["link"]:
        lines.append(f"Watch it:  {started['link']}  or: anamnesis reembed")
    else:
        lines.append("It starts within 30 seconds while `anamnesis up` runs. Watch it with: anamnesis reembed")
    return "\n".join([*lines, "Until it is complete, searches are answered as before."])

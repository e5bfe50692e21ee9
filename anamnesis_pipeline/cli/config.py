"""`anamnesis config`: which value every setting has, and where it came from."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import store_to_write
from anamnesis_pipeline.embeddings.cores import available_cores, cores_for
from anamnesis_pipeline.embeddings.models import named
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.llm.endpoints import check_url, with_scheme
from anamnesis_pipeline.pipeline.llm_choice import doubtful_private
from anamnesis_pipeline.pipeline.llm_guard import close_breakers
from anamnesis_pipeline.services.dagster.state import dagster_in_use
from anamnesis_pipeline.services.log_ingest import OF_THE_LLM
from anamnesis_pipeline.services.setting_changes import readable_settings, reload_changed
from anamnesis_pipeline.services.wiring import (
    CONFIG_PREFIX,
    configured_cores,
    model_files,
    open_to_read,
    stored_settings,
)
from anamnesis_pipeline.settings import Origin, Settings

COLUMNS = 100


def setting_rows(settings: Settings) -> list[Origin]:
    """Every setting; a home without a store has no stored ones, and is not given one by looking."""
    stored: Mapping[str, Any] = {}
    if settings.has_store:
        with closing(open_to_read(settings)) as store:
            stored = stored_settings(store)
    return settings_file.origins(stored)


def store_setting(settings: Settings, name: str, text: str) -> list[str]:
    """Store a value; it then wins over environment and file. Returns what looks doubtful about it, and what came of the
    reload of Dagster's definitions where they hold it.

    :raises BadSetting: unknown, not storable, or a value it cannot have.
    :raises UnknownModel: no such embedding model.
    """
    value = settings_file.check_storable(name, text)
    if name == "model":
        value = model_files(settings, named(value)).model_id
    if name.endswith(("_url", "_urls")) and value:
        for url in map(with_scheme, value) if name == "ollama_urls" else [value]:
            check_url(name, url)
    if name == "embed_cores":
        configured_cores(settings.model_copy(update={name: tuple(map(int, value))}))
    with store_to_write(settings) as store:
        before = readable_settings(store)
        store.settings.set(CONFIG_PREFIX + name, value)
        if name in OF_THE_LLM:
            close_breakers(store.settings)
        doubts = doubtful_private(store, value) if name == "private_projects" else []
        after = readable_settings(store)
    reload = reload_changed(before, after, dagster_in_use(settings))
    return [*doubts, *([reload] if reload else [])]


def unstore_setting(settings: Settings, name: str) -> tuple[bool, str]:
    """Forget a stored value. Returns whether there was one, and what came of the reload of Dagster's definitions."""
    with store_to_write(settings) as store:
        had, before = name in stored_settings(store), readable_settings(store)
        store.settings.set(CONFIG_PREFIX + name, None)
        after = readable_settings(store)
    return had, reload_changed(before, after, dagster_in_use(settings))


def render(rows: Sequence[Origin]) -> str:
    """A table in plain text, at most 100 columns wide: name, value, origin; long values go on below. Pure."""
    names, origins = max(len(row.name) for row in rows), max(len(row.origin) for row in rows)
    room = COLUMNS - names - origins - 4
    lines: list[str] = []
    for row in rows:
        first, *rest = wrapped(shown_value(row.value), room)
        lines.append(f"{row.name:<{names}}  {first:<{room}}  {row.origin}")
        lines += [f"{'':<{names}}  {line}" for line in rest]
    return "\n".join(lines)


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines that break behind marks where they can, at least one. Pure."""
    lines = [""]
    for piece in re.findall(r"[^,:;/ ]*[,:;/ ]?", text):
        if len(lines[-1]) + len(piece) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1]) > width:
            lines[-1:] = lines[-1][:width], lines[-1][width:]
    return lines


def cores_line(rows: Sequence[Origin]) -> str:
    """Which cores follow from the settings, on this machine."""
    by_name = {row.name: row for row in rows}
    chosen = by_name["embed_cores"] if by_name["embed_cores"].value else by_name["embed_cpu_pct"]
    available = available_cores()
    try:
        cores = cores_for(by_name["embed_cpu_pct"].value, by_name["embed_cores"].value, available)
    except BadSetting as exc:
        return f"embedding cannot start: {exc}"
    origin = f"({chosen.name}, {chosen.origin})"
    text = f"embedding runs on cores {shown_value(cores)}; there are {shown_value(available)} {origin}"
    return "\n".join(wrapped(text, COLUMNS))


def shown_value(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, tuple | list):
        return (os.pathsep if value and isinstance(value[0], Path) else ",").join(map(str, value))
    return "" if value is None else str(value)

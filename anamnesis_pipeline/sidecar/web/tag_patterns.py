"""Table of patterns that add tags to documents."""

from typing import Annotated, Any

from fastapi import Form
from pydantic import ValidationError
from starlette.responses import Response

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.parsing.documents.trust import TagPattern
from anamnesis_pipeline.pipeline.tag_patterns import put_patterns, stored_patterns
from anamnesis_pipeline.services.fields import field_errors
from anamnesis_pipeline.sidecar.routes.crawler_config import TagPatternModel
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.sidecar.web.html import fragment, page_router
from anamnesis_pipeline.store.base import Store

PATH = "/dashboard/sources/tags"
BLANK = {"match": "", "tag": "", "field": "filename", "regex": "", "case": ""}
Text = Annotated[str, Form(max_length=2_000)]

router = page_router()


@router.post(PATH + "/add")
def add(
    services: Uses, match: Text = "", tag: Text = "", field: Text = "filename", regex: Text = "", case: Text = ""
) -> Response:
    """Add a pattern, validated as in `PUT /api/crawler/config/doc-tag-patterns`."""
    typed = {"match": match, "tag": tag, "field": field, "regex": regex, "case": case}
    values = {"match": match, "tag": tag.strip(), "field": field, "regex": bool(regex), "ignorecase": not case}
    before = stored_patterns(services.store.settings)
    try:
        pattern = TagPattern(**TagPatternModel.model_validate(values).model_dump())
        if pattern in before:
            problem = {"match": "This pattern exists already."}
            return fragment("sources_tags.html", **shown(services.store, typed, problem))
        put_patterns(services.store.settings, [*before, pattern])
    except ValidationError as exc:
        problems = {error["path"]: error["message"] for error in reversed(field_errors(exc.errors()))}
        return fragment("sources_tags.html", **shown(services.store, typed, problems))
    except BadSetting as exc:
        return fragment("sources_tags.html", **shown(services.store, typed, {"match": str(exc)}))
    toast = f"Documents read from now on get the tag {pattern.tag}."
    return fragment("sources_tags.html", toast=toast, **shown(services.store))


@router.post(PATH + "/remove")
def remove(services: Uses, number: Annotated[int, Form(ge=0)], match: Text, tag: Text) -> Response:
    """Remove the pattern at this position, if it is unchanged."""
    patterns = list(stored_patterns(services.store.settings))
    if number >= len(patterns) or (patterns[number].match, patterns[number].tag) != (match, tag):
        problem = {"": "The patterns were changed meanwhile; nothing was removed. This is the current list."}
        return fragment("sources_tags.html", **shown(services.store, problems=problem))
    del patterns[number]
    put_patterns(services.store.settings, patterns)
    return fragment("sources_tags.html", toast="Removed; documents keep the tags they have.", **shown(services.store))


def shown(store: Store, typed: dict[str, str] | None = None, problems: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the patterns and the form for a new one."""
    return {"patterns": stored_patterns(store.settings), "tag_typed": typed or BLANK, "tag_problems": problems or {}}

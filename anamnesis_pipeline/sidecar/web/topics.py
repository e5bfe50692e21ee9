"""Topics: what holds per project, and one topic with its text, sources and history."""

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.knowledge.topic_files import without_comments
from anamnesis_pipeline.services.fields import Name
from anamnesis_pipeline.services.topics import TopicOut, TopicsOut, held_of, topics_body
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.html import page, page_router
from anamnesis_pipeline.sidecar.web.markdown import rendered

PATH = "/dashboard/topics"

router = page_router()


class _Asked(asking.OfProject):
    """The filters of the page. `name`: of the topic to read."""

    name: Name = ""


@router.get(PATH)
def topics_page(request: Request, services: Uses) -> Response:
    """Show what holds, or one topic."""
    given = asking.filled(request.query_params)
    asked, problem = asking.read_or_told(_Asked, given)
    held = held_of(services.store, services.engine.private(), asked.project, asked.included)
    body = topics_body(services.store, held, services.settings.machine, datetime.now(UTC), asked.project, asked.name)
    return page(
        request,
        "topics.html",
        "Topics",
        status=422 if problem else 200,
        names=asking.names_offered(services, given),
        problem=problem,
        asked=given,
        body=body,
        projects=by_project_of(body),
        texts={
            each["episode_id"]: rendered(without_comments(each["text"]))
            for each in body["topics"]
            if each["text"] is not None
        },
        address=lambda topic: address_of(topic, is_private=asked.private),
    )


def by_project_of(body: TopicsOut) -> dict[str, list[TopicOut]]:
    """Return project -> its topics, by name. Pure."""
    found: dict[str, list[TopicOut]] = {}
    for topic in sorted(body["topics"], key=lambda each: each["project"]):
        found.setdefault(topic["project"], []).append(topic)
    return found


def address_of(topic: TopicOut, *, is_private: bool) -> str:
    """Return the URL of one topic. Pure."""
    shown = {"project": topic["project"], "name": topic["name"]}
    return asking.address_with(PATH, shown | ({"private": "1"} if is_private else {}))

"""Pointers: keywords for what is somewhere else, such as a machine and a path. Each is a posted episode."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from anamnesis_pipeline.knowledge.what_holds import EVERYWHERE, MAX_POINTERS, POINTER, Pointer, pointer_of, pointers_of
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.pipeline.publish import delete_episode
from anamnesis_pipeline.services.fields import Metadata, Name, Text
from anamnesis_pipeline.services.posting import EpisodeDraft, EpisodeWriter
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.statements import Statement

Category = Literal["projects", "infrastructure", "personal", "technical"]


class PointerIn(BaseModel):
    """A pointer. Fields that are left out stay as they are in the one with this keyword and category."""

    model_config = ConfigDict(extra="forbid", strict=True)

    keyword: Annotated[Name, Field(description="What is looked for, e.g. `backups`")]
    category: Annotated[Category, Field(description="Kind of thing; a keyword is kept once in each")]
    description: Annotated[Text | None, Field(max_length=1_000, description="What it is")] = None
    machine: Annotated[Text | None, Field(max_length=200, description="Machine that has it")] = None
    path: Annotated[Text | None, Field(max_length=4_096, description="Where it is there")] = None
    extra: Annotated[Metadata | None, Field(description="Anything else")] = None
    project: Annotated[Name, Field(description="Project; `general`: it holds in every project")] = EVERYWHERE
    instance: Annotated[Name | None, Field(description="Who or what wrote it; default: this machine")] = None


def put_pointer(store: Store, writer: EpisodeWriter, wanted: PointerIn, here: str) -> Pointer:
    """Store a pointer, with secrets masked: the one with its keyword and category is superseded.

    :param here: name of this machine.
    """
    former = next(
        (
            each
            for each in _stored(store, wanted.project)
            if _same(each.keyword, wanted.keyword) and each.category == wanted.category
        ),
        None,
    )
    facts: dict[str, Any] = {"keyword": wanted.keyword, "category": wanted.category}
    for name, default in (("description", ""), ("machine", ""), ("path", ""), ("extra", {})):
        given = getattr(wanted, name)
        facts[name] = given if given is not None else getattr(former, name) if former else default
    if former is not None and facts == {name: getattr(former, name) for name in facts}:
        return former
    place = f"{facts['machine']}:{facts['path']}" if facts["machine"] else facts["path"]
    about = f": {facts['description']}" if facts["description"] else ""
    draft = EpisodeDraft(
        summary=f"{wanted.keyword}{f' → {place}' if place else ''}{about}",
        instance=wanted.instance or here,
        project=wanted.project,
        kind=POINTER,
        tags=(wanted.category,),
        metadata=facts,
        statement=Statement(subject=f"pointer {wanted.category} {wanted.keyword}"),
    )
    pointer = pointer_of(writer.create(draft)[0])
    assert pointer is not None
    return pointer


def delete_pointers(store: Store, project: str, keywords: Collection[str], category: str | None) -> list[str]:
    """Delete the pointers with these keywords; return the ids of those that were current.

    :param category: only of this one; None: of all.
    """
    found = [
        each
        for each in _stored(store, project, former=True)
        if any(_same(each.keyword, keyword) for keyword in keywords) and category in {None, each.category}
    ]
    for each in found:
        delete_episode(store, each.episode.episode_id, reason="pointer deleted")
    return [each.episode.episode_id for each in found if each.episode.status == "active"]


def _stored(store: Store, project: str, *, former: bool = False) -> Sequence[Pointer]:
    where = EpisodeFilter(projects=(project,), kinds=(POINTER,), include_superseded=former)
    return pointers_of(store.episodes.page(where, MAX_POINTERS).items)


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()

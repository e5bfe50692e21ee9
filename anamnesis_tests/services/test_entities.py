"""Things are listed, found, drawn and grouped from their mentions, without what is private."""

from datetime import timedelta

import pytest

from anamnesis_pipeline.errors import EntityConflict, EntityNotFound
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.services import entities
from anamnesis_pipeline.services.entities import backlinks, find_thing, graph_of, groups, list_things, where_of
from anamnesis_pipeline.services.entity_graph import MAX_NODES, Edge, Graph, by_episode, edges_among, places
from anamnesis_pipeline.services.things import Where, touched
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import Entity, EntityKind, Mention, Relation
from anamnesis_tests.support.mentioned import NOW, SHOP, file, touch

PAY, BILL, MAIL = file("src/pay.py"), file("src/billing.py"), file("src/mail.py")
PORT = Entity(EntityKind.ERROR, "port in use")
EVERYWHERE = Where()


def names(found: entities.Things) -> list[str]:
    return [each.entity.name for each in found.items]


def edges(store: Store, name: str, where: Where = EVERYWHERE) -> dict[tuple[str, str, str], Edge]:
    graph = graph_of(store, where, find_thing(store, where, name))
    return {(each.one.name, each.relation, each.other.name): each for each in graph.edges}


def test_list_has_words_in_any_case_and_counts_kinds(store: Store) -> None:
    touch(store, "one", PAY, PORT)
    touch(store, "two", PAY, BILL)
    found = list_things(store, EVERYWHERE, "SRC py")
    assert [(each.entity, each.mentions) for each in found.items] == [(PAY, 2), (BILL, 1)]
    assert found.kinds == {EntityKind.FILE: 2}
    assert list_things(store, EVERYWHERE).kinds == {EntityKind.FILE: 2, EntityKind.ERROR: 1}
    assert names(list_things(store, EVERYWHERE, kind=EntityKind.ERROR)) == ["port in use"]


def test_misspelled_name_finds_similar_ones(store: Store) -> None:
    touch(store, "one", PAY, BILL)
    found = list_things(store, EVERYWHERE, "biling.py")
    assert (names(found), found.is_close) == (["src/billing.py"], True)
    with pytest.raises(EntityNotFound, match=r"similar: src/billing\.py"):
        find_thing(store, EVERYWHERE, "biling.py")


def test_thing_is_found_by_the_end_of_its_path(store: Store) -> None:
    touch(store, "late", PAY, minute=5)
    touch(store, "early", PAY)
    touch(store, "other", file("lib/pay.py"))
    known = find_thing(store, EVERYWHERE, "pay.py")
    assert known.listed.entity == PAY
    assert [head.episode_id for head, _ in known.episodes] == ["early", "late"]
    assert known.others == (file("lib/pay.py"),)
    assert find_thing(store, EVERYWHERE, "lib/pay.py").listed.entity == file("lib/pay.py")


def test_forgotten_episode_takes_its_things_along(store: Store) -> None:
    touch(store, "one", PAY)
    store.episodes.delete("one")
    assert list_things(store, EVERYWHERE).items == ()
    with pytest.raises(EntityNotFound):
        find_thing(store, EVERYWHERE, "src/pay.py")


def test_graph_reaches_two_steps_and_no_further(store: Store) -> None:
    touch(store, "one", PAY, BILL)
    touch(store, "two", BILL, MAIL)
    touch(store, "three", MAIL, file("src/far.py"))
    known = find_thing(store, EVERYWHERE, "pay.py")
    assert graph_of(store, EVERYWHERE, known).hops == {PAY: 0, BILL: 1, MAIL: 2}


def test_further_evidence_raises_strength(store: Store) -> None:
    touch(store, "one", PAY, BILL)
    first = edges(store, "pay.py")["src/billing.py", "co_occurs", "src/pay.py"]
    touch(store, "two", PAY, BILL)
    second = edges(store, "pay.py")["src/billing.py", "co_occurs", "src/pay.py"]
    assert (first.evidence, second.evidence) == (1, 2)
    assert 0 < first.strength < second.strength < 1


def test_typed_relations_say_which_way_they_go(store: Store) -> None:
    fixed = Mention(EntityKind.FILE, "src/pay.py", Relation.FIXED, "one", SHOP, at=NOW, other="port in use")
    needed = Mention(EntityKind.PACKAGE, "stripe", Relation.DEPENDS_ON, "one", SHOP, at=NOW, other="src/pay.py")
    touch(store, "one", PAY, PORT, fixed, needed)
    found = edges(store, "pay.py")
    assert ("src/pay.py", "fixed", "port in use") in found
    assert ("src/pay.py", "depends_on", "stripe") in found


def test_graph_is_bounded(store: Store) -> None:
    touch(store, "one", PAY, *(file(f"src/{number}.py") for number in range(80)))
    graph = graph_of(store, EVERYWHERE, find_thing(store, EVERYWHERE, "pay.py"))
    assert len(graph.hops) <= MAX_NODES
    assert places(graph) == places(graph)


def test_program_beside_its_command_adds_no_relation() -> None:
    told = [
        Mention(EntityKind.TOOL, "npm", Relation.RAN, "one"),
        Mention(EntityKind.COMMAND, "npm test", Relation.RAN, "one"),
    ]
    assert edges_among({told[1].entity}, by_episode(told)) == []
    assert places(Graph({told[0].entity: 0}, ()))


def test_two_cliques_are_two_groups(store: Store) -> None:
    for number in range(2):
        touch(store, f"a{number}", PAY, BILL, MAIL)
        touch(store, f"b{number}", file("web/app.ts"), file("web/page.ts"), file("web/theme.ts"))
    touch(store, "pair", file("x.py"), file("y.py"))
    assert sorted(sorted(each.name for each in group) for group in groups(store, EVERYWHERE)) == [
        ["src/billing.py", "src/mail.py", "src/pay.py"],
        ["web/app.ts", "web/page.ts", "web/theme.ts"],
    ]


def test_backlinks_put_rare_things_first(store: Store) -> None:
    touch(store, "asked", PAY, MAIL)
    for number in range(4):
        touch(store, f"common{number}", MAIL)
    touch(store, "rare", PAY)
    touch(store, "elsewhere", PAY, project="acme/api")
    found = backlinks(store, NOTHING_PRIVATE, "asked", 3)
    assert (found[0].head.episode_id, found[0].shared) == ("rare", (PAY,))
    assert len(found) == 3
    assert found[0].score > found[1].score


def test_private_project_is_shown_only_if_named(store: Store) -> None:
    touch(store, "open", PAY)
    touch(store, "hidden", PAY, PORT, project="me/diary")
    private = Private(projects=("diary",))
    where = where_of(store, private, "")
    assert [(each.entity, each.mentions) for each in list_things(store, where).items] == [(PAY, 1)]
    assert [head.episode_id for head, _ in find_thing(store, where, "pay.py").episodes] == ["open"]
    assert set(graph_of(store, where, find_thing(store, where, "pay.py")).hops) == {PAY}
    with pytest.raises(EntityNotFound) as told:
        find_thing(store, where, "port in us")
    assert "port in use" not in str(told.value)
    assert backlinks(store, private, "open", 5) == []
    named = where_of(store, private, "diary")
    assert {each.entity for each in list_things(store, named).items} == {PAY, PORT}
    assert {each.entity for each in list_things(store, where_of(store, private, "", ["*"])).items} == {PAY, PORT}


def test_private_source_is_counted_nowhere_unless_named(store: Store) -> None:
    touch(store, "open", PAY)
    touch(store, "hidden", PAY, BILL, source="notes-key")
    private = Private(sources=(Source("notes-key", spec="notes"),))
    where = where_of(store, private, "")
    assert [(each.entity, each.mentions) for each in list_things(store, where).items] == [(PAY, 1)]
    with pytest.raises(EntityNotFound):
        find_thing(store, where, "billing.py")
    assert groups(store, where) == []
    assert len(list_things(store, where_of(store, private, "", ["notes"])).items) == 2


def test_decisions_on_names_are_taken_back(store: Store) -> None:
    touch(store, "one", PAY)
    touch(store, "two", BILL)
    assert entities.add_alias(store, EVERYWHERE, PAY, "the till", NOW) == PAY
    assert find_thing(store, EVERYWHERE, "The Till").listed.entity == PAY
    assert entities.merge(store, EVERYWHERE, PAY, BILL, NOW) == BILL
    assert find_thing(store, EVERYWHERE, "the till").listed.mentions == 2
    assert names(list_things(store, EVERYWHERE, "till")) == ["src/billing.py"]
    assert entities.remove_alias(store, EVERYWHERE, PAY) == SHOP
    assert find_thing(store, EVERYWHERE, "the till").listed.entity == PAY
    with pytest.raises(EntityNotFound, match="no alias"):
        entities.remove_alias(store, EVERYWHERE, PAY)


def test_who_changed_a_file_is_answered_under_its_alias(store: Store) -> None:
    edit = Mention(EntityKind.FILE, "src/pay.py", Relation.EDITED, "one", SHOP, session_id="s1", at=NOW)
    touch(store, "one", edit)
    entities.add_alias(store, EVERYWHERE, PAY, "the till", NOW)
    assert [each.session_id for each in touched(store, "The Till", EVERYWHERE, 5)] == ["s1"]
    assert touched(store, "The Till", Where(private=Private(projects=("shop",))), 5) == []


def test_kind_that_is_set_back_is_as_before(store: Store) -> None:
    touch(store, "one", PAY)
    assert entities.set_kind(store, EVERYWHERE, PAY, EntityKind.SYMBOL, NOW) == Entity(EntityKind.SYMBOL, PAY.name)
    later = NOW + timedelta(minutes=1)
    assert entities.set_kind(store, EVERYWHERE, Entity(EntityKind.SYMBOL, PAY.name), EntityKind.FILE, later) == PAY
    assert list_things(store, EVERYWHERE).items[0].aliases == ()


def test_decision_needs_the_project_where_several_have_a_thing(store: Store) -> None:
    touch(store, "one", PAY)
    touch(store, "two", PAY, project="")
    with pytest.raises(EntityConflict, match=r"several projects have it: \(none\), acme/shop"):
        entities.add_alias(store, EVERYWHERE, PAY, "till", NOW)
    entities.add_alias(store, where_of(store, NOTHING_PRIVATE, "(none)"), PAY, "till", NOW)
    assert [each.project for each in store.entities.names().all()] == [""]
    with pytest.raises(EntityNotFound):
        entities.add_alias(store, EVERYWHERE, file("pay.py"), "till", NOW)

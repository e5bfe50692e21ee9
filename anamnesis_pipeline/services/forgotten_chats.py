"""Find the messages of conversations here that a request to forget means. Reads only.

An answered turn is an episode, and is removed with it. A turn whose answer failed, was stopped or stays private is
stored in its conversation only.
"""

from collections.abc import Callable, Iterator, Sequence, Set

from anamnesis_pipeline.model import ChatMessage, ChatSession
from anamnesis_pipeline.search.project_labels import labels_of
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.store.base import Store

Turn = Sequence[ChatMessage]
SESSIONS_AT_ONCE = 100


def messages_to_forget(
    store: Store, request: ForgetRequest, chosen: Sequence[str] | None, episode_ids: Set[str]
) -> frozenset[str]:
    """Return ids of the messages to remove.

    :param chosen: keys of the requested sources; None: every one.
    :param episode_ids: the episodes to remove.
    """
    means = _chooser(request, chosen)
    return frozenset(
        message.message_id
        for session in _sessions(store)
        for turn in turns_of(store.chat.messages(session.session_id))
        for is_meant in [means(session, turn)]
        for message in turn
        if (message.episode_id in episode_ids if message.episode_id else is_meant)
    )


def turns_of(messages: Sequence[ChatMessage]) -> list[Turn]:
    """Return each question with the messages after it. Pure."""
    turns: list[list[ChatMessage]] = []
    for message in messages:
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return list(turns)


def is_meant(request: ForgetRequest, session: ChatSession, turn: Turn) -> bool:
    """Return whether a request's filters match a turn without an episode; its time is that of its question. Pure."""
    if request.ids or request.path:
        return False
    text = "\n".join(each.text for each in turn).casefold()
    at = turn[0].at
    return (
        request.session_id in ("", session.session_id)
        and (not request.project or _is_of(session.project, request.project))
        and (request.since is None or at >= request.since)
        and (request.until is None or at < request.until)
        and all(word.casefold() in text for word in request.query.split())
    )


def _chooser(request: ForgetRequest, chosen: Sequence[str] | None) -> Callable[[ChatSession, Turn], bool]:
    has_filter = request.session_id or request.project or request.since or request.until or request.query or chosen
    if not has_filter or (chosen is not None and "chat" not in chosen):
        return lambda _session, _turn: False
    return lambda session, turn: is_meant(request, session, turn)


def _is_of(project: str, name: str) -> bool:
    return project == name or bool(labels_of(name, [project]))


def _sessions(store: Store) -> Iterator[ChatSession]:
    page = store.chat.sessions(SESSIONS_AT_ONCE)
    yield from page.items
    while page.next_cursor is not None:
        page = store.chat.sessions(SESSIONS_AT_ONCE, page.next_cursor)
        yield from page.items

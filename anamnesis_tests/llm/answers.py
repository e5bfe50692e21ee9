"""A question, and how the answer of a backend is gathered."""

import asyncio

from anamnesis_pipeline.llm.provider import ChatTurn, Delta, Provider

SYSTEM = "You remember."
ASKED = [
    ChatTurn("user", "Where is the crane?"),
    ChatTurn("assistant", "Which one?"),
    ChatTurn("user", "The harbour's"),
]


def answered(backend: Provider, said: list[ChatTurn] | None = None, *, tools: bool = True) -> list[Delta]:
    async def gather() -> list[Delta]:
        found = [delta async for delta in backend.stream(SYSTEM, said or ASKED, tools=tools)]
        await backend.close_chat()
        return found

    return asyncio.run(gather())


def words_of(deltas: list[Delta]) -> list[str]:
    return [delta.text for delta in deltas if delta.text]

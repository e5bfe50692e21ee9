"""A question, and how the answer of a backend is gathered."""

import asyncio

from anamnesis_pipeline.llm.chat.base import ChatBackend, Delta, Said

SYSTEM = "You remember."
ASKED = [Said("user", "Where is the crane?"), Said("assistant", "Which one?"), Said("user", "The harbour's")]


def answered(backend: ChatBackend, said: list[Said] | None = None, *, tools: bool = True) -> list[Delta]:
    async def gather() -> list[Delta]:
        found = [delta async for delta in backend.stream(SYSTEM, said or ASKED, tools=tools)]
        await backend.close()
        return found

    return asyncio.run(gather())


def words_of(deltas: list[Delta]) -> list[str]:
    return [delta.text for delta in deltas if delta.text]

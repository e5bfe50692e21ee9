"""The wire formats of services that embed, on loopback: what is asked for is answered by feature hashing.

https://docs.voyageai.com/reference/embeddings-api, https://platform.openai.com/docs/api-reference/embeddings,
https://ai.google.dev/api/embeddings
"""

from typing import Any

from anamnesis_tests.support.hashing_embedder import HashingEmbedder
from anamnesis_tests.support.loopback import Answer, LoopbackServer, Received, json_answer


class EmbeddingServer(LoopbackServer):
    """All three services at one address; a `script` that is not empty answers first. `turned` is another model behind
    the same name. A call with a text that holds `refused` is not taken.
    """

    turned = False
    refused = ""

    def answer(self, request: Received) -> Answer:
        if self.script:
            return self.script.pop(0)
        if self.refused and any(self.refused in text for text in texts_of(request.json)):
            return json_answer({"error": {"type": "invalid_request_error", "message": "no"}}, 400)
        if request.path.startswith("/models/") and request.path.endswith(":batchEmbedContents"):
            asked = request.json["requests"]
            texts = [each["content"]["parts"][0]["text"] for each in asked]
            vectors = self._vectors(texts, asked[0]["outputDimensionality"])
            return json_answer({"embeddings": [{"values": [2 * value for value in row]} for row in vectors]})
        assert request.path == "/embeddings"
        texts = request.json["input"]
        rows = self._vectors(texts, request.json.get("dimensions") or request.json["output_dimension"])
        data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
        tokens = sum(len(text.split()) for text in texts)
        return json_answer(
            {"object": "list", "data": data[::-1], "model": request.json["model"], "usage": {"total_tokens": tokens}}
        )

    def _vectors(self, texts: list[str], dim: int) -> list[list[float]]:
        rows: list[list[float]] = HashingEmbedder(dim).embed(texts, "passage").tolist()
        return [row[::-1] if self.turned else row for row in rows]

    @property
    def sent(self) -> list[str]:
        """Every text that was sent."""
        return [text for each in self.received for text in texts_of(each.json)]


def texts_of(body: dict[str, Any]) -> list[str]:
    """The texts of one call."""
    return body.get("input") or [item["content"]["parts"][0]["text"] for item in body["requests"]]

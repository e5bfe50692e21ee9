"""The version of the rules follows what they mask: a rescan that was interrupted goes on only under the same rules."""

import hashlib

from anamnesis_pipeline.parsing.redaction.masking import RULES_VERSION, Redactor
from anamnesis_tests.parsing.redaction.harmless import harmless
from anamnesis_tests.support.planted import credentials
from anamnesis_tests.support.planted_kinds import planted_kinds

MASKED = {1: "24c017f7a7ff0daa"}
"""Version of the rules -> hash of what they make of the corpus. A change of the rules adds a line."""


def test_version_is_raised_with_what_is_masked() -> None:
    redactor = Redactor(b"a salt for tests")
    corpus = [text for made in (planted_kinds(0), credentials(0)) for text, _ in made.values()] + sorted(harmless())
    masked = hashlib.sha256("\0".join(redactor.mask_text(text)[0] for text in corpus).encode()).hexdigest()[:16]
    assert masked == MASKED[RULES_VERSION]
    assert max(MASKED) == RULES_VERSION

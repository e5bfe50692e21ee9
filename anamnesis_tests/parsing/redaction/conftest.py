"""A home of Claude logs that are ingested."""

from anamnesis_tests.parsing.claude_logs.conftest import home

__all__ = ["home"]

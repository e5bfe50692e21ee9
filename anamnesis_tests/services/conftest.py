"""The homes and services of the pipeline's tests."""

from anamnesis_tests.pipeline.conftest import home, llm_home, log_home, service, start

__all__ = ["home", "llm_home", "log_home", "service", "start"]

"""Advice on processes that fits the deployment. A remote Dagster (`dagster_url`) means containers."""

from anamnesis_pipeline.settings import Settings


def start_it(settings: Settings) -> str:
    """How to start what does not run."""
    how = "./start.sh (docs/guides/containers.md)" if settings.dagster_url else "anamnesis up"
    return f"start it with: {how}"


START_STOPPED = "start what is stopped: anamnesis doctor --start, or the button on the page Overview"


def restart_it(settings: Settings) -> str:
    """Return how to restart running processes."""
    return "run ./stop.sh and ./start.sh" if settings.dagster_url else "restart `anamnesis up`"


def log_of(settings: Settings, role: str) -> str:
    """Return the location of a process's log."""
    return f"`docker compose logs {role}`" if settings.dagster_url else str(settings.logs_dir / f"{role}.log")

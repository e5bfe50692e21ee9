"""Commands as they are typed."""

from typer.testing import CliRunner, Result

from anamnesis_pipeline.cli.app import app
from anamnesis_pipeline.errors import AnamnesisError


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def said(*words: str, status: int = 0) -> str:
    """What a command prints that ends with this status."""
    result = typed(*words)
    assert result.exit_code == status, result.output + repr(result.exception)
    return result.output


def refused(*words: str) -> str:
    """The reason of a command that does nothing."""
    result = typed(*words)
    assert isinstance(result.exception, AnamnesisError), result.output
    return str(result.exception)

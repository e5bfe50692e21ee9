"""The `anamnesis` command. `anamnesis mcp` goes its own short way: a client waits for it to answer."""

import sys


def main() -> None:
    """Entry point."""
    if sys.argv[1:] == ["mcp"]:
        from anamnesis_pipeline.mcp_server.stdio import main as serve_mcp

        sys.exit(serve_mcp())
    from anamnesis_pipeline.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()

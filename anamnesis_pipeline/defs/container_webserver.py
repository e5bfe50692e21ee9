"""Dagster's webserver in a container: `python -m anamnesis_pipeline.defs.container_webserver`, and what
`dagster-webserver` takes. It asks the code server less often whether it is still the same.
"""

from dagster_webserver.cli import main

from anamnesis_pipeline.defs.code_server_watch import watch_less_often

if __name__ == "__main__":
    watch_less_often()
    main()  # type: ignore[no-untyped-call]

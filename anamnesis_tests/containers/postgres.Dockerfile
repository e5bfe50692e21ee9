# Debian's PostgreSQL with as much of the official image's behaviour as docker-compose.yml relies on.
ARG BASE
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends postgresql postgresql-client \
    && apt-get clean && rm -rf /var/lib/apt/lists/* \
    && install -d -o postgres -g postgres -m 1777 /var/lib/postgresql/data
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
COPY postgres-entrypoint.sh /usr/local/bin/
USER postgres
STOPSIGNAL SIGINT
ENTRYPOINT ["postgres-entrypoint.sh"]

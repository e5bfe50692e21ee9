# One image for every role: sidecar, code server, webserver, daemon, and the containers of single runs.
# It holds MiniLM, so it searches and embeds without a network. Build it with ./deploy.sh, or:
#   docker build --build-arg UID="$(id -u)" --build-arg GID="$(id -g)" -t anamnesis .

# Debian 12 or anything made of it: Python comes from its packages, so that the image can also be built on a base that was
# made with debootstrap, where no registry is reached.
ARG BASE=debian:bookworm-slim
# The embedding model of a new memory. It is downloaded at the first start, or now, into the image, if BAKE is not empty.
# Where it cannot be had at the first start, the memory begins with MiniLM.
ARG MODEL=BAAI/bge-large-en-v1.5
ARG BAKE=

FROM ${BASE} AS dependencies
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv --without-pip /opt/venv
WORKDIR /build
# An index that has torch without CUDA, which is 2 GB less. Empty: whatever pip is configured with. For a GPU, an index
# of PyTorch's that has CUDA builds.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Optional dependencies of pyproject.toml, separated by commas.
ARG EXTRAS=containers
COPY pyproject.toml constraints.txt deploy/requirements.py ./
RUN python3 requirements.py pyproject.toml "$EXTRAS" > requirements.txt \
    && python3 -m pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --disable-pip-version-check \
        ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -c constraints.txt -r requirements.txt
COPY anamnesis_pipeline/parsing/code/grammars.py deploy/slim.py ./
RUN /opt/venv/bin/python slim.py
ARG MODEL
ARG BAKE
RUN if [ -n "$BAKE" ]; then \
        folder="/opt/venv/share/anamnesis/models/$(echo "$MODEL" | sed s,/,--,g)" \
        && /opt/venv/bin/hf download "$MODEL" --local-dir "$folder" \
            --exclude "*.onnx" --exclude "*.h5" --exclude "*.ot" --exclude "*.msgpack" --exclude "openvino/*" \
        && rm -rf "$folder/.cache" \
        && if [ -e "$folder/model.safetensors" ]; then rm -f "$folder/pytorch_model.bin"; fi; \
    fi

FROM dependencies AS package
COPY . .
RUN python3 -m pip --python /opt/venv/bin/python install --no-cache-dir --no-deps --disable-pip-version-check \
        --prefix /package .
# With modes of their own, since those of a checkout are its owner's umask. COPY --chmod would want BuildKit.
RUN install -D -m 644 -t /files/dagster deploy/dagster.yaml deploy/workspace.yaml \
    && install -D -m 755 -t /files/bin deploy/probe.sh deploy/entrypoint.sh deploy/dagster-webserver

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends antiword ca-certificates python3 \
    && apt-get clean && rm -rf /var/lib/apt/lists/*
# The user who owns what is mounted: Claude Code's logs and SSH keys are readable for their owner alone.
ARG UID=10001
ARG GID=10001
RUN groupadd --non-unique --gid "$GID" anamnesis \
    && useradd --non-unique --uid "$UID" --gid "$GID" --create-home anamnesis \
    && install -d -o "$UID" -g "$GID" -m 700 /data
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=package /package /opt/venv
COPY --from=package /files/dagster /opt/dagster
COPY --from=package /files/bin /usr/local/bin
ARG MODEL
ENV PATH=/usr/local/bin:/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    ANAMNESIS_HOME=/data DAGSTER_HOME=/opt/dagster HF_HOME=/data/huggingface ANAMNESIS_DEFAULT_MODEL=$MODEL
USER anamnesis
WORKDIR /home/anamnesis
ENTRYPOINT ["entrypoint.sh"]
CMD ["python", "-m", "anamnesis_pipeline.sidecar"]

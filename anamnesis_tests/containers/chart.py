"""What Dagster's Helm chart takes, and what it makes of the values that we give it.

The chart is not at hand in tests: its schema and its templates are told here in our words, as far as our values go, by
https://github.com/dagster-io/dagster/tree/master/helm/dagster (values.schema.json of the chart and of its subchart
dagster-user-deployments; templates/deployment-user.yaml of the subchart; _run-launcher.tpl and _concurrency.tpl of
templates/helpers/instance).
A name that the schema here does not know is refused, also where the chart lets it pass.
"""

from typing import Any


def mapping(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def several(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
UNPRIVILEGED = {"type": "integer", "minimum": 1024}
"""A port on which who is not root may listen, whatever runs the containers."""
ANY = {"type": "object"}
"""Something of Kubernetes: its own schema looks at it."""
PULL = {"enum": ["Always", "IfNotPresent", "Never"]}
IMAGE = mapping("repository pullPolicy", repository=TEXT, tag=TEXT, pullPolicy=PULL)
OWN_CLASS = mapping("module class config", **{"module": TEXT, "class": TEXT, "config": ANY})
# Without `exec` the chart discards whatever else the probe says it is, and takes its own.
READINESS = {"type": "object", "properties": {"enabled": FLAG, "exec": ANY}, "required": ["enabled", "exec"]}
HTTP_PROBE = {"type": "object", "properties": {"httpGet": ANY}, "required": ["httpGet"]}
LIVENESS = {"type": "object", "properties": {"exec": ANY}, "required": ["exec"]}
DEPLOYMENT = mapping(
    "name image port",
    name=TEXT,
    image=IMAGE,
    port=NUMBER,
    codeServerArgs=several(TEXT),
    env=several(ANY),
    envSecrets=several(ANY),
    volumes=several(ANY),
    volumeMounts=several(ANY),
    podSecurityContext=ANY,
    resources=ANY,
    # Enabled, it would hand the code server's configuration, its resources included, to the runs.
    includeConfigInLaunchedRuns=mapping("enabled", enabled={"const": False}),
    readinessProbe=READINESS,
    livenessProbe=LIVENESS,
)
LIMIT = mapping(
    "key limit", key=TEXT, limit=NUMBER, value=mapping("applyLimitPerUniqueValue", applyLimitPerUniqueValue=FLAG)
)
DAEMON = mapping(
    "image runCoordinator",
    image=IMAGE,
    resources=ANY,
    runCoordinator=mapping(
        "enabled type config",
        enabled=FLAG,
        type={"const": "CustomRunCoordinator"},
        config=mapping("customRunCoordinator", customRunCoordinator=OWN_CLASS),
    ),
    runMonitoring=ANY,
    runRetries=ANY,
    sensors=mapping("useThreads", useThreads=FLAG, numWorkers=NUMBER),
)
RUN_CONFIG = mapping(
    containerConfig=ANY, podSpecConfig=ANY, podTemplateSpecMetadata=ANY, jobSpecConfig=ANY, jobMetadata=ANY
)
LAUNCHER = mapping(
    "imagePullPolicy loadInclusterConfig envConfigMaps envSecrets envVars volumeMounts volumes",
    imagePullPolicy=PULL,
    loadInclusterConfig=FLAG,
    envConfigMaps=several(ANY),
    envSecrets=several(ANY),
    envVars=several(TEXT),
    volumes=several(ANY),
    volumeMounts=several(ANY),
    resources=ANY,
    runK8sConfig=RUN_CONFIG,
)
BY_TYPE = mapping("skipped success failure started", skipped=NUMBER, success=NUMBER, failure=NUMBER, started=NUMBER)
POOLS = mapping(defaultLimit=NUMBER, granularity={"enum": ["run", "op"]}, opGranularityRunBuffer=NUMBER)
# Dagster refuses limits of runs here where the chart's own run coordinator has some, too.
RUNS = mapping(maxConcurrentRuns=NUMBER, tagConcurrencyLimits=several(LIMIT))
CONCURRENCY = mapping("enabled pools", enabled={"const": True}, pools=POOLS, runs=RUNS)
KEPT = mapping("purgeAfterDays", purgeAfterDays={"anyOf": [NUMBER, BY_TYPE]})
SCHEMA = mapping(
    **{
        # Without `httpGet` it would keep that of the chart beside another kind, which Kubernetes refuses.
        "dagsterWebserver": mapping(
            "image service readinessProbe",
            image=IMAGE,
            enableReadOnly=FLAG,
            env=several(ANY),
            envSecrets=several(ANY),
            readinessProbe=HTTP_PROBE,
            service=mapping("type port", type=TEXT, port=UNPRIVILEGED),
            resources=ANY,
            podSecurityContext=ANY,
            volumes=several(ANY),
            volumeMounts=several(ANY),
        ),
        "computeLogManager": mapping(
            "type config",
            type={"const": "CustomComputeLogManager"},
            config=mapping("customComputeLogManager", customComputeLogManager=OWN_CLASS),
        ),
        "dagster-user-deployments": mapping("enabled deployments", enabled=FLAG, deployments=several(DEPLOYMENT)),
        "concurrency": CONCURRENCY,
        "dagsterDaemon": DAEMON,
        "runLauncher": mapping(
            "type config", type={"const": "K8sRunLauncher"}, config=mapping("k8sRunLauncher", k8sRunLauncher=LAUNCHER)
        ),
        "postgresql": mapping(
            "enabled",
            enabled=FLAG,
            postgresqlHost=TEXT,
            postgresqlUsername=TEXT,
            postgresqlDatabase=TEXT,
            postgresqlScheme=TEXT,
            service=mapping("port", port=NUMBER),
        ),
        "generatePostgresqlPasswordSecret": FLAG,
        "global": mapping(postgresqlSecretName=TEXT),
        "telemetry": mapping("enabled", enabled=FLAG),
        "retention": mapping("enabled", enabled=FLAG, schedule=KEPT, sensor=KEPT),
    }
)


def image_name(image: dict[str, str]) -> str:
    return f"{image['repository']}:{image['tag']}"


def code_server(deployment: dict[str, Any]) -> dict[str, Any]:
    """The Deployment of a code server."""
    labels = {"component": "user-deployments", "deployment": deployment["name"]}
    readiness = {key: value for key, value in deployment["readinessProbe"].items() if key != "enabled"}
    container = {
        "name": "dagster-user-deployments",
        "image": image_name(deployment["image"]),
        "imagePullPolicy": deployment["image"]["pullPolicy"],
        "args": [
            "dagster",
            "code-server",
            "start",
            "-h",
            "0.0.0.0",
            "-p",
            str(deployment["port"]),
            *deployment["codeServerArgs"],
        ],
        "env": deployment["env"],
        "envFrom": [{"secretRef": secret} for secret in deployment["envSecrets"]],
        "resources": deployment["resources"],
        "readinessProbe": readiness,
        "livenessProbe": deployment["livenessProbe"],
        "volumeMounts": deployment["volumeMounts"],
    }
    pod = {
        "containers": [container],
        "volumes": deployment["volumes"],
        "securityContext": deployment["podSecurityContext"],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"dagster-{deployment['name']}", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def run_launcher(values: dict[str, Any]) -> dict[str, Any]:
    """The configuration of `K8sRunLauncher` in Dagster's instance."""
    given = values["runLauncher"]["config"]["k8sRunLauncher"]
    names = {
        "containerConfig": "container_config",
        "podSpecConfig": "pod_spec_config",
        "jobSpecConfig": "job_spec_config",
    }
    return {
        "load_incluster_config": given["loadInclusterConfig"],
        "job_namespace": "default",
        "image_pull_policy": given["imagePullPolicy"],
        "service_account_name": "dagster",
        "dagster_home": "/opt/dagster/dagster_home",
        "instance_config_map": "dagster-instance",
        "postgres_password_secret": values["global"]["postgresqlSecretName"],
        "env_secrets": [secret["name"] for secret in given["envSecrets"]],
        "volumes": given["volumes"],
        "volume_mounts": given["volumeMounts"],
        "resources": given["resources"],
        "run_k8s_config": {names[name]: config for name, config in given["runK8sConfig"].items()},
    }

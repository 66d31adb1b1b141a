"""The files of `deploy/`: that they are clean, fit the schemas of what reads them, and name what is there.

Images are built by hand: docs/containers.md. Clusters are not started: docs/kubernetes.md, docs/clusters.md.
"""

from __future__ import annotations

import copy
import functools
import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from sweep.cli import main
from sweep.cli.kubernetes import SPOT
from sweep.spec import yaml_reader

jsonschema: Any = import_module("jsonschema")  # it has no types

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COPIED = {
    name
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    for name in line.split()
}
PINS = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
LAUNCHERS = ("aws.yaml", "gcp.yaml")
MANIFESTS = ("kuberay/raycluster.yaml", "kuberay/rayjob.yaml", "kuberay/redis.yaml")


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint has no wheel for this system")
    done = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_gets_all_that_the_package_is_made_of_and_nothing_else() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == COPIED
    assert all((ROOT / name).exists() for name in COPIED)
    packages = re.search(
        r"^include = (\[.*\])", (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert packages is not None
    assert set(re.findall(r'"(\w+)\*"', packages[1])) <= COPIED


def test_who_runs_in_it_is_not_root_and_pip_is_gone() -> None:
    last = DOCKERFILE.rpartition("FROM ")[2]
    assert "USER 1000\n" in last
    assert "pip install" not in last
    # `doctor` trains, beside the sweep
    assert 'HEALTHCHECK --interval=5m --timeout=1m CMD ["python", "-m", "sweep", "list"]' in last


def test_the_services_are_built_of_it() -> None:
    found = yaml_reader.parse_document((DEPLOY / "compose.yaml").read_text(), "compose.yaml")
    assert found is not None


def test_no_file_goes_unchecked() -> None:
    found = {path.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("*.yaml")}
    assert found == {"compose.yaml", *LAUNCHERS, *MANIFESTS}


def read(name: str) -> list[Any]:
    return list(YAML(typ="safe").load_all((DEPLOY / name).read_text()))


# --- what is wrong with a file: schemas without unknown keys, and what they cannot say ---


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


@functools.cache
def kubernetes_schemas() -> dict[tuple[str, str], Any]:
    """By kind: KubeRay's own, and those of Kubernetes out of the parts that KubeRay's are made of."""
    schemas = json.loads(
        gzip.decompress((ROOT / "tests" / "cli" / "kuberay_schemas.json.gz").read_bytes())
    )
    spec = schemas["RayCluster"]["properties"]["spec"]["properties"]
    head = spec["headGroupSpec"]["properties"]
    volume = head["template"]["properties"]["spec"]["properties"]["volumes"]["items"]["properties"]
    claim = volume["ephemeral"]["properties"]["volumeClaimTemplate"]
    rule = spec["networkPolicy"]["properties"]["head"]["properties"]["ingressRules"]["items"]
    stateful = closed(
        ("serviceName", "selector", "template"),
        serviceName=TEXT,
        replicas=NUMBER,
        selector=closed(("matchLabels",), matchLabels=TEXTS),
        template=head["template"],
        volumeClaimTemplates=listed(claim),
    )
    policy = closed(
        ("podSelector",),
        podSelector=closed(matchLabels=TEXTS),
        policyTypes=listed({"enum": ["Ingress", "Egress"]}),
        ingress=listed(rule),
    )
    whole = ("apiVersion", "kind", "metadata", "spec")
    parts = {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": closed(("name",), name=TEXT, labels=TEXTS),
    }
    return {
        ("ray.io/v1", "RayCluster"): {"allOf": [schemas["RayCluster"]], "required": [*whole]},
        ("ray.io/v1", "RayJob"): {"allOf": [schemas["RayJob"]], "required": [*whole]},
        ("v1", "Service"): {"allOf": [head["headService"]], "required": [*whole]},
        ("apps/v1", "StatefulSet"): closed(whole, **parts, spec=stateful),
        ("networking.k8s.io/v1", "NetworkPolicy"): closed(whole, **parts, spec=policy),
    }


NODES = {
    "aws": closed(  # of EC2's RunInstances
        ("InstanceType", "ImageId"),
        InstanceType=TEXT,
        ImageId={"type": "string", "pattern": "^ami-[0-9a-f]{17}$"},
        BlockDeviceMappings=listed(
            closed(DeviceName=TEXT, Ebs=closed(VolumeSize=NUMBER, VolumeType=TEXT))
        ),
        IamInstanceProfile=closed(Name=TEXT, Arn=TEXT),
        InstanceMarketOptions=closed(
            ("MarketType",), MarketType={"enum": ["spot", "capacity-block"]}
        ),
    ),
    "gcp": closed(  # of Compute Engine's Instance
        ("machineType", "disks"),
        machineType=TEXT,
        disks=listed(
            closed(
                boot=FLAG,
                autoDelete=FLAG,
                initializeParams=closed(
                    ("sourceImage",), diskSizeGb=NUMBER, diskType=TEXT, sourceImage=TEXT
                ),
            )
        ),
        serviceAccounts=listed(closed(("email", "scopes"), email=TEXT, scopes=listed(TEXT))),
        scheduling=closed(
            onHostMaintenance={"enum": ["MIGRATE", "TERMINATE"]},
            automaticRestart=FLAG,
            provisioningModel={"enum": ["STANDARD", "SPOT", "FLEX_START", "RESERVATION_BOUND"]},
            instanceTerminationAction={"enum": ["DELETE", "STOP"]},
        ),
    ),
}


@functools.cache
def launcher_schema(provider: str) -> Any:
    """Ray's own, in which a provider and its machines may have any key: here they may not."""
    ray = find_spec("ray")
    assert ray is not None
    assert ray.origin is not None
    schema = json.loads((Path(ray.origin).parent / "autoscaler" / "ray-schema.json").read_text())
    schema["properties"]["provider"]["additionalProperties"] = False
    (node,) = schema["properties"]["available_node_types"]["patternProperties"].values()
    node["properties"]["node_config"] = NODES[provider]
    return schema


def faults(document: Any) -> list[str]:
    if "provider" in document:
        return [*_against(launcher_schema(document["provider"]["type"]), document)] or [
            *_of_launcher(document)
        ]
    kind = (document["apiVersion"], document["kind"])
    if kind not in kubernetes_schemas():
        return [f"no such kind: {kind}"]
    found = [*_against(kubernetes_schemas()[kind], document)]
    return found or [*_of_groups(document["spec"]), *_of_containers(document)]


def _against(schema: Any, document: Any) -> Iterator[str]:
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
    for error in validator.iter_errors(document):
        yield f"{'/'.join(map(str, error.absolute_path))}: {error.message}"


def _of_groups(spec: Any) -> Iterator[str]:
    """What KubeRay refuses when it sees it, behind its schema."""
    groups = spec.get("rayClusterSpec", spec).get("workerGroupSpecs", [])
    for group in groups:
        if not 0 <= group["minReplicas"] <= group["maxReplicas"]:
            yield f"{group['groupName']}: minReplicas is not between 0 and maxReplicas"
    if len({group["groupName"] for group in groups}) < len(groups):
        yield "two groups have one name"


def _of_containers(part: Any) -> Iterator[str]:
    """Kubernetes' schema lets a container go without an image, for those that fill it in later."""
    if isinstance(part, dict):
        yield from (
            f"{one.get('name')}: no image"
            for one in part.get("containers", [])
            if "image" not in one
        )
    for inner in (
        part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    ):
        yield from _of_containers(inner)


def _of_launcher(document: Any) -> Iterator[str]:
    from ray.autoscaler._private import util

    try:
        util.validate_config(util.prepare_config(copy.deepcopy(document)))
    except Exception as error:  # each kind of mistake has its own
        yield f"{type(error).__name__}: {error}"
    for name, node in document["available_node_types"].items():
        if node.get("min_workers", 0) > node.get("max_workers", document["max_workers"]):
            yield f"{name}: min_workers is more than max_workers"


@pytest.mark.parametrize("name", [*MANIFESTS, *LAUNCHERS])
def test_files_fit_their_schemas(name: str) -> None:
    assert [faults(document) for document in read(name)] == [[] for _ in read(name)]


GROUP = "spec/workerGroupSpecs"
# file, document in it, place, what stands there; None: nothing
WRONG: tuple[tuple[str, int, str, Any], ...] = (
    ("kuberay/raycluster.yaml", 0, "apiVersion", "ray.io/v1alpha1"),
    ("kuberay/raycluster.yaml", 0, "spec/rayversion", "2.60.0"),
    ("kuberay/raycluster.yaml", 0, "spec/headGroupSpec", None),
    ("kuberay/raycluster.yaml", 0, "spec/headGroupSpec/rayStartParams/num-cpus", 0),
    ("kuberay/raycluster.yaml", 0, "spec/headGroupSpec/template/spec/containers", None),
    (
        "kuberay/raycluster.yaml",
        0,
        "spec/headGroupSpec/template/spec/containers/0/envFrom/0/secretRef/nam",
        "store",
    ),
    ("kuberay/raycluster.yaml", 0, "spec/enableInTreeAutoscaling", "true"),
    ("kuberay/raycluster.yaml", 0, "spec/autoscalerOptions/version", "v3"),
    ("kuberay/raycluster.yaml", 0, "spec/authOptions/mode", "password"),
    ("kuberay/raycluster.yaml", 0, "spec/gcsFaultToleranceOptions/redisAdress", "redis:6379"),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/0/maxReplica", 8),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/0/groupName", None),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/0/groupName", "gpu"),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/1/maxReplicas", "8"),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/1/minReplicas", 9),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/1/template/spec/containers/0/image", None),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/1/template/spec/containers/0/imag", "sweep"),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/1/template/spec/containers/0/env/0/value", 110),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/2/priority", "high"),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/2/template/spec/tolerations/1/effects", "NoSchedule"),
    (
        "kuberay/raycluster.yaml",
        0,
        f"{GROUP}/2/template/spec/nodeSelector/cloud.google.com~gke-spot",
        True,
    ),
    ("kuberay/raycluster.yaml", 0, f"{GROUP}/2/template/spec/terminationGracePeriodSeconds", "120"),
    ("kuberay/rayjob.yaml", 0, "spec", None),
    ("kuberay/rayjob.yaml", 0, "spec/ttlSecondAfterFinished", 600),
    ("kuberay/rayjob.yaml", 0, "spec/backoffLimit", "3"),
    ("kuberay/rayjob.yaml", 0, "spec/rayClusterSpec/workerGroupSpecs/0/minReplicas", 9),
    ("kuberay/redis.yaml", 0, "spec/ports/0/port", "redis"),
    ("kuberay/redis.yaml", 1, "spec/serviceNames", "redis"),
    ("kuberay/redis.yaml", 1, "spec/template/spec/containers/0/arg", ["redis-server"]),
    ("kuberay/redis.yaml", 1, "spec/volumeClaimTemplates/0/spec/accessMode", ["ReadWriteOnce"]),
    ("kuberay/redis.yaml", 2, "spec/ingress/0/form", []),
    ("aws.yaml", 0, "cluster_name", None),
    ("aws.yaml", 0, "idle_timeout_minute", 5),
    ("aws.yaml", 0, "provider/regions", "us-west-2"),
    ("aws.yaml", 0, "head_node_type", "heads"),
    ("aws.yaml", 0, "setup_commands", "true"),
    ("aws.yaml", 0, "available_node_types/gpu/max_worker", 8),
    ("aws.yaml", 0, "available_node_types/gpu/min_workers", 9),
    ("aws.yaml", 0, "available_node_types/gpu/resources", None),
    ("aws.yaml", 0, "available_node_types/gpu/resources/GPU", "1"),
    ("aws.yaml", 0, "available_node_types/gpu/node_config/ImageId", "latest"),
    (
        "aws.yaml",
        0,
        "available_node_types/gpu_spot/node_config/InstanceMarketOptions/MarketTyp",
        "spot",
    ),
    ("gcp.yaml", 0, "provider/project", "my-project"),
    ("gcp.yaml", 0, "max_workers", -1),
    ("gcp.yaml", 0, "available_node_types/gpu/node_config", None),
    (
        "gcp.yaml",
        0,
        "available_node_types/gpu/node_config/disks/0/initializeParams/sourceImage",
        None,
    ),
    (
        "gcp.yaml",
        0,
        "available_node_types/gpu_spot/node_config/scheduling",
        [{"preemptible": True}],
    ),
    (
        "gcp.yaml",
        0,
        "available_node_types/gpu_spot/node_config/scheduling/provisioningModel",
        "CHEAP",
    ),
)


@pytest.mark.parametrize(("name", "number", "place", "value"), WRONG)
def test_what_is_wrong_is_refused(name: str, number: int, place: str, value: Any) -> None:
    document = copy.deepcopy(read(name)[number])  # what anchors share is then still shared
    *above, key = (part.replace("~", "/") for part in place.split("/"))
    part = document
    for step in above:
        part = part[int(step) if isinstance(part, list) else step]
    if value is None:
        del part[key]
    else:
        part[key] = value
    assert faults(document)


# --- what the files say ---


def test_ray_is_the_one_of_the_constraints() -> None:
    (cluster,), (job,) = read("kuberay/raycluster.yaml"), read("kuberay/rayjob.yaml")
    assert (
        cluster["spec"]["rayVersion"] == job["spec"]["rayClusterSpec"]["rayVersion"] == PINS["ray"]
    )
    assert set(
        re.findall(r"ray\[default\]==([\d.]+)", (ROOT / "docs" / "clusters.md").read_text())
    ) == {PINS["ray"]}


def test_the_job_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    comment = re.findall(r"^#(.*)$", (DEPLOY / "kuberay" / "rayjob.yaml").read_text(), re.MULTILINE)
    _, _, command = " ".join(comment).partition(" python -m sweep ")
    monkeypatch.chdir(ROOT)
    printed = CliRunner().invoke(main, shlex.split(command)).stdout
    (job,) = YAML(typ="safe").load_all(printed)
    job["spec"]["rayClusterSpec"]["rayVersion"] = PINS["ray"]  # where another is installed
    assert [job] == read("kuberay/rayjob.yaml"), f"write it again: python -m sweep {command}"


def test_workers_come_from_none_and_spot_is_asked_for_first() -> None:
    (cluster,) = read("kuberay/raycluster.yaml")
    groups = {group["groupName"]: group for group in cluster["spec"]["workerGroupSpecs"]}
    assert {(group["replicas"], group["minReplicas"]) for group in groups.values()} == {(0, 0)}
    assert groups["gpu-spot"]["priority"] > groups["gpu"].get("priority", 0)
    labels, toleration = SPOT["gke"]
    within = groups["gpu-spot"]["template"]["spec"]
    assert within["nodeSelector"] == labels
    assert toleration in within["tolerations"]
    assert toleration not in groups["gpu"]["template"]["spec"]["tolerations"]
    for group in groups.values():
        (container,) = group["template"]["spec"]["containers"]
        drained = int(
            {one["name"]: one["value"] for one in container["env"]}[
                "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
            ]
        )
        assert drained < group["template"]["spec"]["terminationGracePeriodSeconds"]
    for name in LAUNCHERS:
        nodes = read(name)[0]["available_node_types"]
        assert {node.get("min_workers", 0) for node in nodes.values()} == {0}
        assert nodes["head"]["resources"] == {"CPU": 0}
        assert nodes["gpu_spot"]["priority"] > nodes["gpu"].get("priority", 0)


def test_secrets_and_services_have_the_names_that_are_asked_for() -> None:
    (cluster,), (service, stateful, _) = read("kuberay/raycluster.yaml"), read("kuberay/redis.yaml")
    made = set(
        re.findall(
            r"kubectl create secret generic (\S+)", (ROOT / "docs" / "kubernetes.md").read_text()
        )
    )
    text = (DEPLOY / "kuberay" / "raycluster.yaml").read_text()
    stores = set(re.findall(r"secretRef:\n +name: (\S+)", text))
    assert made == stores | {cluster["spec"]["authOptions"]["secretName"]}
    port = service["spec"]["ports"][0]["port"]
    assert (
        cluster["spec"]["gcsFaultToleranceOptions"]["redisAddress"]
        == f"{service['metadata']['name']}:{port}"
    )
    assert (
        service["spec"]["selector"].items()
        <= stateful["spec"]["template"]["metadata"]["labels"].items()
    )
    assert len(set(re.findall(r" image: (\S+)", text))) == 1


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launchers_install_this_package_and_keep_strangers_out(name: str) -> None:
    (found,) = read(name)
    mounts = {
        there.removeprefix("/home/ubuntu/"): here for there, here in found["file_mounts"].items()
    }
    assert mounts.pop(".ray/auth_token") == "~/.ray/auth_token"
    assert mounts == {f"sweep/{part}": part for part in COPIED}
    for kind in ("head", "worker"):
        assert any(
            " -c ~/sweep/constraints.txt " in line for line in found[f"{kind}_setup_commands"]
        )
    assert any("export RAY_AUTH_MODE=token" in line for line in found["setup_commands"])
    head = " ".join(found["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in head


@pytest.mark.parametrize("name", LAUNCHERS)
def test_their_commands_are_bash(name: str) -> None:
    (found,) = read(name)
    lines = [line for key, value in found.items() if key.endswith("_commands") for line in value]
    assert len(lines) >= 10
    script = "\n".join(f"({line})" for line in lines)
    for text in (script, *re.findall(r"bash -c '(.*?)'", script, re.DOTALL)):
        assert (
            subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True).stderr == ""
        )

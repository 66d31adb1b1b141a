"""``kube``: write a sweep as a RayJob of KubeRay 1.7 (``ray.io/v1``), as YAML for Kubernetes.

The job has its own cluster, which ends with the job. The number of workers follows the number of trials, from zero. A
driver that dies is restarted and resumes from the log in the object store. The code is in a ConfigMap or in the image.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from sweep.cli import options, submitting
from sweep.cli.submitting import CodePackage
from sweep.contract import count_parts
from sweep.errors import InputError
from sweep.text import printable

if TYPE_CHECKING:
    from sweep.spec import Spec


Manifest: TypeAlias = dict[str, Any]

CODE = "/sweep/code"
GRACE_S = 120
"""The time in seconds that a terminating pod has to save its trial."""
MOST_BYTES = 900_000
"""Maximum size of the files in a ConfigMap, which is limited to 1 MiB including its metadata."""

SPOT: Mapping[str, tuple[dict[str, str], dict[str, str]]] = {
    provider: (
        {key: value},
        {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"},
    )
    for provider, key, value in (
        ("gke", "cloud.google.com/gke-spot", "true"),
        ("eks", "eks.amazonaws.com/capacityType", "SPOT"),
        ("aks", "kubernetes.azure.com/scalesetpriority", "spot"),
    )
}
"""Labels and tolerations of spot nodes, from each provider's documentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """Settings of the pods of a sweep's cluster."""

    image: str
    ray_version: str
    most: int = 8  # maximum number of workers at a time
    memory: str = "16Gi"  # memory of each worker
    # a secret whose values become environment variables of all pods, such as the store's credentials
    secret: str | None = None
    token: str | None = None  # the secret that holds Ray's token
    spot: str | None = None  # a key of `SPOT`
    redis: str | None = None  # host:port of a Redis where the head node's state survives a restart
    retries: int = 3
    # the folder of the code in the image; None: the code is sent in a ConfigMap
    workdir: str | None = None


def make_manifests(
    spec: Spec, command: Sequence[str], package: CodePackage | None, pods: Pods
) -> list[Manifest]:
    """Return the Kubernetes objects of a sweep: the ConfigMap of the code, if it is sent, and then the RayJob.

    ``command`` has the arguments of ``python -m sweep`` that the job runs. With ``package`` None, no code is sent, and
    the image has it in ``pods.workdir``. Raises `InputError` if the code is too large for a ConfigMap, and OSError if
    one of its files cannot be read.
    """
    name = _make_kubernetes_name(spec.name)
    if package is None:
        code = None
    else:
        code = _pack_code(name, package)
    folder = pods.workdir or CODE
    line = f"cd {shlex.quote(folder)} && {shlex.join(['python', '-m', 'sweep', *command])}"
    # KubeRay inserts it into a shell line without quoting
    entrypoint = f"bash -c {shlex.quote(line)}"
    cluster: Manifest = {
        "rayVersion": pods.ray_version,
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"version": "v2", "idleTimeoutSeconds": 120},
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0"},  # trials run on workers only
            "template": _make_pod_template("ray-head", {"cpu": "2", "memory": "8Gi"}, code, pods),
        },
        "workerGroupSpecs": [_make_worker_group(spec, code, pods)],
    }
    if pods.token:
        cluster["authOptions"] = {"mode": "token", "secretName": pods.token}
    if pods.redis:
        cluster["gcsFaultToleranceOptions"] = {"redisAddress": pods.redis}
    job: Manifest = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "sweep"}},
        "spec": {
            "entrypoint": entrypoint,
            "submissionMode": "K8sJobMode",
            "backoffLimit": pods.retries,
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": 600,
            # RAY_JOB_STOP_WAIT_TIME_S: the seconds that a stopped driver has for saving its trials.
            "runtimeEnvYAML": f"env_vars:\n  PYTHONPATH: {folder}\n  RAY_JOB_STOP_WAIT_TIME_S: '300'\n",
            "rayClusterSpec": cluster,
        },
    }
    if code is None:
        return [job]
    return [code.manifest, job]


def _make_worker_group(spec: Spec, code: _Code | None, pods: Pods) -> Manifest:
    """Return the group of worker pods, which begins without any pod.

    Each pod requests resources for one worker of a trial, or for all trials that share its GPU by a fixed share. It has
    `GRACE_S` seconds to save when it is terminated. With ``pods.spot``, it runs on spot nodes only.
    """
    asked = spec.resources
    # a share of a GPU needs a whole one, on which several trials fit
    gpus = math.ceil(asked.most_gpus)
    if gpus:
        trials = count_parts(gpus, asked.most_gpus)
    else:
        trials = 1
    cpus = max(math.ceil(float(asked.cpus or 1) * trials), 1)
    resources = {"cpu": str(cpus), "memory": pods.memory}
    if gpus:
        resources["nvidia.com/gpu"] = str(gpus)
    template = _make_pod_template("ray-worker", resources, code, pods)
    pod = template["spec"]
    pod["terminationGracePeriodSeconds"] = GRACE_S
    # Nearly all of the pod's time, because Ray would drain for 30 s by default.
    drain_time = {"name": "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "value": str(GRACE_S - 10)}
    pod["containers"][0]["env"] = [drain_time]
    tolerations = []
    if gpus:
        tolerations.append({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"})
    if pods.spot is not None:
        labels, toleration = SPOT[pods.spot]  # those of this provider's spot nodes
        pod["nodeSelector"] = labels
        tolerations.append(toleration)
    if tolerations:
        pod["tolerations"] = tolerations
    return {
        "groupName": "trials",
        "replicas": 0,
        "minReplicas": 0,
        "maxReplicas": pods.most,
        "rayStartParams": {},
        "template": template,
    }


def _make_pod_template(
    name: str, resources: Mapping[str, str], code: _Code | None, pods: Pods
) -> Manifest:
    """Return the template of a pod whose container ``name`` requests ``resources`` and is limited to them.

    The values of the secret in ``pods``, if it names one, are environment variables of the container. With ``code``,
    its files are mounted at `CODE`.
    """
    container: Manifest = {
        "name": name,
        "image": pods.image,
        "resources": {"requests": dict(resources), "limits": dict(resources)},
    }
    if pods.secret:
        container["envFrom"] = [{"secretRef": {"name": pods.secret}}]
    pod: Manifest = {"containers": [container]}
    if code is not None:
        container["volumeMounts"] = [{"name": "code", "mountPath": CODE, "readOnly": True}]
        items = []
        for key, path in code.paths.items():
            items.append({"key": key, "path": path})
        pod["volumes"] = [
            {
                "name": "code",
                "configMap": {"name": code.manifest["metadata"]["name"], "items": items},
            }
        ]
    return {"spec": pod}


@dataclass(frozen=True, slots=True)
class _Code:
    """The files of a project as a ConfigMap; ``paths`` maps its keys, which cannot be paths, to paths."""

    manifest: Manifest
    paths: Mapping[str, str]  # paths by key


def _pack_code(name: str, package: CodePackage) -> _Code:
    """Return the files of a project as a ConfigMap, whose name begins with ``name`` and ends with a hash of the files.

    Raises `InputError` if they are too large, more than 0.9 MB, and OSError if one cannot be read.
    """
    if package.size > MOST_BYTES:
        what = f"has {package.size / 1e6:.1f} MB of files, Kubernetes takes {MOST_BYTES / 1e6:.1f} MB beside a job"
        hint = "put the code into the image and say where: --workdir /app, or name what need not go along in .gitignore"
        raise InputError.one(str(package.root), what, hint)
    data = dict[str, str]()
    paths = dict[str, str]()
    for number, path in enumerate(package.files):
        key = f"file-{number:04d}"
        data[key] = base64.b64encode((package.root / path).read_bytes()).decode()
        paths[key] = path.as_posix()
    # Part of the name, because an immutable ConfigMap cannot be updated: other code needs another one.
    content = repr([*data.items(), *paths.items()])
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{name}-code-{digest}",
            "labels": {"app.kubernetes.io/managed-by": "sweep"},
        },
        "immutable": True,
        "binaryData": data,
    }
    return _Code(manifest, paths)


def _make_kubernetes_name(sweep: str) -> str:
    """Convert a sweep's name to a unique one that KubeRay accepts, for it names services after it (RFC 1035).

    It has at most 40 characters of a-z, 0-9 and "-", the first of them a letter. A name that must be changed ends with
    a hash of the sweep's name.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", sweep.lower()).strip("-") or "sweep"
    if not plain[0].isalpha():
        plain = f"sweep-{plain}"
    if plain == sweep and len(sweep) <= 40:
        return plain
    digest = hashlib.sha256(sweep.encode()).hexdigest()
    return f"{plain[:31].strip('-')}-{digest[:8]}"  # 40 characters at most


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--image",
    required=True,
    help="Image of all pods; needs Python, Ray, TensorFlow and this package.",
)
@click.option(
    "--results",
    required=True,
    metavar="URL",
    help="A place in an object store such as s3://bucket/prefix.",
)
@options.name
@options.assignments
@options.run_cap
@options.include
@click.option("--workdir", metavar="PATH", help="Folder of the code in the image; no code is sent.")
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Maximum number of trial pods at a time.",
)
@click.option("--memory", default="16Gi", show_default=True, help="Memory of each trial pod.")
@click.option(
    "--spot", type=click.Choice([*SPOT]), help="Run trials on this provider's spot nodes."
)
@click.option(
    "--secret", metavar="NAME", help="A secret whose values are environment variables of all pods."
)
@click.option("--token", metavar="NAME", help="The secret that holds Ray's token.")
@click.option(
    "--redis", metavar="HOST:PORT", help="Where the head keeps its state, to survive a restart."
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Restarts of the whole job.",
)
@options.as_json
@options.changes
def kube(
    file: Path,
    results: str,
    changes: Sequence[str],
    include: tuple[str, ...],
    workdir: str | None,
    as_json: bool,
    **pods: Any,
) -> None:
    """Print a sweep as a RayJob of Kubernetes, for `kubectl apply -f -`; nothing is sent."""
    from importlib.metadata import version

    from sweep.spec import yaml_reader
    from sweep.store.features import is_url
    from sweep.store.object_store import check_url

    asked = submitting.check_file(file, changes)
    if not is_url(results):
        what = f"{results!r} is no place in an object store, and pods share nothing else"
        raise InputError.one("--results", what, "write it as in s3://bucket/prefix")
    command = asked.command(check_url("--results", results))
    if workdir:
        package = None
    else:
        package = asked.collect(include)
    if package is not None and package.left_out:
        click.echo(f"note: left out: {printable(', '.join(package.left_out))}", err=True)
    wanted = Pods(ray_version=version("ray"), workdir=workdir, **pods)
    objects = make_manifests(asked.spec, command, package, wanted)
    if not as_json:
        click.echo(yaml_reader.format_documents(objects), nl=False)
        return
    from sweep.documents.shapes import KubernetesList
    from sweep.render import document

    click.echo(document(KubernetesList(items=tuple(objects))))

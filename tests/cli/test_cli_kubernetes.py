"""A sweep's manifests against KubeRay's own schema, in which no unknown key is allowed; and ten wrong ones."""

from __future__ import annotations

import base64
import copy
import dataclasses
import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from sweep.cli import kubernetes
from sweep.cli.kubernetes import SPOT, Pods, make_manifests
from sweep.cli.submitting import CodePackage
from sweep.errors import InputError
from sweep.spec import Spec, parse_spec, yaml_reader

FILE = """
name: {name}
trainable: train:train
metric: {{name: loss, goal: minimize}}
epochs: 2
method: grid
parameters: {{rate: {{values: [1, 2]}}}}
resources: {{cpus: {cpus}, gpus: {gpus}}}
"""
COMMAND = ["run", "sweep.yaml", "--or-resume", "--results", "s3://bucket/a team"]
PODS = Pods(image="images/sweep:1", ray_version="2.60.0")


def spec(name: str = "first", cpus: str = "1", gpus: str = "0") -> Spec:
    return parse_spec(FILE.format(name=name, cpus=cpus, gpus=gpus), "sweep.yaml")


@pytest.fixture(scope="module")
def schema() -> Any:
    content = (Path(__file__).parent / "kuberay_schemas.json.gz").read_bytes()
    return jsonschema.Draft202012Validator(json.loads(gzip.decompress(content))["RayJob"])


@pytest.fixture
def package(tmp_path: Path) -> CodePackage:
    (tmp_path / "folder").mkdir()
    (tmp_path / "train.py").write_text("import folder.helper\n")
    (tmp_path / "folder" / "helper.py").write_bytes(b"x = 1\n")
    return CodePackage.collect(tmp_path)


ALL = Pods(
    image="images/sweep:1",
    ray_version="2.60.0",
    most=3,
    memory="64Gi",
    secret="aws",
    token="ray-token",
    spot="eks",
    redis="redis:6379",
    retries=0,
    workdir="/app",
)


@pytest.mark.parametrize(
    "pods", [PODS, ALL, *(Pods(image="i", ray_version="2.60.0", spot=name) for name in SPOT)]
)
@pytest.mark.parametrize("gpus", ["0", "1", "0.5", "4", "auto"])
def test_kuberay_takes_it(schema: Any, package: CodePackage, pods: Pods, gpus: str) -> None:
    found = make_manifests(spec(gpus=gpus), COMMAND, None if pods.workdir else package, pods)
    text = yaml_reader.format_documents(found)
    read = list(YAML(typ="safe").load_all(text))
    assert read == found
    assert [one["kind"] for one in read] == (
        ["RayJob"] if pods.workdir else ["ConfigMap", "RayJob"]
    )
    assert list(schema.iter_errors(read[-1])) == []


def test_the_code_is_where_the_entrypoint_looks(package: CodePackage) -> None:
    code, job = make_manifests(spec(), COMMAND, package, PODS)
    cluster = job["spec"]["rayClusterSpec"]
    assert job["spec"]["entrypoint"] == (
        "bash -c 'cd /sweep/code && python -m sweep run sweep.yaml --or-resume "
        """--results '"'"'s3://bucket/a team'"'"''"""
    )
    shell = (
        subprocess.run(  # KubeRay adds it to a line of a shell as it is, after `ray job submit --`
            f"printf '%s|' -- {job['spec']['entrypoint']}",
            shell=True,
            capture_output=True,
            text=True,
            check=True,
        )
    )
    line = "cd /sweep/code && python -m sweep run sweep.yaml --or-resume --results 's3://bucket/a team'"
    assert shell.stdout == f"--|bash|-c|{line}|"
    for template in (
        cluster["headGroupSpec"]["template"],
        cluster["workerGroupSpecs"][0]["template"],
    ):
        (volume,) = template["spec"]["volumes"]
        assert volume["configMap"]["name"] == code["metadata"]["name"]
        (mount,) = template["spec"]["containers"][0]["volumeMounts"]
        assert mount == {"name": "code", "mountPath": "/sweep/code", "readOnly": True}
        files = {
            item["path"]: base64.b64decode(code["binaryData"][item["key"]])
            for item in volume["configMap"]["items"]
        }
        assert files == {"train.py": b"import folder.helper\n", "folder/helper.py": b"x = 1\n"}


def test_other_code_is_another_map(package: CodePackage) -> None:
    before = make_manifests(spec(), COMMAND, package, PODS)[0]["metadata"]["name"]
    assert make_manifests(spec(), COMMAND, package, PODS)[0]["metadata"]["name"] == before
    (package.root / "train.py").write_text("other\n")
    assert make_manifests(spec(), COMMAND, package, PODS)[0]["metadata"]["name"] != before


@pytest.mark.parametrize(
    ("cpus", "gpus", "asked"),
    [
        ("1", "0", {"cpu": "1", "memory": "16Gi"}),
        ("2.5", "0", {"cpu": "3", "memory": "16Gi"}),
        ("4", "2", {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2"}),
        # four trials share a GPU
        (
            "2",
            "0.25",
            {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "1"},
        ),
    ],
)
def test_a_pod_has_room_for_the_trials_of_its_gpu(
    cpus: str, gpus: str, asked: dict[str, str]
) -> None:
    (job,) = make_manifests(
        spec(cpus=cpus, gpus=gpus), COMMAND, None, dataclasses.replace(ALL, memory="16Gi")
    )
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    container = group["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": asked, "limits": asked}
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (0, 0, 3)
    keys = {one["key"] for one in group["template"]["spec"]["tolerations"]}
    assert ("nvidia.com/gpu" in keys) == (gpus != "0")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("first", "first"),
        ("lr_wd_aug", "lr-wd-aug-"),
        ("A" * 90, "a" * 31 + "-"),
        ("Mün", "m-n-"),
        ("2024-run", "sweep-2024-run-"),
    ],
)
def test_names_are_those_of_kubernetes(name: str, known: str) -> None:
    (job,) = make_manifests(spec(name=name), COMMAND, None, ALL)
    found = job["metadata"]["name"]
    assert found.startswith(known)
    assert len(found) <= 47  # KubeRay adds to it
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert found != make_manifests(spec(name=f"{name}x"), COMMAND, None, ALL)[0]["metadata"]["name"]


def test_too_much_code_is_for_the_image(
    package: CodePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "MOST_BYTES", 10)
    with pytest.raises(
        InputError, match="put the code into the image and say where: --workdir /app"
    ):
        make_manifests(spec(), COMMAND, package, PODS)


def a_misspelt_key(job: Any) -> None:
    job["spec"]["entryPoint"] = job["spec"].pop("entrypoint")


def a_number_as_text(job: Any) -> None:
    job["spec"]["backoffLimit"] = "3"


def a_flag_as_text(job: Any) -> None:
    job["spec"]["shutdownAfterJobFinishes"] = "true"


def no_cluster(job: Any) -> None:
    job["spec"]["rayClusterSpec"].pop("headGroupSpec")


def a_group_without_a_name(job: Any) -> None:
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].pop("groupName")


def a_pod_without_a_container(job: Any) -> None:
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"].pop("containers")


def a_key_deep_within(job: Any) -> None:
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0][
        "imag"
    ] = "x"


def a_start_parameter_as_a_number(job: Any) -> None:
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"] = {"num-cpus": 0}


def another_mode_of_tokens(job: Any) -> None:
    job["spec"]["rayClusterSpec"]["authOptions"] = {"mode": "password"}


def tolerations_as_a_mapping(job: Any) -> None:
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["tolerations"] = {
        "key": "x"
    }


WRONG = (
    *(
        a_misspelt_key,
        a_number_as_text,
        a_flag_as_text,
        no_cluster,
        a_group_without_a_name,
        a_pod_without_a_container,
    ),
    *(
        a_key_deep_within,
        a_start_parameter_as_a_number,
        another_mode_of_tokens,
        tolerations_as_a_mapping,
    ),
)


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_what_is_wrong_is_refused(schema: Any, change: Callable[[Any], object]) -> None:
    (job,) = copy.deepcopy(make_manifests(spec(gpus="1"), COMMAND, None, ALL))
    assert list(schema.iter_errors(job)) == []
    change(job)
    assert list(schema.iter_errors(job))

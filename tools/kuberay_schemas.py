"""Makes the schemas that tests hold manifests against out of KubeRay's own definitions: as strict as `kubectl` is.

    python tools/kuberay_schemas.py CLONE_OF_KUBERAY v1.7.0

A schema refuses keys that it does not know, at any depth. Descriptions are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

TARGET = Path(__file__).parents[1] / "tests" / "cli" / "kuberay_schemas.json.gz"
NUMBER_OR_TEXT = {"anyOf": [{"type": "integer"}, {"type": "string"}]}


def strict(schema: Any, *, is_names: bool = False) -> Any:
    """Return a schema that refuses unknown keys; with ``is_names``, the keys of ``schema`` are names of properties."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if is_names:
        return {name: strict(one) for name, one in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        return NUMBER_OR_TEXT
    free = schema.get("x-kubernetes-preserve-unknown-fields")
    kept = {
        name: one
        for name, one in schema.items()
        if not name.startswith("x-kubernetes") and name != "description"
    }
    made = {name: strict(one, is_names=name == "properties") for name, one in kept.items()}
    if (
        made.get("type") == "object"
        and "properties" in made
        and "additionalProperties" not in made
        and not free
    ):
        made["additionalProperties"] = False
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clone", type=Path)
    parser.add_argument("version")
    given = parser.parse_args()
    found: dict[str, Any] = {"version": given.version}
    for name in ("rayjobs", "rayclusters"):
        path = f"{given.version}:helm-chart/kuberay-operator/crds/ray.io_{name}.yaml"
        command = ["git", "-C", str(given.clone), "show", path]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        definition = YAML(typ="safe").load(text)
        (version,) = [one for one in definition["spec"]["versions"] if one["name"] == "v1"]
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        found[definition["spec"]["names"]["kind"]] = schema
    TARGET.write_bytes(gzip.compress(json.dumps(found, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()

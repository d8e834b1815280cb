"""Check the manifest for KubeRay against the fields of the RayJob resource (ray.io/v1, KubeRay 1.4)."""

import shlex

import jsonschema
import yaml
from conftest import ROOT, parse_options


def fields(required, **properties):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


TEXT, COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
TEXTS = {"type": "object", "additionalProperties": TEXT}  # Ray's parameters are strings, also numbers
POD = fields(["spec"], metadata={"type": "object"}, spec={"type": "object", "required": ["containers"]})
HEAD = fields(["template"], serviceType=TEXT, rayStartParams=TEXTS, template=POD)
WORKERS = fields(["groupName", "template"], groupName=TEXT, replicas=COUNT, minReplicas=COUNT, maxReplicas=COUNT,
                 numOfHosts=COUNT, rayStartParams=TEXTS, template=POD)  # fmt: skip
CLUSTER = fields(["headGroupSpec"], rayVersion=TEXT, headGroupSpec=HEAD,
                 workerGroupSpecs={"type": "array", "items": WORKERS})  # fmt: skip
JOB = fields([], entrypoint=TEXT, shutdownAfterJobFinishes={"type": "boolean"}, ttlSecondsAfterFinished=COUNT,
             activeDeadlineSeconds=COUNT, runtimeEnvYAML=TEXT, submissionMode=TEXT, rayClusterSpec=CLUSTER)  # fmt: skip
RAY_JOB = fields(["apiVersion", "kind", "metadata", "spec"], apiVersion={"const": "ray.io/v1"},
                 kind={"const": "RayJob"}, metadata={"type": "object", "required": ["name"]}, spec=JOB)  # fmt: skip


def test_the_manifest_has_only_fields_of_a_ray_job_and_flags_of_the_script(no_gpu):
    manifest = yaml.safe_load((ROOT / "examples" / "rayjob.yaml").read_text())
    jsonschema.validate(manifest, RAY_JOB)
    _, script, *flags = shlex.split(manifest["spec"]["entrypoint"])
    assert (ROOT / script.rpartition("/")[2]).is_file()
    (options,) = parse_options("graph", *flags)
    assert options.nodes_of_actors == {"policy": 0, "reference": 1, "reward": 1}
    nodes = 1 + sum(group["replicas"] for group in manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"])
    assert nodes == options.node_count
    requirements = (ROOT / "requirements.txt").read_text()
    assert f"=={manifest['spec']['rayClusterSpec']['rayVersion']}" in requirements

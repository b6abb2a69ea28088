#!/usr/bin/env python3
"""Checks the manifests in deploy/ against the schemas of Kubernetes' API, and that what they start is what Tandem has.

    scripts/check_manifests.py tandem --version-of-kubernetes 1.33    needs kubernetes-validate (PyPI)

Each argument of a container has to be a flag of `tandem serve`, each probe a path that it serves. Prints a line for what
is wrong; exit code 1 then. LeaderWorkerSet is no part of that API: its pod templates are checked as such, and its own
fields against those that its v1 has (config/crd of kubernetes-sigs/lws).
"""

import argparse
import pathlib
import re
import subprocess
import sys

import kubernetes_validate
import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent.parent / "deploy"
SERVED = {"/ready", "/health", "/version"}
MANIFESTS = ("kubernetes.yaml", "leader_worker_set.yaml")
# Field of a LeaderWorkerSet to the values that it may have; None: any, of the type of the other column.
GROUP_FIELDS = {
    "replicas": (int, None),
    "startupPolicy": (str, {"LeaderCreated", "LeaderReady"}),
    "rolloutStrategy": (dict, None),
    "networkConfig": (dict, None),
    "leaderWorkerTemplate": (dict, None),
}
TEMPLATE_FIELDS = {
    "size": (int, None),
    "restartPolicy": (str, {"None", "Default", "RecreateGroupOnPodRestart"}),
    "subGroupPolicy": (dict, None),
    "volumeClaimTemplates": (list, None),
    "leaderTemplate": (dict, None),
    "workerTemplate": (dict, None),
}


def flags_of(program):
    said = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z0-9-]+", said))


def pod_templates(document):
    """Of a manifest: none, one, or those of leader and workers."""
    spec = document.get("spec", {})
    of_group = spec.get("leaderWorkerTemplate", {})
    found = (spec.get("template"), of_group.get("leaderTemplate"), of_group.get("workerTemplate"))
    return [template for template in found if template is not None]


def wrong_fields(name, values, fields):
    for field, value in values.items():
        if field not in fields:
            yield f"{name}.{field}: there is no such field"
            continue
        kind, allowed = fields[field]
        if not isinstance(value, kind) or (allowed is not None and value not in allowed):
            yield f"{name}.{field}: {value!r} is no {' or '.join(sorted(allowed)) if allowed else kind.__name__}"


def wrong_in_group(document, validate):
    spec = document.get("spec", {})
    template = spec.get("leaderWorkerTemplate", {})
    yield from wrong_fields("spec", spec, GROUP_FIELDS)
    yield from wrong_fields("spec.leaderWorkerTemplate", template, TEMPLATE_FIELDS)
    if "workerTemplate" not in template:
        yield "spec.leaderWorkerTemplate: a workerTemplate is required"
    for pod in pod_templates(document):
        yield from validate({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": pod})


def wrong_in(document, flags):
    containers = [one for pod in pod_templates(document) for one in pod.get("spec", {}).get("containers", [])]
    for container in containers:
        for argument in container.get("args", []):
            name = argument.split("=")[0]
            if name.startswith("--") and name not in flags:
                yield f"container {container['name']}: tandem serve has no {name}"
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = container.get(kind, {}).get("httpGet", {}).get("path")
            if path is not None and path not in SERVED:
                yield f"container {container['name']}: {kind} asks for {path}, which is not served without a key"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tandem")
    parser.add_argument("--version-of-kubernetes", default="1.33")
    arguments = parser.parse_args()
    flags = flags_of(arguments.tandem)

    def validate(document):
        try:
            kubernetes_validate.validate(document, arguments.version_of_kubernetes, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{'.'.join(map(str, error.path))}: {error.message}"

    num_documents = num_wrong = 0
    for name in MANIFESTS:
        for document in yaml.safe_load_all((DEPLOY / name).read_text()):
            num_documents += 1
            what = f"{name}, {document.get('kind')}"
            wrong = list(wrong_in(document, flags))
            is_group = document.get("apiVersion") == "leaderworkerset.x-k8s.io/v1"
            wrong += wrong_in_group(document, validate) if is_group else validate(document)
            for sentence in wrong:
                print(f"{what}: {sentence}")
            num_wrong += len(wrong)
    print(f"{num_documents} manifests, {num_wrong} errors")
    sys.exit(1 if num_wrong or not num_documents else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks deploy/*.yaml of Kubernetes against the schemas of its API, and that what they start is what Tandem has.

    scripts/check_manifests.py tandem --version-of-kubernetes 1.33    needs kubernetes-validate (PyPI)

Each argument of a container has to be a flag of `tandem serve`, each probe a path that it serves. Prints a line for what
is wrong; exit code 1 then.
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


def flags_of(program):
    said = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z0-9-]+", said))


def wrong_in(document, flags):
    containers = document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
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
    num_documents = num_wrong = 0
    for path in sorted(DEPLOY.glob("kubernetes*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            num_documents += 1
            what = f"{path.name}, {document.get('kind')}"
            wrong = list(wrong_in(document, flags))
            try:
                kubernetes_validate.validate(document, arguments.version_of_kubernetes, strict=True)
            except kubernetes_validate.ValidationError as error:
                wrong.append(f"{'.'.join(map(str, error.path))}: {error.message}")
            for sentence in wrong:
                print(f"{what}: {sentence}")
            num_wrong += len(wrong)
    print(f"{num_documents} manifests, {num_wrong} errors")
    sys.exit(1 if num_wrong or not num_documents else 0)


if __name__ == "__main__":
    main()

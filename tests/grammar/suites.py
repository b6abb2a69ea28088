"""The JSON-Schema-Test-Suite: Debian's package has drafts 3 to 7, the sources of jsonschema on PyPI have the newer ones."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

import jsonschema

DEBIAN = pathlib.Path("/usr/share/json-schema-test-suite/tests")
NEWER_VERSION = "4.26.0"
NEWER_SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
DRAFTS = {
    "draft3": jsonschema.Draft3Validator,
    "draft4": jsonschema.Draft4Validator,
    "draft6": jsonschema.Draft6Validator,
    "draft7": jsonschema.Draft7Validator,
    "draft2019-09": jsonschema.Draft201909Validator,
    "draft2020-12": jsonschema.Draft202012Validator,
}
# jsonschema's own build backend would be fetched, and would run before the hash is checked.
BACKEND = f'''
import pathlib


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory) / "jsonschema-{NEWER_VERSION}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\\nName: jsonschema\\nVersion: {NEWER_VERSION}\\n")
    return folder.name
'''


def fetch_newer(root):
    """The folder of the newer drafts' tests, fetched once into build/deps of root."""
    folder = root / "build" / "deps" / f"json-schema-test-suite-{NEWER_VERSION}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        scratch = pathlib.Path(name)
        (scratch / "backend" / "hatchling").mkdir(parents=True)
        (scratch / "backend" / "hatchling" / "__init__.py").touch()
        (scratch / "backend" / "hatchling" / "build.py").write_text(BACKEND)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "jsonschema",
             "--no-build-isolation", "--dest", name, f"jsonschema=={NEWER_VERSION}"],
            env={**os.environ, "PYTHONPATH": str(scratch / "backend")},
            check=True,
        )  # fmt: skip
        sdist = next(scratch.glob("*.tar.gz"))
        digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
        if digest != NEWER_SHA256:
            sys.exit(f"the sources of jsonschema have SHA-256 {digest}, expected {NEWER_SHA256}")
        with tarfile.open(sdist) as archive:
            prefix = f"jsonschema-{NEWER_VERSION}/json/tests/draft20"
            for member in archive.getmembers():
                if member.isfile() and member.name.startswith(prefix) and ".." not in member.name:
                    target = scratch / "tests" / member.name.split("/json/tests/")[1]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.extractfile(member).read())
        (scratch / "tests").rename(folder)
    return folder


def suite_cases(folder):
    """(draft, keyword, description, schema, tests) of every group, the optional ones too."""
    for draft in DRAFTS:
        for file in sorted((folder / draft).rglob("*.json")):
            keyword = str(file.relative_to(folder / draft).with_suffix(""))
            for group in json.loads(file.read_text()):
                yield draft, keyword, group["description"], group["schema"], group["tests"]


def as_python(pattern):
    """The pattern with ECMA-262's classes: `\\d` and `\\w` are ASCII there, and Python's `\\s` is near enough."""
    classes = {"d": "0-9", "w": "A-Za-z0-9_"}
    python, in_class, at = "", False, 0
    while at < len(pattern):
        step = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        at += len(step)
        name = step[1:]
        if name in classes:
            step = classes[name] if in_class else f"[{classes[name]}]"
        elif name and name.lower() in classes and not in_class:
            step = f"[^{classes[name.lower()]}]"
        elif step in "[]":
            in_class = step == "["
        python += step
    return python


def check_pattern(validator, pattern, instance, schema):
    if validator.is_type(instance, "string") and not re.search(as_python(pattern), instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def formats_of(draft):
    # The `time` of draft 3 has no offset; schemas are read as those of drafts 4 and later are.
    names = [name for name in DRAFTS[draft].FORMAT_CHECKER.checkers if (draft, name) != ("draft3", "time")]
    checker = jsonschema.FormatChecker(formats=())
    checker.checkers = {name: DRAFTS[draft].FORMAT_CHECKER.checkers[name] for name in names}
    return checker


FORMATS = {draft: formats_of(draft) for draft in DRAFTS}
VALIDATORS = {draft: jsonschema.validators.extend(kind, {"pattern": check_pattern}) for draft, kind in DRAFTS.items()}


def validator_of(draft, schema):
    return VALIDATORS[draft](schema, format_checker=FORMATS[draft])

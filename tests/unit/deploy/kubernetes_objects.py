"""Holds Kubernetes objects against the API's own types: unknown fields, wrong types, missing fields.

The types of the built-in objects are those of lightkube-models, which are generated from the OpenAPI document of the API
server. For objects of others (Gateway API, Prometheus Operator) no package has the types: the fields that we use are
written down in custom_objects.yaml beside this file.
"""

import importlib
import typing
from pathlib import Path

import jsonschema_rs
import msgspec
import yaml

MODULES = {
    "v1": "core_v1",
    "apps/v1": "apps_v1",
    "policy/v1": "policy_v1",
    "autoscaling/v2": "autoscaling_v2",
    "networking.k8s.io/v1": "networking_v1",
    "rbac.authorization.k8s.io/v1": "rbac_v1",
}
CUSTOM = yaml.safe_load((Path(__file__).parent / "custom_objects.yaml").read_text())


def faults_of(found):
    """What is wrong with an object, in words; empty when nothing."""
    version, kind = found["apiVersion"], found["kind"]
    if schema := CUSTOM.get(f"{version} {kind}"):
        validator = jsonschema_rs.validator_for({**schema, "$defs": CUSTOM["$defs"]})
        return [f"{kind}: {each.message}" for each in validator.iter_errors(found)]
    module = importlib.import_module(f"lightkube.models.{MODULES[version]}")
    return list(_faults(found, getattr(module, kind), kind))


def _faults(value, kind, path):
    origin = typing.get_origin(kind)
    if origin is typing.Union:
        kinds = [each for each in typing.get_args(kind) if each is not type(None)]
        ways = [list(_faults(value, each, path)) for each in kinds]
        if all(ways):
            yield from ways[0]
    elif origin is list:
        if not isinstance(value, list):
            yield f"{path}: no list"
            return
        for number, each in enumerate(value):
            yield from _faults(each, typing.get_args(kind)[0], f"{path}[{number}]")
    elif kind is dict or origin is dict:
        if not isinstance(value, dict):
            yield f"{path}: no mapping"
            return
        # What has no type of its own in what we use holds text: labels, annotations, data, quantities.
        inner = typing.get_args(kind)[1] if origin else str
        for name, each in value.items():
            yield from _faults(each, inner, f"{path}.{name}")
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _object_faults(value, kind, path)
    elif kind in (str, int, float, bool) and not (
        type(value) is kind or (kind is float and type(value) is int)
    ):
        yield f"{path}: {value!r} is no {kind.__name__}"
    elif kind not in (str, int, float, bool, typing.Any):
        # Whatever our manifests get to must be looked at.
        yield f"{path}: a type that is not known here: {kind}"


def _object_faults(value, kind, path):
    if not isinstance(value, dict):
        yield f"{path}: no object"
        return
    fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
    for name in value.keys() - fields.keys():
        yield f"{path}: unknown field {name}"
    for name, field in fields.items():
        if name in value:
            yield from _faults(value[name], field.type, f"{path}.{name}")
        elif field.required:
            yield f"{path}: {name} is missing"

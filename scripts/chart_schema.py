"""Makes values.schema.json of the Helm chart from its values.yaml and from the router's settings.

Each key of values.yaml becomes a property, and no other key is allowed. What a default value cannot tell (ports, free
mappings, lists of what) stands in `_RULES`, by the key's path.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import yaml

from servicers.factory import ENGINES
from smg.settings import RouterSettings, options_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from smg.settings import Option

# The chart's own objects depend on these: it writes them itself.
OWNED = frozenset(
    (
        "host", "port", "grpc_port", "shutdown_delay_secs", "shutdown_grace_period_secs", "health_check_port",
        "prometheus_host", "prometheus_port", "tls_cert_path", "tls_key_path", "discovery_provider",
        "service_discovery", "selector", "service_discovery_port", "service_discovery_namespace",
    )
)  # fmt: skip

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_WORDS = {"type": "array", "items": {"type": "string"}}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_FREE = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
_SECONDS = {"type": "integer", "minimum": 0}

_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("router.settings", {"$ref": "#/$defs/settings"}),
    ("*.image.pullPolicy", {"enum": ["Always", "IfNotPresent", "Never"]}),
    ("*.service.type", {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}),
    ("engine.kind", {"enum": sorted(ENGINES)}),
    ("engine.args", _WORDS),
    ("*.replicas", {"type": "integer", "minimum": 0}),
    ("*.minReplicas", {"type": "integer", "minimum": 1}),
    ("*.maxReplicas", {"type": "integer", "minimum": 1}),
    ("*.inflightPerPod", {"type": "integer", "minimum": 1}),
    ("*.sequencesPerPod", {"type": "integer", "minimum": 1}),
    ("*.maxUnavailable", {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+%$"}]}),
    ("discovery.port", _PORT),
    ("discovery.selector", _TEXTS),
    ("networkPolicy.kubernetesApiPorts", {"type": "array", "items": _PORT}),
    ("route.hostnames", _WORDS),
    ("*.resources.requests", _FREE),
    ("*.resources.limits", _FREE),
    ("*.drain.*", _SECONDS),
    ("engine.startupSeconds", {"type": "integer", "minimum": 1}),
    ("*labels", _TEXTS),
    ("*nnotations", _TEXTS),
    ("*.nodeSelector", _TEXTS),
)  # fmt: skip


def schema_text(values: Path) -> str:
    """The schema as a file. Args: values: values.yaml."""
    defaults = yaml.safe_load(values.read_text())
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_schema_of(defaults, ""),
        "$defs": {"settings": _settings()},
    }
    # Helm hands it to every chart that is part of another one.
    schema["properties"]["global"] = {"type": "object"}
    return json.dumps(schema, indent=1) + "\n"


def _schema_of(value: Any, path: str) -> dict[str, Any]:
    for pattern, rule in _RULES:
        if fnmatchcase(path, pattern):
            return rule
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer"}
    if isinstance(value, str):
        return {"type": "string"}
    if isinstance(value, list):
        return _OBJECTS
    return _object(value, path)


def _object(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    if not value:
        return {"type": "object"}
    below = {name: _schema_of(each, f"{path}.{name}" if path else name) for name, each in value.items()}
    return {"type": "object", "additionalProperties": False, "properties": below}


def _settings() -> dict[str, Any]:
    """Sections and names of the router's settings. Their values are checked by the router."""
    sections: dict[str, dict[str, Any]] = {}
    for option in options_of(RouterSettings):
        if option.name not in OWNED and not option.is_secret:
            sections.setdefault(option.section, {})[option.name] = _setting(option)
    closed = {
        name: {"type": "object", "additionalProperties": False, "properties": options}
        for name, options in sections.items()
    }
    return {"type": "object", "additionalProperties": False, "properties": closed}


def _setting(option: Option) -> dict[str, Any]:
    told = {"description": option.help}
    if option.is_switch:
        return {**told, "type": "boolean"}
    return {**told, "enum": list(option.choices)} if option.choices and not option.is_list else told

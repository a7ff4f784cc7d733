"""Writes the parts of deploy/ that derive from others: the chart's copies and schema, the manifests, the dashboard.

With --check nothing is written, and a file that is out of date is an error. The manifests are what Helm's own library
makes of the chart with the values in deploy/kubernetes/values/.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import helm_python
import yaml

from scripts.chart_schema import schema_text
from scripts.dashboard import dashboard_text
from smg.services.methods import METHODS

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "kubernetes" / "smg"
VALUES = DEPLOY / "kubernetes" / "values"
MANIFESTS = DEPLOY / "kubernetes" / "manifests"
DASHBOARD = DEPLOY / "monitoring" / "dashboard.json"
# A chart reaches nothing outside its own folder.
COPIES = (
    DEPLOY / "envoy" / "edge.yaml",
    DEPLOY / "envoy" / "smg_edge.pb",
    DEPLOY / "monitoring" / "alerts.yaml",
)
RELEASE = NAMESPACE = "smg"

_HEAD = """\
# Made from the Helm chart beside this folder by `make manifests`, with values/{name}.yaml. Do not change it here.
#
#   kubectl create namespace {namespace} && kubectl apply -f {name}.yaml
"""
# What is true of releases alone.
_LINES_OF_HELM = ("app.kubernetes.io/managed-by: ", "helm.sh/chart: ")


def main() -> int:
    """Write or check every file; return the number of files that are out of date."""
    parser = argparse.ArgumentParser(description="Write the generated parts of deploy/.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when something would change"
    )
    is_check = parser.parse_args().check
    stale = 0
    for path, content in _chart_files().items():
        stale += _put(path, content, is_check=is_check)
    # The manifests are made of what has just been written.
    for path, content in _manifests().items():
        stale += _put(path, content, is_check=is_check)
    return stale if is_check else 0


def render(values: dict[str, Any], release: str = RELEASE) -> dict[str, str]:
    """What Helm makes of the chart, by the name of the template; nothing where a template makes nothing.

    Raises:
        helm_python.HelmError: the values are against the schema, or a template refuses them.
    """
    with helm_python.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        made = chart.render(values, name=release, namespace=NAMESPACE)
    prefix = "smg/templates/"
    return {path.removeprefix(prefix): text for path, text in made.items() if text.strip()}


def values_of(name: str) -> dict[str, Any]:
    """A file of values. Args: name: without its ending."""
    return yaml.safe_load((VALUES / f"{name}.yaml").read_text())


def _chart_files() -> dict[Path, bytes]:
    files = {CHART / "files" / each.name: each.read_bytes() for each in COPIES}
    files |= {
        DASHBOARD: dashboard_text(indent=1).encode(),
        # In a ConfigMap nobody reads it.
        CHART / "files" / DASHBOARD.name: dashboard_text(indent=None).encode(),
    }
    files[CHART / "files" / "services.txt"] = "".join(f"{each}\n" for each in _public_services()).encode()
    files[CHART / "values.schema.json"] = schema_text(CHART / "values.yaml").encode()
    return files


def _public_services() -> list[str]:
    """The gRPC services that clients call: ours but the operator's, and not those that speak to proxies."""
    ours = [path for path, method in METHODS.items() if method.access != "admin" and path.startswith("/smg.")]
    served = {path.split("/")[1] for path in ours}
    return sorted({*served, "grpc.health.v1.Health"})


def _manifests() -> dict[Path, bytes]:
    names = sorted(path.stem for path in VALUES.glob("*.yaml"))
    return {MANIFESTS / f"{name}.yaml": _manifest(name).encode() for name in names}


def _manifest(name: str) -> str:
    made = render(values_of(name))
    made.pop("NOTES.txt")
    parts = [made[each].strip().removeprefix("---").strip() for each in sorted(made)]
    lines = "\n---\n".join(parts).splitlines()
    kept = [line.rstrip() for line in lines if not line.strip().startswith(_LINES_OF_HELM)]
    return _HEAD.format(name=name, namespace=NAMESPACE) + "\n".join(kept) + "\n"


def _put(path: Path, content: bytes, *, is_check: bool) -> bool:
    if path.exists() and path.read_bytes() == content:
        return False
    shown = path.relative_to(ROOT)
    if is_check:
        print(f"{shown} is out of date; run `make manifests`")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        print(f"{shown} written")
    return True


if __name__ == "__main__":
    raise SystemExit(main())

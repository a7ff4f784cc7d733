"""docs/metrics.md names every metric that a router has, with its type, and no other."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from smg.server import Router
from smg.settings import RouterSettings

DOCUMENT = Path(__file__).parents[4] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(smg_\w+)` \| (\w+) \|", re.MULTILINE)
# Only a router that makes traces has them.
OF_TRACES = {"smg_trace_spans_exported_total", "smg_trace_spans_dropped_total"}


def names_of(registry: CollectorRegistry) -> dict[str, str]:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: family.type
        for family in registry.collect()
        if family.name.startswith("smg_")
    }


async def test_every_metric_is_documented_and_every_documented_one_exists():
    documented = dict(ROW.findall(DOCUMENT.read_text(encoding="utf-8")))
    existing = names_of(Router(RouterSettings()).observation.registry)
    assert {name: kind for name, kind in documented.items() if name not in OF_TRACES} == existing
    assert documented.keys() >= OF_TRACES

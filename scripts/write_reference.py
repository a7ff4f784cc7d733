"""Writes the parts of docs/ that derive from the code: settings, metrics, module map.

A generated part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`. With --check nothing is written, and
a part that is out of date is an error.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from gateway.routes import build_routes
from scripts.model_families import models_part
from smg.services.methods import METHODS
from smg.settings import RouterSettings, ServeSettings, options_of
from smg.telemetry.metrics import RequestResult, RouterMetrics
from smg.telemetry.runtime_metrics import RuntimeMetrics
from smg.telemetry.worker_metrics import WorkerMetrics
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smg.settings import Option

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("smg", "gateway", "servicers")


def main() -> int:
    """Write or check every part; return the number of parts that are out of date."""
    parser = argparse.ArgumentParser(description="Write the generated parts of docs/.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when something would change"
    )
    is_check = parser.parse_args().check
    stale = 0
    for path, name, make in PARTS:
        text = path.read_text()
        wanted = replace_part(text, name, make())
        if wanted != text:
            stale += 1
            if is_check:
                print(f"{path.relative_to(ROOT)}: part '{name}' is out of date; run `make docs`")
            else:
                path.write_text(wanted)
                print(f"{path.relative_to(ROOT)}: part '{name}' written")
    return stale if is_check else 0


def replace_part(text: str, name: str, content: str) -> str:
    """Put new content between the markers of a part. Exits when the markers are missing."""
    pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"no part '{name}' in the document")
    return pattern.sub(lambda found: f"{found[1]}\n{content}\n{found[2]}", text)


def settings_part() -> str:
    """One table per section."""
    lines: list[str] = []
    router = {option.name for option in options_of(RouterSettings)}
    for section, options in by_section().items():
        # What `smg serve` narrows is told from the router's side.
        fields = RouterSettings.model_fields.get(section) or ServeSettings.model_fields[section]
        summary = inspect.getdoc(fields.annotation) or ""
        lines += [f"### {section}", "", summary, "", "| flag | default | meaning |", "| --- | --- | --- |"]
        for option in options:
            shown = f"`{option.flag}`" if option.is_switch else f"`{option.flag} {option.metavar}`"
            default = f"`{option.default}`" if option.default else ""
            if option.name == "host":
                default = "`0.0.0.0`; `smg serve`: `127.0.0.1`"
            only = "" if option.name in router else " (`smg serve` only)"
            lines.append(f"| {cell(shown)} | {default} | {cell(option.help)}{only} |")
        lines.append("")
    return "\n".join(lines)


def by_section() -> dict[str, list[Option]]:
    """The options of `smg serve`, which has all of them."""
    sections: dict[str, list[Option]] = {}
    for option in options_of(ServeSettings):
        sections.setdefault(option.section, []).append(option)
    return sections


def cell(text: str) -> str:
    """Text that does not end a table cell."""
    return text.replace("|", "\\|")


@dataclass
class SampleWorker:
    """A worker to show the metrics of workers with."""

    url: str = "grpc://host:port"
    state_name: str = "ready"
    inflight_requests: int = 0
    connections: int = 1
    load: card_pb2.Load = field(default_factory=card_pb2.Load)
    cb_state: int = 0
    steps_per_second: float = 0.0


@dataclass
class SampleCounts:
    """An admission queue, and an export of traces, to show their metrics with."""

    running: int = 0
    waiting: int = 0
    exported: int = 0
    dropped: int = 0


def sample_registry() -> CollectorRegistry:
    """Every metric, each with a sample, so that its labels show."""
    registry = CollectorRegistry()
    metrics = RouterMetrics(registry)
    metrics.set_workers([SampleWorker().url])
    result = RequestResult("ok", 1.0, 0.5, workers=[SampleWorker().url])
    metrics.request_finished(metrics.request_started("route", "model"), result)
    metrics.http_response("route", 200)
    metrics.grpc_response("route", 0)
    metrics.error_answered("route", "internal_error")
    metrics.retried("route")
    WorkerMetrics(registry, lambda: [SampleWorker()])
    RuntimeMetrics(registry, "0", SampleCounts(), 100, SampleCounts())
    return registry


def metrics_part() -> str:
    """Every metric with its labels, as the registry gives it."""
    lines = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in sample_registry().collect():
        names = {label for sample in family.samples for label in sample.labels} - {"le"}
        labels = ", ".join(f"`{name}`" for name in sorted(names))
        name = f"{family.name}_total" if family.type == "counter" else family.name
        lines.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join([*lines, ""])


class _Handlers:
    """Stands for handlers where only the table around them is looked at."""

    def __getattr__(self, name: str) -> Any:
        return None


def routes_part() -> str:
    """Every path with its methods, who may call it, and its name in metrics."""
    doubles: list[Any] = [_Handlers() for _ in inspect.signature(build_routes).parameters]
    methods: dict[tuple[str, str, str], list[str]] = {}
    for route in build_routes(*doubles):
        methods.setdefault((route.path, route.access, route.name), []).append(route.method)
    lines = ["| path | methods | who | route |", "| --- | --- | --- | --- |"]
    for (path, access, name), names in sorted(methods.items()):
        lines.append(f"| `{path}` | {', '.join(sorted(names))} | {access} | `{name}` |")
    return "\n".join([*lines, ""])


def services_part() -> str:
    """Every method of the typed services by who may call it."""
    lines = ["| service | who | methods |", "| --- | --- | --- |"]
    by_service: dict[tuple[str, str], list[str]] = {}
    for path, method in METHODS.items():
        _, service, name = path.split("/")
        by_service.setdefault((service, method.access), []).append(name)
    for (service, access), names in sorted(by_service.items()):
        lines.append(f"| `{service}` | {access} | {', '.join(sorted(names))} |")
    return "\n".join([*lines, ""])


def modules_part() -> str:
    """Every module with the first line of its docstring."""
    lines = ["```text"]
    for package in PACKAGES:
        lines += [
            f"{indent}{name:<{40 - len(indent)}}{summary}".rstrip()
            for indent, name, summary in tree(ROOT / package)
        ]
        lines.append("")
    return "\n".join([*lines[:-1], "```", ""])


def tree(folder: Path, depth: int = 0) -> Iterator[tuple[str, str, str]]:
    """Indent, name and summary of a package and all in it, folders after files."""
    yield "  " * depth, f"{folder.name}/", summary_of(folder / "__init__.py")
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield "  " * (depth + 1), path.name, summary_of(path)
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from tree(inner, depth + 1)


def summary_of(path: Path) -> str:
    """First sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0]


PARTS: tuple[tuple[Path, str, Callable[[], str]], ...] = (
    (ROOT / "docs" / "operations.md", "settings", settings_part),
    (ROOT / "docs" / "metrics.md", "metrics", metrics_part),
    (ROOT / "docs" / "api.md", "routes", routes_part),
    (ROOT / "docs" / "api.md", "services", services_part),
    (ROOT / "docs" / "architecture.md", "modules", modules_part),
    (ROOT / "docs" / "models.md", "families", models_part),
)


if __name__ == "__main__":
    sys.exit(main())

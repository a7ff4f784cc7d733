"""Reads PromQL and compares it with the metrics that the router registers."""

import re
from typing import NamedTuple, get_args

import promql_parser as promql
from prometheus_client import ProcessCollector

from scripts.write_reference import sample_registry
from smg.telemetry.labels import REJECTIONS
from smg.telemetry.metrics import Outcome
from smg.telemetry.worker_metrics import STATES

# What Prometheus and its operator put on every series that they scrape.
TARGET = frozenset(("instance", "job", "namespace", "pod", "service", "container", "endpoint"))
# Values of labels that have a fixed few.
VALUES = {"outcome": set(get_args(Outcome)), "state": set(STATES), "reason": set(REJECTIONS.values())}


class Series(NamedTuple):
    labels: frozenset[str]
    is_counter: bool


def registered():
    """Every series by its name, as it is scraped."""
    registry = sample_registry()
    ProcessCollector(registry=registry)
    found = {}
    for family in registry.collect():
        for sample in family.samples:
            known = found.get(sample.name, Series(frozenset(), False)).labels
            is_counter = family.type == "counter" or sample.name.endswith(("_bucket", "_sum", "_count"))
            found[sample.name] = Series(known | set(sample.labels), is_counter)
    return found


SERIES = registered()


def faults_of(query):
    """What is wrong with a query, in words; empty when nothing."""
    try:
        parsed = promql.parse(query)
    except ValueError as error:
        return [str(error)]
    return list(_faults(parsed, in_range=False))


def labels_of(query):
    """The labels of a query's result."""
    return _labels(promql.parse(query))


def names_of(query):
    """The series that a query reads."""
    return {each.name for each in _selectors(promql.parse(query))}


def _selectors(found):
    if isinstance(found, promql.VectorSelector):
        yield found
    for child in _children(found):
        yield from _selectors(child)


def _children(found):
    match found:
        case promql.MatrixSelector():
            return [found.vector_selector]
        case promql.Call():
            return list(found.args)
        case promql.BinaryExpr():
            return [found.lhs, found.rhs]
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr():
            return [found.expr]
        case promql.VectorSelector() | promql.NumberLiteral() | promql.StringLiteral():
            return []
    raise TypeError(f"not known here: {type(found)}")


def _faults(found, *, in_range):
    if isinstance(found, promql.VectorSelector):
        yield from _selector_faults(found, in_range=in_range)
    elif isinstance(found, promql.AggregateExpr) and found.modifier is not None:
        unknown = set(found.modifier.labels) - _labels(found.expr)
        yield from (f"no label {name} to aggregate by" for name in sorted(unknown))
    elif isinstance(found, promql.BinaryExpr) and found.modifier is not None and found.modifier.matching:
        for side in (found.lhs, found.rhs):
            unknown = set(found.modifier.matching.labels) - _labels(side)
            yield from (f"no label {name} to match on" for name in sorted(unknown))
    for child in _children(found):
        yield from _faults(child, in_range=isinstance(found, promql.MatrixSelector))


def _selector_faults(found, *, in_range):
    series = SERIES.get(found.name)
    if series is None:
        yield f"no metric {found.name}"
        return
    if series.is_counter != in_range:
        yield f"{found.name} is {'a counter and needs a rate' if series.is_counter else 'no counter'}"
    for matcher in found.matchers.matchers:
        if matcher.name not in series.labels | TARGET:
            yield f"{found.name} has no label {matcher.name}"
        elif matcher.name in VALUES and not matcher.value.startswith("."):
            unknown = set(re.split(r"\|", matcher.value)) - VALUES[matcher.name]
            yield from (f"{matcher.name} is never {value}" for value in sorted(unknown))


def _labels(found):
    match found:
        case promql.VectorSelector():
            return frozenset(SERIES[found.name].labels | TARGET) if found.name in SERIES else TARGET
        case promql.AggregateExpr():
            return frozenset(found.modifier.labels) if found.modifier else frozenset()
        case promql.Call() if found.func.name == "absent":
            return frozenset()
        case promql.Call() if found.func.name == "histogram_quantile":
            return _labels(found.args[1]) - {"le"}
        case promql.BinaryExpr():
            return _labels(found.lhs) or _labels(found.rhs)
    labels = [_labels(child) for child in _children(found)]
    return frozenset().union(*labels)

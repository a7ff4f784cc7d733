"""exposition: the text says what the client library's own says."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from smg.telemetry.exposition import exposition


class Source:
    """A registry whose counters do not tell when they were made, as ours do not."""

    def __init__(self, registry):
        self.registry = registry

    def collect(self):
        for metric in self.registry.collect():
            metric.samples = [each for each in metric.samples if not each.name.endswith("_created")]
            yield metric


def families(text):
    return [
        (
            family.name,
            family.type,
            family.documentation,
            [(each.name, each.labels) for each in family.samples],
        )
        for family in text_string_to_metric_families(text.decode())
    ]


def test_every_kind_of_metric_reads_as_the_library_writes_it():
    registry = CollectorRegistry()
    Counter("calls", 'with "quotes", a \\ and\na line', ["url", "kind"], registry=registry).labels(
        'a"b\\c\nd', "é"
    ).inc(3)
    Histogram("times", "seconds", ["a"], buckets=(0.5, 2), registry=registry).labels("x").observe(1)
    Info("build", "version", registry=registry).info({"version": "1"})
    Gauge("bare", "no labels", registry=registry).set(12345678)
    source = Source(registry)
    assert families(exposition(source)) == families(generate_latest(source))


@pytest.mark.parametrize("value", [0, 1, -1.5, 1e300, 1e-7, 2**53, math.inf, -math.inf])
def test_numbers_read_as_what_they_are(value):
    registry = CollectorRegistry()
    Gauge("g", "a number", registry=registry).set(value)
    (family,) = text_string_to_metric_families(exposition(registry).decode())
    assert family.samples[0].value == value


def test_what_is_no_number_is_told_as_such():
    registry = CollectorRegistry()
    Gauge("g", "a number", registry=registry).set(math.nan)
    assert exposition(registry).endswith(b"g NaN\n")

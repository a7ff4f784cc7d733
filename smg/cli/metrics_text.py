"""Reads what a gateway's /metrics says, for commands that look at a running one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Sample(NamedTuple):
    """One number.

    Attributes:
        name: with the ending that its kind has: `_total`, `_bucket`, …
        labels: by name.
        value: the number.
    """

    name: str
    labels: Mapping[str, str]
    value: float


class MetricsText:
    """All numbers of one look."""

    def __init__(self, text: str) -> None:
        """Read a text. Raises ValueError if it is none in Prometheus' format."""
        self._samples: dict[str, list[Sample]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found = Sample(sample.name, sample.labels, sample.value)
                self._samples.setdefault(sample.name, []).append(found)

    def samples(self, name: str, **labels: str) -> Iterator[Sample]:
        """The numbers of that name which have these labels, whatever others they have."""
        for sample in self._samples.get(name, ()):
            if all(sample.labels.get(label) == value for label, value in labels.items()):
                yield sample

    def total(self, name: str, **labels: str) -> float:
        """Their sum; 0 where there is none."""
        return sum(sample.value for sample in self.samples(name, **labels))

    def has(self, name: str) -> bool:
        """There is such a number."""
        return name in self._samples

    def quantile(self, name: str, share: float, **labels: str) -> float | None:
        """The bound of a histogram below which a share of its values lies; None without values.

        Args:
            name: without `_bucket`.
            share: 0 to 1.
            labels: of the histograms that count together.
        """
        counts: dict[float, float] = {}
        for sample in self.samples(f"{name}_bucket", **labels):
            bound = float(sample.labels["le"])
            counts[bound] = counts.get(bound, 0.0) + sample.value
        return quantile_of(counts, share)


def quantile_of(counts: Mapping[float, float], share: float) -> float | None:
    """The least bound that a share of the values does not exceed. Args: counts: by bound, cumulative."""
    total = counts.get(float("inf"), 0.0)
    if not total:
        return None
    return next(bound for bound in sorted(counts) if counts[bound] >= share * total)

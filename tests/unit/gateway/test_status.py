"""StatusHandlers: what probes are told, and when."""

import json
from types import SimpleNamespace

import pytest

from gateway.status import StatusHandlers

REQUEST = SimpleNamespace(context=SimpleNamespace(request_id="r-1"))


class Page:
    def start(self, status, headers):
        self.status, self.headers = status, dict(headers)

    def end(self, data):
        self.body = data


async def metrics():
    return b"smg_up 1\n"


def handlers(*ready, is_draining=False, is_prepared=True):
    workers = [SimpleNamespace(is_ready=each) for each in ready]
    registry = SimpleNamespace(workers=lambda: workers)
    return StatusHandlers(registry, lambda: is_draining, lambda: is_prepared, metrics)


async def page_of(handler):
    page = Page()
    await handler(REQUEST, page)
    assert page.headers[b"x-request-id"] == b"r-1"
    assert int(page.headers[b"content-length"]) == len(page.body)
    return page


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (handlers(), "insufficient healthy workers"),
        (handlers(False, False), "insufficient healthy workers"),
        (handlers(True, is_prepared=False), "tokenizers are being loaded"),
        (handlers(True, is_draining=True), "draining"),
        (handlers(True, is_draining=True, is_prepared=False), "draining"),
    ],
    ids=["none", "lost", "loading", "draining", "draining early"],
)
async def test_readiness_says_why_not(made, reason):
    page = await page_of(made.readiness)
    assert page.status == 503
    assert json.loads(page.body) == {"status": "not ready", "reason": reason}


async def test_readiness_counts_the_workers():
    page = await page_of(handlers(True, False, True).readiness)
    assert page.status == 200
    assert json.loads(page.body) == {"status": "ready", "healthy_workers": 2, "total_workers": 3}


async def test_a_draining_process_lives_and_is_not_healthy():
    made = handlers(True, is_draining=True)
    assert (await page_of(made.liveness)).status == 200
    assert (await page_of(made.health)).status == 503
    assert (await page_of(handlers().health)).body == b"OK"


async def test_metrics_are_text():
    page = await page_of(handlers().metrics)
    assert page.body == b"smg_up 1\n"
    assert page.headers[b"content-type"].startswith(b"text/plain; version=0.0.4")

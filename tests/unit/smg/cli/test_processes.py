"""Each of several router processes gets its part of the bounds, and ports of its own belong to the first."""

from __future__ import annotations

import pytest

from smg.cli.processes import share_of
from smg.cli.router_run import check_start
from smg.settings import RouterSettings


def settings(**sections) -> RouterSettings:
    return RouterSettings.model_validate(
        {
            "listener": {"processes": 3, "host": "127.0.0.1", "port": 0, "grpc_port": 0},
            "admission": {"max_concurrent_requests": 10, "queue_size": 7, "rate_limit_tokens_per_second": 0},
            "fleet": {"health_check_port": 1},
            "telemetry": {"prometheus_port": 2},
            **sections,
        }
    )


def test_bounds_are_divided_and_rounded_up_and_none_stays_none():
    part = share_of(settings(), 0).admission
    assert (part.max_concurrent_requests, part.queue_size, part.rate_limit_tokens_per_second) == (4, 3, 0)
    unbounded = share_of(settings(admission={"max_concurrent_requests": -1, "queue_size": 0}), 1).admission
    assert (unbounded.max_concurrent_requests, unbounded.queue_size) == (-1, 0)


def test_ports_of_its_own_are_opened_by_the_first_alone():
    first, second = (share_of(settings(), index) for index in (0, 1))
    assert (first.fleet.health_check_port, first.telemetry.prometheus_port) == (1, 2)
    assert (second.fleet.health_check_port, second.telemetry.prometheus_port) == (None, None)


def test_a_command_that_runs_one_router_refuses_several_processes(capsys):
    with pytest.raises(SystemExit):
        check_start("serve", settings(fleet={}, telemetry={}))
    assert "--processes 3: smg serve runs one router" in capsys.readouterr().err

"""A real Envoy that is told by a router where routers and engines are: deploy/envoy/eds.yaml."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import httpx
import pytest
import pytest_asyncio

from smg_proto.engine.v1 import card_pb2, engine_pb2_grpc
from smg_proto.xds.v1 import endpoint_pb2 as xds
from tests.conftest import EchoWorkers
from tests.integration.running_envoy import address, configuration, running_envoy
from tests.integration.running_mesh import Credentials, running_gateway
from tests.integration.running_router import outcome, running_router

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"
CLUSTER_TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
STREAM = "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"


class Envoy:
    """What a running Envoy says of its clusters, and clients of its two listeners."""

    def __init__(self, ports, stack):
        self.ports = ports
        self._admin = httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports['admin']}")
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports['http']}", timeout=30)
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{ports['engines']}")
        self.engines = engine_pb2_grpc.EngineServiceStub(self.channel)
        for each in (self._admin, self.client, self.channel):
            stack.push_async_exit(each)

    async def health(self, cluster):
        """Port and what was told of it, of every endpoint of a cluster."""
        found = (await self._admin.get("/clusters?format=json")).json()["cluster_statuses"]
        (wanted,) = [each for each in found if each["name"] == cluster]
        return {
            host["address"]["socket_address"]["port_value"]: host["health_status"]["eds_health_status"]
            for host in wanted.get("host_statuses", ())
        }

    async def told(self, cluster, **wanted):
        """Wait until Envoy knows just these endpoints: HEALTHY=[targets], …"""
        ports = {address(target)[1]: health for health, targets in wanted.items() for target in targets}
        while await self.health(cluster) != ports:  # noqa: ASYNC110 - a state of another process
            await asyncio.sleep(0.01)

    async def is_informed(self, wanted):
        """Wait until the stream to the control plane is there, or is not."""
        while True:
            text = (await self._admin.get("/stats?filter=cluster.gateway.control_plane.connected_state")).text
            if text.strip().endswith(str(int(wanted))):
                return
            await asyncio.sleep(0.01)

    async def gateways(self):
        """Engines of the gateways that some requests reach; routing is round robin."""
        answers = [await self.client.get("/workers") for _ in range(8)]
        return {answer.json()["workers"][0]["url"] for answer in answers}

    async def engines_reached(self, **metadata):
        """Instance ids of the engines that some calls reach."""
        keys = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
        answers = [
            await self.engines.Describe(card_pb2.DescribeRequest(), metadata=keys, timeout=20)
            for _ in range(24)
        ]
        return {answer.instance_id for answer in answers}


@asynccontextmanager
async def envoy_before(control, folder):
    """An Envoy that asks this router."""
    # A cluster of which nobody is told is not waited for.
    fast = {"initial_fetch_timeout: 3s": "initial_fetch_timeout: 0.5s"}
    found = configuration("eds.yaml", {"endpoints": [address(control.target)]}, fast)
    async with AsyncExitStack() as stack:
        yield Envoy(await stack.enter_async_context(running_envoy(found, folder)), stack)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(tokenizer_dir):
    workers = EchoWorkers(tokenizer_dir)
    yield workers
    await workers.stop_all()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines(workers):
    return [await workers(step_seconds=0.01), await workers(step_seconds=0.01)]


@asynccontextmanager
async def running_control(engines, gateways, **settings):
    """A router that tells of these gateways and engines."""
    routers = [f"grpc://{gateway.target}" for gateway in gateways]
    mesh = {"endpoint_discovery": True, "endpoint_routers": routers}
    async with running_router(*engines, mesh=mesh, **settings) as control:
        yield control


def port_of(gateway):
    return {"grpc_port": address(gateway.target)[1]}


async def test_a_gateway_that_leaves_is_left_and_one_that_comes_is_used(engines, tmp_path):
    first_engine, second_engine = engines
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        first = await enter(running_router(first_engine))
        async with AsyncExitStack() as life:
            second = await life.enter_async_context(running_router(second_engine, shutdown_delay_secs=0.5))
            control = await enter(running_control(engines, [first, second]))
            envoy = await enter(envoy_before(control, tmp_path))
            await envoy.told("gateway", HEALTHY=[first.target, second.target])
            assert await envoy.gateways() == set(engines)
            streams = [
                await stack.enter_async_context(
                    envoy.client.stream(
                        "POST",
                        CHAT,
                        json={
                            "model": "m",
                            "stream": True,
                            "messages": [{"role": "user", "content": "[[len:80]]"}],
                        },
                    )
                )
                for _ in range(2)
            ]
            second.stop.set()
            await envoy.told("gateway", HEALTHY=[first.target], DRAINING=[second.target])
            assert await envoy.gateways() == {first_engine}
            for stream in streams:
                events = [line async for line in stream.aiter_lines() if line]
                assert events[-1] == "data: [DONE]"
                assert json.loads(events[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "stop"
        await envoy.told("gateway", HEALTHY=[first.target], UNHEALTHY=[second.target])
        await enter(running_router(second_engine, **port_of(second)))
        await envoy.told("gateway", HEALTHY=[first.target, second.target])
        assert await envoy.gateways() == set(engines)


async def test_without_anybody_to_ask_nothing_changes(engines, tmp_path):
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        gateways = [await enter(running_router(engine)) for engine in engines]
        targets = [gateway.target for gateway in gateways]
        async with AsyncExitStack() as life:
            control = await life.enter_async_context(running_control(engines, gateways))
            envoy = await enter(envoy_before(control, tmp_path))
            await envoy.told("gateway", HEALTHY=targets)
            await envoy.told("engines", HEALTHY=[engine.removeprefix("grpc://") for engine in engines])
        await envoy.is_informed(False)
        await envoy.told("gateway", HEALTHY=targets)
        assert await envoy.gateways() == set(engines)
        assert len(await envoy.engines_reached()) == 2
        # Its successor knows nothing at first, and says nothing of that.
        async with running_control([], gateways, **port_of(control)) as successor:
            await envoy.is_informed(True)
            await envoy.told("gateway", HEALTHY=targets)
            await envoy.told("engines", HEALTHY=[engine.removeprefix("grpc://") for engine in engines])
            successor.router.registry.add(engines[0])
            await envoy.told("engines", HEALTHY=[engines[0].removeprefix("grpc://")])


async def test_engines_come_and_go_as_the_router_knows_them(workers, engines, tmp_path):
    targets = [engine.removeprefix("grpc://") for engine in engines]
    async with running_control(engines, []) as control, envoy_before(control, tmp_path) as envoy:
        await envoy.told("engines", HEALTHY=targets)
        both = await envoy.engines_reached()
        assert len(both) == 2
        third = await workers()
        added = await control.http.post("/workers", json={"url": third})
        await envoy.told("engines", HEALTHY=[*targets, third.removeprefix("grpc://")])
        assert len(await envoy.engines_reached()) == 3
        (pinned,) = await envoy.engines_reached(x_smg_worker=third.removeprefix("grpc://"))
        assert pinned not in both
        path = f"/workers/{added.json()['worker_id']}"
        await control.http.put(path, json={"draining": True})
        await envoy.told("engines", HEALTHY=targets, DRAINING=[third.removeprefix("grpc://")])
        assert await envoy.engines_reached() == both
        await control.http.delete(path)
        await envoy.told("engines", HEALTHY=targets)
        await workers.stop(third)


class Asked:
    """A stream of questions to a router, as Envoy would ask them."""

    def __init__(self, channel, *, metadata=()):
        self.call = channel.stream_stream(
            STREAM, xds.DiscoveryRequest.SerializeToString, xds.DiscoveryResponse.FromString
        )(metadata=metadata)

    async def ask(self, *names, **fields):
        await self.call.write(
            xds.DiscoveryRequest(resource_names=names, **{"type_url": CLUSTER_TYPE, **fields})
        )

    async def clusters(self):
        """The next answer: health by port, by name; with its nonce."""
        answer = await self.call.read()
        assert answer is not grpc.aio.EOF
        found = {}
        for resource in answer.resources:
            assert resource.type_url == answer.type_url == CLUSTER_TYPE
            cluster = xds.ClusterLoadAssignment.FromString(resource.value)
            found[cluster.cluster_name] = {
                each.endpoint.address.socket_address.port_value: each.health_status
                for each in cluster.endpoints[0].lb_endpoints
            }
        return found, answer.nonce


async def test_each_stream_is_told_what_it_asks_for_and_only_what_changes(engines):
    ports = [int(engine.rpartition(":")[2]) for engine in engines]
    everybody = dict.fromkeys(ports, xds.HEALTH_STATUS_HEALTHY)
    async with running_control(engines, []) as control:
        asked = Asked(control.channel)
        await asked.ask("smg-engines", "smg-engines/m", "smg-engines/none", "other")
        found, nonce = await asked.clusters()
        assert found == {"smg-engines": everybody, "smg-engines/m": everybody}
        # A refusal is no reason to say it again, nor is a question with the same names.
        await asked.ask(
            "smg-engines",
            "smg-engines/m",
            response_nonce=nonce,
            error_detail=xds.Fault(code=3, message="no"),
        )
        await asked.ask("smg-engines")
        (worker, _) = control.router.registry.workers()
        control.router.registry.drain(worker.id, is_draining=True)
        found, second_nonce = await asked.clusters()
        assert found == {"smg-engines": {**everybody, ports[0]: xds.HEALTH_STATUS_DRAINING}}
        assert second_nonce != nonce
        await asked.ask("smg-engines/m")
        found, _ = await asked.clusters()
        assert found == {"smg-engines/m": {**everybody, ports[0]: xds.HEALTH_STATUS_DRAINING}}
        await asked.call.done_writing()
        assert await asked.call.read() is grpc.aio.EOF
        assert await asked.call.code() == grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("fields", "names", "text"),
    [
        ({"type_url": "type.googleapis.com/envoy.config.cluster.v3.Cluster"}, (), "type_url"),
        ({}, ("x",) * 1001, "1001 resource_names"),
    ],
    ids=["type", "names"],
)
async def test_what_cannot_be_answered_is_refused(engines, fields, names, text):
    async with running_control(engines, []) as control:
        asked = Asked(control.channel)
        await asked.ask(*names, **fields)
        code, message, _ = await outcome(asked.call)
        assert code == "INVALID_ARGUMENT"
        assert text in message


async def test_only_so_many_are_told_and_only_those_who_may_know(engines):
    mesh = {"endpoint_discovery": True, "endpoint_streams": 1}
    async with running_router(*engines, mesh=mesh, callers={"api_key": "secret"}) as control:
        assert (await outcome(Asked(control.channel).call))[0] == "UNAUTHENTICATED"
        key = (("authorization", "Bearer secret"),)
        first = Asked(control.channel, metadata=key)
        await first.ask("smg-engines")
        await first.clusters()
        assert (await outcome(Asked(control.channel, metadata=key).call))[0] == "RESOURCE_EXHAUSTED"
        first.call.cancel()


async def test_nobody_is_told_who_has_not_wanted_it(engines):
    async with running_router(*engines) as gateway:
        assert (await outcome(Asked(gateway.channel).call))[0] == "UNIMPLEMENTED"


async def test_a_router_that_stops_lets_envoys_go_at_once(engines):
    """A stream without an end would use up the grace period, which here is longer than the test."""
    async with running_control(engines, [], shutdown_grace_period_secs=600) as control:
        asked = Asked(control.channel)
        await asked.ask("smg-engines")
        await asked.clusters()
        control.stop.set()
        assert await asked.call.read() is grpc.aio.EOF


async def health_told(control, name, wanted):
    """Wait until a stream is told this of a cluster: health by port."""
    asked = Asked(control.channel)
    await asked.ask(name)
    while (await asked.clusters())[0] != {name: wanted}:
        pass
    asked.call.cancel()


async def test_routers_are_asked_over_tls_where_their_addresses_say_so(engines, tmp_path):
    credentials = Credentials(tmp_path)
    async with running_gateway(credentials, engines[0]) as gateway:
        port = address(gateway.target)[1]
        mesh = {"endpoint_discovery": True, "endpoint_routers": [f"grpcs://127.0.0.1:{port}"]}
        shown = {"client_cert_path": credentials.edge.certificate, "client_key_path": credentials.edge.key}
        trusting = {"ca_cert_paths": (credentials.authority.path,)}
        async with running_router(mesh=mesh, client_tls={**trusting, **shown}) as control:
            await health_told(control, "smg-routers", {port: xds.HEALTH_STATUS_HEALTHY})
        # Who shows nothing is not let in; so it sees nobody, and says that it does not know.
        async with running_router(mesh=mesh, client_tls=trusting) as control:
            await health_told(control, "smg-routers", {port: xds.HEALTH_STATUS_UNSPECIFIED})


async def test_every_address_of_a_name_is_a_router(engines):
    async with running_router(engines[0]) as gateway:
        port = address(gateway.target)[1]
        mesh = {
            "endpoint_discovery": True,
            "endpoint_routers": [f"grpc://localhost:{port}", "grpc://no.invalid:1"],
        }
        async with running_router(mesh=mesh) as control:
            asked = Asked(control.channel)
            await asked.ask("smg-routers")
            is_told = False
            while not is_told:
                answer = await asked.call.read()
                cluster = xds.ClusterLoadAssignment.FromString(answer.resources[0].value)
                told = {
                    (each.endpoint.address.socket_address.address, each.health_status)
                    for each in cluster.endpoints[0].lb_endpoints
                }
                is_told = ("127.0.0.1", xds.HEALTH_STATUS_HEALTHY) in told
            asked.call.cancel()

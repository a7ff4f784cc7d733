"""ModelService: what workers serve, each model once, by id or alias."""

from smg_proto.model.v1 import model_pb2
from tests.unit.smg.services.grpc_router import refusal, router


async def test_a_model_of_several_workers_is_listed_once():
    async with router(workers=3) as gateway:
        [model] = (await gateway.models.ListModels(model_pb2.ListModelsRequest())).models
        assert (model.id, model.owned_by, model.context_length) == ("m", "self_hosted", 4096)
        assert list(model.capabilities) == ["generate", "score"]


async def test_the_workers_that_are_ready_now_are_counted():
    async with router(workers=3) as gateway:
        gateway.opened["worker-2"].set_up(False)
        model = (await gateway.models.GetModel(model_pb2.GetModelRequest(id="m"))).model
        assert model.ready_workers == 2


async def test_an_alias_stands_for_its_model():
    async with router(aliases={"gpt": "m"}) as gateway:
        assert (await gateway.models.GetModel(model_pb2.GetModelRequest(id="gpt"))).model.id == "m"


async def test_a_model_without_a_ready_worker_is_not_served():
    async with router() as gateway:
        gateway.opened["worker-1"].set_up(False)
        assert (await refusal(gateway.models.ListModels(model_pb2.ListModelsRequest())))[0] == "UNAVAILABLE"
        assert (await refusal(gateway.models.GetModel(model_pb2.GetModelRequest(id="m"))))[0] == "NOT_FOUND"


async def test_an_unknown_model_is_not_found():
    async with router() as gateway:
        code, message, detail = await refusal(gateway.models.GetModel(model_pb2.GetModelRequest(id="gpt-9")))
        assert (code, detail.code, detail.http_status) == ("NOT_FOUND", "model_not_found", 404)
        assert "'gpt-9'" in message


async def test_an_empty_id_is_refused():
    async with router() as gateway:
        code, _, detail = await refusal(gateway.models.GetModel(model_pb2.GetModelRequest()))
        assert (code, detail.param) == ("INVALID_ARGUMENT", "id")


async def test_no_models_at_all_is_unavailable():
    async with router(workers=0) as gateway:
        code, _, detail = await refusal(gateway.models.ListModels(model_pb2.ListModelsRequest()))
        assert (code, detail.http_status) == ("UNAVAILABLE", 503)

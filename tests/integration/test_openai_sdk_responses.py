"""The official OpenAI SDK and its agents against /v1/responses: what their users do works."""

import json

import openai
import pytest
import pytest_asyncio
from agents import Agent, ModelSettings, Runner, function_tool, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from agents.models.openai_responses import OpenAIResponsesModel
from pydantic import BaseModel

from tests.conftest import EchoWorkers
from tests.integration.running_mcp import running_mcp
from tests.integration.sdk_doors import DOORS

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALL = '[[tool:get_weather:{"city": "Paris"}]]'
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class City(BaseModel):
    name: str
    people: int


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DOORS)
async def client(request, tokenizer_dir, tmp_path_factory):
    """The SDK, at one door after the other."""
    workers = EchoWorkers(tokenizer_dir)
    async with DOORS[request.param](await workers(), tmp_path_factory.mktemp("door")) as client:
        yield client
    await workers.stop_all()


async def test_create_chain_retrieve_and_delete(client):
    first = await client.responses.create(model="m", input="[[say:Hello]]", instructions="Be brief.")
    assert (first.output_text, first.status) == ("Hello", "completed")
    second = await client.responses.create(
        model="m", input="[[say:Again]]", previous_response_id=first.id, metadata={"k": "v"}
    )
    assert second.metadata == {"k": "v"}
    found = await client.responses.retrieve(second.id)
    assert (found.output_text, found.previous_response_id) == ("Again", first.id)
    items = await client.responses.input_items.list(second.id)
    assert items.data[0].content[0].text == "[[say:Again]]"
    await client.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(second.id)
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model="m", input="x", previous_response_id=second.id)
    assert caught.value.code == "previous_response_not_found"


async def test_the_stream_helper_follows_text_and_calls(client):
    given = f"[[say:Let me see. ]]{CALL}"
    async with client.responses.stream(model="m", input=given, tools=[WEATHER]) as stream:
        texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    (call,) = [item for item in final.output if item.type == "function_call"]
    assert "".join(texts) == final.output_text == "Let me see. "
    assert (call.name, call.parsed_arguments) == ("get_weather", {"city": "Paris"})
    answered = await client.responses.create(
        model="m",
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "18°C"}],
        previous_response_id=final.id,
        tools=[WEATHER],
    )
    assert answered.status == "completed"


async def test_parse_gives_the_callers_own_type(client):
    given = '[[say:{"name": "Bern", "people": 134000}]]'
    parsed = await client.responses.parse(model="m", input=given, text_format=City)
    assert parsed.output_parsed == City(name="Bern", people=134000)


async def test_conversations_hold_the_turns(client):
    conversation = await client.conversations.create(metadata={"topic": "demo"})
    for text in ("A", "B"):
        await client.responses.create(model="m", input=f"[[say:{text}]]", conversation=conversation.id)
    page = await client.conversations.items.list(conversation.id, limit=3, order="asc")
    said = [item.content[0].text async for item in page]
    assert said == ["[[say:A]]", "A", "[[say:B]]", "B"]


async def test_an_agent_with_a_tool_of_its_own_and_one_of_a_server(client):
    set_tracing_disabled(disabled=True)
    asked = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather."""
        asked.append(city)
        return "18 degrees"

    given = f'{CALL}[[next]][[tool:add:{{"a": 2, "b": 3}}]][[next]][[say:All done]]'
    async with (
        running_mcp() as mcp,
        MCPServerStreamableHttp(params={"url": mcp.url}) as server,
    ):
        agent = Agent(
            name="helper",
            model=OpenAIResponsesModel("m", client),
            tools=[get_weather],
            mcp_servers=[server],
            model_settings=ModelSettings(store=False),
        )
        result = await Runner.run(agent, given)
        streamed = Runner.run_streamed(agent, given)
        kinds = [event.type async for event in streamed.stream_events()]
    assert result.final_output == streamed.final_output == "All done"
    assert asked == ["Paris", "Paris"]
    assert mcp.calls == [("add", 2, 3)] * 2
    assert "raw_response_event" in kinds
    assert json.dumps(result.to_input_list())

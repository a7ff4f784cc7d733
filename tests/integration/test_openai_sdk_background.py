"""The official OpenAI SDK where the gateway works on by itself: in the background, and with tools of servers."""

import openai
import pytest
from agents import Agent, HostedMCPTool, Runner, set_tracing_disabled
from agents.models.openai_responses import OpenAIResponsesModel

from tests.integration.running_mcp import running_mcp
from tests.integration.running_router import running_router


async def test_a_stream_in_the_background_is_resumed_where_it_was_left(echo_worker):
    history = {"max_background_responses": 1}
    async with running_router(await echo_worker(), history=history) as gateway:
        base_url = f"http://127.0.0.1:{gateway.addresses.port}/v1"
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none") as client:
            stream = await client.responses.create(
                model="m", input="[[len:20]][[delay:2]]", stream=True, background=True
            )
            seen = []
            async for event in stream:
                seen.append(event)
                if len(seen) == 6:
                    break
            await stream.close()
            response_id = seen[0].response.id
            rest = await client.responses.retrieve(response_id, stream=True, starting_after=5)
            seen += [event async for event in rest]
            found = await client.responses.retrieve(response_id)
            with pytest.raises(openai.BadRequestError) as caught:
                await client.responses.cancel(response_id)
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    texts = [event.delta for event in seen if event.type == "response.output_text.delta"]
    assert "".join(texts) == found.output_text == seen[-1].response.output_text
    assert (found.status, found.background) == ("completed", True)
    assert caught.value.code == "response_already_completed"


async def test_an_agent_leaves_the_calls_of_a_server_to_the_gateway(echo_worker):
    set_tracing_disabled(disabled=True)
    given = '[[tool:add:{"a": 2, "b": 3}]][[next]][[tool:look_up:{"key": "k"}]][[next]][[say:All done]]'
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        base_url = f"http://127.0.0.1:{gateway.addresses.port}/v1"
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none") as client:
            tool = {
                "type": "mcp",
                "server_label": "calc",
                "server_url": mcp.url,
                "require_approval": "never",
            }
            agent = Agent(
                name="helper",
                model=OpenAIResponsesModel("m", client),
                tools=[HostedMCPTool(tool_config=tool)],
            )
            result = await Runner.run(agent, given)
    assert result.final_output == "All done"
    assert mcp.calls == [("add", 2, 3), ("look_up", "k")]
    (raw,) = result.raw_responses
    assert [item.output for item in raw.output if item.type == "mcp_call"] == ["5", "value of k"]

"""An agent of openai-agents whose model is behind the gateway. Needs `pip install openai-agents`.

python examples/agents_sdk.py [BASE_URL] [QUESTION]
"""

from __future__ import annotations

import asyncio
import sys

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    print(f"get_weather({city!r})")
    return f"18°C and sunny in {city}"


async def ask(base_url: str, question: str) -> None:
    """Let the agent answer, with its tool where it wants that."""
    # Its traces would go to OpenAI.
    set_tracing_disabled(disabled=True)
    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:
        name = (await client.models.list()).data[0].id
        model = OpenAIResponsesModel(model=name, openai_client=client)
        agent = Agent(name="Assistant", instructions="Answer briefly.", model=model, tools=[get_weather])
        result = await Runner.run(agent, question, max_turns=4)
    print(result.final_output)


def main() -> None:
    """Ask once."""
    base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000/v1"
    question = sys.argv[2] if len(sys.argv) > 2 else "What is the weather in Paris?"
    asyncio.run(ask(base_url, question))


if __name__ == "__main__":
    main()

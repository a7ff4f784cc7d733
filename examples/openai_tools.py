"""A function that the model calls, with the OpenAI SDK. Needs `pip install openai`.

python examples/openai_tools.py [BASE_URL] [QUESTION]

`tool_choice="required"` holds the model to a call: even a very small one writes arguments of the right form.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from openai import OpenAI

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def get_weather(city: str) -> str:
    """What the model asks for. A real one would look."""
    return f"18°C and sunny in {city}"


def main() -> None:
    """Ask, carry out the calls, and let the model answer."""
    base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000/v1"
    question = sys.argv[2] if len(sys.argv) > 2 else "What is the weather in Paris?"
    client = OpenAI(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]

    first = client.chat.completions.create(
        model=model,
        messages=messages,
        tools=[WEATHER],
        tool_choice="required",
        temperature=0,
        max_tokens=128,
    )
    calls = [call for call in first.choices[0].message.tool_calls or () if call.type == "function"]
    messages.append(
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in calls
            ],
        }
    )
    for call in calls:
        result = get_weather(**json.loads(call.function.arguments))
        print(f"{call.function.name}({call.function.arguments}) = {result}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    second = client.chat.completions.create(
        model=model, messages=messages, tools=[WEATHER], tool_choice="none", temperature=0, max_tokens=64
    )
    print(second.choices[0].message.content)


if __name__ == "__main__":
    main()

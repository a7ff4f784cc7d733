"""The Responses API with the OpenAI SDK: the gateway remembers the turns. Needs `pip install openai`.

python examples/openai_responses.py [BASE_URL] [QUESTION] [NEXT_QUESTION]
"""

from __future__ import annotations

import sys

from openai import OpenAI


def main() -> None:
    """Ask, and ask on."""
    base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000/v1"
    question = sys.argv[2] if len(sys.argv) > 2 else "What is the capital of France?"
    next_question = sys.argv[3] if len(sys.argv) > 3 else "And of Italy?"
    client = OpenAI(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id

    first = client.responses.create(model=model, input=question, temperature=0, max_output_tokens=64)
    print(first.output_text)

    # The id is enough: the turns before are the gateway's to know.
    with client.responses.stream(
        model=model,
        input=next_question,
        previous_response_id=first.id,
        temperature=0,
        max_output_tokens=64,
    ) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
    print()

    kept = client.responses.retrieve(first.id)
    print(f"({kept.id} is kept, {kept.status})")
    client.responses.delete(first.id)


if __name__ == "__main__":
    main()

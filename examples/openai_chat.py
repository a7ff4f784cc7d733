"""The OpenAI SDK against the gateway: a chat, whole and as a stream. Needs `pip install openai`.

python examples/openai_chat.py [BASE_URL] [QUESTION]
"""

from __future__ import annotations

import sys

from openai import OpenAI


def main() -> None:
    """Ask twice."""
    base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000/v1"
    question = sys.argv[2] if len(sys.argv) > 2 else "What is the capital of France?"
    # With --api-key or --tenant-api-key: that key. Without, any text will do, but the SDK wants one.
    client = OpenAI(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id

    whole = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], temperature=0, max_tokens=64
    )
    print(whole.choices[0].message.content)
    if whole.usage:
        print(f"({whole.usage.prompt_tokens} + {whole.usage.completion_tokens} tokens)")

    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        temperature=0,
        max_tokens=64,
        stream=True,
    )
    for chunk in stream:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()

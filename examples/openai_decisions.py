"""Typed questions about a text, with probabilities, with the OpenAI SDK. Needs `pip install openai`.

python examples/openai_decisions.py [BASE_URL] [TEXT]

Nothing is generated: the answers are read from the model's scores (docs/decisions.md).
"""

from __future__ import annotations

import sys

from openai import OpenAI


def main() -> None:
    """Ask three questions about one text."""
    base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000/v1"
    text = sys.argv[2] if len(sys.argv) > 2 else "I was charged twice for March. Please refund me today."
    client = OpenAI(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id

    decision = client.decisions.create(
        model=model,
        input=text,
        questions=[
            {"type": "predicate", "name": "refund", "instructions": "The customer asks for money back."},
            {
                "type": "choice",
                "name": "team",
                "instructions": "Who should answer?",
                "choices": [{"value": "billing"}, {"value": "technical"}, {"value": "sales"}],
            },
            {
                "type": "score",
                "name": "anger",
                "instructions": "How angry is the customer?",
                "levels": [{"label": "calm"}, {"label": "frustrated"}, {"label": "very angry"}],
            },
        ],
    )
    for answer in decision.answers:
        if answer.type == "predicate":
            print(f"{answer.name}: {answer.probability:.2f}")
        elif answer.type == "choice":
            print(f"{answer.name}: {answer.choice}")
        elif answer.type == "score":
            print(f"{answer.name}: {answer.score:.2f}")


if __name__ == "__main__":
    main()

"""A typed gRPC chat: whole, then as a stream. Needs grpcio and the package smg_proto (both come with smg).

python examples/grpc_client.py [HOST:PORT] [QUESTION]
"""

from __future__ import annotations

import sys

import grpc

from smg_proto.chat.v1 import chat_pb2, chat_pb2_grpc
from smg_proto.model.v1 import model_pb2, model_pb2_grpc


def first_model(channel: grpc.Channel) -> str:
    """Id of the first model that is served."""
    answer = model_pb2_grpc.ModelServiceStub(channel).ListModels(model_pb2.ListModelsRequest())
    return answer.models[0].id


def question(model: str, text: str) -> chat_pb2.ChatRequest:
    """A conversation of one turn; temperature 0 makes the answer repeatable."""
    request = chat_pb2.ChatRequest(model=model)
    request.messages.add(role="user", text=text)
    request.sampling.temperature = 0
    request.sampling.max_completion_tokens = 64
    return request


def main() -> int:
    """Ask twice. Returns the exit status."""
    target = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:30001"
    text = sys.argv[2] if len(sys.argv) > 2 else "What is the capital of France?"
    # With an API key: metadata=[("authorization", "Bearer YOUR_KEY")] on each call.
    with grpc.insecure_channel(target) as channel:
        try:
            chat = chat_pb2_grpc.ChatServiceStub(channel)
            request = question(first_model(channel), text)

            whole = chat.CreateChatCompletion(chat_pb2.CreateChatCompletionRequest(chat=request))
            print(whole.completion.choices[0].message.content)
            print(f"({whole.completion.usage.completion_tokens} tokens)")

            for answer in chat.StreamChatCompletion(chat_pb2.StreamChatCompletionRequest(chat=request)):
                for choice in answer.chunk.choices:
                    print(choice.delta.content, end="", flush=True)
            print()
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

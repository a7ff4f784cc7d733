#!/usr/bin/env bash
# The typed gRPC API with grpcurl, which learns the messages from the gateway's reflection.
#
#   examples/grpcurl.sh [HOST:PORT] [QUESTION]
#
# With an API key, each call wants: -H 'authorization: Bearer KEY'.
set -euo pipefail
target=${1:-127.0.0.1:30001}
question=${2:-What is the capital of France?}

echo "services:"
grpcurl -plaintext "$target" list

echo "models:"
models=$(grpcurl -plaintext -d '{}' "$target" smg.model.v1.ModelService/ListModels)
echo "$models"
model=$(sed -n 's/^ *"id": "\([^"]*\)".*/\1/p' <<<"$models" | head -n 1)

echo "a chat:"
grpcurl -plaintext -d @ "$target" smg.chat.v1.ChatService/CreateChatCompletion <<JSON
{"chat": {"model": "$model", "messages": [{"role": "user", "text": "$question"}],
          "sampling": {"temperature": 0, "maxCompletionTokens": 64}}}
JSON

echo "the same as a stream:"
grpcurl -plaintext -d @ "$target" smg.chat.v1.ChatService/StreamChatCompletion <<JSON
{"chat": {"model": "$model", "messages": [{"role": "user", "text": "$question"}],
          "sampling": {"temperature": 0, "maxCompletionTokens": 8}}}
JSON

echo "a decision:"
grpcurl -plaintext -d @ "$target" smg.decision.v1.DecisionService/Decide <<JSON
{"model": "$model", "states": [{
   "content": {"text": "I was charged twice. Please refund me today."},
   "questions": [{"id": "refund", "type": "QUESTION_TYPE_NOUL",
                  "instructions": {"text": "Is the customer asking for money back?"}}]}]}
JSON

"""Turns chats and texts into token ids, and token ids back into text: pure code, no network, no protobuf."""

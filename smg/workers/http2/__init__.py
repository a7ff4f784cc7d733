"""A small HTTP/2 client for gRPC calls that push: many streams on one connection, and no task for any of them.

grpc.aio costs a coroutine switch and a round through its completion queue per message; here one read of the socket
serves every stream that has something (docs/adr/0003-sglang-protocol-cost.md). What it leaves out: proxies,
compression, server push, and calls whose client sends more than one message.
"""

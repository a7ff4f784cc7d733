#!/usr/bin/env python3
"""Stands in for grpcurl where that is not installed: like it, it knows nothing but what the server's reflection tells.

grpcurl -plaintext [-d JSON|@] TARGET list|SERVICE/METHOD
"""

import sys

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


def main(words):
    assert words.pop(0) == "-plaintext"
    data = ""
    if words[0] == "-d":
        data = words[1] if words[1] != "@" else sys.stdin.read()
        del words[:2]
    target, what = words
    with grpc.insecure_channel(target) as channel:
        reflection = ProtoReflectionDescriptorDatabase(channel)
        if what == "list":
            print("\n".join(sorted(reflection.get_services())))
            return
        service, name = what.split("/")
        method = DescriptorPool(reflection).FindServiceByName(service).FindMethodByName(name)
        request = json_format.Parse(data, message_factory.GetMessageClass(method.input_type)())
        call = channel.unary_stream if method.server_streaming else channel.unary_unary
        answer = call(
            f"/{service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
        )(request)
        for each in answer if method.server_streaming else [answer]:
            print(json_format.MessageToJson(each, descriptor_pool=DescriptorPool(reflection)))


if __name__ == "__main__":
    main(sys.argv[1:])

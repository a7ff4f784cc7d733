"""METHODS: no method of the services can be forgotten, and so be open to everybody by mistake."""

import pytest

from smg.services.methods import (
    ADMIN_SERVICE,
    CHAT_SERVICE,
    CONVERSATIONS_SERVICE,
    DECISION_SERVICE,
    EMBEDDING_SERVICE,
    ENDPOINT_SERVICE,
    METHODS,
    MODEL_SERVICE,
    RESPONSES_SERVICE,
    ROUTES,
)
from smg_proto.admin.v1 import admin_pb2
from smg_proto.chat.v1 import chat_pb2
from smg_proto.decision.v1 import decision_pb2
from smg_proto.embedding.v1 import embedding_pb2
from smg_proto.model.v1 import model_pb2
from smg_proto.responses.v1 import conversations_pb2, responses_pb2

FILES = {
    CHAT_SERVICE: chat_pb2,
    DECISION_SERVICE: decision_pb2,
    EMBEDDING_SERVICE: embedding_pb2,
    MODEL_SERVICE: model_pb2,
    ADMIN_SERVICE: admin_pb2,
    CONVERSATIONS_SERVICE: conversations_pb2,
    RESPONSES_SERVICE: responses_pb2,
}


def test_the_table_has_the_methods_of_the_protocol_and_no_others():
    declared = {
        f"/{service.full_name}/{method.name}"
        for file in FILES.values()
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    # One is Envoy's.
    assert set(METHODS) == declared | {f"/{ENDPOINT_SERVICE}/StreamEndpoints"}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_is_open_only_where_http_is(name):
    is_open = MODEL_SERVICE in name or name.endswith("/ListDecisionModels")
    is_operators = ADMIN_SERVICE in name or ENDPOINT_SERVICE in name
    expected = "admin" if is_operators else "open" if is_open else "serving"
    assert METHODS[name].access == expected


@pytest.mark.parametrize("name", sorted(METHODS))
def test_only_methods_that_list_or_get_are_looks(name):
    if METHODS[name].is_read:
        assert name.rpartition("/")[2].startswith(("List", "Get", "StreamEndpoints"))


def test_routes_are_the_names_that_are_counted():
    assert {method.route for method in METHODS.values()} == set(ROUTES)

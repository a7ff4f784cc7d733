"""RequestContext: whose id an answer carries."""

from smg.types.context import RequestContext, new_id


def test_new_ids_differ_and_have_openais_form():
    assert new_id("chatcmpl") != new_id("chatcmpl")
    assert len(new_id("x").removeprefix("x-")) == 24


def test_the_requests_own_rid_is_the_answers_id():
    assert RequestContext("r", is_client_id=True).answer_id("mine") == "mine"


def test_a_clients_id_is_part_of_the_answers_and_each_answer_has_its_own():
    context = RequestContext("theirs", is_client_id=True, id_prefix="chatcmpl")
    assert context.answer_id().startswith("theirs-")
    assert context.answer_id() != context.answer_id()


def test_else_the_answers_id_has_the_routes_prefix():
    assert RequestContext("x-1", id_prefix="chatcmpl").answer_id().startswith("chatcmpl-")

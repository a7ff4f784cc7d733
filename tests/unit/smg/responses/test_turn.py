"""Turn and Output: however a turn's pieces are cut, the events rebuild exactly the items, each closed once."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from smg.parsers.events import CallArguments, CallBroken, CallEnd, CallStart, Content, Reasoning
from smg.responses.bodies import streamed_item
from smg.responses.events import EventStream
from smg.responses.output import Output
from smg.responses.reasoning import unsealed
from smg.responses.tools import Origin, Toolbox, client_tools
from smg.responses.turn import Turn
from tests.unit.smg.responses.replaying import replayed

TOOLS = [
    {"type": "function", "name": "f"},
    {"type": "custom", "name": "c"},
    {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}]},
]


class Remembering:
    def __init__(self):
        self.events = []

    def event(self, kind, number, data):
        self.events.append((kind, data))

    def flush(self):
        pass

    def is_behind(self, go_on):
        return False


def toolbox():
    box = client_tools(TOOLS)
    box.add({"name": "m", "parameters": {}}, Origin("server", "m", server_label="s", item_type="mcp_call"))
    return box


def run(pieces, *, stream=True, as_fragments=False, encrypted=False, **end):
    outlet = Remembering()
    output = Output(toolbox(), EventStream(outlet) if stream else None, with_encrypted=encrypted)
    turn = Turn(output)
    for piece in pieces:
        if as_fragments and isinstance(piece, Content):
            turn.fragment(orjson.dumps(piece.text)[1:-1])
        elif as_fragments and isinstance(piece, Reasoning):
            turn.reasoning_fragment(orjson.dumps(piece.text)[1:-1])
        else:
            turn.add([piece])
    turn.end(**end)
    return output, turn, outlet.events


def kinds(events):
    return [kind.removeprefix("response.") for kind, _ in events]


def shape(items):
    """The items without their ids."""
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in items]


texts = st.text('aé"\\\n 世🙂\u2028\x00', min_size=1, max_size=6)


@st.composite
def turns(draw):
    """Pieces as parsers give them out: reasoning, content and calls, each call's pieces together."""
    pieces = [Reasoning(text) for text in draw(st.lists(texts, max_size=3))]
    number = 0
    for kind in draw(st.lists(st.sampled_from(["text", "call", "broken"]), max_size=5)):
        if kind == "text":
            pieces.append(Content(draw(texts)))
            continue
        name = draw(st.sampled_from(["f", "c", "ns.f", "m", "unknown"]))
        pieces.append(CallStart(number, name, f"call_{number}"))
        value = draw(texts)
        arguments = orjson.dumps({"input": value}).decode()
        cut = draw(st.integers(0, len(arguments)))
        pieces += [CallArguments(number, part) for part in (arguments[:cut], arguments[cut:]) if part]
        pieces.append(CallEnd(number) if kind == "call" else CallBroken(number, f"<call>{value}"))
        number += 1
    return pieces


@given(turns(), st.booleans(), st.sampled_from([{}, {"is_cut": True}, {"has_failed": True}]))
def test_the_events_rebuild_the_items_whatever_comes(pieces, as_fragments, end):
    output, _, events = run(pieces, as_fragments=as_fragments, **end)
    state = replayed(events)
    assert not state.open
    assert state.items == [streamed_item(item) for item in output.items]


@given(turns(), st.booleans())
def test_text_and_calls_are_the_same_without_a_stream(pieces, as_fragments):
    streamed, turn, _ = run(pieces, as_fragments=as_fragments)
    whole, silent, events = run(pieces, stream=False)
    assert not events
    assert turn.server_calls == silent.server_calls
    # A stream cannot take back an item that turned out to be no call.
    kept = [item for item in shape(streamed.items) if item.get("status") != "incomplete"]
    assert sorted(map(orjson.dumps, kept)) == sorted(map(orjson.dumps, shape(whole.items)))


def test_reasoning_closes_before_the_answer_opens_and_the_rest_at_the_end_in_order():
    call = [CallStart(0, "f", "call_1"), CallArguments(0, "{}"), CallEnd(0)]
    _, _, events = run([Reasoning("r"), Content("a"), *call])
    assert kinds(events) == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_item.added",
        "function_call_arguments.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "function_call_arguments.done",
        "output_item.done",
    ]


def test_a_call_that_the_length_cut_off_is_incomplete_and_one_of_a_failed_turn_in_progress():
    pieces = [CallStart(0, "f", "call_1"), CallArguments(0, '{"a"')]
    cut, _, _ = run([*pieces, CallBroken(0, '<tool_call>{"a"')], is_cut=True)
    assert shape(cut.items) == [
        {"type": "function_call", "name": "f", "arguments": '{"a"', "status": "incomplete"}
    ]
    failed, _, _ = run([Content("x"), *pieces], has_failed=True)
    assert [item["status"] for item in failed.items] == ["in_progress", "in_progress"]


def test_calls_for_servers_show_no_events_and_wait_for_whoever_runs_them():
    output, turn, events = run([CallStart(0, "m", "call_1"), CallArguments(0, '{"a":1}'), CallEnd(0)])
    assert output.items == []
    assert events == []
    (call,) = turn.server_calls
    assert (call.call_id, call.name, call.arguments) == ("call_1", "m", '{"a":1}')
    assert not turn.has_client_calls


def test_members_of_namespaces_and_custom_tools_are_told_in_the_clients_terms():
    output, _, events = run(
        [
            CallStart(0, "ns.f", "call_1"),
            CallArguments(0, "{}"),
            CallEnd(0),
            CallStart(1, "c", "call_2"),
            CallArguments(1, '{"input": "raw"}'),
            CallEnd(1),
        ]
    )
    assert shape(output.items) == [
        {"type": "function_call", "name": "f", "arguments": "{}", "status": "completed", "namespace": "ns"},
        {"type": "custom_tool_call", "name": "c", "input": "raw", "status": "completed"},
    ]
    assert "custom_tool_call_input.delta" in kinds(events)


def test_encrypted_reasoning_comes_back_as_it_was():
    output, _, _ = run([Reasoning("thought "), Reasoning("Ω")], encrypted=True)
    (item,) = output.items
    assert unsealed(item["encrypted_content"]) == "thought Ω"
    assert unsealed("gAAAA") is None
    assert Toolbox().origin("x").kind == "function"

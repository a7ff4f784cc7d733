"""What chats are answered with, whichever door they come through. One table: a name, a body, what to expect."""

from dataclasses import dataclass, field

from gateway.openai.shapes import ChatShape

# The family in a name tells that answers begin inside reasoning even without a tag.
M, THINKER, UNKNOWN_THINKER = "m", "org/qwen3-tiny", "thinker"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TIME = {"type": "function", "function": {"name": "get-time", "parameters": {"type": "object"}}}
PARIS = '{"city":"Paris"}'
NULLS = dict.fromkeys(ChatShape.__annotations__.keys() - {"model", "messages"})


@dataclass
class Case:
    """`choices` has (content, reasoning, [(name, arguments)], finish_reason) of each; None: not looked at."""

    name: str
    body: dict
    choices: list | None = None
    status: int = 200
    code: str = ""
    message: str = ""
    usage: dict = field(default_factory=dict)
    streams_more: bool = False  # a stream has begun a call that turned out to be none

    @property
    def can_be_cut(self):
        """The answer may come in other steps."""
        return self.status == 200 and "[[chunk" not in self.body["messages"][0]["content"]


def ask(text, model=M, **fields):
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


def again(text, *turns, **fields):
    """A question whose answer is under way: assistant and tool messages follow it."""
    body = ask(text, **fields)
    return {**body, "messages": [*body["messages"], *turns]}


def function(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def tools(*which, **fields):
    return {"tools": list(which or (WEATHER,)), **fields}


def plain(content, finish="stop"):
    return [(content, "", [], finish)]


def called(*calls, content="", reasoning="", finish="tool_calls"):
    return [(content, reasoning, list(calls), finish)]


def named(name):
    return {"type": "function", "function": {"name": name}}


def allowed(mode, *names):
    listed = [{"type": "function", "name": name} for name in names]
    return {"type": "allowed_tools", "mode": mode, "tools": listed}


def schema(value):
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": value}}


TEXT = [
    Case("text", ask("[[say:Hello there]]"), plain("Hello there")),
    Case("nothing said", ask("[[say:]]"), plain("")),
    Case("split characters", ask("[[say:naïve 東京 🙂👩‍💻]]"), plain("naïve 東京 🙂👩‍💻")),
    Case("lines and separators", ask("[[say:a\\ndata: [DONE]\\n\u2028\u2029\x85b]]"), plain("a\ndata: [DONE]\n\u2028\u2029\x85b")),
    # The engine marks the choices after the first.
    Case("several choices", ask("[[say:one]]", n=3), [*plain("one"), *plain("one [1]"), *plain("one [2]")]),
    Case("length", ask("[[len:50]]", max_tokens=4), None, usage={"completion": 4}),
    Case("older limit gives way", ask("[[len:50]]", max_tokens=9, max_completion_tokens=4), None, usage={"completion": 4}),
    Case("limit beyond the context", ask("[[say:x]]", max_tokens=100_000), plain("x")),
    Case("every optional field null", ask("[[say:x]]", **NULLS), plain("x")),
    Case("white space all around", ask("[[say:\\n    x = 1\\n\\n]]"), plain("\n    x = 1\n\n")),
    Case("a character cut by the limit", ask("[[say:🙂]]", max_tokens=1), plain("\ufffd", "length"), usage={"completion": 1}),
    Case("stop string", ask("[[say:one STOP two]]", stop="STOP"), plain("one ")),
    Case("nothing but a stop string", ask("[[say:STOP]]", stop="STOP"), plain("")),
    Case("a form of any text", ask("[[say:x]]", regex="a", response_format={"type": "text"}), plain("x")),
    Case("an end that nobody here asked for", ask("[[say:cut]][[finish:abort]]"), plain("cut")),
    Case("an end of the engine's own kind", ask("[[say:cut]][[finish:banana]]"), plain("cut")),
    Case("words of a developer", again("[[say:x]]", {"role": "developer", "content": "Be brief."}), plain("x")),
    Case("a system without words", again("[[say:x]]", {"role": "system"}), plain("x")),
    Case("a named user", {"model": M, "messages": [{"role": "user", "content": "[[say:x]]", "name": "bob"}]}, plain("x")),
    Case("a user's white space", ask("   "), None),
    Case("stop string kept", ask("[[say:one STOP two]]", stop="STOP", no_stop_trim=True), plain("one STOP")),
    Case("earliest stop wins", ask("[[say:alpha BETA gamma]]", stop=["gamma", "BETA"]), plain("alpha ")),
    Case("stop in one piece", ask("[[say:alpha BETA gamma]][[chunk:50]]", stop=["gamma", "BETA"]), plain("alpha ")),
    Case("special tokens hidden", ask("[[ids:0]][[say:x]]"), plain("x")),
    Case("special tokens shown", ask("[[ids:0]][[say:x]]", skip_special_tokens=False), plain("<|endoftext|>x")),
    Case("usage", ask("[[say:x]][[cached:3]]"), plain("x"), usage={"completion": 2, "cached": 3, "reasoning": 0}),
    Case("logprobs", ask("[[say:Hello 🙂]]", logprobs=True, top_logprobs=2), plain("Hello 🙂")),
    Case("logprobs and a stop string", ask("[[say:one two STOP three]]", logprobs=True, stop="STOP"), plain("one two ")),
]  # fmt: skip

TOOLS = [
    Case("call", ask('[[tool:get_weather:{"city": "Paris"}]]', **tools()), called(("get_weather", PARIS))),
    Case(
        "text and two calls",
        ask('[[say:Let me see. ]][[tool:get_weather:{"city": "Paris"}]][[say:\\n]][[tool:get-time:{}]]', **tools(WEATHER, TIME)),
        called(("get_weather", PARIS), ("get-time", "{}"), content="Let me see. "),
    ),
    Case(
        "two calls in one step",
        ask('[[tool:get_weather:{"city": "Paris"}]][[tool:get-time:{}]][[chunk:200]]', **tools(WEATHER, TIME)),
        called(("get_weather", PARIS), ("get-time", "{}")),
    ),
    Case(
        "one call where one is allowed",
        ask('[[tool:get_weather:{"city": "Paris"}]][[tool:get-time:{}]]', **tools(WEATHER, TIME), parallel_tool_calls=False),
        called(("get_weather", PARIS)),
    ),
    Case("white space before a call", ask('[[say:\\n\\n]][[tool:get-time]]', **tools(TIME)), called(("get-time", "{}"))),
    Case("unknown function", ask("[[tool:other:{}]]", **tools()), called(("other", "{}"))),
    Case("names with dots and other letters", ask('[[tool:ns.tool]][[tool:天気:{"市": "京"}]]', **tools(function("ns.tool"), function("天気"))), called(("ns.tool", "{}"), ("天気", '{"市":"京"}'))),
    Case("after a call and its result", again("[[tool:get-time]][[next]][[say:Noon.]]", {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get-time", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c1", "content": "12:00"}, **tools(TIME)), plain("Noon.")),
    Case("text after a call", ask("[[tool:get-time]][[say: done]]", **tools(TIME)), called(("get-time", "{}"), content=" done")),
    Case("no call", ask("[[say:Nope]]", **tools()), plain("Nope")),
    Case("almost a call", ask("[[say:I like <tool_ca]]", **tools()), plain("I like <tool_ca")),
    Case("markup without tools", ask("[[tool:get-time]]"), plain('<tool_call>\n{"name": "get-time", "arguments": {}}\n</tool_call>')),
    Case(
        "tool choice none",
        ask("[[tool:get-time]]", **tools(TIME), tool_choice="none"),
        plain('<tool_call>\n{"name": "get-time", "arguments": {}}\n</tool_call>'),
    ),
    Case(
        "numbers, unicode, nesting",
        ask('[[tool:get-time:{"n": 9007199254740993, "x": 1.50, "s": "é\\"</tool_call>", "o": {"a": [1, {}]}}]]', **tools(TIME)),
        called(("get-time", '{"n":9007199254740993,"x":1.50,"s":"é\\"</tool_call>","o":{"a":[1,{}]}}')),
    ),
    Case(
        "broken call",
        ask('[[tool:get_weather:{"city": ]]', **tools()),
        plain('<tool_call>\n{"name": "get_weather", "arguments": {"city": }\n</tool_call>'),
        streams_more=True,
    ),
    Case(
        "call that is cut",
        ask('[[tool:get_weather:{"city": "Paris in the long spring"}]]', **tools(), max_tokens=22),
        plain('<tool_call>\n{"name": "get_weather", "arguments": {"city"', "length"),
        streams_more=True,
    ),
    Case(
        "stop string inside a call",
        ask('[[tool:get_weather:{"city": "Paris"}]]', **tools(), stop="\n</tool_call>"),
        plain('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}'),
        streams_more=True,
    ),
    Case("required", ask('[[calls:get_weather:{"city": "Paris"}|get-time:{}]]', **tools(WEATHER, TIME), tool_choice="required"), called(("get_weather", PARIS), ("get-time", "{}"))),
    Case("required, and cut", ask('[[calls:get-time:{"zone": "far away"}]]', **tools(TIME), tool_choice="required", max_tokens=9), plain('[{"name": "get-', "length"), streams_more=True),
    Case("calls where a schema is set as well", ask("[[tool:get-time]]", **tools(TIME), response_format=schema({"type": "object"})), called(("get-time", "{}"))),
    Case("two tools of one name", ask("[[tool:get-time]]", **tools(TIME, TIME)), called(("get-time", "{}"))),
    Case("tool of another type", ask("[[tool:get-time]]", **tools({**TIME, "type": "weird"})), called(("get-time", "{}"))),
    Case("older names of tools", ask("[[tool:get-time]]", functions=[TIME["function"]], function_call="auto"), called(("get-time", "{}"))),
    Case("named", ask('[[say:{"city": "Paris"}]]', **tools(), tool_choice=named("get_weather")), called(("get_weather", PARIS))),
    Case("named, and prose came", ask("[[say:nope]]", **tools(), tool_choice=named("get_weather")), plain("nope")),
    Case("allowed, required", ask('[[calls:get-time:{}]]', **tools(WEATHER, TIME), tool_choice=allowed("required", "get-time")), called(("get-time", "{}"))),
    Case("several choices with calls", ask("[[tool:get-time]]", **tools(TIME), n=2), [*called(("get-time", "{}")), *called(("get-time", "{}"), content=" [1]")]),
    Case("calls and logprobs", ask("[[tool:get-time]]", **tools(TIME), logprobs=True), called(("get-time", "{}"))),
]  # fmt: skip

REASONING = [
    Case("reasoning", ask("[[reason:let me think]][[say:So.]]", THINKER), [("\n\nSo.", "\nlet me think\n", [], "stop")]),
    Case("reasoning without its tag", ask("[[say:hm]]", THINKER), [("", "hm", [], "stop")]),
    Case("no tag from a model of no known family", ask("[[say:hm]]", UNKNOWN_THINKER), plain("hm")),
    Case("its tag, from a model of no known family", ask("[[reason:hm]][[say:So.]]", UNKNOWN_THINKER), [("\n\nSo.", "\nhm\n", [], "stop")]),
    Case("white space after reasoning", ask("[[reason:  a\\n\\n  b]][[say:    x = 1\\n]]", THINKER), [("\n\n    x = 1\n", "\n  a\n\n  b\n", [], "stop")]),
    Case("almost the end of reasoning", ask("[[say:<think>a</thin]]", THINKER), [("", "a</thin", [], "stop")]),
    Case("reasoning that does not end", ask("[[think:hm]]", THINKER), [("", "\nhm", [], "stop")]),
    Case("second block", ask("[[reason:a]][[say:x]][[say:<think>b</think>]][[say:y]]", THINKER), [("\n\nxy", "\na\nb", [], "stop")]),
    Case("told not to think", ask("[[say:So.]]", THINKER, reasoning_effort="none"), plain("So.")),
    Case("thinking disabled", ask("[[say:So.]]", THINKER, thinking={"type": "disabled"}), plain("So.")),
    Case("effort of thinking: none", ask("[[say:So.]]", THINKER, thinking={"effort": "none"}), plain("So.")),
    Case("a number for an effort", ask("[[reason:hm]][[say:So.]]", THINKER, reasoning_effort=2.5), [("\n\nSo.", "\nhm\n", [], "stop")]),
    Case("members of thinking that nobody knows", ask("[[reason:hm]][[say:So.]]", THINKER, thinking={"type": "enabled", "budget_tokens": 5}), [("\n\nSo.", "\nhm\n", [], "stop")]),
    Case("another template's switch", ask("[[say:hm]]", THINKER, chat_template_kwargs={"thinking": False}), [("", "hm", [], "stop")]),
    Case("template told not to think", ask("[[say:So.]]", THINKER, chat_template_kwargs={"enable_thinking": False}), plain("So.")),
    Case("told to think", ask("[[reason:hm]][[say:So.]]", M, thinking={"type": "enabled"}), [("\n\nSo.", "hm\n", [], "stop")]),
    Case("unasked reasoning", ask("[[reason:hm]][[say:So.]]", M), [("\n\nSo.", "\nhm\n", [], "stop")]),
    Case("not apart", ask("[[reason:hm]][[say:So.]]", THINKER, separate_reasoning=False), plain("<think>\nhm\n</think>\n\nSo.")),
    Case("in one piece", ask("[[reason:let me think]][[say:So.]]", THINKER, stream_reasoning=False), [("\n\nSo.", "\nlet me think\n", [], "stop")]),
    Case("reasoning and a call", ask("[[reason:hm]][[tool:get-time]]", THINKER, **tools(TIME)), called(("get-time", "{}"), reasoning="\nhm\n")),
    Case("reasoning and required calls", ask("[[reason:hm]][[calls:get-time:{}]]", THINKER, **tools(TIME), tool_choice="required"), called(("get-time", "{}"), reasoning="\nhm\n")),
    Case("reasoning and a named call", ask('[[reason:hm]][[say:{"city": "Paris"}]]', THINKER, **tools(), tool_choice=named("get_weather")), called(("get_weather", PARIS), reasoning="\nhm\n")),
    Case("reasoning counted", ask("[[say:<think>]][[say:a b c]][[say:</think>]][[say:x]]", THINKER), None),
    Case("engine's own count", ask("[[reason:hm]][[say:x]][[rtok:3]]", THINKER), None, usage={"reasoning": 3}),
]  # fmt: skip

SCHEMA = schema({"type": "object"})
REFUSED = [
    Case("temperature", ask("x", temperature=3), status=400, code="400", message="temperature is 3"),
    Case("n", ask("x", n=11), status=400, code="400", message="n is 11"),
    Case("no messages", {"model": M, "messages": []}, status=400, code="400", message="messages"),
    Case("five stops", ask("x", stop=list("abcde")), status=400, code="400", message="stop has 5"),
    Case("empty stop", ask("x", stop=[""]), status=400, code="400", message="stop"),
    Case("top_logprobs alone", ask("x", top_logprobs=2), status=400, code="400", message="top_logprobs"),
    Case("required without tools", ask("x", tool_choice="required"), status=400, code="400", message="tool_choice"),
    Case("unknown named function", ask("x", **tools(), tool_choice=named("nope")), status=400, code="400", message="nope"),
    Case("two constraints", ask("x", regex="a", ebnf="root ::= 'a'"), status=400, code="400", message="regex"),
    Case("regex and schema", ask("x", regex="a", response_format=SCHEMA), status=400, code="400", message="regex"),
    Case("schema without an end", ask("x", response_format=schema({"$ref": "#"})), status=400, code="400", message="without an end"),
    Case("call without an end", ask("x", **tools({"type": "function", "function": {"name": "f", "parameters": {"$ref": "#"}}}), tool_choice="required"), status=400, code="400", message="tools[0].function.parameters"),
    Case("function name with a quote", ask("x", **tools(function('a"b'))), status=400, code="400", message="tools[0].function.name"),
    Case("more sound than text", ask("x", modalities=["text", "audio"]), status=400, code="unsupported_output_modality", message="audio"),
    Case("a picture", {"model": M, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}]}, status=400, code="process_messages_failed", message="image_url"),
    Case("named without a name", ask("x", **tools(), tool_choice=named("")), status=400, code="400", message="tool_choice"),
    Case("allowed that is not there", ask("x", **tools(), tool_choice=allowed("auto", "nope")), status=400, code="400", message="nope"),
    Case("a root's words", again("x", {"role": "root", "content": "x"}), status=400, code="400", message="root"),
    Case("arguments that are no JSON", again("x", {"role": "assistant", "content": "y", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "not json"}}]}), status=400, code="process_messages_failed", message="arguments"),
    Case("a file", {"model": M, "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}, status=400, code="unsupported_content_part", message="messages[0].content[0]"),
    Case("a part that lacks its text", {"model": M, "messages": [{"role": "user", "content": [{"type": "text"}]}]}, status=400, code="unsupported_content_part", message="messages[0].content[0]"),
    Case("a refusal for a part", again("x", {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}), status=400, code="unsupported_content_part", message="messages[1].content[0]"),
    Case("unknown model", ask("x", "no/such"), status=404, code="model_not_found", message="no/such"),
    Case("too long", ask("long " * 9000), status=400, code="context_length_exceeded", message="8192"),
    Case("engine refuses", ask("[[error:INVALID_ARGUMENT:boom]]"), status=400, code="start_generation_failed", message="boom"),
    Case("engine cannot keep a form", ask("[[constraintfail]]"), status=400, code="start_generation_failed"),
    Case("engine gives up", ask("[[error:ABORTED:boom]]"), status=409, code="start_generation_failed", message="boom"),
    Case("engine is full", ask("[[error:RESOURCE_EXHAUSTED:boom]]"), status=429, code="start_generation_failed", message="boom"),
]  # fmt: skip

CASES = [*TEXT, *TOOLS, *REASONING, *REFUSED]

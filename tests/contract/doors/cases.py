"""What chats are answered with, whichever door they come through. One table: a name, a body, what to expect."""

from dataclasses import dataclass, field

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


TEXT = [
    Case("text", ask("[[say:Hello there]]"), plain("Hello there")),
    Case("nothing said", ask("[[say:]]"), plain("")),
    Case("split characters", ask("[[say:naïve 東京 🙂👩‍💻]]"), plain("naïve 東京 🙂👩‍💻")),
    Case("lines and separators", ask("[[say:a\\ndata: [DONE]\\n\u2028\u2029\x85b]]"), plain("a\ndata: [DONE]\n\u2028\u2029\x85b")),
    # The engine marks the choices after the first.
    Case("several choices", ask("[[say:one]]", n=3), [*plain("one"), *plain("one [1]"), *plain("one [2]")]),
    Case("length", ask("[[len:50]]", max_tokens=4), None, usage={"completion": 4}),
    Case("older limit gives way", ask("[[len:50]]", max_tokens=9, max_completion_tokens=4), None, usage={"completion": 4}),
    Case("stop string", ask("[[say:one STOP two]]", stop="STOP"), plain("one ")),
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
    Case("call that is cut", ask('[[tool:get_weather:{"city": "Paris in the long spring"}]]', **tools(), max_tokens=22), None, streams_more=True),
    Case(
        "stop string inside a call",
        ask('[[tool:get_weather:{"city": "Paris"}]]', **tools(), stop="\n</tool_call>"),
        plain('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}'),
        streams_more=True,
    ),
    Case("required", ask('[[calls:get_weather:{"city": "Paris"}|get-time:{}]]', **tools(WEATHER, TIME), tool_choice="required"), called(("get_weather", PARIS), ("get-time", "{}"))),
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
    Case("reasoning that does not end", ask("[[think:hm]]", THINKER), [("", "\nhm", [], "stop")]),
    Case("second block", ask("[[reason:a]][[say:x]][[say:<think>b</think>]][[say:y]]", THINKER), [("\n\nxy", "\na\nb", [], "stop")]),
    Case("told not to think", ask("[[say:So.]]", THINKER, reasoning_effort="none"), plain("So.")),
    Case("thinking disabled", ask("[[say:So.]]", THINKER, thinking={"type": "disabled"}), plain("So.")),
    Case("template told not to think", ask("[[say:So.]]", THINKER, chat_template_kwargs={"enable_thinking": False}), plain("So.")),
    Case("told to think", ask("[[reason:hm]][[say:So.]]", M, thinking={"type": "enabled"}), [("\n\nSo.", "hm\n", [], "stop")]),
    Case("unasked reasoning", ask("[[reason:hm]][[say:So.]]", M), [("\n\nSo.", "\nhm\n", [], "stop")]),
    Case("not apart", ask("[[reason:hm]][[say:So.]]", THINKER, separate_reasoning=False), plain("<think>\nhm\n</think>\n\nSo.")),
    Case("in one piece", ask("[[reason:let me think]][[say:So.]]", THINKER, stream_reasoning=False), [("\n\nSo.", "\nlet me think\n", [], "stop")]),
    Case("reasoning and a call", ask("[[reason:hm]][[tool:get-time]]", THINKER, **tools(TIME)), called(("get-time", "{}"), reasoning="\nhm\n")),
    Case("reasoning and required calls", ask("[[reason:hm]][[calls:get-time:{}]]", THINKER, **tools(TIME), tool_choice="required"), called(("get-time", "{}"), reasoning="\nhm\n")),
    Case("reasoning counted", ask("[[say:<think>]][[say:a b c]][[say:</think>]][[say:x]]", THINKER), None),
    Case("engine's own count", ask("[[reason:hm]][[say:x]][[rtok:3]]", THINKER), None, usage={"reasoning": 3}),
]  # fmt: skip

SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
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
    Case("unknown model", ask("x", "no/such"), status=404, code="model_not_found", message="no/such"),
    Case("too long", ask("long " * 9000), status=400, code="context_length_exceeded", message="8192"),
    Case("engine refuses", ask("[[error:INVALID_ARGUMENT:boom]]"), status=400, code="start_generation_failed", message="boom"),
    Case("engine is full", ask("[[error:RESOURCE_EXHAUSTED:boom]]"), status=429, code="start_generation_failed", message="boom"),
]  # fmt: skip

CASES = [*TEXT, *TOOLS, *REASONING, *REFUSED]

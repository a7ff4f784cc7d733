"""chat_prompt: a request as the model's template writes it, and whether its answer begins in reasoning."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import json_format

from smg.errors import InvalidRequest
from smg.pipelines import chat_prompt as module
from smg.pipelines.catalog import ServedModel
from smg.pipelines.chat_prompt import ChatPrompt, chat_prompt
from smg.pipelines.formats import OutputFormats
from smg.prompt.builder import PromptBuilder
from smg_proto.chat.v1 import chat_pb2
from smg_proto.engine.v1 import card_pb2
from tests.tokenizer_dirs import THINKING_TEMPLATE

if TYPE_CHECKING:
    from pathlib import Path

VARIABLES = (
    "{% macro show(v) %}{% if v is defined %}{{ v | tojson }}{% else %}-{% endif %}{% endmacro %}"
    "effort={{ show(reasoning_effort) }} "
    "toggle={{ show(enable_thinking) }} choice={{ show(tool_choice) }} format={{ show(response_format) }} "
    "tools={{ tools | map(attribute='function') | map(attribute='name') | list if tools else tools }} x={{ show(x) }}"
    "{% for m in messages %};{{ m.role }}:{{ m.content }}{% endfor %}"
    "{% if enable_thinking is false %}<think></think>{% endif %}"
)
HI = [{"role": "user", "text": "Hi"}]
TOOLS = [
    {
        "type": "function",
        "name": name,
        "sourceJson": json.dumps({"type": "function", "function": {"name": name}}),
    }
    for name in ("f", "g")
]


def model_of(directory: Path, template: str | None = None, **card: Any) -> ServedModel:
    builder = PromptBuilder.load(directory, chat_template=template)
    formats = OutputFormats("hermes", "think_tag", reasons_first=True)
    return ServedModel("m", card_pb2.ModelCard(**card), builder, formats)


@pytest.fixture(scope="module")
def shows(tokenizer_dir: Path) -> ServedModel:
    return model_of(tokenizer_dir, VARIABLES)


@pytest.fixture(scope="module")
def chatml(tokenizer_dir: Path) -> ServedModel:
    return model_of(tokenizer_dir, THINKING_TEMPLATE)


async def prompt_of(model: ServedModel, messages: list[dict[str, Any]] = HI, **fields: Any) -> ChatPrompt:
    return await chat_prompt(
        model, json_format.ParseDict({"messages": messages, **fields}, chat_pb2.ChatRequest())
    )


@pytest.mark.parametrize(
    ("fields", "says", "starts_inside"),
    [
        ({}, "effort=- toggle=- choice=- format=- tools=None x=-", True),
        ({"reasoningEffort": "high"}, 'effort="high" toggle=-', True),
        ({"reasoningEffort": "none"}, 'effort="none" toggle=false', False),
        ({"thinking": {"effort": "low"}, "reasoningEffort": "none"}, 'effort="low" toggle=-', True),
        ({"thinking": {"type": "disabled"}}, "effort=- toggle=false", False),
        ({"thinking": {"type": "enabled", "effort": "minimal"}}, 'effort="minimal" toggle=true', True),
        ({"thinking": {"type": "adaptive"}}, "effort=- toggle=-", True),
        ({"chatTemplateKwargsJson": '{"enable_thinking": false, "x": [1]}', "reasoningEffort": "high"}, 'effort="high" toggle=false', False),
        ({"chatTemplateKwargsJson": '{"x": [1]}'}, "x=[1]", True),
        ({"chatTemplateKwargsJson": '{"reasoning_effort": 7}', "reasoningEffort": "low"}, "effort=7 toggle=-", True),
        ({"tools": TOOLS}, "choice=\"auto\" format=- tools=['f', 'g']", True),
        ({"tools": TOOLS, "toolChoice": {"mode": "MODE_NONE"}}, 'choice="none" format=- tools=None', True),
        ({"tools": TOOLS, "toolChoice": {"mode": "MODE_REQUIRED"}}, "choice=\"required\" format=- tools=['f', 'g']", True),
        ({"tools": TOOLS, "toolChoice": {"mode": "MODE_AUTO", "isAllowedTools": True, "allowedNames": ["g"]}}, "format=- tools=['g']", True),
        ({"tools": TOOLS, "chatTemplateKwargsJson": '{"tool_choice": "mine"}'}, 'choice="mine"', True),
        ({"responseFormat": {"type": "TYPE_TEXT"}}, 'format={"type": "text"}', True),
        ({"responseFormat": {"type": "TYPE_JSON_OBJECT"}}, 'format={"type": "json_object"}', True),
        (
            {"responseFormat": {"type": "TYPE_JSON_SCHEMA", "name": "n", "schemaJson": '{"b": 1}', "strict": True, "description": "d"}},
            'format={"type": "json_schema", "json_schema": {"name": "n", "description": "d", "schema": {"b": 1}, "strict": true}}',
            True,
        ),
        ({"responseFormat": {"type": "TYPE_JSON_OBJECT"}, "chatTemplateKwargsJson": '{"response_format": null}'}, "format=null", True),
    ],
    ids=str,
)  # fmt: skip
async def test_the_template_is_told_what_the_request_says(
    shows: ServedModel, fields: dict[str, Any], says: str, starts_inside: bool
) -> None:
    found = await prompt_of(shows, **fields)
    assert says in found.prompt.text
    assert found.starts_inside is starts_inside


@pytest.mark.parametrize(
    ("template", "fields", "expected"),
    [
        # The prompt has the last word.
        ("{{ messages[0].content }}{{ enable_thinking }}<think>", {"thinking": {"type": "disabled"}}, True),
        ("{{ messages[0].content }}{{ enable_thinking }}</think>", {"thinking": {"type": "enabled"}}, False),
        # A template that cannot be told goes its own way.
        ("{{ messages[0].content }}{{ '<think>'[:0] }}", {"thinking": {"type": "enabled"}}, False),
        # Own levels.
        ("{{ 'x' if reasoning_effort == 'max' }}{{ messages[0].content }}", {"reasoningEffort": "max"}, True),
        ("{{ 'x' if reasoning_effort == 'max' }}{{ messages[0].content }}", {}, False),
    ],
    ids=str,
)
async def test_where_an_answer_begins(
    tokenizer_dir: Path, template: str, fields: dict[str, Any], expected: bool
) -> None:
    assert (await prompt_of(model_of(tokenizer_dir, template), **fields)).starts_inside is expected


async def test_a_model_without_reasoning_tags_never_begins_in_reasoning(
    tokenizer_dir: Path, tmp_path: Path
) -> None:
    directory = shutil.copytree(tokenizer_dir, tmp_path / "plain")
    tokenizer = directory / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("<think>", "<idea>").replace("</think>", "</idea>"))
    model = model_of(
        directory,
        "{{ 'Think.' if enable_thinking is not defined or enable_thinking }}{{ messages[0].content }}",
    )
    assert not (await prompt_of(model)).starts_inside
    assert not (await prompt_of(model, thinking={"type": "enabled"})).starts_inside


@pytest.mark.parametrize(
    ("text", "starts_inside"),
    [("The answer", False), ("<think>\nso far", True), ("<think>a</think>b ", False), ("", True)],
)
async def test_an_answer_that_continues_begins_where_the_message_ends(
    chatml: ServedModel, text: str, starts_inside: bool
) -> None:
    found = await prompt_of(chatml, [*HI, {"role": "assistant", "text": text}], continueFinalMessage=True)
    assert found.prompt.text.endswith(f"<|im_start|>assistant\n{text}")
    assert found.starts_inside is starts_inside


async def test_without_a_message_to_continue_an_answer_is_begun(chatml: ServedModel) -> None:
    assert await prompt_of(chatml, continueFinalMessage=True) == await prompt_of(chatml)


async def test_a_message_with_calls_cannot_be_continued(chatml: ServedModel) -> None:
    call = {"id": "c", "name": "f", "arguments": "{}"}
    with pytest.raises(InvalidRequest, match="tool calls, which cannot be continued"):
        await prompt_of(
            chatml, [*HI, {"role": "assistant", "text": "a", "toolCalls": [call]}], continueFinalMessage=True
        )


async def test_messages_are_fitted_to_the_template(chatml: ServedModel) -> None:
    parts = {"parts": [{"text": "a"}, {"text": "b"}]}
    call = {"id": "c", "name": "f", "arguments": '{"x": "ü"}'}
    chat = [
        {"role": "developer", "text": "D"},
        {"role": "user", "parts": parts},
        {"role": "assistant", "toolCalls": [call]},
        {"role": "tool", "text": "r", "toolCallId": "c"},
    ]
    text = (await prompt_of(chatml, chat)).prompt.text
    assert text.startswith("<|im_start|>system\nD<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n")
    assert '<tool_call>\n{"name": "f", "arguments": {"x": "ü"}}\n</tool_call>' in text
    assert "None" not in text


@pytest.mark.parametrize(
    "kwargs", ['{"x": "<|im_end|>"}', '{"reasoning_effort": "<|im_end|>"}', '{"x": {"<|im_end|>": "<|im_"}}']
)
async def test_control_tokens_in_variables_stay_text(shows: ServedModel, kwargs: str) -> None:
    tokenizer = shows.builder.tokenizer
    found = await prompt_of(shows, chatTemplateKwargsJson=kwargs, reasoningEffort="<|im_end|>")
    ids = memoryview(found.prompt.ids).cast("I")
    assert "<|im_end|>" in found.prompt.text
    assert not tokenizer.eos_ids & set(ids)
    assert tokenizer.decode(ids, skip_special_tokens=False) == found.prompt.text


async def test_a_template_s_refusal_is_the_answer(tokenizer_dir: Path) -> None:
    model = model_of(tokenizer_dir, "{{ raise_exception('Only one question, please') }}")
    with pytest.raises(InvalidRequest) as caught:
        await prompt_of(model)
    assert caught.value.message == "Only one question, please"


@pytest.mark.parametrize("kind", ["short", "long text", "many messages"])
async def test_long_conversations_leave_the_event_loop(
    shows: ServedModel, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    render = module.template_messages
    monkeypatch.setattr(
        module,
        "template_messages",
        lambda *given, **how: threads.append(threading.get_ident()) or render(*given, **how),
    )
    text = "x" * (module.INLINE_PROMPT_CHARS if kind == "long text" else 2)
    count = module.INLINE_MESSAGES + 1 if kind == "many messages" else 1
    await prompt_of(shows, [{"role": "user", "text": text}] * count)
    assert (threads == [threading.get_ident()]) == (kind == "short")


async def test_a_model_of_no_known_family_begins_inside_only_where_its_prompt_says_so(
    shows: ServedModel,
) -> None:
    unknown = replace(shows, formats=OutputFormats("hermes", "think_tag"))
    assert not (await prompt_of(unknown)).starts_inside
    assert not (await prompt_of(unknown, thinking={"type": "enabled"})).starts_inside


async def test_a_family_that_always_reasons_does_though_nothing_tells(
    tokenizer_dir: Path, chatml: ServedModel
) -> None:
    formats = OutputFormats("minimax_m2", "minimax_m2", reasons_first=True, always_reasons=True)
    model = replace(model_of(tokenizer_dir, "{{ messages[-1].content }}"), formats=formats)
    assert (await prompt_of(model))[1:3] == (True, True)
    assert (await prompt_of(replace(chatml, formats=formats), reasoningEffort="none"))[1:3] == (False, False)
    continued = [*HI, {"role": "assistant", "text": "So"}]
    assert not (await prompt_of(model, continued, continueFinalMessage=True)).starts_inside


async def test_tools_that_a_message_declares_reach_a_template_that_shows_them(
    tokenizer_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of(tokenizer_dir, "{{ messages[0].tools | default('none') | tojson }}|{{ tools }}")
    declaring = {"role": "system", "text": "", "toolsJson": '[{"type": "function", "n": 1.50}]'}
    request = json_format.ParseDict(
        {"model": "m", "messages": [declaring, declaring, *HI]}, chat_pb2.ChatRequest()
    )
    shown = await module.chat_prompt(model, request, shows_message_tools=True)
    assert shown.prompt.text == '[{"type": "function", "n": 1.5}]|None'
    assert not caplog.records
    assert (await module.chat_prompt(model, request)).prompt.text == '"none"|None'
    (record,) = caplog.records
    assert "tools on 2 messages are dropped" in record.getMessage()

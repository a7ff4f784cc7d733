"""ChatTemplate renders as Hugging Face's apply_chat_template does, says what went wrong, and stays within bounds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from smg.errors import InvalidRequest
from smg.prompt.template import MARK_VARIABLE, ChatTemplate, with_reasoning_names

TOOLS = [
    {
        "type": "function",
        "function": {"name": "météo", "description": "<b>\"q\" & 'x'", "parameters": {"b": 1, "a": [True]}},
    }
]
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "  Be brief.  "},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is"},
            {"type": "image"},
            {"type": "text", "text": " this?"},
        ],
    },
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nA cat.", "reasoning_content": "hm"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.0, "y": None}}}],
    },
    {"role": "tool", "content": "sunny"},
    {"role": "user", "content": "Thanks"},
]

# What templates of published models are made of, one construct each.
CONSTRUCTS = {
    "loop variables": "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ loop.last }}"
    " {{ loop.revindex0 }} {{ loop.previtem.role if loop.previtem is defined else '-' }}\n{% endfor %}",
    "namespace": "{% set ns = namespace(last=-1, found=false) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.last }} {{ ns.found }}",
    "macros": "{% macro show(m, indent=0) -%}{{ ' ' * indent }}{{ m.role }}{%- endmacro %}"
    "{% for m in messages %}{{ show(m, indent=loop.index) }}\n{% endfor %}",
    "call block": "{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}"
    "{% call wrap('x') %}{{ messages[0].content | trim }}{% endcall %}",
    "tools as JSON": "{% for t in tools %}{{ t | tojson }}\n{{ t | tojson(indent=2) }}\n"
    "{{ t.function | tojson(ensure_ascii=True, sort_keys=True, separators=(',', ':')) }}{% endfor %}",
    "content in parts": "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% elif m.content is iterable %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p['text'] }}{% else %}<{{ p.type }}>{% endif %}{% endfor %}"
    "{% endif %}|{% endfor %}",
    "white space control": "{%- for m in messages %}\n    {%- if true %}\n  a {{- m.role -}} b\n    {% endif %}\n{%- endfor %}\n end\n",
    "blocks trimmed": "  {% if messages %}\n  x\n  {% endif %}\n{# note #}\ny\n",
    "break and continue": "{% for m in messages %}{% if m.role == 'assistant' %}{% continue %}{% endif %}{{ m.role }}"
    "{% if loop.index > 4 %}{% break %}{% endif %}{% endfor %}",
    "tests": "{{ x is defined }} {{ tools is defined }} {{ tools is none }} {{ messages is sequence }} {{ messages[0] is mapping }}"
    " {{ messages[3].content is defined }} {{ messages[0].content is string }} {{ 1 is number }} {{ true is boolean }}",
    "string methods": "{% set c = messages[2].content %}{{ c.split('</think>')[-1].lstrip('\n') }}|{{ c.startswith('<think>') }}"
    "|{{ c.replace('cat', 'dog').upper() }}|{{ 'a,b'.split(',') }}|{{ '%s-%d' | format('a', 3) }}",
    "slicing": "{% for m in messages[1:] %}{{ m.role }}{% endfor %}{% for m in messages[::-1] %}{{ m.role }}{% endfor %}"
    "{{ messages[0].content[2:4] }}{{ messages[-1].role }}",
    "filters": "{{ messages | map(attribute='role') | list }} {{ messages | selectattr('role', 'equalto', 'tool') | list | length }}"
    " {{ messages[0].content | trim | upper }} {{ [3, 1, 2] | sort | join('-') }} {{ {'b': 1, 'a': 2} | dictsort }}",
    "dict access": "{% for k, v in tools[0].function.items() %}{{ k }}={{ v }};{% endfor %}{{ tools[0].function.get('nope', 'd') }}"
    "{{ messages[0]['content'] }}{{ messages[0].items is callable }}",
    "ranges": "{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}{{ range(3) | list }}",
    "generation tag": "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}",
    "variables": "{{ bos_token }}{{ enable_thinking }}{{ add_generation_prompt }}{{ documents[0].title if documents }}{{ missing }}",
    "reasoning names": "{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }}|{% endfor %}",
}


def ours(source: str, **variables: Any) -> str:
    return ChatTemplate(source).render({"messages": with_reasoning_names(CHAT), "tools": TOOLS, **variables})


@pytest.mark.parametrize("construct", CONSTRUCTS)
@pytest.mark.parametrize("tools", [TOOLS, None], ids=["tools", "no tools"])
def test_renders_as_apply_chat_template(construct: str, tools: list[dict[str, Any]] | None) -> None:
    if tools is None and "tools[0]" in CONSTRUCTS[construct]:
        tools = [{"function": {}}]
    if tools is None and "in tools" in CONSTRUCTS[construct]:
        tools = []
    variables = {
        "bos_token": "<s>",
        "enable_thinking": False,
        "documents": [{"title": "T"}],
        "add_generation_prompt": True,
    }
    chat = [{key: value for key, value in message.items() if value is not None} for message in CHAT]
    theirs, _ = render_jinja_template([chat], tools=tools, chat_template=CONSTRUCTS[construct], **variables)
    assert ours(CONSTRUCTS[construct], **variables, tools=tools) == theirs[0]


def test_dates_come_from_the_clock_that_was_given() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2031, 2, 3, tzinfo=UTC))
    assert template.render({}) == "03 Feb 2031"


def test_a_refusal_is_the_template_s_own_message() -> None:
    with pytest.raises(InvalidRequest, match=r"^Roles must alternate$"):
        ours("{{ raise_exception('Roles must alternate') }}")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ messages[99].content.text }}", "needs something that the request lacks"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ messages | tojson(indent='x', separators=1) }}", "failed on this request"),
        ("{{ messages.append(1) }}", "sandbox forbids"),
        ("{{ ''.__class__.__mro__ }}", "sandbox forbids"),
        ("{% set ns = namespace() %}{% set ns._x = 1 %}", "sandbox forbids"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursed too deeply"),
    ],
)
def test_a_template_that_fails_is_the_request_s_error(source: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        ours(source)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "{% for i in range(60000) %}{% for j in range(60000) %}{% endfor %}{% endfor %}",
            "looped over more than",
        ),
        ("{% for i in range(5000) %}{{ 'x' * 1000 }}{% endfor %}", "wrote more than 1000000 characters"),
        ("{{ 'x' * 10000000000 }}", "made something longer"),
        ("{{ [0] * 10000000000 }}", "made something longer"),
        ("{{ 9 ** 9999999 }}", "made something longer"),
    ],
)
def test_a_runaway_template_is_stopped(source: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        ChatTemplate(source, max_output_chars=1_000_000).render({})


def test_a_rendering_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 10_000, 3))
    monkeypatch.setattr("smg.prompt.template.time.monotonic", lambda: next(seconds))
    with pytest.raises(InvalidRequest, match="took more than 5 seconds"):
        ChatTemplate("{% for i in range(5000) %}x{% endfor %}").render({})


def test_a_template_that_is_not_jinja_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        ChatTemplate("ok\n{% for %}")


def test_the_mark_stays_a_character_in_ascii_json() -> None:
    template = ChatTemplate("{{ messages | tojson(ensure_ascii=True) }}")
    rendered = template.render({"messages": "<\ue000\ue001\u00e9\U0001f600", MARK_VARIABLE: "\ue000"})
    assert rendered == '"<\ue000\\ue001\\u00e9\\ud83d\\ude00"'


def test_text_and_names_are_what_the_template_can_write_and_compare_with() -> None:
    template = ChatTemplate("<s>{% if m.role == 'user' %}{{ '<think>' }}{% endif %}")
    assert "<s>" in template.text
    assert "<think>" in template.text
    assert {"role", "user"} <= template.names

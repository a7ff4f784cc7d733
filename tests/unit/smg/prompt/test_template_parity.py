"""ChatTemplate writes byte for byte what Hugging Face's apply_chat_template writes, and refuses what it refuses."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from smg.errors import InvalidRequest
from smg.prompt.continued import render_open
from smg.prompt.conventions import Conventions
from smg.prompt.template import ChatTemplate
from tests.unit.smg.prompt.chat_templates import FAMILIES

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "météo",
            "description": "<b>\"Weather\" & 'more'\n</b>",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {}}},
]
CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "météo", "arguments": {"city": "Zürich", "n": 1.0}},
}
NOW = {"id": "call00002", "type": "function", "function": {"name": "now", "arguments": {}}}
TEXT_CALL = CALL | {"function": {"name": "météo", "arguments": '{"city": "Zürich"}'}}

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one question": [{"role": "user", "content": '  Hi <there> & "you"\n'}],
    "system first": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi"}],
    "several turns": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nOne. "},
        {"role": "user", "content": "2"},
        {"role": "assistant", "content": "Two.", "reasoning_content": "\nbecause\n"},
        {"role": "user", "content": "ünï ✓ 😀"},
    ],
    "system later": [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "One."},
        {"role": "system", "content": "S"},
        {"role": "user", "content": "2"},
    ],
    "two questions in a row": [{"role": "user", "content": "1"}, {"role": "user", "content": "2"}],
    "a call and its result": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "sun", "tool_call_id": "call00001", "name": "météo"},
    ],
    "calls with text arguments": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [TEXT_CALL]},
        {"role": "tool", "content": "rain", "tool_call_id": "call00001"},
        {"role": "assistant", "content": "Rain."},
        {"role": "user", "content": "Thanks"},
    ],
    "two calls with words": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, NOW], "reasoning": "two"},
        {"role": "tool", "content": "sun", "tool_call_id": "call00001"},
        {"role": "tool", "content": "", "tool_call_id": "call00002"},
    ],
    "parts": [
        {"role": "system", "content": [{"type": "text", "text": "S"}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": " a "}, {"type": "image"}, {"type": "text", "text": "b"}],
        },
    ],
    "developer": [{"role": "developer", "content": "D"}, {"role": "user", "content": "Hi"}],
    "continuing": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The answer is "}],
    "nobody": [],
}

# What templates are made of, one construct each.
CONSTRUCTS = {
    "loop variables": "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ loop.last }}"
    " {{ loop.revindex0 }} {{ loop.revindex }} {{ loop.depth }} {{ loop.previtem.role if loop.previtem is defined else '-' }}"
    " {{ loop.nextitem.role if loop.nextitem is defined else '-' }} {{ loop.changed(m.role) }} {{ loop.cycle('a', 'b') }}\n"
    "{% else %}nobody{% endfor %}",
    "recursive loops": "{% for n in [{'v': 1, 'c': [{'v': 2, 'c': [{'v': 3}]}]}] recursive %}{{ n.v }}@{{ loop.depth }}"
    "{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}",
    "filtered loops": "{% for m in messages if m.role in ('user', 'tool') %}{{ loop.index }}{{ m.role }}{% endfor %}",
    "namespace": "{% set ns = namespace(last=-1, found=false) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.last }} {{ ns.found }} {{ ns.no }}",
    "growing variables": "{% set ns = namespace(text='', all=[]) %}{% for m in messages %}{% set ns.text = ns.text ~ m.role + '|' %}"
    "{% set ns.all = ns.all + [m.role] %}{% endfor %}{{ ns.text }}{{ ns.all }}{% set a, b = 1 + 1, 'x' ~ 'y' %}{{ a }}{{ b }}",
    "underscored namespace": "{% set ns = namespace(_x=1) %}{{ ns._x }}",
    "blocks in variables": "{% set text %}{% for m in messages %}<{{ m.role }}>{% endfor %}{% endset %}{{ text | upper }}{{ text | length }}"
    "{% set t | replace('a', 'o') %}banana{% endset %}{{ t }}{% filter upper %}x{{ messages | length }}{% endfilter %}",
    "macros": "{% macro show(m, indent=0) -%}{{ ' ' * indent }}{{ m.role }}{{ varargs }}{{ kwargs }}{%- endmacro %}"
    "{% for m in messages %}{{ show(m, indent=loop.index) }}{{ show(m, 1, 2, k=3) }}\n{% endfor %}",
    "call block": "{% macro wrap(tag) %}<{{ tag }}>{{ caller(tag) }}</{{ tag }}>{% endmacro %}"
    "{% call(t) wrap('x') %}{{ t }}{{ messages | length }}{% endcall %}",
    "tools as JSON": "{% for t in tools or [] %}{{ t | tojson }}\n{{ t | tojson(indent=2) }}\n{{ t | tojson(2) }}"
    "{{ t.function | tojson(ensure_ascii=True, sort_keys=True, separators=(',', ':')) }}{% endfor %}{{ messages | tojson(indent=4) }}",
    "dates": "{{ strftime_now('%Y') }}{% if strftime_now is defined %}!{% endif %}",
    "generation tag": "{% for m in messages %}{% generation %}{{ m.role }}{% if loop.last %}.{% endif %}{% endgeneration %}{% endfor %}",
    "break and continue": "{% for m in messages %}{% if m.role == 'assistant' %}{% continue %}{% endif %}{{ m.role }}"
    "{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}",
    "white space control": "{%- for m in messages %}\n    {%- if true %}\n  a {{- m.role -}} b\n    {% endif %}\n{%- endfor %}\n end\n",
    "blocks trimmed": "  {% if messages %}\n  x\n  {% endif %}\n{# note #}\ny\n\t{%+ if true %} z{% endif +%}\n w\n",
    "raw": "{% raw %}{{ not }} {% this %}{% endraw %}{{ '{{' }}",
    "tests": "{{ x is defined }} {{ x is undefined }} {{ tools is none }} {{ messages is sequence }} {{ messages is iterable }}"
    " {{ messages is mapping }} {{ 1 is number }} {{ true is boolean }} {{ 'a' is in 'abc' }} {{ 3 is odd }} {{ 4 is divisibleby(2) }}"
    " {{ 1.5 is float }} {{ 'x' is string }} {{ none is not none }} {{ true is true }} {{ 1 is eq(1) }} {{ 1 is sameas(true) }}",
    "string methods": "{% set c = '  <think>a</think>b c  ' %}{{ c.split('</think>')[-1].lstrip() }}|{{ c.strip().startswith('<think>') }}"
    "|{{ c.replace('a', 'dog', 1).upper() }}|{{ 'a,b'.split(',') }}|{{ c.partition('b') }}|{{ c.find('b') }}|{{ c.strip().removeprefix('<think>') }}"
    "|{{ ', '.join(['x', 'y']) }}|{{ 'x'.center(5) }}|{{ 'x'.zfill(3) }}|{{ 'ab'.title() }}|{{ '\n'.join(messages | map(attribute='role')) }}",
    "format strings": "{{ '%s-%d' | format('a', 3) }}{{ '%s|%5.1f' % ('a', 2.25) }}{{ '{}:{:>4}'.format('a', 3) }}{{ '{0.role}'.format(messages[0]) if messages }}",
    "slicing": "{% for m in messages[1:] %}{{ m.role }}{% endfor %}{% for m in messages[::-1] %}{{ m.role }}{% endfor %}"
    "{{ 'abcdef'[2:4] }}{{ 'abcdef'[-2:] }}{{ (messages | last).role }}{{ (messages | first).role }}{{ messages[:2] | length }}",
    "filters": "{{ messages | map(attribute='role') | list }} {{ messages | selectattr('role', 'equalto', 'tool') | list | length }}"
    " {{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | join(', ') }} {{ [3, 1, 2] | sort | join('-') }}"
    " {{ {'b': 1, 'a': 2} | dictsort }} {{ messages | groupby('role') | map('first') | list }} {{ [1, 2, 3, 4, 5] | batch(2, 0) | list }}"
    " {{ [1, 2, 3] | slice(2) | list }} {{ 'a b' | title | wordcount }} {{ [[1, 2], [3]] | sum(start=[]) }} {{ 'abc' | reverse }}"
    " {{ ['a', 'b', 'a'] | unique | list }} {{ -3 | abs }} {{ 2.5 | round | int }} {{ 'x\ny' | indent(2, true) }} {{ '5' | int + 1 }}"
    " {{ messages | join('+', attribute='role') }} {{ 'x' | center(5) }}| {{ none | default('d', true) }} {{ missing | default('d') }}",
    "dicts": "{% for k, v in {'b': 1, 'a': none}.items() %}{{ k }}={{ v }};{% endfor %}{{ dict(a=1) }}{{ {'a': 1}.get('nope', 'd') }}"
    "{{ {'items': 5}['items'] }}{{ {'a': 1}.keys() | list }}{{ (messages[0].items is callable) if messages }}{{ 'role' in (messages[0] if messages else {}) }}",
    "ranges": "{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}{{ range(3) | list }}{{ 2 ** 8 }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 'ab' * 2 }}",
    "conditions": "{{ 'a' if messages else 'b' }}{{ 'x' if false }}{{ not tools }}{{ 1 < 2 < 3 }}{{ (1, 2) == [1, 2] }}{{ none }}{{ true and 0 or 'z' }}",
    "scopes": "{% set x = 1 %}{% for m in messages %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}{% with y = 5 %}{{ y }}{% endwith %}{{ y }}",
    "joiner and cycler": "{% set sep = joiner(', ') %}{% for m in messages %}{{ sep() }}{{ m.role }}{% endfor %}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}",
    "variables": "{{ bos_token }}{{ enable_thinking }}{{ add_generation_prompt }}{{ (documents[0].title) if documents }}{{ missing }}{{ missing.more if missing }}",
    "undefined members": "{{ messages[0].nothing }}{{ messages[99] }}{% for x in missing %}x{% endfor %}{{ missing | length }}{{ missing ~ 'a' }}",
    "undefined used": "{{ missing.more }}",
    "undefined added": "{{ 'a' + missing }}",
    "wrong types": "{{ 'a' + 1 }}",
    "reasoning names": "{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }}|{% endfor %}{{ messages[0].keys() | list if messages }}",
    "null content": "{% for m in messages %}{{ m.content is none }}{{ 'content' in m }}{{ m.content is string }}|{% endfor %}",
    "mutation": "{{ messages.append(1) }}",
    "mutation by class": "{{ dict.update(messages[0], x=1) }}{{ messages[0].x }}",
    "insides": "{{ ''.__class__.__mro__ }}",
    "refusal": "{% if messages | length > 2 %}{{ raise_exception('too long: ' ~ messages | length) }}{% endif %}ok",
    "division by zero": "{{ 1 // (messages | length - 1) }}",
}

VARIABLES: dict[str, Any] = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "enable_thinking": False,
    "documents": [{"title": "T", "text": "x\ny"}, {"title": "U", "text": ""}],
}
REFUSED = object()
AS_SENT = Conventions(
    part_roles=frozenset(("system", "developer", "user", "assistant", "tool")), knows_developer=True
)


def theirs(source: str, chat: list[dict[str, Any]], **options: Any) -> object:
    try:
        rendered, _ = render_jinja_template([chat], chat_template=source, **options)
    except Exception:  # noqa: BLE001 - whatever a template raises comes through there
        return REFUSED
    return rendered[0]


@cache
def compiled(source: str) -> ChatTemplate:
    return ChatTemplate(source)


def ours(source: str, chat: list[dict[str, Any]], **options: Any) -> object:
    try:
        return compiled(source).render({"messages": AS_SENT.adapted(chat), **options})
    except InvalidRequest:
        return REFUSED


@pytest.mark.parametrize("name", [*FAMILIES, *CONSTRUCTS])
def test_every_conversation_is_written_as_by_apply_chat_template(name: str) -> None:
    source = FAMILIES.get(name) or CONSTRUCTS[name]
    written = 0
    for title, chat in CONVERSATIONS.items():
        for tools in (None, TOOLS):
            for opened in (True, False):
                options = {**VARIABLES, "tools": tools, "add_generation_prompt": opened}
                expected = theirs(source, chat, **options)
                assert ours(source, chat, **options) == expected, f"{title}, tools: {tools is not None}"
                written += expected is not REFUSED
    always_refused = {
        "mutation",
        "mutation by class",
        "insides",
        "undefined used",
        "undefined added",
        "wrong types",
        "underscored namespace",
    }
    assert (written == 0) == (name in always_refused)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    "text",
    [
        "The answer is",
        "The answer is ",
        "\nThe\n\n",
        "",
        " ",
        "<think>\nso far",
        "<think>a</think>b",
        "a\tb ✓\n",
    ],
    ids=ascii,
)
def test_a_continued_message_ends_where_theirs_does(name: str, text: str) -> None:
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}]
    if name == "parts only":
        chat = [each | {"content": [{"type": "text", "text": each["content"]}]} for each in chat]
    expected = theirs(FAMILIES[name], chat, continue_final_message=True, **VARIABLES)
    scope = {**VARIABLES, "tools": None, "messages": AS_SENT.adapted(chat)}
    try:
        continued: object = render_open(compiled(FAMILIES[name]), scope, "").rendered
    except InvalidRequest:
        continued = REFUSED
    assert continued == expected

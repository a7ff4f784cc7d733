"""What tools answer becomes text: joined, bounded, without the bytes of media."""

import json

from mcp import types

from smg.mcp.results import failed_result, tool_result


def text(value):
    return types.TextContent(type="text", text=value)


def test_text_parts_stand_on_lines_and_the_model_sees_the_parts():
    result = tool_result([text("one"), text("two")], None, 100, is_error=False)
    assert result.text == "one\ntwo"
    assert result.content_json == '[{"type":"text","text":"one"},{"type":"text","text":"two"}]'


def test_all_parts_share_one_bound_and_the_cut_is_told():
    result = tool_result([text("é" * 10), text("x" * 50)], None, 25, is_error=False)
    first, second = json.loads(result.content_json)
    assert first["text"] == "é" * 10
    assert second["text"] == "xxxxx\n[cut off: 45 more bytes]"


def test_media_are_named_and_structured_content_is_shown_where_there_is_nothing_else():
    image = types.ImageContent(type="image", data="QUJD", mime_type="image/png")
    (shown,) = json.loads(tool_result([image], None, 100, is_error=False).content_json)
    assert shown == {"type": "image", "mimeType": "image/png", "data": "[4 characters of base64]"}
    assert tool_result([], {"a": 1}, 100, is_error=False).text == '{"a": 1}'
    assert failed_result("no").is_error

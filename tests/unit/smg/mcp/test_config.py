"""The file of --mcp-config-path: what it names, and what is said of a wrong one without telling secrets."""

import pytest

from smg.mcp.config import read_config
from smg.mcp.values import ServerSpec


def written(tmp_path, text):
    path = tmp_path / "mcp.yaml"
    path.write_text(text)
    return path


def test_servers_and_builtins(tmp_path):
    text = """
servers:
  - {name: Web, protocol: streamable, url: 'https://a.example/mcp', token: t,
     builtin_type: web_search_preview, builtin_tool_name: search}
  - {name: files, protocol: stdio, command: run, args: [-y], envs: {KEY: v}}
"""
    found = read_config(written(tmp_path, text))
    assert found.servers["files"] == ServerSpec(
        "files", "stdio", command="run", args=("-y",), env=(("KEY", "v"),), is_configured=True
    )
    assert found.servers["web"].headers == (("Authorization", "Bearer t"),)
    assert found.builtins["web_search_preview"].tool_name == "search"
    assert "Bearer" not in repr(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("servers: [{name: a, protocol: stdio}]", "a stdio server needs a command"),
        ("servers: [{name: a, protocol: sse, url: 'ftp://x'}]", "url must begin with"),
        ("servers: [{name: a, protocol: carrier}]", "servers.0.protocol"),
        ("servers: [{name: a, protocol: stdio, command: x, sercet: 1}]", "servers.0.sercet"),
        ("servers: [{name: 1a, protocol: stdio, command: x}]", "servers.0.name"),
        (
            "servers: [{name: a, protocol: stdio, command: x}, {name: A, protocol: stdio, command: x}]",
            "two servers have the name A",
        ),
        ("servers: [{name: a, protocol: stdio, command: x, builtin_type: file_search}]", "go together"),
        ("servers: [", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, said):
    with pytest.raises(ValueError, match=said):
        read_config(written(tmp_path, text))


def test_a_fault_does_not_tell_the_token(tmp_path):
    path = written(tmp_path, "servers: [{name: a, protocol: sse, url: 'ftp://x', token: [hunter2]}]")
    with pytest.raises(ValueError, match="servers") as caught:
        read_config(path)
    assert "hunter2" not in str(caught.value)

"""The shape of calls in which tags carry names as attributes: <invoke name="f"><parameter name="key">value</parameter></invoke>.

Several families have it, each with its own tags. A value is all that stands between its tags, white space too.
"""

from __future__ import annotations

import re

from smg.parsers.markers import Markers
from smg.parsers.tools.heads import HeadShape
from smg.parsers.tools.xml_call import XmlShape


def invoke_shape(
    invoke_end: str, parameter: str, parameter_end: str, *, lead: str = "", inner: tuple[str, ...] = ()
) -> XmlShape:
    """The shape with these tags, behind `<invoke`.

    Args:
        invoke_end: closes a call.
        parameter: opens an argument, without what stands before ">".
        parameter_end: closes it.
        lead: a pattern of what stands before ` name=` of the call.
        inner: marks in it.
    """
    name = r"""\s+name=["']?(?P<name>[^"'\s>]+)["']?\s*>"""
    key = r"""\s+name=["']?(?P<key>[^"'>]+?)["']?(?:\s+string=["']?(?P<is_string>true|false)["']?)?\s*>"""
    return XmlShape(
        name=HeadShape(">", inner=inner, stops="" if inner else "<"),
        name_pattern=re.compile(lead + name),
        key=parameter,
        end=invoke_end,
        between=HeadShape(parameter, invoke_end, only_space=True),
        key_head=HeadShape(">", stops="<"),
        key_pattern=re.compile(key),
        value_end=Markers((parameter_end,)),
    )

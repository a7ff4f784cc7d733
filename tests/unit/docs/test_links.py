"""The documentation: links lead somewhere, anchors are headings, files and flags that it names are there."""

import re
from functools import cache
from pathlib import Path

import pytest

import servicers.flags
from smg.cli import chat, conformance
from smg.cli.doctor import command as doctor
from smg.cli.top import command as top
from smg.settings import ServeSettings, options_of

ROOT = Path(__file__).parents[3]
FOLDERS = ("docs", "deploy", "benchmarks", "examples", "tests")
PAGES = [*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))]
NAMES = sorted(str(path.relative_to(ROOT)) for path in PAGES)
# Where a word in backticks that begins so is a path of ours.
TOPS = (
    "smg/",
    "gateway/",
    "servicers/",
    "docs/",
    "deploy/",
    "tests/",
    "scripts/",
    "benchmarks/",
    "examples/",
    "proto/",
)

# Flags of other programs.
FOREIGN = frozenset(
    (
        *("--grammar-backend", "--profile", "--build", "--build-arg", "--from-literal", "--concurrency"),
        *("--kv-events-config", "--smg-grpc-mode", "--no-deps"),
    )
)

_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
_FENCE = re.compile(r"(?ms)^( *)(```|~~~).*?^\1\2[ ]*$")
_LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")


@cache
def text_of(path):
    return path.read_text()


@cache
def prose_of(path):
    """A page without its blocks of code."""
    return _FENCE.sub("", text_of(path))


@cache
def anchors_of(path):
    """What GitHub makes of the headings."""
    found = set()
    for heading in re.findall(r"(?m)^#{1,6} +(.+?) *#*$", prose_of(path)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (each := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(each)
    return found


def broken_links(page, root=ROOT):
    """Links of a page that lead nowhere, or out of the repository."""
    for link in _LINK.findall(_CODE.sub("", prose_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        is_ours = path.exists() and path.is_relative_to(root)
        if not is_ours or (anchor and (path.suffix != ".md" or anchor not in anchors_of(path))):
            yield link


def missing_files(page, root=ROOT):
    """Paths of ours in backticks that are not there. Patterns and placeholders are none."""
    for word in _CODE.findall(prose_of(page)):
        # What stands behind "::" is a test of that file.
        path = word.split()[0].partition("::")[0].rstrip(".,:;") if word.strip() else ""
        is_pattern = re.search(r"[*<>{}…]|NAME|DATE", path)
        if path.startswith(TOPS) and not is_pattern and not (root / path).exists():
            yield word


def unknown_flags(page):
    """Flags that no command of ours has."""
    return set(_FLAG.findall(text_of(page))) - known_flags() - FOREIGN


@cache
def known_flags():
    options = options_of(ServeSettings)
    switches = {option.flag.replace("--", "--no-", 1) for option in options if option.is_switch}
    parsers = (
        servicers.flags._new_parser(),
        doctor._parser(),
        top._parser(),
        chat._parser(),
        conformance._parser(),
    )
    others = {flag for parser in parsers for action in parser._actions for flag in action.option_strings}
    return {option.flag for option in options} | switches | others | {"--config"}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_and_headings(name):
    assert list(broken_links(ROOT / name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_named_are_there(name):
    assert list(missing_files(ROOT / name)) == []


@pytest.mark.parametrize("name", [name for name in NAMES if re.match(r"README|docs/[^/]*$", name)])
def test_flags_that_are_named_are_ours(name):
    assert unknown_flags(ROOT / name) == set()


def test_the_checks_see_faults(tmp_path):
    (tmp_path / "other.md").write_text("# Two words, `three`\n\n## Two words, three\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#two-words-three-1) [c](none.md) [d](other.md#four) [e](../x.md) [f](#here)\n"
        "`docs/none.md` `docs/NAME.md` `smg launch --quick --port 1`\n\n```\n[g](none.md) `docs/gone.md`\n```\n\n# Here\n"
    )
    assert list(broken_links(page, tmp_path)) == ["none.md", "other.md#four", "../x.md"]
    assert list(missing_files(page, tmp_path)) == ["docs/none.md"]
    assert unknown_flags(page) == {"--quick"}


def test_every_page_of_the_documentation_is_in_its_index():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(text_of(index))}
    pages = set((ROOT / "docs").rglob("*.md")) - {index}
    assert {str(path.relative_to(ROOT)) for path in pages - linked} == set()


def test_the_readme_stays_one_screen():
    assert len(text_of(ROOT / "README.md").splitlines()) <= 90

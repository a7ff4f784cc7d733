"""ebnf_to_lark: the language stays the same, whatever the spelling; checked by llguidance itself."""

import pytest
from llguidance import LLMatcher, LLTokenizer

from servicers.local.ebnf import EbnfError, ebnf_to_lark
from tests.unit.servicers.local.byte_tokenizer import EOS, VOCAB_SIZE, byte_tokenizer_json, ids_of

TOKENIZER = LLTokenizer(byte_tokenizer_json(), n_vocab=VOCAB_SIZE, eos_token=[EOS])


def language_of(text: str, *candidates: str) -> set[str]:
    """Those of the candidates that the grammar accepts."""
    grammar = LLMatcher.grammar_from_lark(ebnf_to_lark(text))
    matcher = LLMatcher(TOKENIZER, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    accepted = set()
    for candidate in candidates:
        ids = ids_of(candidate)
        matcher.reset()
        if matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting():
            accepted.add(candidate)
    return accepted


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= "a" | "b"', {"a", "b"}, {"", "ab"}),
        ('root ::= "a"\n  | "b"\n  | ""', {"a", "b", ""}, {"c"}),  # alternatives on lines of their own
        ("root ::= 'it\\'s' \"\\\"\"", {"it's\""}, {"its"}),
        ('root ::= "\\x41\\u00e9\\U0001F600\\n\\t"', {"Aé😀\n\t"}, {"A"}),
        ('root ::= [a-c]+ [^a-c"\\]] [\\]\\-x] [-]', {"abdx-", "cz]-", "a1--"}, {"ab]x-", "adx"}),
        ('root ::= [^"]*', {"", "a\nb", "中"}, {'"'}),
        ('root ::= . "/"', {"x/", "中/"}, {"\n/", "/"}),
        ('root ::= "a"? "b"* ("c" | "d")+', {"c", "abbcd", "bd"}, {"", "aac", "ab"}),
        ('root ::= "a"{2} "b"{1,2} "c"{2,} "d"{ 0 , 1 }', {"aabcc", "aabbcccd"}, {"abcc", "aabbbcc", "aabc"}),
        ('root ::= item ("," item)*  # a list\nitem ::= [0-9]+ (* digits *)', {"1", "12,3"}, {",", "1,"}),
        (
            'root ::= expr\nexpr ::= term ("+" term)*\nterm ::= [0-9] | "(" expr ")"',
            {"1+(2+3)"},
            {"1+", "(1"},
        ),
        ('root ::= a-rule aRule A_RULE\na-rule ::= "1"\naRule ::= "2"\nA_RULE ::= "3"', {"123"}, {"12"}),
        ('b ::= "y"\nroot ::= "x" b', {"xy"}, {"y"}),
        ('root ::= ws "x"\nws ::= | " " ws', {"x", "  x"}, {" "}),
    ],
)
def test_the_language_is_that_of_the_grammar(grammar, good, bad):
    assert language_of(grammar, *good, *bad) == good


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("", "no rule 'root'"),
        ('start ::= "a"', "rules: start"),
        ("root ::= missing", "'missing', which is not defined"),
        ('root ::= ("a"', "line 1: expected '\\)', found 'the end'"),
        ('root ::= "a"\nroot ::= "b"', "line 2: rule 'root' is defined twice"),
        ('root ::= "a', "line 1: unexpected"),
        ("root ::= [a-", "line 1: unexpected"),
        ("root ::= [z-a]", "runs backwards"),
        ('root ::= "a"{3,2}', "at least 3 and at most 2"),
        ('root ::= "\\uD800"', "not a character"),
        ('root ::= "a" )', "expected a rule"),
        ("root ::= " + "(" * 200 + '"a"' + ")" * 200, "nested more than 100 deep"),
    ],
)
def test_a_fault_is_named(grammar, message):
    with pytest.raises(EbnfError, match=message):
        ebnf_to_lark(grammar)

"""YAML text: what is read as kubectl reads it, and what is refused before it takes time or memory."""

import pytest
from trimtab_api.errors import UserError
from trimtab_api.yaml import MAX_VALUES, parse_documents, parse_yaml


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("\ufeffa: 1\r\nb:\r\n- 2\r\n", {"a": 1, "b": [2]}),
        ("a: 1\t# a tab before a comment\nb:\t2\t\nc: [1,\t2]", {"a": 1, "b": 2, "c": [1, 2]}),
        ("a: &x {k: 1}\nb: *x\nc: {<<: *x, l: 2}", {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}}),
        ("a:\nb: ~", {"a": None, "b": None}),
        ("a: '1e-4'\nb: \"Y\"\nc: !!str 008\nd: !!float 3\ne: !!int '0x10'\nf: <<", {
            "a": "1e-4", "b": "Y", "c": "008", "d": 3, "e": 16, "f": "<<",
        }),
        ("{1: a, '2': b}", {1: "a", "2": "b"}),
        ('{"a": "\\ud83d\\ude00 ü", "b": "😀"}', {"a": "😀 ü", "b": "😀"}),
    ],
)  # fmt: skip
def test_what_kubectl_takes_is_read(text, data):
    assert parse_yaml(text) == data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y: 1", "at line 1, column 1: the key y is not read as text; put it in quotes"),
        ("a:\n  1e-4: x", "at line 2, column 3: the key 1e-4 is not read as text; put it in quotes"),
        ("~: 1", "at line 1, column 1: the key ~ is not read as text; put it in quotes"),
        ("1: a\n'1': b", "is not valid YAML at line 2, column 1: the key 1 is written twice; mend it there"),
        ("1: a\n0x1: b", "is not valid YAML at line 2, column 1: the key 0x1 is written twice; mend it there"),
        ("a: !!set {b}", "at line 1, column 4: the tag !!set is not read; remove it"),
        ("a: !mine b", "at line 1, column 4: the tag !mine is not read; remove it"),
        ("a: !!int b", "at line 1, column 4: b is not of the type of its tag; remove !!int"),
        (
            'a: "\\ud83d"',
            "at line 1, column 4: the text holds half of a character that \\u writes in two parts; write both",
        ),
        ("a: -.inf", "at line 1, column 4: -.inf is not a number in JSON, which kubectl sends; write a finite number"),
    ],
)
def test_what_means_something_else_on_a_cluster_is_refused_with_its_place(text, message):
    with pytest.raises(UserError) as error:
        parse_yaml(text)
    assert str(error.value) == message


def test_several_documents_are_read_in_their_order_and_empty_ones_left_out():
    assert parse_documents("# a comment\n---\na: 1\n---\n---\n- b\n...\n") == [{"a": 1}, ["b"]]
    assert parse_documents("") == []


def nested(first, each):
    """Ten levels, each of which names the one before ten times."""
    return f"a0: &a0 {first}\n" + "".join(f"a{i}: &a{i} {each(', '.join([f'*a{i - 1}'] * 10))}\n" for i in range(1, 11))


@pytest.mark.parametrize(
    "text",
    [
        nested("[x]", lambda aliases: f"[{aliases}]"),
        nested("{k: v}", lambda aliases: f"{{<<: [{aliases}]}}"),
        f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]",
        f"[{', '.join(['1'] * (MAX_VALUES + 1))}]",
    ],
    ids=["aliases", "merge keys", "long text", "plain values"],
)
def test_more_values_than_the_most_are_refused_aliases_counted_as_what_they_stand_for(text):
    with pytest.raises(UserError, match=f"holds more than {MAX_VALUES} values"):
        parse_yaml(text)


def test_some_aliases_of_something_large_are_taken():
    assert len(parse_yaml(f"a: &a [{', '.join(['1'] * 1000)}]\nb: [{', '.join(['*a'] * 10)}]")["b"]) == 10

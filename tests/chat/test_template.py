"""Templates are rendered as transformers renders them, without clock and chance."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.builders.chats import (
    a_conversation,
    canonical,
    encoded,
    encoder,
    needs_new_transformers,
    peer,
    tokenizer,
    told,
)
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.rendering import ChatSettings
from tokenmill.chat.template import ChatTemplate, regions
from tokenmill.config.chat_params import Chat
from tokenmill.corpus.conversations import of_messages
from tokenmill.errors import ChatError, TemplateError

ONE = [told("user", '<é & "x">', extra={"b": [1, 2.5, None], "a": True})]
SAME = [
    "{% for m in messages %}\n  {% if true %}\n    x\n  {% endif %}\n{{ m.content }}{% endfor %}",
    "{{ messages | tojson }}|{{ messages[0].extra | tojson(indent=2) }}|{{ messages[0].extra | tojson(sort_keys=true) }}",
    "{{ messages[0] | tojson(separators=(',', ':')) }}{{ messages[0].content | tojson(ensure_ascii=true) }}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(messages[0].role) }}{{ m('y') }}",
    "{{ tools is none }}{{ tools is defined }}{{ documents }}{{ add_generation_prompt }}{{ nothing }}{{ messages[0].nothing }}",
    "{{ dict(a=1) }}{{ messages[0].content.split(' ') }}{{ '%s' % 3 }}{{ '{}'.format(4) }}",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}",
    "a{%- generation -%} b {%- endgeneration -%} c",
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
]


DATED = [
    "{{ strftime_now('%Y-%m-%d') }}",
    "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}26 Jul 2024{% endif %}",
    "{{ 'Today is ' + strftime_now('%B %-d, %Y') + '.' }}{{ strftime_now('%A %j %U %y') | upper }}",
    "{% set ns = namespace(day=strftime_now('%d') | int) %}{{ ns.day - 1 }}",
    "{% macro today() %}{{ strftime_now('%Y-%m-%d') }}{% endmacro %}{% set head %}{{ today() }}{% endset %}{{ head }}",
    "{{ strftime_now('') }}{{ strftime_now('100 %%s') }}{{ strftime_now('%Y') | tojson }}",
]
ENVIRONMENT = [
    "{{ dict(a=1) | tojson }}{{ dict.fromkeys('ab', 0) }}{{ dict([('k', 2)]).items() | list }}",
    "{{ messages | tojson(indent=4) }}{{ messages[0].extra | tojson(indent=0, separators=(',', ': '), sort_keys=true) }}",
    "{{ messages[0].extra | tojson(true, 1) | safe }}{{ ('<&>' | tojson) ~ \"'\" | tojson }}{{ 'é' | tojson(ensure_ascii=true) }}",
    "{{ messages | map(attribute='role') | join(', ') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{% set j = joiner('|') %}{{ j() }}x{{ j() }}y",
    "{% if 1 > 2 %}{{ raise_exception('never') }}{% endif %}{{ messages[0].content is string }}{{ messages is iterable }}",
    "{% set ns = namespace(**{'a': 1}) %}{{ ns.a }}{{ range(3) | list }}{{ messages[0] | items | list }}",
    "{{ messages[0].content | string | trim | indent(2) }}{{ messages[0].get('nothing', 'n') }}{{ 7 // 2 }}{{ 'a' in 'abc' }}",
]


def shown(template: str, messages: list[dict[str, Any]]) -> str:
    text: str = encoded(encoder(template=template, mask="all"), messages).texts[0].as_py()
    return text


def text_of(template: str, conversation: str) -> str:
    found = encoder(template=template, mask="all").encode_batch(pa.array([conversation], pa.large_string()))
    text: str = found.texts[0].as_py()
    return text


@pytest.mark.parametrize("template", SAME)
def test_a_template_writes_what_it_writes_in_transformers(template: str) -> None:
    wanted = peer("plain").apply_chat_template(ONE, chat_template=template, tokenize=False)
    assert shown(template, ONE) == wanted


@pytest.mark.parametrize("template", ENVIRONMENT)
def test_every_function_of_transformers_environment_writes_the_same(template: str) -> None:
    assert shown(template, ONE) == peer("plain").apply_chat_template(ONE, chat_template=template, tokenize=False)


@pytest.mark.parametrize("template", DATED)
def test_a_template_writes_the_day_that_is_set(template: str) -> None:
    def written(day: str) -> str:
        return ChatTemplate(template, {}, "x", day).marked(ONE, None, ("", ""))

    wanted = day = ""
    while day != str(date.today()):  # unless midnight is between
        day = str(date.today())
        wanted = peer("plain").apply_chat_template(ONE, chat_template=template, tokenize=False)
    assert written(day) == wanted
    assert written("2025-01-31") == written("2025-01-31")
    if "%" in template.replace("%%", "").replace("{%", "").replace("%}", ""):
        assert written("2025-01-31") != written("2024-02-29")


@pytest.mark.parametrize("turns", ["together", "each"])
def test_ids_have_the_day_that_is_set(turns: Any) -> None:
    """The process that renders gets it, too, and a template may do without."""
    text = "{% for m in messages %}{{ strftime_now('%d %b %Y') if strftime_now is defined }} {{ m.content }}</s>{% endfor %}"
    messages = [told("user", "a"), told("assistant", "b")]
    for day, wanted in (("2025-01-31", "31 Jan 2025"), (None, "")):
        one = ChatEncoder(tokenizer("plain"), ChatSettings(text, "assistant", {}, turns=turns, date=day), "x")
        assert encoded(one, messages).texts[0].as_py() == f"{wanted} a</s>{wanted} b</s>"
    for seconds in ("%s", "%-s", "%_12s", "%Es", "%%%s"):
        with pytest.raises(ChatError, match="%s is another number in each time zone"):
            settings = ChatSettings(f"{{{{ strftime_now('{seconds}') }}}}", "all", {}, date="2025-01-31")
            encoded(ChatEncoder(tokenizer("plain"), settings, "x"), messages)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("2025-01-31", "2025-01-31"),
        (None, None),
        ("31 Jan 2025", "found '31 Jan 2025'; allowed: a day such as \"2025-01-31\""),
        ("2025-02-30", "found '2025-02-30'"),
        ("20250131", "found '20250131'"),
        (date(2025, 1, 31), 'found 2025-01-31; allowed: "2025-01-31" in quotation marks'),
        (datetime(2025, 1, 31), 'allowed: "2025-01-31" in quotation marks'),
        (20250131, "string"),
    ],
)
def test_a_day_is_a_date_of_the_calendar(value: object, wanted: str | None) -> None:
    if wanted in (None, "2025-01-31"):
        assert Chat(template="x", date=value).date == wanted
        return
    with pytest.raises(ValueError, match=wanted):
        Chat(template="x", date=value)


@needs_new_transformers
@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_thinking_is_rendered_as_transformers_renders_it(key: str) -> None:
    messages = [told("user", "q"), told("assistant", "a", **{key: "t"})]
    conversation = of_messages(messages, None).json.decode()
    assert (
        text_of(
            "{{ messages[1].reasoning_content }} {{ messages[1].thinking }} {{ messages[1].content }}", conversation
        )
        == "t t a"
    )
    template = "{{ messages | tojson }}"
    if key == "reasoning":  # transformers keeps this key beside the others
        messages = json.loads(conversation)["messages"]
    wanted = peer("plain").apply_chat_template(messages, chat_template=template, tokenize=False)
    assert text_of(template, conversation) == wanted


def test_regions_of_a_macro_or_of_a_set_block_are_found_where_they_are() -> None:
    template = (
        "{% macro answer(m) %}A:{% generation %}{{ m.content }}{% endgeneration %};{% endmacro %}"
        "{% set kept %}B:{% generation %}x{% endgeneration %}{% endset %}{{ answer(messages[0]) }}{{ kept }}"
    )
    found = encoded(encoder(template=template), [told("assistant", "é🙂")])
    ids, mask = found.input_ids[0].as_py(), found.loss_mask[0].as_py()
    trained = tokenizer("plain").decode([id for id, flag in zip(ids, mask, strict=True) if flag])
    assert (found.texts[0].as_py(), trained) == ("A:é🙂;B:x", "é🙂x")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ("{{ x | trim }}", "keeps a generated region in a variable or a macro, and changes what is in it"),
        ("{{ x[1:] }}", "the end of a generated region without its beginning"),
        ("{{ x[:3] }}", "the beginning of a generated region without its end"),
        ("{{ x | length }}", "changes what is in it"),
    ],
)
def test_a_region_that_the_template_changes_is_refused(after: str, words: str) -> None:
    template = "{% set x %}{% generation %} {{ messages[0].content }}{% endgeneration %}{% endset %}[" + after + "]"
    with pytest.raises(ChatError, match=words):
        encoded(encoder(template=template), [told("assistant", "yes ")])


def test_a_region_that_a_loop_leaves_is_refused() -> None:
    template = "{% for m in messages %}{% generation %}x{% break %}{% endgeneration %}{% endfor %}"
    with pytest.raises(ChatError, match="the beginning of a generated region without its end"):
        encoded(encoder(template=template), [told("assistant", "yes")])


def test_regions_inside_regions_are_one() -> None:
    found = regions("(a(b)c)", ("(", ")"))
    assert (found.text, found.generated) == ("abc", [(0, 3), (1, 2)])


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for m in messages %}\n{{ m.content }", r"chat\.jinja: the chat template is not valid Jinja at line 2: "),
        ("{% generation %}x", "not valid Jinja at line 1: "),
        ("{% do messages %}", r"Encountered unknown tag 'do'\. Correct that line\.$"),
        ("{{ 1" + " + 1" * 20_000 + " }}", "too long or nested too deeply"),
        ("{% break %}", r"chat\.jinja: the chat template does not compile: 'break' outside loop"),
        ("{% for i in 'a' %}" * 25 + "{% endfor %}" * 25, "does not compile: too many statically nested blocks"),
        ("{{ " + "1" * 5_000 + " }}", "does not compile: .*digits"),
        ("{{ messages | random }}", "No filter named 'random'"),
        ("{{ pad_token }}", "writes pad_token, whose text is not known"),
        ("{{ unk_token + 'x' }}", "writes unk_token, whose text is not known"),
        ("{% set x = cls_token ~ 'x' %}{% if x %}{{ x }}{% endif %}", "writes cls_token, whose text is not known"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(template: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        encoder(template=template)


def test_a_token_that_the_tokenizer_lacks_is_refused() -> None:
    with pytest.raises(
        TemplateError, match=r"chat\.jinja: bos_token: expected the text of a token, such as <s>.*; found '<bos>'"
    ):
        encoder(template="{{ bos_token }}", bos_token="<bos>")
    encoder(template="{{ messages }}", bos_token="<bos>")


@pytest.mark.parametrize("flag", ["single_word", "normalized"])
def test_special_tokens_that_cannot_be_told_from_text_are_refused(flag: str) -> None:
    from tests.builders import chats

    document = chats.DOCUMENTS["nfc"]()
    added = [{**one, flag: True} if one["content"] == "<s>" else one for one in document["added_tokens"]]
    made_by = {**chats.DOCUMENTS, flag: lambda: {**document, "added_tokens": added}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chats, "DOCUMENTS", made_by)
        with pytest.raises(TemplateError, match=rf"token '<s>' has the flag {flag}"):
            encoder(flag, "chatml")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            "{{ raise_exception('roles must take turns') }}",
            r"the chat template refuses it: roles must take turns \(chat\.jinja, line 1\)\.$",
        ),
        ("{{ messages[0].nothing.more }}", "has no attribute 'nothing'"),
        ("{{ messages[0].content + 1 }}", "the chat template refuses it: "),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages.append(1) }}", "unsafe|not safe|is unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ namespace(_x=1) }}", "may not have the attribute '_x'"),
        ("{% set ns = namespace() %}{% set ns._x = 1 %}", "may not have the attribute '_x'"),
        ("{{ strftime_now('%d') }}", "may not ask the clock; give the day in encode.chat.date"),
        ("\n{{ '\\ud800' }}", r"surrogates not allowed \(chat\.jinja\)"),
        ("\n{{ messages[0].content * 10**11 }}", r"it takes more memory than 1\.0 GB \(chat\.jinja, line 2\)"),
        ("{% for i in range(99999) %}{{ 'abcd' * 9 }}{% endfor %}", r"more than 1,000,\d+ characters"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ {[]: 1} | length }}", "unhashable type"),
        ("{{ 'abcd efgh' | truncate(1) }}", "expected length >= 3, got 1"),
    ],
)
def test_a_conversation_that_the_template_refuses_is_named(template: str, words: str) -> None:
    late = "{% if messages[0].content == 'b' %}" + template + "{% endif %}"
    with pytest.raises(ChatError, match=words) as caught:
        encoded(encoder(template=late), [told("user", "a")], [told("user", "b")])
    assert caught.value.index == 1
    assert caught.value.code == "TM305"


@pytest.mark.parametrize("written", ["messages[0].items", "[messages[0].items]", "{'a': (range,)}", "'' | map('trim')"])
def test_an_object_whose_text_is_another_one_in_each_run_is_refused(written: str) -> None:
    with pytest.raises(ChatError, match=r"it writes an object of the type .*, which has no text of its own"):
        encoded(encoder(template=f"{{{{ {written} }}}}"), [told("user", "a at 0x7f")])


def test_objects_with_a_text_of_their_own_are_written() -> None:
    messages = [told("user", "a at 0x7f")]
    template = "{{ messages }}{{ messages[0].keys() }}{{ nothing }}{{ messages[0].values() }}{{ namespace(a=1) }}"
    wanted = peer("plain").apply_chat_template(messages, chat_template=template, tokenize=False)
    assert shown(template, messages) == wanted


def test_a_small_result_is_no_reason_to_refuse() -> None:
    template = (
        "{{ 2 ** 10 * 3 % 7 }}{{ 'ab' * 3 }}{{ '%5d|%s' % (1, 'x') }}{{ '{:>7}'.format(1) }}{{ 'a' | center(5) }}"
    )
    assert shown(template, ONE) == peer("plain").apply_chat_template(ONE, chat_template=template, tokenize=False)


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"messages": 1}', '{"messages": ["x"]}', '{"messages": [], "tools": 1}']
)
def test_what_is_no_conversation_is_refused(text: str) -> None:
    batch = pa.array([canonical(ONE), text], pa.large_string())
    with pytest.raises(ChatError, match="expected the JSON of a conversation, with messages; found") as caught:
        encoder().encode_batch(batch)
    assert caught.value.index == 1


@pytest.mark.parametrize("weight", [2, 0.5, "1", None, [1]])
def test_another_weight_than_0_or_1_is_refused(weight: Any) -> None:
    messages = [told("user", "a"), told("assistant", "b", weight=weight)]
    with pytest.raises(ChatError, match=r"message 1 \(assistant\): weight .*; expected true, false, 0 or 1\."):
        encoded(encoder(), messages)


def test_a_weight_of_a_user_s_message_is_refused_with_all() -> None:
    messages = [told("user", "a", weight=0), told("assistant", "b")]
    encoded(encoder(), messages)
    with pytest.raises(ChatError, match=r"message 0 \(user\): weight 0; with mask: all"):
        encoded(encoder(mask="all"), messages)


def test_a_message_whose_region_is_not_known_is_refused() -> None:
    template = "{% generation %}{{ messages | tojson }}{% endgeneration %}"
    messages = [told("user", "a"), told("assistant", "b"), told("assistant", "c")]
    encoded(encoder(template=template), messages)
    with pytest.raises(
        ChatError, match=r"1 generated regions for 2 messages of the assistant.*message 2 \(assistant\)"
    ):
        encoded(encoder(template=template, mask="last"), messages)


def test_a_character_without_a_token_is_named() -> None:
    from tests.builders import chats

    document = chats.DOCUMENTS["plain"]()
    vocabulary = {"zzqq" if text == "z" else text: id for text, id in document["model"]["vocab"].items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            chats, "DOCUMENTS", {"no z": lambda: {**document, "model": {**document["model"], "vocab": vocabulary}}}
        )
        one = encoder("no z")
    with pytest.raises(ChatError, match=r"it cannot be encoded: .*no token") as caught:
        encoded(one, [told("user", "a")], [told("user", "z")])
    assert caught.value.index == 1


def test_threads_may_share_an_encoder() -> None:
    chance = random.Random(2)
    batches = [
        pa.array([canonical(a_conversation(chance, False, False)[0]) for _ in range(30)], pa.large_string())
        for _ in range(20)
    ]
    one = encoder()
    wanted = [one.encode_batch(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one.encode_batch, batches)) == wanted


def test_template_is_pure() -> None:
    """Two renderings of one conversation are the same, and change nothing of it."""
    template = ChatTemplate("{% for m in messages %}{{ m }}{% endfor %}", {}, "x")
    messages = [told("user", "a")]
    assert template.marked(messages, None, ("", "")) == template.marked(messages, None, ("", ""))
    assert messages == [told("user", "a")]


def test_a_template_that_writes_no_word_of_an_answer_is_refused() -> None:
    template = "{% for m in messages %}{{ m.role }}: {{ m.contnt }}\n{% endfor %}"
    with pytest.raises(ChatError, match=r"message 1 \(assistant\): .* writes no word of its content, 'Blue sky'"):
        encoded(encoder(template=template), [told("user", "colour?"), told("assistant", "Blue sky")])
    shouted = "{% for m in messages %}{% generation %}{{ m.content | upper }}{% endgeneration %}{% endfor %}"
    encoded(encoder(template=shouted), [told("assistant", "Blue sky")])

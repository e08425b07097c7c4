"""Chat templates with the turns, markers and rules for the history of public model families, in our own words.

What an answer adds is between generation tags, which `Family.template` leaves out. Words of instruction are left out, too.
"""

import json
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from tests.builders.chats import told
from tokenmill import Counter, Tokenizer, train_vocab


class Family(NamedTuple):
    """A family of chat templates. `tagged`: the template with generation tags. `thinks`: where a message has its reasoning; None:
    nowhere. `bos` and `eos`: the text of these tokens."""

    tagged: str
    bos: str
    eos: str
    tools: bool = True
    thinks: Literal["field", "content"] | None = None

    @property
    def template(self) -> str:
        return re.sub(r"\{% (end)?generation %\}", "", self.tagged)


_CHATML = r"""
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
{%- else %}{{ m.content + '<|im_end|>\n' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""

# The first user's message has the tools. A message has one call at most.
_LLAMA3 = r"""
{{- bos_token -}}
{%- for m in messages -%}
{{ '<|start_header_id|>' + ('ipython' if m.role == 'tool' else m.role) + '<|end_header_id|>\n\n' }}
{%- if m.tool_calls -%}
{%- if m.tool_calls | length > 1 %}{{ raise_exception('one call of a tool at a time') }}{% endif -%}
{%- set call = m.tool_calls[0].function -%}
{% generation %}{{ '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}<|eot_id|>' }}{% endgeneration %}
{%- elif m.role == 'assistant' %}{% generation %}{{ m.content | trim + '<|eot_id|>' }}{% endgeneration %}
{%- elif m.role == 'tool' %}{{ m.content | tojson + '<|eot_id|>' }}
{%- else -%}
{%- if tools and m.role == 'user' and (loop.first or loop.index0 == 1 and messages[0].role == 'system') -%}
{{ tools | tojson + '\n\n' }}
{%- endif -%}
{{ m.content | trim + '<|eot_id|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif -%}
"""

# Only answers behind the last question show their reasoning, and the last one of all has a place for it even without any.
_QWEN3 = r"""
{%- set ns = namespace(question=-1) -%}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.question = loop.index0 %}{% endif %}{% endfor -%}
{%- set has_system = messages[0].role == 'system' -%}
{%- if tools or has_system -%}
{{ '<|im_start|>system\n' + (messages[0].content if has_system else '') }}
{%- if tools %}{{ ('\n\n' if has_system else '') + '<tools>\n' + tools | map('tojson') | join('\n') + '\n</tools>' }}{% endif -%}
{{ '<|im_end|>\n' }}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'user' %}{{ '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}
{%- elif m.role == 'tool' -%}
{{ '<|im_start|>user' if loop.previtem.role != 'tool' else '' }}
{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
{{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' else '' }}
{%- elif m.role == 'assistant' -%}
{%- set thought = m.reasoning_content or '' -%}
{%- set shown = thinks and loop.index0 > ns.question and (loop.last or thought) -%}
{{ '<|im_start|>assistant\n' + ('<think>\n' if shown and opens else '') }}{% generation %}
{{- '<think>\n' if shown and not opens else '' }}
{{- thought.strip('\n') + '\n</think>\n\n' if shown else '' }}
{{- (m.content or '').lstrip('\n') }}
{%- for call in m.tool_calls or [] -%}
{{ '\n' if m.content or not loop.first else '' }}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' + ('<think>\n' if opens else '') }}{% endif -%}
"""


def _qwen3(thinks: bool, opens: bool) -> str:
    """The template of Qwen3. `thinks`: whether it writes reasoning. `opens`: whether the prompt opens the reasoning."""
    return f"{{%- set thinks = {str(thinks).lower()} -%}}{{%- set opens = {str(opens).lower()} -%}}{_QWEN3}"


# The prompt opens the reasoning, and no answer shows it. An answer to the results of tools follows them without a marker.
_DEEPSEEK_R1 = r"""
{{- bos_token + (messages[0].content if messages[0].role == 'system' else '') -}}
{%- set ns = namespace(is_tool=false) -%}
{%- for m in messages -%}
{%- if m.role == 'user' %}{% set ns.is_tool = false %}{{ '<｜User｜>' + m.content }}
{%- elif m.role == 'tool' -%}
{{ '\n' if ns.is_tool else '<｜tool▁outputs▁begin｜>' }}
{{- '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}
{%- set ns.is_tool = true -%}
{%- elif m.role == 'assistant' -%}
{{ '<｜tool▁outputs▁end｜>' if ns.is_tool else '<｜Assistant｜>' }}
{%- set ns.is_tool = false -%}
{%- set content = (m.content or '').split('</think>')[-1] -%}
{%- if m.tool_calls -%}
{% generation %}{{ content + '<｜tool▁calls▁begin｜>' }}
{%- for call in m.tool_calls -%}
{{ '\n' if not loop.first else '' }}
{{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\n```json\n' + call.function.arguments | tojson }}
{{- '\n```<｜tool▁call▁end｜>' }}
{%- endfor -%}
{{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}{% endgeneration %}
{%- else %}{% generation %}{{ content + '<｜end▁of▁sentence｜>' }}{% endgeneration %}
{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if ns.is_tool %}{{ '<｜tool▁outputs▁end｜>' }}
{%- elif add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif -%}
"""

# The prompt closes the reasoning at once, and no answer shows it.
_DEEPSEEK_V31 = r"""
{{- bos_token + (messages[0].content if messages[0].role == 'system' else '') -}}
{%- if tools %}{{ '\n\n## Tools\n' + tools | map('tojson') | join('\n') }}{% endif -%}
{%- set ns = namespace(is_asked=false) -%}
{%- for m in messages -%}
{%- if m.role == 'user' %}{% set ns.is_asked = true %}{{ '<｜User｜>' + m.content }}
{%- elif m.role == 'tool' %}{{ '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}
{%- elif m.role == 'assistant' -%}
{{ '<｜Assistant｜></think>' if ns.is_asked else '' }}
{%- set ns.is_asked = false -%}
{%- set content = (m.content or '').split('</think>', 1)[-1] -%}
{%- if m.tool_calls -%}
{% generation %}{{ content + '<｜tool▁calls▁begin｜>' }}
{%- for call in m.tool_calls -%}
{{ '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments | tojson + '<｜tool▁call▁end｜>' }}
{%- endfor -%}
{{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}{% endgeneration %}
{%- else %}{% generation %}{{ content + '<｜end▁of▁sentence｜>' }}{% endgeneration %}
{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and ns.is_asked %}{{ '<｜Assistant｜></think>' }}{% endif -%}
"""

# The marker of the next turn ends an answer. Answers before the last question have an empty place for reasoning.
_GLM45 = r"""
{{- '[gMASK]<sop>' -}}
{%- if tools %}{{ '<|system|>\n<tools>\n' + tools | map('tojson') | join('\n') + '\n</tools>' }}{% endif -%}
{%- set ns = namespace(question=-1) -%}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.question = loop.index0 %}{% endif %}{% endfor -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}
{{ '<|observation|>' if loop.previtem.role != 'tool' else '' }}
{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
{%- elif m.role == 'assistant' -%}
{{ '<|assistant|>' }}
{%- set thought = m.reasoning_content or '' -%}
{% generation %}{{ '\n<think>' + (thought.strip() if loop.index0 > ns.question else '') + '</think>' }}
{%- if m.content %}{{ '\n' + m.content.strip() }}{% endif -%}
{%- for call in m.tool_calls or [] -%}
{{ '\n<tool_call>' + call.function.name + '\n' }}
{%- for key, value in call.function.arguments.items() -%}
{{ '<arg_key>' + key + '</arg_key>\n<arg_value>' + value + '</arg_value>\n' }}
{%- endfor -%}
{{ '</tool_call>' }}
{%- endfor -%}{% endgeneration %}
{%- else %}{{ '<|' + m.role + '|>\n' + m.content }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif -%}
"""

# The last answer ends with another marker than the ones before, and only it shows its reasoning. Reasoning before a call is shown
# until an answer follows. Only the first call of a message is written.
_HARMONY = r"""
{{- '<|start|>system<|message|>Channels: three.<|end|>' -}}
{%- set system = messages[0].content if messages[0].role == 'system' else '' -%}
{%- if system or tools -%}
{{ '<|start|>developer<|message|>' + system + (tools | tojson if tools else '') + '<|end|>' }}
{%- endif -%}
{%- set ns = namespace(called='', answered=false) -%}
{%- for m in messages -%}
{%- if m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}
{%- elif m.role == 'tool' -%}
{{ '<|start|>functions.' + ns.called + ' to=assistant<|channel|>commentary<|message|>' + m.content | tojson + '<|end|>' }}
{%- elif m.tool_calls -%}
{%- set ns.called = m.tool_calls[0].function.name -%}
{%- set ns.answered = false -%}
{%- for later in messages[loop.index:] -%}
{%- if later.role == 'assistant' and not later.tool_calls %}{% set ns.answered = true %}{% endif -%}
{%- endfor -%}
{{ '<|start|>assistant' }}{% generation %}
{%- if m.thinking and not ns.answered -%}
{{ '<|channel|>analysis<|message|>' + m.thinking + '<|end|><|start|>assistant' }}
{%- endif -%}
{{ ' to=functions.' + ns.called + '<|channel|>commentary json<|message|>' + m.tool_calls[0].function.arguments | tojson }}
{{- '<|call|>' }}{% endgeneration %}
{%- elif m.role == 'assistant' -%}
{%- set is_last = loop.last and not add_generation_prompt -%}
{{ '<|start|>assistant' }}{% generation %}
{%- if is_last and m.thinking %}{{ '<|channel|>analysis<|message|>' + m.thinking + '<|end|><|start|>assistant' }}{% endif -%}
{{ '<|channel|>final<|message|>' + m.content + ('<|return|>' if is_last else '<|end|>') }}{% endgeneration %}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif -%}
"""

# The tools stand before the last question. A question ends with what the answer follows.
_MISTRAL = r"""
{{- bos_token -}}
{%- set ns = namespace(question=-1) -%}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.question = loop.index0 %}{% endif %}{% endfor -%}
{%- for m in messages -%}
{%- if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
{%- elif m.role == 'user' -%}
{%- if tools and loop.index0 == ns.question %}{{ '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{% endif -%}
{{ '[INST]' + m.content + '[/INST]' }}
{%- elif m.role == 'tool' -%}
{{ '[TOOL_RESULTS]{"content": ' + m.content | tojson + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- elif m.tool_calls -%}
{% generation %}{{ '[TOOL_CALLS][' }}
{%- for call in m.tool_calls -%}
{{ (', ' if not loop.first else '') + '{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson + ', "id": "' + call.id + '"}' }}
{%- endfor -%}
{{ ']' + eos_token }}{% endgeneration %}
{%- else %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}
{%- endif -%}
{%- endfor -%}
"""

# The first user's message has the text of the system. Roles alternate.
_GEMMA = r"""
{{- bos_token -}}
{%- set has_system = messages[0].role == 'system' -%}
{%- for m in (messages[1:] if has_system else messages) -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif -%}
{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
{%- if loop.first and has_system %}{{ messages[0].content + '\n\n' }}{% endif -%}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content | trim + '<end_of_turn>' }}{% endgeneration %}{{ '\n' }}
{%- else %}{{ m.content | trim + '<end_of_turn>\n' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif -%}
"""

_OLMO2 = r"""
{{- bos_token -}}
{%- for m in messages -%}
{{ '<|' + m.role + '|>\n' }}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}{{ '\n' if not loop.last else '' }}
{%- else %}{{ m.content + '\n' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif -%}
"""

# The last answer ends with another token than the ones before. The prompt opens the reasoning, which is a part of the content.
_OLMO3 = r"""
{%- set has_system = messages[0].role == 'system' -%}
{{ '<|im_start|>system\n' + (messages[0].content if has_system else 'You are Olmo.') }}
{%- if tools %}{{ '<functions>' + tools | tojson + '</functions>' }}{% endif -%}
{{ '<|im_end|>\n' }}
{%- for m in messages -%}
{%- if m.role == 'user' %}{{ '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}
{%- elif m.role == 'tool' %}{{ '<|im_start|>environment\n' + m.content + '<|im_end|>\n' }}
{%- elif m.role == 'assistant' -%}
{%- set opened = (m.content or '').startswith('<think>') -%}
{{ '<|im_start|>assistant\n' + ('<think>' if opened else '') }}{% generation %}{{ (m.content or '')[7 if opened else 0:] }}
{%- if m.tool_calls -%}
{{ '<function_calls>' }}
{%- for call in m.tool_calls -%}
{{ ('\n' if not loop.first else '') + call.function.name + '(' }}
{%- for key, value in call.function.arguments.items() %}{{ (', ' if not loop.first else '') + key + '=' + value | tojson }}
{%- endfor -%}
{{ ')' }}
{%- endfor -%}
{{ '</function_calls>' }}
{%- endif -%}
{{ eos_token if loop.last else '<|im_end|>' }}{% endgeneration %}{{ '\n' if not loop.last else '' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>' }}{% endif -%}
"""

_DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")
FAMILIES = {
    "ChatML": Family(_CHATML, "<s>", "<|im_end|>", tools=False),
    "Llama 3": Family(_LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "Qwen3": Family(_qwen3(True, False), "<|endoftext|>", "<|im_end|>", thinks="field"),
    "Qwen3 instruct": Family(_qwen3(False, False), "<|endoftext|>", "<|im_end|>"),
    "Qwen3 thinking": Family(_qwen3(True, True), "<|endoftext|>", "<|im_end|>", thinks="field"),
    "DeepSeek R1": Family(_DEEPSEEK_R1, *_DEEPSEEK, thinks="content"),
    "DeepSeek V3.1": Family(_DEEPSEEK_V31, *_DEEPSEEK, thinks="content"),
    "GLM-4.5": Family(_GLM45, "[gMASK]", "<|endoftext|>", thinks="field"),
    "gpt-oss": Family(_HARMONY, "<|startoftext|>", "<|return|>", thinks="field"),
    "Mistral": Family(_MISTRAL, "<s>", "</s>"),
    "Gemma": Family(_GEMMA, "<bos>", "<end_of_turn>", tools=False),
    "OLMo 2": Family(_OLMO2, "<|endoftext|>", "<|endoftext|>", tools=False),
    "Olmo 3": Family(_OLMO3, "<|endoftext|>", "<|endoftext|>", thinks="content"),
}
TOOLS = [{"name": "sky"}]
_WET, _NO = told("user", "Wet?"), told("assistant", "No.")
_COLD, _YES = told("user", "Cold?"), told("assistant", "Yes.")
_SUNNY, _WINDY = {"reasoning_content": "Sunny."}, {"reasoning_content": "Windy."}


def _call(id: str, town: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "sky", "arguments": {"at": town}}}


def _calls(*calls: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


_ROME, _OSLO = _call("call0rome", "Rome"), _call("call0oslo", "Oslo")
_BARE = {"id": "call0rome", "type": "function", "function": {"name": "sky", "arguments": {}}}
_SUN, _RAIN = told("tool", "sun", tool_call_id="call0rome"), told("tool", "rain", tool_call_id="call0oslo")
_PLAIN = {
    "one": [_WET, _NO],
    "many": [_WET, _NO, _COLD, _YES],
    "system": [told("system", "Be brief."), _WET, _NO],
    "empty": [_WET, told("assistant", "")],
}
_TOOLS = {
    "tools": [_WET, _NO, _COLD, _YES],
    "call": [_WET, _calls(_ROME)],
    "parallel": [_WET, _calls(_ROME, _OSLO), _SUN, _RAIN, _NO],
    "results": [_WET, _calls(_ROME), _SUN, _NO],
    "bare": [_WET, _calls(_BARE), _SUN, _NO, _COLD, _calls(_BARE), _SUN, _YES],
}
_THINKING = {
    "last": [_WET, _NO, _COLD, {**_YES, **_WINDY}],
    "all": [_WET, {**_NO, **_SUNNY}, _COLD, {**_YES, **_WINDY}],
    "alone": [_WET, told("assistant", "", **_SUNNY)],
    "hidden": [_WET, told("assistant", "", **_SUNNY), _COLD, _YES],
    "between": [_WET, _calls(_ROME, **_WINDY), _SUN, {**_NO, **_SUNNY}, _COLD, {**_YES, **_WINDY}],
}


def conversations(family: Family) -> dict[str, tuple[list[dict[str, Any]], list[Any] | None]]:
    """The messages and tools of each shape that a family has, by the name of the shape."""
    some = {**_PLAIN, **(_TOOLS if family.tools else {}), **(_THINKING if family.thinks else {})}
    return {
        shape: (
            [_in_content(one) if family.thinks == "content" else one for one in messages],
            TOOLS if family.tools and shape in (*_TOOLS, "between") else None,
        )
        for shape, messages in some.items()
    }


def _in_content(message: dict[str, Any]) -> dict[str, Any]:
    if "reasoning_content" not in message:
        return message
    kept = {key: value for key, value in message.items() if key != "reasoning_content"}
    return {**kept, "content": f"<think>{message['reasoning_content']}</think>{message['content'] or ''}"}


_MARKER = re.compile(r"<\|?\w+\|?>|<｜[\w▁]+｜>|\[/?[A-Z_]+\]|\[gMASK\]")
_PAIRED = re.compile(r"</?(think|tools|tool_\w+|arg_\w+|functions?|function_calls)>")


@cache
def tokenizer_json() -> str:
    """A tokenizer.json with the markers of all families. Two line breaks in a row are one token, as in those of the families."""
    markers = {one for family in FAMILIES.values() for one in (*_MARKER.findall(family.tagged), family.bos, family.eos)}
    special = sorted(markers | {f"<|{role}|>" for role in ("system", "user", "assistant")})
    special = [one for one in special if not _PAIRED.fullmatch(one)]
    counter = Counter(pattern="llama3")
    counter.update(["Wet? No\n\nCold? Yes\n\n1\n\n2\n\n3 Sunny. Windy.\n"] * 3)
    document = train_vocab(counter, vocab_size=300 + len(special), pattern="llama3", special_tokens=special).document
    n_tokens = 300 + len(special)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    paired = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    document["added_tokens"] += [{"id": n_tokens + i, "content": text, **flags} for i, text in enumerate(paired)]
    return json.dumps(document)


@cache
def tokenizer() -> Tokenizer:
    """The tokenizer of `tokenizer_json`."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(tokenizer_json(), encoding="utf-8")
        return Tokenizer.load(path)

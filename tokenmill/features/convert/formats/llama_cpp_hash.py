"""What llama.cpp's converter of models needs to know a tokenizer: its split by a hash of ids."""

import json
from hashlib import sha256

from tokenmill.tokenizer.forms import Form

CHECK_TEXT = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n\U0001f680 (normal) \U0001f636\u200d\U0001f32b\ufe0f (multiple emojis "
    "concatenated) \u2705 \U0001f999\U0001f999 3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 "
    "\u1780\u17b6\u1793\u17cb\u178f\u17c2\u1796\u17b7\u179f\u17c1\u179f\u17a2\u17b6\u1785\U0001f601 ?"
    "\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e ------======= "
    "\u043d\u0435\u0449\u043e \u043d\u0430 \u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438 ''''''```````\"\"\"\"......"
    "!!!!!!?????? I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, 'D you like some tea? We'Ve a'lL"
)
"""The text whose ids are hashed. Source: CHK_TXT in llama.cpp's convert_hf_to_gguf_update.py, the same since April 2024."""


def lines_for_converter(form: Form, pre: str) -> list[str]:
    """The two lines that `get_vocab_base_pre` in llama.cpp's conversion/base.py needs for this tokenizer. `pre`: its name of the
    split.

    The converter compares the SHA-256 of the text's ids, written as Python writes a list, with the tokens that the tokenizer adds
    to each text by itself. Any new vocabulary has one of its own.
    """
    from tokenizers import Tokenizer

    judge = Tokenizer.from_str(json.dumps(form.tokenizer.document))
    judge.no_truncation()
    judge.no_padding()
    ids = judge.encode(CHECK_TEXT).ids
    return [f'if chkhsh == "{sha256(str(ids).encode()).hexdigest()}":', f'    res = "{pre}"']

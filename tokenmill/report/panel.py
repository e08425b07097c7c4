"""A fixed panel of short texts that show how a tokenizer cuts digits, white space, code and scripts."""

from collections.abc import Mapping
from typing import Any

from tokenmill.report.health import shown
from tokenmill.tokenizer.tokenizer import Tokenizer

PANEL = {
    "digits": "7 42 365 2026 10000 123456789",
    "decimals and signs": "3.14159 -0.5 1e-9 $1,234.56 100%",
    "dates and times": "2026-11-24 07:30:00 UTC",
    "blanks": "a b  c    d        e",
    "lines and tabs": "one\n\ntwo\r\n\tthree\n        four",
    "capitals": "the The THE mill Mill MILL",
    "contractions": "it's we've I'll don't they'd",
    "operators": "a+=b; c!=d && e<=f || !g",
    "Python": "def mill(n: int = 10) -> list[int]:\n    return [i**2 for i in range(n)]",
    "JSON": '{"id": 17, "tags": ["a", "b"], "ok": true}',
    "LaTeX": r"\frac{a_1}{b^{2}} = \sum_{i=0}^{n} x_i",
    "addresses": "https://example.org/a/b?x=1&y=2 me@example.org",
    "German": "Die größten Mühlen stehen an den Flüssen.",
    "French": "L'été dernier, où étiez-vous ?",
    "Turkish": "İstanbul'da ılık bir gün.",
    "Vietnamese": "Những người thợ xay dậy từ sớm.",
    "Russian": "Мельница стоит у реки.",
    "Greek": "Ο μύλος αλέθει αργά.",
    "Arabic": "الطاحونة على ضفة النهر",
    "Hebrew": "הטחנה עומדת על הנהר",
    "Hindi": "चक्की नदी के किनारे है",
    "Thai": "โรงสีเก่าอยู่ริมแม่น้ำ",
    "Chinese": "河边有一座老磨坊",
    "Japanese": "川のほとりに古い水車小屋",
    "Korean": "강가에 오래된 물레방앗간",
    "emoji": "🙂👍🏽 👩‍👩‍👧 🇩🇪",
}


def panel_of(tokenizer: Tokenizer, others: Mapping[str, Tokenizer]) -> list[dict[str, Any]]:
    """The tokens of each text of the panel, in the form of report.json. `others`: tokenizers whose tokens are only counted."""
    return [
        {
            "name": name,
            "text": text,
            "tokens": [shown(tokenizer.token_bytes(id)) for id in tokenizer.encode(text)],
            "references": {label: len(other.encode(text)) for label, other in others.items()},
        }
        for name, text in PANEL.items()
    ]

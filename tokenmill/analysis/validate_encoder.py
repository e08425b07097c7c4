"""Is gone: `tokenmill check` compares ids with those of the tokenizers library."""

import sys

if __name__ == "__main__":
    sys.exit("python -m tokenmill.analysis.validate_encoder is gone. Run `tokenmill check TOKENIZER --against FILES`.")

"""Is gone: `tokenmill check` compares ids with those of the tokenizers library."""

import sys

if __name__ == "__main__":
    print("This command is gone. Run `tokenmill check TOKENIZER --against FILES`.", file=sys.stderr)
    sys.exit(2)

"""llama.cpp reads the first .gguf file, by llama-cpp-python."""

from pathlib import Path

from tokenmill.features.conform.program.consumer import CONSUMERS, Cannot, Consumer, Encoders, Library, Subject


def llama_cpp(library: Library, subject: Subject) -> Encoders:
    files = sorted(Path(subject.folder).glob("*.gguf"))
    if not files:
        raise Cannot("the tokenizer has no .gguf file")
    made = library.Llama(model_path=str(files[0]), vocab_only=True, verbose=False)
    return {
        "text": lambda text: made.tokenize(text.encode(), add_bos=False, special=False),
        "special": lambda text: made.tokenize(text.encode(), add_bos=False, special=True),
    }


CONSUMERS["llama.cpp"] = Consumer("llama_cpp", llama_cpp, package="llama-cpp-python")

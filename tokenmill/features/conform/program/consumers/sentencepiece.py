"""sentencepiece reads tokenizer.model. It never makes ids of control tokens in a text, but knows them by name."""

from tokenmill.features.conform.program.consumer import CONSUMERS, Consumer, Encoders, Library, Subject


def sentencepiece(library: Library, subject: Subject) -> Encoders:
    made = library.SentencePieceProcessor(model_file=subject.file("tokenizer.model"))

    def token(name: str) -> list[int] | None:
        id = made.piece_to_id(name)
        return [id] if made.id_to_piece(id) == name else None

    return {"text": made.encode, "token": token}


CONSUMERS["sentencepiece"] = Consumer("sentencepiece", sentencepiece)

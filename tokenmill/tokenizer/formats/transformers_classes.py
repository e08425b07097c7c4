"""The tokenizer classes of transformers that do not use a tokenizer.json as it is.

AutoTokenizer chooses a class by `tokenizer_class` of tokenizer_config.json and `model_type` of config.json. Since transformers 5,
some classes take only the vocabulary and the merges from tokenizer.json, and split text in their own way. The tables are those of
transformers 5.23; a test compares them with the installed one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenmill import _core

_ANOTHER_CLASSES = """
    AlbertTokenizer BarthezTokenizer BartphoTokenizer BertGenerationTokenizer BertJapaneseTokenizer
    BertTokenizerLegacy BertweetTokenizer BigBirdTokenizer BioGptTokenizer BlenderbotSmallTokenizer
    BlenderbotTokenizer ByT5Tokenizer CLIPTokenizer CTRLTokenizer CamembertTokenizer CanineTokenizer ClvpTokenizer
    CodeLlamaTokenizer CpmAntTokenizer CpmTokenizer DPRContextEncoderTokenizer DPRQuestionEncoderTokenizer
    DPRReaderTokenizer DebertaTokenizer DebertaV2Tokenizer DiaTokenizer DistilBertTokenizer EsmTokenizer
    EsmcTokenizer FSMTTokenizer FastSpeech2ConformerTokenizer FlaubertTokenizer FunnelTokenizer
    GPTNeoXJapaneseTokenizer GPTSw3Tokenizer HerbertTokenizer LasrTokenizer LayoutLMv2Tokenizer LayoutLMv3Tokenizer
    LayoutXLMTokenizer LukeTokenizer M2M100Tokenizer MBart50Tokenizer MBartTokenizer MLukeTokenizer MPNetTokenizer
    MarianTokenizer MarkupLMTokenizer MgpstrTokenizer MistralCommonBackend MyT5Tokenizer NllbTokenizer
    NougatTokenizer OpenAIGPTTokenizer PLBartTokenizer PegasusTokenizer PerceiverTokenizer PhobertTokenizer
    Pop2PianoTokenizer ProphetNetTokenizer RagTokenizer ReformerTokenizer RemBertTokenizer RoCBertTokenizer
    RoFormerTokenizer SeamlessM4TTokenizer SentencePieceBackend Siglip2Tokenizer SiglipTokenizer
    Speech2TextTokenizer SpeechT5Tokenizer SplinterTokenizer T5Tokenizer TapasTokenizer Tipsv2Tokenizer
    UdopTokenizer VideoPrismTokenizer VitsTokenizer Wav2Vec2CTCTokenizer Wav2Vec2PhonemeCTCTokenizer XGLMTokenizer
    XLMRobertaTokenizer XLMTokenizer XLNetTokenizer
"""
ANOTHER = frozenset(_ANOTHER_CLASSES.split())
"""Classes that do not use tokenizer.json as it is, and of which tokenmill cannot say what they make of it."""

_ALIASES = {
    "BartTokenizer": "RobertaTokenizer",
    "ElectraTokenizer": "BertTokenizer",
    "LEDTokenizer": "RobertaTokenizer",
    "LayoutLMTokenizer": "BertTokenizer",
    "LongformerTokenizer": "RobertaTokenizer",
    "LxmertTokenizer": "BertTokenizer",
    "MobileBertTokenizer": "BertTokenizer",
    "MvpTokenizer": "RobertaTokenizer",
    "Phi3Tokenizer": "LlamaTokenizer",
    "SqueezeBertTokenizer": "BertTokenizer",
}
_PLAIN = "TokenizersBackend"
_ANOTHER = "another"
_MODEL_TYPES = {
    "BertTokenizer": """
        align bark bert blip bros chinese_clip convbert distilbert electra ernie flava git grounding-dino layoutlm
        lxmert megatron-bert mm-grounding-dino mobilebert nezha nomic_bert qdqbert realm retribert squeezebert tvp
        vilt visual_bert
    """,
    "CohereTokenizer": "aya_vision cohere cohere2",
    "GPT2Tokenizer": """
        blip-2 codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip instructblipvideo jais2 opt
        phi starcoder2
    """,
    "GPTNeoXTokenizer": "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm",
    "GemmaTokenizer": """
        diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2 t5gemma
        zaya
    """,
    "LlamaTokenizer": "idefics idefics2",
    "Qwen2Tokenizer": """
        audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl lighton_ocr
        moss_transcribe_diarize ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3
        qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe vibevoice
    """,
    "Qwen3_5Tokenizer": "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp",
    "RobertaTokenizer": """
        bart bridgetower clap data2vec-text florence2 ibert led lilt longformer mega mra mvp roberta
        roberta-prelayernorm
    """,
    "TokenizersBackend": """
        EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm cohere_asr ernie4_5 ernie4_5_moe
        flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2 gpt_bigcode
        gradium_phonon_tts granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat hyperclovax
        hyperclovax_vlm internlm2 internlm3 iquestcoder jamba kimi_k25 kimi_linear kosmos-2 llava llava_next
        mimo_v2_flash minicpm3 minicpm_ocr minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral ministral3 mistral
        mistral3 mistral_large4 mixtral modernbert modernbert-decoder molmo molmo2 nemo_speechlm nemotron nvfp4
        nystromformer olmo2 olmo3 olmo_hybrid opencua openvla paddleocr_vl pegasus_x persimmon phi3 phi3_v phimoe
        pix2struct pixtral pocket_tts smolvlm stablelm step3_vl umt5 vipllava voxtral voxtral_realtime
        xlm-roberta-xl
    """,
    "WhisperTokenizer": "whisper",
    "another": """
        aimv2 albert barthez bartpho bert-generation bert-japanese bertweet big_bird biogpt blenderbot
        blenderbot-small byt5 camembert canine clip clipseg clvp code_llama cpm cpmant ctrl data2vec-audio deberta
        deberta-v2 dia dpr esm esmc esmfold2 fastspeech2_conformer flaubert fsmt funnel gpt-sw3 gpt_neox_japanese
        groupvit gte herbert hubert jina_embeddings_v3 lasr_ctc lasr_encoder layoutlmv2 layoutlmv3 layoutxlm luke
        m2m_100 marian markuplm mbart mbart50 metaclip_2 mgp-str mluke mpnet mt5 musicgen musicgen_melody myt5 nllb
        nllb-moe nougat omdet-turbo oneformer openai-gpt owlv2 owlvit pegasus perceiver phobert plbart pp_formulanet
        prophetnet rag reformer rembert roc_bert roformer sam3 sam3_video seamless_m4t seamless_m4t_v2 siglip
        siglip2 speech_to_text speecht5 splinter switch_transformers t5 tapas tipsv2 trocr udop unispeech
        unispeech-sat videoprism vits wav2vec2 wav2vec2-bert wav2vec2-conformer wav2vec2_phoneme xclip xglm xlm
        xlm-roberta xlnet xmod yoso
    """,
}
"""The class that transformers registers for each model type. "another": one of `ANOTHER`."""

_CLASS_OF = {one: name for name, types in _MODEL_TYPES.items() for one in types.split()}
_MISNAMED = {
    "hyperclovax_vision_v2",
    "qwen2",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen4_exp",
    "siglip2",
}
"""Model types for which the registered class counts, whatever tokenizer_config.json says."""


@dataclass(frozen=True)
class Built:
    """The settings that a class gives a vocabulary: sections of tokenizer.json, fields of its model, and its special tokens by name
    unless the configuration overrides them. `renews`: how it adds its special tokens a second time: with all flags off, or as they
    are."""

    kind: str
    normalizer: dict[str, Any] | None
    pre_tokenizer: dict[str, Any]
    decoder: dict[str, Any]
    model: dict[str, Any]
    named: dict[str, str] = field(default_factory=dict)
    renews: str | None = None


def class_of(config: Mapping[str, Any], model_config: Mapping[str, Any], is_byte_level: bool) -> str | None:
    """The name of the class that AutoTokenizer takes, if it does not use tokenizer.json as it is; else None.

    `config` and `model_config`: tokenizer_config.json and config.json, {} for a missing one."""
    own = config.get("tokenizer_class")
    declared = str(own or model_config.get("tokenizer_class") or "").removesuffix("Fast")
    model_type = model_config.get("model_type")
    registered = _CLASS_OF.get(model_type) if isinstance(model_type, str) else None
    if declared == "LlamaTokenizer" and is_byte_level and model_type not in _MISNAMED:
        return None
    if registered == _PLAIN and declared:
        return None
    name = registered if model_type in _MISNAMED or not declared else declared
    if name == _ANOTHER:
        return f"the class of model_type {model_type}"
    name = _ALIASES.get(str(name), name)
    return name if name in _BUILDERS or name in ANOTHER else None


def built_by(name: str, config: Mapping[str, Any]) -> Built | None:
    """The settings that the class gives a vocabulary; None if unknown."""
    return _BUILDERS[name](config) if name in _BUILDERS else None


def _byte_level(
    config: Mapping[str, Any],
    named: Mapping[str, str],
    regex: str | None = None,
    digits: bool = False,
    nfc: bool = False,
    renews: str | None = None,
) -> Built:
    last = {
        "type": "ByteLevel",
        "add_prefix_space": bool(config.get("add_prefix_space")),
        "trim_offsets": True,
        "use_regex": regex is None,
    }
    before: list[dict[str, Any]] = []
    if digits:
        before.append({"type": "Digits", "individual_digits": True})
    if regex is not None:
        before.append({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False})
    return Built(
        "BPE",
        {"type": "NFC"} if nfc else None,
        {"type": "Sequence", "pretokenizers": [*before, last]} if before else last,
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"unk_token": None, "fuse_unk": False, "byte_fallback": False},
        dict(named),
        renews,
    )


def _llama(config: Mapping[str, Any]) -> Built:
    is_spaced = config.get("add_prefix_space") in (None, True)
    scheme = "never" if not is_spaced else "always" if config.get("legacy") else "first"
    decoders = [*_CHARACTERS, *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if is_spaced else [])]
    return Built(
        "BPE",
        None,
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False},
        {"type": "Sequence", "decoders": decoders},
        {"unk_token": None, "fuse_unk": True, "byte_fallback": True},
        {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    )


def _gemma(config: Mapping[str, Any]) -> Built:
    named = {f"{name}_token": f"<{name}>" for name in ("unk", "bos", "eos", "pad", "mask")}
    return Built(
        "BPE",
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        {"type": "Sequence", "decoders": _CHARACTERS},
        {"unk_token": text_of(config.get("unk_token", "<unk>")), "fuse_unk": True, "byte_fallback": True},
        named,
    )


def _bert(config: Mapping[str, Any]) -> Built:
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
        "strip_accents": config.get("strip_accents"),
        "lowercase": config.get("do_lower_case", True),
    }
    model = {
        "unk_token": text_of(config.get("unk_token", "[UNK]")),
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    return Built(
        "WordPiece",
        normalizer,
        {"type": "BertPreTokenizer"},
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        model,
        {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")},
    )


def text_of(token: Any) -> Any:
    """The text of a special token, which a configuration has as a text or as an object."""
    return token.get("content") if isinstance(token, dict) else token


_CHARACTERS = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_END = "<|endoftext|>"
_THREE = {"unk_token": _END, "bos_token": _END, "eos_token": _END}
_QWEN = {"unk_token": _END, "eos_token": _END, "pad_token": _END}
_COHERE = {
    "unk_token": "<UNK>",
    "bos_token": "<BOS_TOKEN>",
    "eos_token": "<|END_OF_TURN_TOKEN|>",
    "pad_token": "<PAD>",
    "cls_token": "<CLS>",
    "sep_token": "<SEP>",
    "mask_token": "<MASK_TOKEN>",
}
_ROBERTA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
_QWEN2_REGEX = _core.patterns()["qwen2"][0]
_QWEN3_5_REGEX = _QWEN2_REGEX.replace(r"\p{L}+|", r"[\p{L}\p{M}]+|").replace(
    r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"
)
_BUILDERS: dict[str, Callable[[Mapping[str, Any]], Built]] = {
    "BertTokenizer": _bert,
    "CodeGenTokenizer": lambda config: _byte_level(config, _THREE),
    "CohereTokenizer": lambda config: _byte_level(config, _COHERE, digits=True, nfc=True, renews="as they are"),
    "GPT2Tokenizer": lambda config: _byte_level(config, _THREE),
    "GPTNeoXTokenizer": lambda config: _byte_level(config, {**_THREE, "pad_token": "<|padding|>"}, nfc=True),
    "GemmaTokenizer": _gemma,
    "LlamaTokenizer": _llama,
    "Qwen2Tokenizer": lambda config: _byte_level(config, _QWEN, _QWEN2_REGEX, nfc=True, renews="flags off"),
    "Qwen3_5Tokenizer": lambda config: _byte_level(config, _QWEN, _QWEN3_5_REGEX, nfc=True),
    "RobertaTokenizer": lambda config: _byte_level(config, _ROBERTA),
    "WhisperTokenizer": lambda config: _byte_level(config, _THREE),
}

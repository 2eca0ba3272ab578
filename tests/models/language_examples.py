"""Tiny decoder-only language models with random weights, of many families, and tokenizers for them."""

from copy import deepcopy
from functools import cache

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import attnscope

SMALL = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 64, "head_dim": 8, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
FAMILIES: dict[str, dict[str, object]] = {
    "gpt2": {}, "gpt_neox": {}, "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32}, "llama": {}, "biogpt": {},
    "gpt_bigcode": {}, "mistral": {"sliding_window": 4}, "mixtral": {"num_local_experts": 4}, "qwen2": {}, "qwen3": {},
    "qwen3_moe": EXPERTS,
    "qwen3_next": EXPERTS | {
        "num_hidden_layers": 4, "shared_expert_intermediate_size": 24, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    },
    "gemma": {}, "gemma2": {"sliding_window": 4, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0},
    "gemma3_text": {"sliding_window": 4, "query_pre_attn_scalar": 8}, "phi": {}, "phi3": {"sliding_window": 4},
    "olmo": {}, "olmo2": {}, "olmo3": {"sliding_window": 4}, "olmoe": EXPERTS,
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}, "stablelm": {}, "cohere": {},
    "cohere2": {"sliding_window": 4}, "granite": {}, "smollm3": {}, "starcoder2": {},
    "deepseek_v3": {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "q_lora_rank": 16,
        "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "n_group": 1,
        "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4, "head_dim": 4,
    },
    "glm4": {}, "nemotron": {}, "lfm2": {"layer_types": ["conv", "full_attention"]}, "exaone4": {}, "helium": {},
    "apertus": {}, "seed_oss": {}, "modernbert-decoder": {}, "ministral3": {},
    "llama4_text": {"intermediate_size_mlp": 48, "num_local_experts": 2},
}  # fmt: skip
REFUSED: dict[str, dict[str, object]] = {
    "gptj": {"rotary_dim": 4}, "gpt_neo": {"attention_types": [[["global"], 2]]}, "bloom": {}, "falcon": {}, "mpt": {},
    "xglm": {}, "codegen": {"rotary_dim": 4}, "mamba": {}, "openai-gpt": {},
}  # fmt: skip
DIFFERENTIAL: dict[str, dict[str, object]] = {"diffllama": {}}  # a block attends twice; refused as well


@cache
def foreign(kind: str) -> transformers.PreTrainedModel:
    """The library's own model, with weights large enough for attention to be anything but uniform."""
    torch.manual_seed(3)
    sizes = SMALL | (FAMILIES | REFUSED | DIFFERENTIAL).get(kind, {})
    if kind == "falcon":
        del sizes["head_dim"]
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **sizes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.2)
            elif name.endswith("sinks"):
                parameter.normal_(0, 1.0)
    return model.eval()


@cache
def tokenizer(chat=False):
    """As GPT-2's: tokens of bytes, no special tokens around a text; <pad>, <s> and </s> are known."""
    texts = ["the old films were charming", "a dog sleeps", "small dogs see the old house", "the cat sat on the mat"]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    specials = ["<pad>", "<s>", "</s>"]
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=60, special_tokens=specials, show_progress=False))
    template = "{% for message in messages %}<s>{{ message['content'] }}{% endfor %}</s>" if chat else None
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", chat_template=template
    )


def with_start(chat=False):
    """The same, with <s> before a text, as Llama's tokenizer does."""
    starting = deepcopy(tokenizer(chat))
    starting._tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return starting


def language_model(kind: str, chat=False):
    """The same as attnscope.load returns it."""
    return attnscope.load(deepcopy(foreign(kind)), tokenizer=tokenizer(chat))

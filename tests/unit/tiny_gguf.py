"""A GGUF of a few kilobytes with everything a model needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter

EMBD, FF, TOKENS = 64, 64, ["<|endoftext|>", "<|im_end|>", *"abcdefghijkl", "ab", "."]


def write_tiny(path: Path, architecture: str = "llama", skip: str = "") -> Path:
    """One layer of random float32 weights; `skip`: the tensor that is left out."""
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(EMBD)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3] + [1] * (len(TOKENS) - 2))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    rng = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (len(TOKENS), EMBD),
        "output_norm": (EMBD,),
        "blk.0.attn_norm": (EMBD,),
        "blk.0.attn_q": (EMBD, EMBD),
        "blk.0.attn_k": (EMBD // 2, EMBD),
        "blk.0.attn_v": (EMBD // 2, EMBD),
        "blk.0.attn_output": (EMBD, EMBD),
        "blk.0.ffn_norm": (EMBD,),
        "blk.0.ffn_gate": (FF, EMBD),
        "blk.0.ffn_up": (FF, EMBD),
        "blk.0.ffn_down": (EMBD, FF),
    }
    for name, shape in shapes.items():
        if name != skip:
            writer.add_tensor(f"{name}.weight", rng.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

"""What a GGUF must hold to be a model of an architecture the engine computes."""

from __future__ import annotations

from typing_extensions import TypedDict

from shared.config.quote import quoted, shown
from shared.model.ggml_types import F32, type_name
from shared.model.gguf_read import Gguf, TensorInfo

ARCHITECTURES = ("llama", "qwen2")
MAX_TEMPLATE = 1 << 16  # characters of a chat template

Shape = tuple[int, int] | int  # (rows, cols) of a matrix, length of a vector


class Spec(TypedDict):
    """A model's dimensions, as `native.Model` takes them."""

    architecture: str
    n_layer: int
    n_embd: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_ff: int
    n_vocab: int
    rope_base: float
    rms_eps: float


def model_spec(gguf: Gguf) -> Spec:
    """The dimensions in the metadata, checked against each other; RinglineError names the key."""
    architecture = gguf.text("general.architecture")
    if architecture not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise gguf.fail(f"architecture {quoted(architecture)} is not supported; use a model of {known}")
    _refuse_variants(gguf, architecture)
    key = architecture + "."
    n_head = gguf.integer(key + "attention.head_count", 1, 1024)
    n_embd = gguf.integer(key + "embedding_length", 32, 1 << 16)
    spec = Spec(
        architecture=architecture,
        n_layer=gguf.integer(key + "block_count", 1, 512),
        n_embd=n_embd,
        n_head=n_head,
        n_kv_head=_optional(gguf, key + "attention.head_count_kv", n_head, 1, n_head),
        head_dim=_optional(gguf, key + "attention.key_length", n_embd // n_head, 2, 512),
        n_ff=gguf.integer(key + "feed_forward_length", 32, 1 << 18),
        n_vocab=len(gguf.texts("tokenizer.ggml.tokens")),
        rope_base=_rope_base(gguf, key + "rope.freq_base"),
        rms_eps=gguf.number(key + "attention.layer_norm_rms_epsilon", 1e-12, 1.0),
    )
    _check_dimensions(gguf, spec)
    return spec


def context_length(gguf: Gguf) -> int:
    """Tokens the model was trained to see at once."""
    return gguf.integer(gguf.text("general.architecture") + ".context_length", 1, 1 << 31)


def chat_template(gguf: Gguf) -> str:
    """The Jinja source; RinglineError when there is none or a very long one."""
    template = gguf.text("tokenizer.chat_template")
    if len(template) > MAX_TEMPLATE:
        raise gguf.fail(f"its chat template has {len(template)} characters (at most {MAX_TEMPLATE})")
    return template


def check_tensors(gguf: Gguf, spec: Spec) -> None:
    """Every tensor of the architecture is there with its shape, and no other; a RinglineError names it."""
    wanted = _expected(spec)
    found = {tensor.name: tensor for tensor in gguf.tensors}
    for name, shape in wanted.items():
        if name in found:
            _check_shape(gguf, found[name], shape)
        elif name != "output.weight":  # absent: the head is tied to the embedding
            raise gguf.fail(f'tensor "{name}" is missing; the file is damaged or of another model')
    for name in found:
        if name not in wanted:
            raise gguf.fail(
                f"tensor {quoted(name)} is not part of architecture {quoted(spec['architecture'])} "
                "as it is supported; use another model"
            )


def _refuse_variants(gguf: Gguf, architecture: str) -> None:
    """Variants of an architecture that would compute something else than what is implemented."""
    if gguf.metadata.get(f"{architecture}.expert_count", 0):
        raise gguf.fail(f'key "{architecture}.expert_count": mixtures of experts are not supported')
    scaling = gguf.metadata.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none":
        raise gguf.fail(
            f'key "{architecture}.rope.scaling.type" is {shown(scaling)}: RoPE scaling is not supported'
        )


def _rope_base(gguf: Gguf, key: str) -> float:
    return gguf.number(key, 1.0, 1e12) if key in gguf.metadata else 10_000.0


def _optional(gguf: Gguf, key: str, default: int, low: int, high: int) -> int:
    return gguf.integer(key, low, high) if key in gguf.metadata else default


def _check_dimensions(gguf: Gguf, spec: Spec) -> None:
    key = spec["architecture"] + "."
    head_dim = spec["head_dim"]
    if spec["n_head"] % spec["n_kv_head"]:
        raise gguf.fail(
            f"{spec['n_head']} heads cannot share {spec['n_kv_head']} K/V heads; the file is damaged"
        )
    if head_dim % 2 or not 2 <= head_dim <= 512:
        raise gguf.fail(f"heads of {head_dim} values are not supported (even, at most 512)")
    for name in ("attention.value_length", "rope.dimension_count"):
        if _optional(gguf, key + name, head_dim, 0, 1 << 16) != head_dim:
            raise gguf.fail(f'key "{key}{name}" differs from the head size {head_dim}: not supported')
    if not 1 <= spec["n_vocab"] < 1 << 24:
        raise gguf.fail('key "tokenizer.ggml.tokens" is empty; use a model file with its tokenizer')


def _expected(spec: Spec) -> dict[str, Shape]:
    n_embd, n_ff, n_vocab = spec["n_embd"], spec["n_ff"], spec["n_vocab"]
    q, kv = spec["n_head"] * spec["head_dim"], spec["n_kv_head"] * spec["head_dim"]
    layer: dict[str, Shape] = {
        "attn_norm.weight": n_embd,
        "attn_q.weight": (q, n_embd),
        "attn_k.weight": (kv, n_embd),
        "attn_v.weight": (kv, n_embd),
        "attn_output.weight": (n_embd, q),
        "ffn_norm.weight": n_embd,
        "ffn_gate.weight": (n_ff, n_embd),
        "ffn_up.weight": (n_ff, n_embd),
        "ffn_down.weight": (n_embd, n_ff),
    }
    if spec["architecture"] == "qwen2":
        layer |= {"attn_q.bias": q, "attn_k.bias": kv, "attn_v.bias": kv}
    ends: dict[str, Shape] = {
        "token_embd.weight": (n_vocab, n_embd),
        "output_norm.weight": n_embd,
        "output.weight": (n_vocab, n_embd),
    }
    return ends | {f"blk.{i}.{name}": shape for i in range(spec["n_layer"]) for name, shape in layer.items()}


def _check_shape(gguf: Gguf, tensor: TensorInfo, shape: Shape) -> None:
    rows, cols = (1, shape) if isinstance(shape, int) else shape
    if (tensor.rows, tensor.cols) != (rows, cols) or tensor.vector != isinstance(shape, int):
        raise gguf.fail(
            f'tensor "{tensor.name}" is {tensor.rows} x {tensor.cols}, '
            f"the metadata asks for {rows} x {cols}; the file is damaged"
        )
    if tensor.vector and tensor.type != F32:
        raise gguf.fail(f'tensor "{tensor.name}" has type {type_name(tensor.type)}; vectors must be F32')

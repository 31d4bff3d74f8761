"""Typed face of the C++ core (`shared/native`). Arrays are C-contiguous NumPy arrays on the CPU."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS: int  # 16 positions a block

def isa_names() -> list[str]:
    """Instruction-set variants compiled in and usable here, best first, e.g. ['avx512vnni', 'avx2',
    'portable']."""

# --- packed weights --------------------------------------------------------------------------------

PACK_LAYOUT: int  # version of the packed layouts; part of the weight cache's key

def packed_bytes(ggml_type: int, rows: int, cols: int) -> int:
    """Size of a packed [rows, cols] matrix. ValueError for a tensor type without kernels."""

def pack(ggml_type: int, source: Any, rows: int, cols: int, target: Any) -> None:
    """Re-lay a GGUF tensor (row-major blocks, buffer `source`) for the kernels into the writable buffer
    `target`."""

def digest(bytes: Any) -> int:
    """64-bit digest of a buffer, at memory speed: it finds damage, it does not withstand forgery."""

def dequantize_rows(
    ggml_type: int, packed: Any, rows: int, cols: int, ids: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Rows of a packed matrix as float32 [len(ids), cols], bit-identical to the GGUF's own dequantisation."""

def matmul(
    ggml_type: int, packed: Any, rows: int, cols: int, x: NDArray[np.float32], isa: str, threads: int = 1
) -> NDArray[np.float32]:
    """`x [n, cols] @ W.T -> [n, rows]` as the engine computes it (for tests and benchmarks)."""

def read_bandwidth(memory: Any, threads: int) -> float:
    """Bytes per second at which `threads` threads together read the buffer `memory` (for benchmarks)."""

# --- memory ----------------------------------------------------------------------------------------

@final
class KvPool:
    """Blocks laid over a writable mapping of kv.pool. `planes[i] = (n_layer, n_kv_head, head_dim)`.

    `kv` is the format of all planes: "f16", or "int8" with a float32 scale for each key and value vector.
    """

    def __init__(
        self, buffer: Any, n_blocks: int, planes: Sequence[tuple[int, int, int]], kv: str = "f16"
    ) -> None: ...
    @staticmethod
    def block_bytes(planes: Sequence[tuple[int, int, int]], kv: str = "f16") -> int: ...
    @property
    def n_blocks(self) -> int: ...
    def copy_block(self, source: int, target: int) -> None: ...

@final
class BlockAllocator:
    """Free bitmap and reference counts as C++ atomics in a writable buffer (8-byte aligned)."""

    def __init__(self, buffer: Any, n_blocks: int, create: bool) -> None: ...
    @staticmethod
    def bytes_needed(n_blocks: int) -> int: ...
    def allocate(self) -> int:
        """A free block with one reference, or -1 when there is none."""
    def retain(self, block: int) -> int:
        """One more reference; the new count. ValueError when the block is free or out of range."""
    def release(self, block: int) -> int:
        """One reference less; the new count (0: free again). ValueError on a double free or out of range."""
    def references(self, block: int) -> int: ...
    @property
    def n_blocks(self) -> int: ...
    @property
    def n_free(self) -> int: ...

@final
class SequenceView:
    """One process's view of a sequence: its block table, its geometry, and how many positions are in the
    pool.

    Slot(p) = p for p < sink, else ring_start + (p - sink) mod ring, with ring_start = sink rounded up to 16.
    """

    def __init__(self, pool: KvPool, plane: int, sink: int, ring: int, window: int) -> None: ...
    length: int  # committed positions in this plane
    def set_blocks(self, first: int, blocks: NDArray[np.int32]) -> None: ...
    def covered(self) -> int:
        """Largest n such that [length, n) can be committed now (>= length): every position has a block in the
        table, and none of them overwrites a position that the token at `length` sees."""

# --- engine ----------------------------------------------------------------------------------------

@final
class Model:
    """Weights of one model, mapped read-only from its weight cache, and the threads that compute with them.

    `spec`: architecture ('llama' | 'qwen2'), n_layer, n_embd, n_head, n_kv_head, head_dim, n_ff, n_vocab,
    rope_base (float), rms_eps (float). `tensors`: (name, ggml_type, rows, cols, offset, nbytes) in the file
    `path`. Matrices lie there as pack() left them, at offsets that are multiples of 64; vectors
    (`*_norm.weight`, `*.bias`) have rows == 1, type F32 and are plain float32, not packed. ValueError names
    the tensor that does not fit.
    """

    def __init__(
        self,
        path: str,
        spec: dict[str, Any],
        tensors: Sequence[tuple[str, int, int, int, int, int]],
        threads: int,
        isa: str = "",
        affinity: Sequence[int] = (),
    ) -> None: ...
    def digests(self, tensors: Sequence[tuple[str, int, int, int, int, int]]) -> list[int]:
        """`digest` of each tensor's bytes as they are in the weight cache now."""
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def plane(self) -> tuple[int, int, int]: ...
    @property
    def weight_bytes(self) -> int:
        """Bytes of weights one decode pass reads."""

@final
class Scratch:
    """K/V of tokens that are being verified or drafted, as trees, and the buffers of a pass. Nothing here
    allocates after construction.

    Nodes live in slots 0 .. size-1; a parent's slot is always smaller than its children's. Parent -1 hangs a
    node on the committed context of its sequence, at position `view.length`. `kv` is the format of the pools
    whose views it takes.
    """

    def __init__(self, model: Model, capacity: int, max_outputs: int, kv: str = "f16") -> None: ...
    @property
    def size(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def forward(
        self,
        views: Sequence[SequenceView],
        seq: NDArray[np.int32],
        tokens: NDArray[np.int32],
        parents: NDArray[np.int32],
        outputs: NDArray[np.int32],
    ) -> int:
        """Append n nodes and run the model over them in one pass; the first new slot is returned.

        `seq[i]` indexes `views`; `parents[i]` is -1 or a *slot* (of an earlier call, or first new slot +
        index of an earlier node of this call). `outputs` are indices into the n new nodes whose logits are
        wanted. Releases the GIL. ValueError for bad ids, a parent of another sequence, a full scratch or too
        many outputs: nothing has changed then.
        """
    def logits(self) -> NDArray[np.float32]:
        """[n outputs of the last pass, n_vocab], a view that the next pass overwrites."""
    def argmax(self) -> NDArray[np.int32]:
        """Token with the largest logit of each output of the last pass (the lowest id among equals)."""
    def commit(self, view: SequenceView, path: NDArray[np.int32]) -> None:
        """Copy the path's K/V into the pool at view.length ..., then advance view.length.

        `path` starts at a node with parent -1; each next one is a child of the one before. ValueError when
        the view's table does not cover it.
        """
    def reroot(self, view: SequenceView, path: NDArray[np.int32]) -> NDArray[np.int32]:
        """After commit(view, path): keep the descendants of the path's end (its children hang on the
        committed context now), drop every other node of this view, compact. Returns old slot -> new slot (-1:
        dropped)."""
    def drop(self, view: SequenceView) -> NDArray[np.int32]:
        """Drop every node of this view, compact; the same map as reroot."""
    def clear(self) -> None: ...

def likeliest_tokens(logits: NDArray[np.float32], k: int) -> tuple[list[int], list[float]]:
    """The k largest of logits [n_vocab], the largest first, lower ids first among equals, and the natural
    logs of their probabilities. ValueError when the largest is not finite."""

# --- drafts from text ------------------------------------------------------------------------------

EVIDENCE: int  # kinds of evidence for a drafted token, and weights of it

@final
class ContextIndex:
    """A bounded text in documents, with its contexts in sorted order: where did this stand before?

    Memory (8 bytes a token) is taken at construction; when it is full, the oldest documents go. Tokens are
    int32 [n], not negative; ValueError for others.
    """

    def __init__(self, tokens: int, documents: int) -> None: ...
    def begin(self, mark: int = 0) -> None:
        """Begin a document. `mark`: a number of the caller's; for `kinship` the tokens of its request."""
    def extend(self, tokens: NDArray[np.int32]) -> None:
        """Append to the newest document; of one that does not fit the older part is forgotten."""
    def fill(self, tokens: NDArray[np.int32], lengths: NDArray[np.int32]) -> None:
        """Documents one behind the other into an empty index, sorted once. ValueError: no room."""
    def find(
        self, query: NDArray[np.int32], shortest: int = 1, most: int = 1024
    ) -> list[tuple[int, int, int]]:
        """The longest matches of the query's end: place of the token that followed, length (32 at most),
        document. Longest first; at most 1024."""
    def token(self, place: int) -> int:
        """IndexError behind the end. -1 begins a document."""
    def document(self, i: int) -> list[int]:
        """Tokens of document i, 0 being the oldest."""
    def mark(self, i: int) -> int: ...
    def kinship(self, query: NDArray[np.int32]) -> NDArray[np.float32]:
        """How much of the query (its last 128 tokens) the request of each document has, 0 to 1."""
    def sorted(self) -> bool:
        """Whether the order holds that everything rests on (for tests)."""
    @property
    def end(self) -> int:
        """Tokens, with one more for the beginning of each document."""
    @property
    def documents(self) -> int: ...
    @property
    def dropped(self) -> int:
        """Documents that had to go so far."""

@final
class TextDraft:
    """A tree of what followed the places that end like a query does. `nodes`: at most so many, up to 256."""

    def __init__(self, nodes: int) -> None: ...
    def grow(
        self,
        sources: Sequence[tuple[ContextIndex, NDArray[np.float32], int]],
        query: NDArray[np.int32],
        mood: float,
        weights: NDArray[np.float32],
        nodes: int,
        depth: int,
        least_score: float,
    ) -> tuple[list[int], list[int], list[int], list[float]]:
        """A new tree: tokens, parents (-1: the query's end), source ids, natural log of the probability of
        each behind its parent; the likeliest paths first.

        A source is an index, the kinship of its documents (float32, missing ones count 0) and its id; 0 is
        the sequence's own text. `mood`: share of right drafts lately. `weights`: float32 [EVIDENCE].
        Paths whose log probability is less than `least_score` are left out.
        """
    def candidates(self) -> list[tuple[int, float, list[float]]]:
        """What could follow the query: token, log probability, evidence [EVIDENCE]."""
    def learn(self, tokens: NDArray[np.int32], rate: float, weights: NDArray[np.float32]) -> list[bool]:
        """Move `weights` (in place) by what really followed the query. For each token that the tree has
        judged: whether its likeliest candidate was right."""

def log_prior(
    sources: Sequence[tuple[ContextIndex, NDArray[np.float32], int]],
    query: NDArray[np.int32],
    tokens: NDArray[np.int32],
) -> list[float]:
    """Natural log of what the texts' counts say to each token behind the query (Witten-Bell smoothing)."""

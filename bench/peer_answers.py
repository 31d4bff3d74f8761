"""llama.cpp's answers to the same prompts, plainly and with its prompt lookup, in a process of its own.

Its lookup decoding drafts the next tokens from the prompt and the answer so far; its documentation recommends
2 tokens on a CPU and 10 elsewhere. Run as a program it takes GGUF and thread count, and answers each line
`{"prompt": [...], "most": n, "stop": [...], "lookup": k}` with tokens and seconds.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peer import PeerProcess, serve

MODES = {"plain": 0, "lookup of 2": 2, "lookup of 10": 10}  # draft tokens
_CONTEXT = 1024


@dataclass(frozen=True)
class PeerAnswer:
    """`first_s`: until the first token, `rest_s`: from there to the end."""

    tokens: list[int]
    first_s: float
    rest_s: float


class PeerAnswers(PeerProcess):
    def __init__(self, python: str, gguf: Path, threads: int) -> None:
        super().__init__("bench.peer_answers", python, gguf, threads)

    def answer(self, prompt: list[int], most: int, stop: list[int], lookup: int) -> PeerAnswer:
        found = self.ask({"prompt": prompt, "most": most, "stop": stop, "lookup": lookup})
        return PeerAnswer(found["tokens"], found["first_s"], found["rest_s"])


def rate(answers: list[PeerAnswer]) -> float:
    """Tokens a second behind the first ones."""
    seconds = sum(a.rest_s for a in answers)
    return sum(len(a.tokens) - 1 for a in answers) / seconds if seconds else 0.0


def _load(gguf: str, threads: int) -> dict[bool, Any]:
    """Without and with a draft model: only the latter computes the logits of every token of a batch."""
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    common = {"n_ctx": _CONTEXT, "n_threads": threads, "n_threads_batch": threads, "verbose": False}
    return {
        False: llama_cpp.Llama(gguf, **common),
        True: llama_cpp.Llama(gguf, draft_model=LlamaPromptLookupDecoding(), **common),
    }


def _answer(loaded: dict[bool, Any], request: dict[str, Any]) -> dict[str, Any]:
    lookup = request["lookup"]
    llama = loaded[lookup > 0]
    if lookup:
        llama.draft_model.num_pred_tokens = lookup
    begun = time.perf_counter()
    first = ended = 0.0
    tokens: list[int] = []
    for token in llama.generate(request["prompt"], top_k=1, temp=0.0, repeat_penalty=1.0):
        ended = time.perf_counter()
        first = first or ended
        if token in request["stop"]:
            break
        tokens.append(int(token))
        if len(tokens) == request["most"]:
            break
    return {"tokens": tokens, "first_s": first - begun, "rest_s": ended - first}


if __name__ == "__main__":
    serve(lambda: _load(sys.argv[1], int(sys.argv[2])), _answer)

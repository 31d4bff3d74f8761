"""llama.cpp as the engine's peer, in a process of its own: neither side's threads disturb the other's.

Run as a program it takes GGUF and thread count, and answers each line `{"rows": n, "passes": k}` on its
standard input with `{"seconds": [...]}`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class PeerMissing(Exception):
    """The interpreter has no llama-cpp-python, or it cannot load the model."""


class PeerProcess:
    """`python` is an interpreter that has llama-cpp-python. PeerMissing with the reason when it has not.

    `module` of this package answers a line of JSON with one, and begins with one that has its `version`.
    """

    def __init__(self, module: str, python: str, gguf: Path, threads: int) -> None:
        self._process = subprocess.Popen(
            [python, "-m", module, str(gguf.absolute()), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        ready = self._read()
        if "version" not in ready:
            self.close()
            raise PeerMissing(ready.get("error", "the peer process did not start"))
        self.version: str = ready["version"]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """PeerMissing when the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise PeerMissing(answer["error"])
        return answer

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return {"error": "the peer process ended"}
        answer: dict[str, Any] = json.loads(line)
        return answer


class Peer(PeerProcess):
    """Passes of llama.cpp."""

    def __init__(self, python: str, gguf: Path, threads: int) -> None:
        super().__init__("bench.peer", python, gguf, threads)

    def seconds(self, rows: int, passes: int) -> list[float]:
        """Durations of `passes` batches of `rows` tokens; with one row, of consecutive decode steps."""
        return [float(s) for s in self.ask({"rows": rows, "passes": passes})["seconds"]]


def _open(gguf: str, threads: int) -> Any:
    import llama_cpp

    return llama_cpp.Llama(
        gguf, n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=threads, n_threads_batch=threads, verbose=False
    )


def _measure(llama: Any, rows: int, passes: int) -> list[float]:
    import llama_cpp

    context = llama._ctx.ctx
    memory = llama_cpp.llama_get_memory(context)
    batch = llama_cpp.llama_batch_init(rows, 0, 1)
    seconds = []
    llama_cpp.llama_memory_clear(memory, True)
    for i in range(passes):
        start = i if rows == 1 else 0
        if rows > 1:
            llama_cpp.llama_memory_clear(memory, True)
        batch.n_tokens = rows
        for r in range(rows):
            batch.token[r] = 1000 + 7 * (i + r) % 30000
            batch.pos[r], batch.n_seq_id[r], batch.seq_id[r][0] = start + r, 1, 0
            batch.logits[r] = r == rows - 1
        before = time.perf_counter()
        if llama_cpp.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_get_logits(context)
        seconds.append(time.perf_counter() - before)
    llama_cpp.llama_batch_free(batch)
    return seconds


def serve(load: Callable[[], Any], answer: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> None:
    """The other end of a PeerProcess: what `load` gives answers each line."""
    try:
        loaded = load()
        import llama_cpp

        print(json.dumps({"version": str(llama_cpp.__version__)}), flush=True)
    except (ImportError, ValueError) as error:
        print(json.dumps({"error": f"llama-cpp-python: {error}"}), flush=True)
        return
    for line in sys.stdin:
        print(json.dumps(answer(loaded, json.loads(line))), flush=True)


if __name__ == "__main__":
    serve(
        lambda: _open(sys.argv[1], int(sys.argv[2])),
        lambda llama, request: {"seconds": _measure(llama, request["rows"], request["passes"])},
    )

"""What the verifier knows of a sequence: a snapshot, moved on by its own commits, confirmed by context.

tokens   0 ……………… kv_len ………… known          epoch    confirmed ──── epoch
         in the pool │ pending │                        context's     with the commit under way
                                                        state         (at most one when a pass starts)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.verifier.acceptance import Verdict
from services.verifier.deferral import Patience, Wait
from services.verifier.judge import Judge
from shared.bus.messages.sequences import Proposal, SeqAppend, SeqOpen, SeqState
from shared.native import KvPool, SequenceView
from shared.tree import TokenTrie


class Sequence:
    """One live sequence. `view.length` is the number of positions in the pool, kept by the engine."""

    def __init__(self, snapshot: SeqOpen, pool: KvPool, plane: int, now: float) -> None:
        """ValueError when the snapshot contradicts itself or names blocks that the pool does not have."""
        known = snapshot.first + len(snapshot.tokens)
        if not snapshot.first <= snapshot.kv_len <= known >= snapshot.prompt_len:
            raise ValueError(
                f"tokens {snapshot.first} to {known}, of which {snapshot.prompt_len} are the prompt "
                f"and {snapshot.kv_len} are computed"
            )
        self.seq = snapshot.seq
        self.severity = snapshot.severity
        self.epoch = self._confirmed = snapshot.epoch
        self.known = known
        self.judge = Judge(snapshot)
        self.view = SequenceView(pool, plane, snapshot.sink, snapshot.ring, snapshot.window)
        self.view.set_blocks(0, np.array(snapshot.blocks, np.int32))
        self.view.length = snapshot.kv_len
        self._most_visible = snapshot.sink + snapshot.window
        self._pending = np.array(snapshot.tokens[snapshot.kv_len - snapshot.first :], np.int32)
        self._answer_end = snapshot.prompt_len + snapshot.max_tokens
        self._answers = snapshot.max_tokens > 0
        self.finished = False
        self.last_pass = 0
        self.trie = TokenTrie(self.known)
        self.patience = Patience()
        self.ready_at = now
        self.proposed_at: float | None = None
        self.wait = Wait()
        self.announced: Proposal | None = None  # the draft model's latest words on what it computes

    @property
    def due(self) -> float | None:
        said = self.announced
        if said is None or said.next is None or self.trie.rest(said.base, said.next) != []:
            return None
        return said.due

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def decoding(self) -> bool:
        return len(self._pending) == 1 and self.answer_left > 0

    @property
    def room(self) -> int:
        return self.view.covered() - self.view.length

    @property
    def visible(self) -> int:
        return min(self.view.length, self._most_visible)

    @property
    def answer_left(self) -> int:
        return self._answer_end - self.known if self._answers else 0

    @property
    def runnable(self) -> bool:
        """It may take part in a pass: something to compute and at most one commit unconfirmed."""
        return not self.finished and len(self._pending) > 0 and self.epoch - self._confirmed <= 1

    def pending_tokens(self, n: int) -> NDArray[np.int32]:
        return self._pending[:n]

    def proposed(self, now: float) -> None:
        if self.proposed_at is None:
            self.proposed_at = now

    def advance(self, written: int, verdict: Verdict, now: float) -> int:
        """A commit of this process: `written` positions entered the pool, the verdict's tokens are known.

        Returns how many of these tokens had been drafted.
        """
        self.epoch += 1
        self.known += len(verdict.tokens)
        self._pending = np.concatenate((self._pending, np.array(verdict.tokens, np.int32)))[written:]
        self.finished = verdict.finish is not None
        self.judge.take(verdict.tokens)
        self.ready_at, self.proposed_at, self.wait = now, None, Wait()
        return len(self.trie.advance(verdict.tokens))

    def confirm(self, state: SeqState) -> bool:
        """Context has taken a commit. False when its state is not the one this process is in."""
        if state.epoch <= self._confirmed:
            return True
        if state.epoch != self._confirmed + 1 or state.epoch > self.epoch:
            return False
        if state.epoch == self.epoch and state.kv_len != self.view.length:
            return False
        self._confirmed = state.epoch
        self.view.set_blocks(state.first_block, np.array(state.blocks, np.int32))
        return True

    def append(self, append: SeqAppend) -> bool:
        """A stream has grown. False when its known tokens are not those that the new ones follow."""
        if append.known != self.known or self._answers:
            return False
        self.view.set_blocks(append.first_block, np.array(append.blocks, np.int32))
        self._pending = np.concatenate((self._pending, np.array(append.tokens, np.int32)))
        self.known += len(append.tokens)
        return True

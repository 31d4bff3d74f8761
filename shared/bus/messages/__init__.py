"""Every message on the bus: one frozen type per intent, schema-checked when it is decoded.

    gateway ──Submit, RegisterProfile, Cancel──▶ context ──SeqOpen, SeqState, SeqClose──▶ verifier, draft
    gateway ◀──Accepted, Rejected, Tokens, Finished── context ◀──Commit── verifier
    gateway ──StreamAppend, StreamClose──▶ context ──SeqAppend──▶ verifier, draft
    gateway ◀──StreamAppended, StreamRefused── context
                                                      context ◀──PlaneFilled── draft
                                                      context ◀──SeqReleased── verifier, draft
    draft ──Proposal──▶ verifier            (the one channel that does not pass through context)

A sequence's tokens are `tokens[0 .. n)`. K/V of positions `[0, kv_len)` is in the pool. While a sequence
decodes, `n == kv_len + 1`: the last token, the *root*, is known but not yet computed. `epoch` counts the
commits of a sequence; a message that carries an epoch belongs to the state after that many commits.

Everything in a message has a limit, so whatever can be made also fits into a frame (shared.bus.codec).
"""

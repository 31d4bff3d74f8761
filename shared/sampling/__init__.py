"""How a token is chosen from a row of logits: warpers, distributions, and the generator. Pure.

    logits ──repetition penalty──▶ ──temperature──▶ ──top-k──▶ ──min-p──▶ ──top-p──▶ Distribution ──u──▶ token

The same row, history and u give the same token: NumPy's reductions and `exp` are the same for equal arrays on
one machine, whatever else is computed beside them.
"""

from shared.sampling.distribution import Distribution
from shared.sampling.generator import Uniforms, uniform
from shared.sampling.history import History
from shared.sampling.warp import warp

__all__ = ["Distribution", "History", "Uniforms", "uniform", "warp"]

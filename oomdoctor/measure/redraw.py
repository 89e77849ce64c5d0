"""Another order of ops in the same process. Runs inside the worker.

When TensorFlow prepares the graph of a step it lists the ops by chance, and keeps to that for as
long as the process lives. What a step takes depends on it: a small Transformer took 542, 565, 573
or 597 MB. A prepared graph belongs to the settings of its time. Under settings that differ in
something without effect it is prepared again, which is drawing anew, as another process does, but
without its import and its trace.

A graph that was just prepared is also young. The executor runs ops that it takes to be cheap at
once, and hands the others to a thread. At first it takes all of them to be expensive, and lowers
that by a tenth with each run, so after some ninety runs the cheap ones change over. Ops of a loop
are there within a step or two, and while some have changed over and others have not, more rounds
are held: of twelve young orders of a recurrent network with 60 rounds, seven took 197 MiB in their
second step, and all of them 177 to 190 in the fourth. Recorded steps did not show it, perhaps
because the profiler makes ops slower. `fit` begins young, so a step with a loop is judged in orders
never used before.
"""

from __future__ import annotations

DRAWS = 8
"""In so many orders a size must train where no margin covers chance: the worst of a Transformer was
drawn by one process of four."""

DEFAULT_NODES = 4
"""Graphs with fewer nodes are not optimized; no training step is near that."""


def draw(number: int) -> None:
    """Let functions run in an order of ops; the same number is the same order again.

    Args:
        number: 0 is what the process began with.
    """
    import tensorflow as tf

    nodes = DEFAULT_NODES + number if number else 0  # 0 is as if nothing was said
    tf.config.optimizer.set_experimental_options({"min_graph_nodes": nodes})


def draws(unlucky: int) -> list[int]:
    """Return the orders to run a size in, first the one in which the last size failed.

    Example:
        >>> draws(unlucky=2)
        [2, 0, 1, 3, 4, 5, 6, 7]
    """
    return sorted(range(DRAWS), key=lambda number: number != unlucky)

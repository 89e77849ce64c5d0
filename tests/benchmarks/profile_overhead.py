"""What recording costs a training: step time with and without, in turns, in one run.

    python tests/benchmarks/profile_overhead.py [ROUNDS]

"With" is all of it: a profiler process that samples ten times a second, the hooks in Keras, the
census of objects, and `MemoryCallback` in `fit`. Both kinds of round train the same model in the
same process, so that what else the machine does hits both. The median of all steps counts, and
beside it the processor time of the training process for each step.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from keras.src.callbacks import callback_list
from keras.src.trainers import epoch_iterator

import oomdoctor
from oomdoctor.profile import keras_hooks
from oomdoctor.profile.census import count_now_and_then
from oomdoctor.profile.inside import Inside
from oomdoctor.profile.spawn import Settings

WATCH = """
import sys, time
from oomdoctor.probe.container import ContainerMeter
from oomdoctor.profile import records
from oomdoctor.profile.store import Appender
from oomdoctor.profile.tree import ProcessTree
tree, container = ProcessTree(int(sys.argv[1])), ContainerMeter()
lines = Appender(sys.argv[2] + "/outside.jsonl")
while tree.rss_of(tree.pid):
    rss = tree.rss_bytes()
    lines.write(records.S(t=0.0, rss=rss, swap=tree.swap_bytes(), box=container.used_bytes()))
    time.sleep(0.1)
"""


class Timer(keras.callbacks.Callback):
    """Times each step, from its begin to the begin of the next."""

    async_safe = True

    def __init__(self):
        super().__init__()
        self.seconds, self._last = [], None

    def on_train_batch_begin(self, batch, logs=None):
        now = time.perf_counter()
        if self._last is not None:
            self.seconds.append(now - self._last)
        self._last = now


def switches(inside):
    """Return functions that put the hooks into Keras and take them out again."""
    owners = (callback_list.CallbackList, epoch_iterator.EpochIterator)
    plain = [dict(vars(owner)) for owner in owners]
    keras_hooks.watch_callbacks(callback_list, inside)
    keras_hooks.watch_data(epoch_iterator, inside)
    hooked = [dict(vars(owner)) for owner in owners]

    def put(kinds):
        for owner, kind in zip(owners, kinds, strict=True):
            for name, value in kind.items():
                if plain[owners.index(owner)].get(name) is not hooked[owners.index(owner)][name]:
                    setattr(owner, name, value)

    return lambda: put(hooked), lambda: put(plain)


def measure(units, steps, rounds, inside, on, off, watcher, memory):
    model = keras.Sequential([keras.layers.Dense(units, "relu") for _ in range(4)])
    model.add(keras.layers.Dense(1))
    model.compile("sgd", "mse")
    x, y = np.zeros((steps * 64, units), "float32"), np.zeros((steps * 64, 1), "float32")
    off()
    model.fit(x, y, batch_size=64, verbose=0)
    seconds, processor = {True: [], False: []}, {True: [], False: []}
    for turn in range(2 * rounds):
        recorded = turn % 4 in (0, 3)  # with, without, without, with: drift hits both
        (on if recorded else off)()
        inside.is_paused = not recorded
        watcher.send_signal(signal.SIGCONT if recorded else signal.SIGSTOP)
        timer = Timer()
        before = time.process_time()
        model.fit(x, y, batch_size=64, verbose=0, callbacks=[timer, *([memory] * recorded)])
        processor[recorded].append((time.process_time() - before) / steps)
        seconds[recorded] += timer.seconds[5:]
    return seconds, processor


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    folder = tempfile.mkdtemp()
    inside = Inside(Settings(folder=folder, began=time.monotonic(), pythonpath=None))
    on, off = switches(inside)
    count_now_and_then(inside)
    watcher = subprocess.Popen([sys.executable, "-c", WATCH, str(os.getpid()), folder])
    print(f"{'step':>12} {'without':>10} {'with':>10} {'slower':>8}   processor time per step")
    try:
        for units, steps in ((256, 300), (1024, 60)):
            memory = oomdoctor.MemoryCallback()
            seconds, processor = measure(units, steps, rounds, inside, on, off, watcher, memory)
            plain, recorded = (statistics.median(seconds[kind]) for kind in (False, True))
            cpu = [statistics.median(processor[kind]) for kind in (False, True)]
            print(
                f"dense {units:>6} {plain * 1e3:>7.2f} ms {recorded * 1e3:>7.2f} ms "
                f"{recorded / plain - 1:>8.1%}   {cpu[0] * 1e3:.2f} -> {cpu[1] * 1e3:.2f} ms "
                f"({cpu[1] / cpu[0] - 1:+.1%})",
                flush=True,
            )
    finally:
        watcher.kill()
        watcher.wait()


if __name__ == "__main__":
    main()

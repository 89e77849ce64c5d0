"""The real compiler: what it answers, and what is left of it when it does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from oomdoctor.xla import compiler
from oomdoctor.xla.cards import CARDS, find_card
from oomdoctor.xla.compiler import compile_step
from oomdoctor.xla.errors import (
    CompilerEnded,
    CompilerStalled,
    NotCompilable,
    PluginMissing,
    PluginUnsupported,
)
from oomdoctor.xla.plugin import Plugin, find_plugin

pytestmark = pytest.mark.tensorflow

T4 = find_card("t4")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Where temporary folders are made, to see what is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    assert not _compilers()


def _compilers():
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "child.py" in " ".join(child.cmdline())]


def _when_running(act):
    """Start a thread that acts on the compiler as soon as there is one."""

    def wait():
        for _ in range(2000):
            for process in _compilers():
                act(process.pid)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_step_needs_its_arguments_and_temporaries(cnn_at_32, scratch):
    compiled = compile_step(cnn_at_32.hlo, T4)

    memory = compiled.memory
    weights = 4 * (3 * 3 * 3 * 16 + 16 + 3 * 3 * 16 * 32 + 32 + 8192 * 64 + 64 + 64 * 10 + 10)
    batch = 32 * (32 * 32 * 3 * 4 + 4)
    assert 3 * weights + batch <= memory.argument_bytes <= 3 * weights + batch + 4096
    # Adam's two slots and the weights are updated in place.
    assert memory.aliased_bytes >= 3 * weights
    assert compiled.peak_bytes == (
        memory.argument_bytes + memory.output_bytes - memory.aliased_bytes + memory.temporary_bytes
    )
    assert memory.temporary_bytes > 32 * 32 * 32 * 32 * 4
    assert compiled.plugin_version == find_plugin().version
    assert not compiled.recomputes


@pytest.mark.slow
@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_every_card_is_one_that_the_compiler_accepts(card, cnn_at_32):
    assert compile_step(cnn_at_32.hlo, card).peak_bytes > 0


def test_a_step_that_does_not_fit_is_recomputed(scratch):
    """Eighty layers whose activations take more than a small card, and what recomputing saves."""
    import dataclasses

    import keras
    from keras import layers

    from oomdoctor.xla.lowering import lowering

    wide = [layers.Dense(256, activation="gelu") for _ in range(12)]
    model = keras.Sequential([layers.Input((256,)), *wide])
    model.compile(optimizer="sgd", loss="mse")
    with lowering(model) as traced:
        hlo = traced.at(4096).hlo
    small = dataclasses.replace(T4, memory_bytes=64 * 2**20)

    compiled = compile_step(hlo, small)
    without = compile_step(hlo, small, without_recomputation=True)

    assert compiled.recomputes
    assert not without.recomputes
    assert compiled.peak_bytes < 0.9 * without.peak_bytes
    assert compile_step(hlo, T4).peak_bytes >= 0.99 * without.peak_bytes


@pytest.mark.heavy
def test_a_product_that_the_usual_tiling_does_not_allow_is_given_to_cublas(scratch, monkeypatch):
    """As in the first blocks of a vision transformer in float32."""
    from oomdoctor.xla.lowering import lowering

    monkeypatch.syspath_prepend(BENCHMARKS)
    from xla_cards import MODELS

    batch, build = MODELS["vision_transformer"]
    model, loss = build()
    model.compile(optimizer="adam", loss=loss)
    with lowering(model) as traced:
        hlo = traced.at(batch).hlo
    card = find_card("a100-40gb")

    with pytest.raises(NotCompilable, match="output tile sizes"):
        compiler._compile(hlo, card, list(compiler.FLAGS), find_plugin(), None)
    assert compile_step(hlo, card).peak_bytes > 2**30


def test_it_does_not_depend_on_our_environment(cnn_at_32, monkeypatch):
    expected = compile_step(cnn_at_32.hlo, T4).memory
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag=1")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("LD_PRELOAD", "")

    assert compile_step(cnn_at_32.hlo, T4).memory == expected


def test_a_compiler_that_is_killed_is_one_sentence(deep_step, scratch):
    thread = _when_running(lambda pid: os.kill(pid, signal.SIGKILL))

    with pytest.raises(CompilerEnded, match="killed"):
        compile_step(deep_step, T4)
    thread.join()


def test_a_compiler_that_hangs_is_stopped(deep_step, scratch, monkeypatch):
    monkeypatch.setattr(compiler, "IDLE_SECONDS", 1)
    thread = _when_running(lambda pid: os.kill(pid, signal.SIGSTOP))

    with pytest.raises(CompilerStalled, match="done nothing for 1 seconds"):
        compile_step(deep_step, T4)
    thread.join()


def test_a_compiler_that_does_not_end_is_stopped(scratch, monkeypatch, deep_step):
    monkeypatch.setattr(compiler, "cpu_limit", lambda size: 1)

    with pytest.raises(CompilerStalled, match="more than 1 seconds of processor time"):
        compile_step(deep_step, T4)


def test_a_compiler_that_takes_too_much_memory_is_stopped(scratch, monkeypatch, deep_step):
    monkeypatch.setattr(compiler, "memory_limit", lambda size: 450 * 2**20)

    with pytest.raises(CompilerEnded, match="more than 450 MiB of memory"):
        compile_step(deep_step, T4)


def test_a_fatal_check_ends_the_compiler_and_not_us(cnn_at_32, scratch, monkeypatch):
    monkeypatch.setattr(compiler, "FLAGS", (*compiler.FLAGS, "--xla_no_such_flag=1"))

    with pytest.raises(CompilerEnded, match=r"ended with .*xla_no_such_flag"):
        compile_step(cnn_at_32.hlo, T4)


def test_what_is_no_program_is_one_sentence(scratch):
    with pytest.raises(NotCompilable, match=r"could not compile this step: .+"):
        compile_step(b"nonsense", T4)


def test_what_is_no_compiler_is_one_sentence(cnn_at_32, scratch):
    import ctypes.util

    other = ctypes.util.find_library("m")
    assert other is not None
    for path in (other, __file__, "/nowhere/at/all.so"):
        with pytest.raises(PluginUnsupported, match="could not be loaded"):
            compile_step(cnn_at_32.hlo, T4, plugin=Plugin(path, "0.9.0"))


@pytest.mark.parametrize("version", ["0.6.2", "0.8.3", "0.13.0", "1.0", "dev"])
def test_a_version_that_was_not_tested_is_not_used(version):
    with pytest.raises(PluginUnsupported, match=r"not tested.*oomdoctor\[xla\]"):
        Plugin("/nowhere", version).check_version()


def test_a_missing_compiler_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("oomdoctor.xla.plugin.MODULE", "jax_plugins.no_such_plugin")

    with pytest.raises(PluginMissing, match=r"pip install 'oomdoctor\[xla\]'"):
        find_plugin()


def test_it_can_be_cancelled(deep_step, scratch):
    cancelled = threading.Event()
    thread = _when_running(lambda pid: cancelled.set())

    with pytest.raises(CompilerEnded, match="cancelled"):
        compile_step(deep_step, T4, cancelled=cancelled)
    thread.join()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind(how, deep_step, tmp_path):
    """Neither a process nor a folder, even where nobody is left to remove it."""
    program = tmp_path / "program.hlo"
    program.write_bytes(deep_step)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = (
        "import sys; from oomdoctor.xla.compiler import compile_step\n"
        "from oomdoctor.xla.cards import find_card\n"
        "print('ready', flush=True)\n"
        "while True: compile_step(open(sys.argv[1], 'rb').read(), find_card('t4'))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(program)],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        children = []
        while not children:
            children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(how)
        process.wait()
    _, alive = psutil.wait_procs(children, timeout=60)

    assert not alive
    assert list(scratch.iterdir()) == []

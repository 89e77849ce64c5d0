from __future__ import annotations

import os
import struct
import wave

import pytest

from oomdoctor.inventory.audio import NOT_16_BIT_NOTE, read


def write_wav(path, *, channels=2, width=2, frames=1000):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(16000)
        file.writeframes(bytes(channels * width * frames))
    return path


def the_part(path):
    (part,) = read(str(path), os.path.getsize(path))
    return part


@pytest.mark.parametrize("channels", [1, 2, 6])
def test_a_recording_is_frames_by_channels_of_float32(tmp_path, channels):
    part = the_part(write_wav(tmp_path / "a.wav", channels=channels))
    assert (part.samples, part.shape, part.dtype) == (1, (1000, channels), "float32")
    assert (part.kind, part.elements, part.note) == ("audio", 1000 * channels, None)


@pytest.mark.parametrize("width", [1, 3, 4])
def test_a_width_that_tensorflow_cannot_decode_is_noted(tmp_path, width):
    part = the_part(write_wav(tmp_path / "a.wav", width=width))
    assert (part.elements, part.note) == (2000, NOT_16_BIT_NOTE)


@pytest.mark.tensorflow
def test_tensorflow_decodes_to_the_same_shape_and_dtype(tmp_path):
    import tensorflow as tf

    path = write_wav(tmp_path / "a.wav")
    decoded, _ = tf.audio.decode_wav(path.read_bytes())
    part = the_part(path)
    assert part.shape == tuple(decoded.shape)
    assert part.dtype == decoded.dtype.name


def test_chunks_before_the_data_are_passed_over(tmp_path):
    path = write_wav(tmp_path / "a.wav", channels=1, frames=10)
    data = path.read_bytes()
    path.write_bytes(data[:12] + b"LIST" + struct.pack("<L", 3) + b"abc\0" + data[12:])
    assert the_part(path).shape == (10, 1)


@pytest.mark.parametrize("claim", [3000, 0xFFFFFFFE])
def test_a_length_beyond_the_file_counts_only_what_is_there(tmp_path, claim):
    path = write_wav(tmp_path / "a.wav", channels=1, frames=10)
    data = bytearray(path.read_bytes())
    struct.pack_into("<L", data, 40, claim)
    path.write_bytes(data)
    part = the_part(path)
    assert (part.shape, part.note) == ((10, 1), "file ends before its data does")


def test_a_recording_of_untold_length_reaches_to_the_end_of_the_file(tmp_path):
    path = write_wav(tmp_path / "a.wav", channels=1, frames=10)
    data = bytearray(path.read_bytes())
    struct.pack_into("<L", data, 40, 0xFFFFFFFF)
    path.write_bytes(data)
    assert (the_part(path).shape, the_part(path).note) == ((10, 1), None)


@pytest.mark.parametrize("data", [b"", b"RIFF", b"RIFF\0\0\0\0AVI ", b"ID3" * 100, bytes(5000)])
def test_what_is_no_wav_file_is_refused(tmp_path, hostile, data):
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    assert hostile.reason(read, path) == "not a WAV file, or damaged"


@pytest.mark.parametrize(("at", "value"), [(22, 0), (32, 0)])
def test_no_channels_or_frames_of_no_bytes_are_refused(tmp_path, hostile, at, value):
    path = write_wav(tmp_path / "a.wav")
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, at, value)
    path.write_bytes(data)
    assert hostile.reason(read, path) == "not a WAV file, or damaged"


def test_a_damaged_recording_is_refused_or_sized_and_never_more(tmp_path, hostile):
    path = write_wav(tmp_path / "a.wav", frames=20)
    hostile.survives_cuts(read, path)
    hostile.survives_changes(read, path, head=48)

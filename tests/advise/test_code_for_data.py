"""What is prescribed for real files of every format: code that names what is there, and no other
format's loader."""

import ast
import json
import shutil
import struct
import tarfile
import wave

import numpy as np
import pytest
from PIL import Image

import oomdoctor
from oomdoctor.findings import Outcome

RAM = "601MiB"
"""What TensorFlow itself takes, and one mebibyte for data."""


def put_pictures(folder, *, size=(64, 48), count=10):
    folder.mkdir(parents=True)
    for number in range(count):
        Image.new("RGB", size).save(folder / f"{number}.png")
    return folder


def put_npy(folder):
    np.save(folder / "x_train.npy", np.zeros((400, 32, 32, 3), "uint8"))
    np.save(folder / "y_train.npy", np.zeros(400, "int64"))
    return folder


def put_lonely_npy(folder):
    np.save(folder / "x_train.npy", np.zeros((400, 32, 32, 3), "uint8"))
    return folder


def put_npz(folder):
    x = np.random.default_rng(1).integers(0, 255, (400, 32, 32, 3), "uint8")
    np.savez(folder / "set.npz", x_train=x, y_train=np.zeros(400))
    return folder / "set.npz"


def put_hdf5(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "set.h5", "w") as file:
        file["x_train"] = np.zeros((400, 32, 32, 3), "uint8")
        file["y_train"] = np.zeros(400)
    return folder / "set.h5"


def table(rows=60_000):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"a": np.arange(rows) / 7, "label": np.arange(rows) % 3})


def put_csv(folder):
    table().to_csv(folder / "set.csv", index=False)
    return folder / "set.csv"


def put_parquet(folder):
    pytest.importorskip("pyarrow")
    table().to_parquet(folder / "set.parquet")
    return folder / "set.parquet"


def put_arrow(folder):
    pa = pytest.importorskip("pyarrow")
    rows = pa.Table.from_pandas(table())
    with pa.ipc.new_file(str(folder / "set.arrow"), rows.schema) as writer:
        writer.write(rows)
    return folder / "set.arrow"


def put_wav(folder):
    for kind in ("yes", "no"):
        (folder / "speech" / kind).mkdir(parents=True)
        for number in range(8):
            with wave.open(str(folder / "speech" / kind / f"{number}.wav"), "wb") as sound:
                sound.setnchannels(1)
                sound.setsampwidth(2)
                sound.setframerate(16000)
                sound.writeframes(bytes(32_000))
    return folder / "speech"


def put_text(folder):
    for kind in ("good", "bad"):
        (folder / "reviews" / kind).mkdir(parents=True)
        for number in range(8):
            (folder / "reviews" / kind / f"{number}.txt").write_text("word " * 20_000)
    return folder / "reviews"


def put_jsonl(folder):
    rows = [json.dumps({"text": "word " * 200, "label": 1})] * 2000
    (folder / "set.jsonl").write_text("\n".join(rows))
    return folder / "set.jsonl"


def put_zip(folder):
    put_pictures(folder / "pack" / "pets" / "cat", count=40)
    return shutil.make_archive(folder / "pets", "zip", folder / "pack")


def put_tar(folder):
    put_pictures(folder / "pack" / "pets" / "cat", count=40)
    with tarfile.open(folder / "pets.tar.gz", "w:gz") as archive:
        archive.add(folder / "pack" / "pets", "pets")
    return folder / "pets.tar.gz"


FORMATS = {
    "npy": (put_npy, ["np.load(x_path, mmap_mode", "y_train.npy"]),
    "npy without labels": (put_lonely_npy, ["np.load(x_path, mmap_mode", "# y: your labels"]),
    "npz": (put_npz, ["zipfile", '"x_train" + ".npy"', '"y_train" + ".npy"']),
    "hdf5": (put_hdf5, ["h5py", 'file["x_train"]', 'file["y_train"]']),
    "csv": (put_csv, ["make_csv_dataset", "set.csv"]),
    "parquet": (put_parquet, ["pyarrow.dataset", "set.parquet"]),
    "arrow": (put_arrow, ["pa.ipc.open_file", "set.arrow"]),
    "wav": (put_wav, ["audio_dataset_from_directory", "/speech", "output_sequence_length=16000"]),
    "text": (put_text, ["text_dataset_from_directory", "/reviews"]),
    "jsonl": (put_jsonl, ["json.loads", "set.jsonl"]),
    "zip": (put_zip, ["unpack_archive", '"extracted/pets"', "image_dataset_from_directory"]),
    "tar": (put_tar, ["unpack_archive", '"extracted/pets"', "image_dataset_from_directory"]),
}


def fired(report):
    return {item.rule: item for item in report.findings if item.outcome is Outcome.FIRED}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_streamed_with_a_loader_of_its_own(tmp_path, name):
    put, says = FORMATS[name]
    target = put(tmp_path)

    findings = fired(oomdoctor.check(target, load="memory", ram=RAM))

    code = findings["OD101"].fix.code
    assert all(words in code for words in says), code
    reads_pictures = name in ("zip", "tar")
    for finding in findings.values():
        ast.parse(finding.fix.code)
        assert reads_pictures or "image_dataset_from_directory" not in finding.fix.code, finding
    if name == "npy without labels":
        assert not any("y_train.npy" in item.fix.code for item in findings.values())


def test_records_are_streamed_as_records(tmp_path):
    path = tmp_path / "set.tfrecord"
    path.write_bytes(records(b"x" * 5000, 1000))

    findings = fired(oomdoctor.check(path, load="memory", ram=RAM))

    assert "TFRecordDataset" in findings["OD101"].fix.code
    assert "set.tfrecord" in findings["OD101"].fix.code


def records(data, count):
    """A TFRecord file; nobody reads the checksums of what it holds."""
    length = struct.pack("<Q", len(data))
    crc = 0xFFFFFFFF
    for byte in length:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return (length + struct.pack("<I", masked) + data + bytes(4)) * count


def test_pictures_are_read_from_their_training_split_at_the_size_asked_for(tmp_path):
    for split in ("train", "val", "test"):
        put_pictures(tmp_path / "pets" / split / "cat", count=40)

    report = oomdoctor.check(
        tmp_path / "pets", load="memory", ram=RAM, image_size=(40, 56), batch_size=8
    )

    code = fired(report)["OD101"].fix.code
    assert f'"{tmp_path}/pets/train"' in code
    assert f'"{tmp_path}/pets/val"' in code
    assert "validation_data=validation" in code
    assert "image_size=(40, 56)" in code
    assert f'"{tmp_path}/pets"' not in code


# --------------------------------------------------------------------------- streams


def test_a_stream_whose_batches_are_larger_than_the_gpu_gets_a_batch_that_fits(tmp_path):
    put_pictures(tmp_path / "img" / "cat", count=40)

    report = oomdoctor.check(tmp_path / "img", ram="8GiB", vram="1MiB")

    assert report.verdict == "does_not_fit"
    finding = fired(report)["OD115"]
    assert (finding.remedy, finding.makes_it_fit) == ("reduce_batch", True)
    # 1 MiB holds two batches of 14 of these 36 KiB; half of that is left to the model.
    assert "up to 14 fit" in finding.message
    assert "batch_size=7" in finding.fix.code
    assert oomdoctor.check(tmp_path / "img", ram="8GiB", vram="1MiB", batch_size=14).verdict == (
        "fits"
    )


def test_a_stream_whose_batches_are_larger_than_ram_gets_a_batch_that_fits(tmp_path):
    put_pictures(tmp_path / "img" / "cat", size=(1000, 1000), count=60)

    report = oomdoctor.check(tmp_path / "img", ram="1200MiB", batch_size=60)

    assert report.verdict == "does_not_fit"
    finding = fired(report)["OD116"]
    assert (finding.remedy, finding.makes_it_fit) == ("reduce_batch", True)
    smaller = int(finding.fix.code.partition("batch_size=")[2].partition(",")[0])
    again = oomdoctor.check(tmp_path / "img", ram="1200MiB", batch_size=smaller)
    assert again.verdict == "fits"


@pytest.mark.parametrize("load", ["auto", "stream"])
def test_one_picture_that_fills_memory_is_to_be_made_smaller(tmp_path, load):
    (tmp_path / "a").mkdir()
    Image.new("RGB", (10, 10)).save(tmp_path / "a" / "small.png")
    Image.new("L", (20_000, 15_000)).save(tmp_path / "a" / "large.png")

    findings = fired(oomdoctor.check(tmp_path, ram="4GiB", load=load))

    assert {"OD108", "OD111", "OD118"} <= findings.keys()
    assert "15,000×20,000" in findings["OD108"].message
    assert findings["OD118"].makes_it_fit
    assert {findings[rule].remedy for rule in ("OD108", "OD111", "OD118")} == {"smaller_input"}


@pytest.mark.parametrize("load", ["memory", "stream"])
@pytest.mark.parametrize("how", [{"vram": "1MiB"}, {"ram": "601MiB"}, {"ram": "100MiB"}])
def test_what_does_not_fit_is_never_left_without_an_error(tmp_path, load, how):
    put_pictures(tmp_path / "img" / "cat", count=40)

    report = oomdoctor.check(tmp_path / "img", load=load, **{"ram": "8GiB", **how})

    assert report.verdict == "does_not_fit"
    assert "error" in {item.severity.value for item in fired(report).values()}


# --------------------------------------------------------------------------- the edges


@pytest.mark.parametrize("ram", ["1MB", "600MB", "600MiB"])
def test_no_part_of_the_data_is_promised_where_tensorflow_itself_does_not_fit(tmp_path, ram):
    put_pictures(tmp_path / "img" / "cat", count=40)

    findings = fired(oomdoctor.check(tmp_path / "img", load="memory", ram=ram))

    assert "OD154" in findings
    assert not {"OD103", "OD105"} & findings.keys()
    assert not any(item.makes_it_fit for item in findings.values())


def test_the_samples_that_are_promised_fit(tmp_path):
    put_pictures(tmp_path / "img" / "cat", count=40)

    findings = fired(oomdoctor.check(tmp_path / "img", load="memory", ram=RAM, batch_size=4))

    count = int(findings["OD105"].fix.title.split("chunks, ")[1].split(" ")[0])
    assert 1 <= count < 20
    few = tmp_path / "few" / "cat"
    put_pictures(few, count=count)
    assert oomdoctor.check(few.parent, load="memory", ram=RAM).verdict == "fits"


def test_arrays_that_leave_the_gpu_no_room_for_a_model_are_warned_about(tmp_path):
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (12 * 1024, 256, 1024)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 12 * 2**30)

    full = oomdoctor.check(path, ram="1000GB", vram="12.6GiB")
    roomy = oomdoctor.check(path, ram="1000GB", vram="24GiB")

    assert fired(full)["OD117"].remedy == "keep_dataset_on_cpu"
    assert "OD117" not in fired(roomy)


@pytest.mark.parametrize("name", FORMATS)
def test_a_dataset_that_was_given_is_never_asked_for_again(tmp_path, name):
    report = oomdoctor.check(FORMATS[name][0](tmp_path), ram="8GiB", vram="4GiB")

    asked = {fact.how_to_get for item in report.findings for fact in item.missing}
    assert not any("oomdoctor check PATH" in how for how in asked)

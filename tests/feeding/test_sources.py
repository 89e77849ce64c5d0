"""Rows are read in place, whatever the format, in an order that a seed and an epoch fix."""

import numpy as np
import pytest

from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding import source as source_module
from oomdoctor.feeding.opening import Options, open_source
from oomdoctor.feeding.order import windows
from oomdoctor.feeding.source import batches


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 256 bytes, so that small files have many."""
    from oomdoctor.feeding import records, tables

    for module in (source_module, records, tables):
        monkeypatch.setattr(module, "BLOCK_BYTES", 256)


@pytest.fixture
def arrays(tmp_path):
    x = np.arange(1000 * 6, dtype="float32").reshape(1000, 2, 3)
    y = np.arange(1000)
    np.save(tmp_path / "x_train.npy", x)
    np.save(tmp_path / "y_train.npy", y)
    return tmp_path, x, y


def read(source, batch_size=32, seed=None, **options):
    parts = list(batches(source, batch_size, buffer_rows=100, seed=seed, **options))
    assert all(len(part[0]) == batch_size for part in parts[:-1])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def test_an_epoch_visits_every_row_once():
    for seed in (None, 3):
        seen = list(windows([7] * 50 + [3], buffer_rows=20, seed=seed))
        blocks = sorted(block for window in seen for block in window.blocks)
        assert blocks == list(range(51))
        assert all(sorted(w.order()) == list(range(w.rows)) for w in seen)


def test_seed_and_epoch_fix_the_order(arrays):
    source = open_source(arrays[0] / "x_train.npy", Options())
    first = read(source, seed=1)[1]
    assert (read(source, seed=1)[1] == first).all()
    assert (read(source, seed=2)[1] != first).any()
    assert (read(source, seed=1, epoch=1)[1] != first).any()
    assert sorted(first) == list(range(1000))
    # Rows come from all over the file, and neighbours are parted.
    assert np.abs(np.diff(first[:100])).mean() > 30


@pytest.mark.parametrize("skip", [1, 31, 32, 99, 100, 500, 997])
@pytest.mark.parametrize("seed", [None, 5])
def test_the_rest_of_an_epoch_is_what_was_left(arrays, skip, seed):
    source = open_source(arrays[0] / "x_train.npy", Options())
    whole, rest = read(source, seed=seed), read(source, seed=seed, skip_rows=skip)
    for all_rows, left in zip(whole, rest, strict=True):
        np.testing.assert_array_equal(all_rows[skip:], left)


def test_what_is_skipped_is_not_read(arrays):
    source = open_source(arrays[0] / "x_train.npy", Options())
    plain, seen = source.read, []
    source.read = lambda block: seen.append(block) or plain(block)
    read(source, seed=1, skip_rows=800)
    assert len(seen) <= len(source.sizes) // 3


def test_npy_npz_and_hdf5_give_the_same(arrays):
    h5py = pytest.importorskip("h5py")
    folder, x, y = arrays
    np.savez(folder / "data.npz", x=x, y=y)
    with h5py.File(folder / "data.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(7, 2, 3), compression="gzip")
        file["y"] = y
    for name in ("x_train.npy", "data.npz", "data.h5"):
        source = open_source(folder / name, Options())
        found = read(source)
        assert source.has_labels
        assert len(source.sizes) > 10
        np.testing.assert_array_equal(found[0], x)
        np.testing.assert_array_equal(found[1], y)


def test_big_endian_arrays_become_native(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(10, dtype=">i4"))
    found = read(open_source(tmp_path / "a.npy", Options()))[0]
    assert found.dtype.isnative
    assert found.tolist() == list(range(10))


def test_arrays_in_memory_and_labels_elsewhere(arrays):
    folder, _, y = arrays
    mapped = np.load(folder / "x_train.npy", mmap_mode="r")
    found = read(open_source(mapped, Options(labels=y[::-1])))
    np.testing.assert_array_equal(found[1], y[::-1])
    alone = open_source(folder / "x_train.npy", Options(labels=None))
    assert not alone.has_labels


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("ends", [True, False])
def test_csv_is_cut_between_lines_only(tmp_path, newline, ends):
    lines = ["a,b,text,label"]
    for number in range(500):
        lines.append(f'{number},{number / 4},"line ""one""{newline}two, {number}",{number % 3}')
        if number % 100 == 7:
            lines.append("")
    content = newline.join(lines) + (newline if ends else "")
    (tmp_path / "t.csv").write_bytes(content.encode())
    source = open_source(tmp_path / "t.csv", Options(inputs=["a", "b"]))
    found = read(source)
    assert len(source.sizes) > 20
    np.testing.assert_array_equal(found[0], [[n, n / 4] for n in range(500)])
    assert found[1].tolist() == [n % 3 for n in range(500)]
    assert found[1].dtype == np.int64
    columns = open_source(tmp_path / "t.csv", Options(as_columns=True))
    assert read(columns)[2][3, 0].endswith("two, 3")
    with pytest.raises(UsageError, match="text hold text"):
        open_source(tmp_path / "t.csv", Options())


def test_parquet_is_read_by_row_groups(tmp_path):
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    import pyarrow

    frame = pd.DataFrame({"a": np.arange(100.0), "label": np.arange(100) % 2})
    pa.write_table(pyarrow.Table.from_pandas(frame), tmp_path / "t.parquet", row_group_size=30)
    source = open_source(tmp_path / "t.parquet", Options())
    assert list(source.sizes) == [30, 30, 30, 10]
    assert read(source)[0][:, 0].tolist() == list(range(100))


def refused(path, match, **options):
    with pytest.raises((InputError, UsageError), match=match):
        read(open_source(path, Options(**options)))


def test_what_cannot_be_streamed_is_refused_in_one_sentence(arrays):
    folder, x, _ = arrays
    np.savez_compressed(folder / "packed.npz", x=x)
    refused(folder / "packed.npz", "is compressed")
    np.save(folder / "f.npy", np.asfortranarray(x))
    refused(folder / "f.npy", "Fortran order")
    np.save(folder / "o.npy", np.array([{}, {}], object), allow_pickle=True)
    refused(folder / "o.npy", "never unpickled")
    np.save(folder / "s.npy", np.array(["a", "bb"]))
    refused(folder / "s.npy", "no tensors of")
    np.save(folder / "x_val.npy", x)
    np.save(folder / "y_val.npy", np.arange(3))
    refused(folder / "x_val.npy", "same length")
    (folder / "cut.npy").write_bytes((folder / "x_train.npy").read_bytes()[:5000])
    refused(folder / "cut.npy", "cannot be read")
    (folder / "no.csv").write_text("1,2\n3,4\n")
    refused(folder / "no.csv", "no header")
    (folder / "a.csv").write_text("a,b\n1,2\n3,4\n")
    refused(folder / "a.csv", "no column 'c'", labels="c")
    (folder / "late.csv").write_text("a,b\n" + "1,2\n" * 2000 + "x,2\n")
    refused(folder / "late.csv", "text among numbers")
    refused(folder / "nothing", "does not exist")
    refused(folder, "holds no images")
    (folder / "a.tfrecord").write_bytes(b"nonsense" * 100)
    refused(folder / "a.tfrecord", "not a TFRecord")


def test_a_file_cut_short_meanwhile_is_an_error_and_no_crash(arrays):
    path = arrays[0] / "x_train.npy"
    source = open_source(path, Options())
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(InputError, match="ends early"):
        read(source)

from __future__ import annotations

import csv
import gzip
import os
import random
import struct

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from oomdoctor.inventory.tables import read


def the_part(path):
    (part,) = read(str(path), os.path.getsize(path))
    return part


def numbers(rows=1000):
    return pd.DataFrame({"a": range(rows), "b": [i / 7 for i in range(rows)]})


def mixed(rows=1000):
    return numbers(rows).assign(name=[f"somebody number {i}" for i in range(rows)])


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
def test_a_csv_of_numbers_is_rows_by_columns_of_float64(tmp_path, separator):
    numbers().to_csv(tmp_path / "a.csv", index=False, sep=separator)
    part = the_part(tmp_path / "a.csv")
    assert (part.format, part.kind, part.is_exact) == ("csv", "table", True)
    assert (part.samples, part.shape, part.elements) == (1000, (2,), 2000)
    assert (part.dtype, part.memory_bytes, part.is_compressed) == ("float64", None, True)


def test_a_csv_without_a_header_counts_its_first_row(tmp_path):
    numbers().to_csv(tmp_path / "a.csv", index=False, header=False)
    assert the_part(tmp_path / "a.csv").samples == 1000


@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz", "part.csv-00000-of-00001"])
def test_tables_by_other_names_are_read_too(tmp_path, name):
    text = numbers().to_csv(index=False, sep="\t" if "tsv" in name else ",").encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert the_part(tmp_path / name).elements == 2000


def test_text_columns_take_what_pandas_takes_for_objects(tmp_path):
    mixed().to_csv(tmp_path / "a.csv", index=False)
    part = the_part(tmp_path / "a.csv")
    frame = pd.read_csv(tmp_path / "a.csv").astype({"name": object})
    assert (part.dtype, part.samples, part.shape) == (None, 1000, (3,))
    real_bytes = int(frame.memory_usage(deep=True, index=False).sum())
    assert part.memory_bytes == pytest.approx(real_bytes, rel=0.01)


def test_quoted_cells_may_span_lines(tmp_path):
    frame = pd.DataFrame({"x": range(50), "text": ["one\ntwo, three\n\nfour"] * 50})
    frame.to_csv(tmp_path / "a.csv", index=False, quoting=csv.QUOTE_NONNUMERIC)
    part = the_part(tmp_path / "a.csv")
    assert (part.samples, part.shape) == (50, (2,))


def test_blank_lines_and_missing_values_are_as_pandas_has_them(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,\n\n,2\nNA,3\n\n")
    part = the_part(tmp_path / "a.csv")
    assert (part.samples, part.dtype) == (len(pd.read_csv(tmp_path / "a.csv")), "float64")


@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_a_large_csv_are_estimated_within_their_interval(tmp_path, packed):
    draw = random.Random(1)
    rows = [f"{draw.random()},{draw.randint(0, 10**9)}\n" for _ in range(700_000)]
    text = ("a,b\n" + "".join(rows)).encode()
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    part = the_part(path)
    assert not part.is_exact
    assert part.low_elements <= part.elements <= part.high_elements
    assert part.samples == pytest.approx(700_000, rel=0.02)


def test_a_sparse_gigabyte_named_csv_is_not_text(tmp_path, hostile):
    (tmp_path / "a.csv").touch()
    os.truncate(tmp_path / "a.csv", 2**30)
    assert hostile.reason(read, tmp_path / "a.csv") == "not text"


def test_one_endless_line_is_refused_within_little_memory(tmp_path, hostile):
    (tmp_path / "a.csv").write_bytes(b"1," * 5_000_000)
    with hostile.memory_below(8 * 2**20):
        assert hostile.reason(read, tmp_path / "a.csv") == "a line is longer than 1 MiB"


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow"])
def test_an_empty_file_holds_no_table(tmp_path, hostile, name):
    (tmp_path / name).touch()
    assert hostile.reason(read, tmp_path / name) == "empty file"


def test_a_gzip_bomb_is_unpacked_only_up_to_a_bound(tmp_path, hostile):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 50_000_000, 1))
    with hostile.memory_below(64 * 2**20):
        part = the_part(tmp_path / "a.csv.gz")
    assert part.samples == pytest.approx(50_000_000, rel=0.05)


def test_a_parquet_file_of_numbers_has_the_width_of_its_type(tmp_path):
    frame = pd.DataFrame({"a": range(5000), "b": range(5000)}, dtype="float32")
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=1000)
    part = the_part(tmp_path / "a.parquet")
    assert (part.format, part.samples, part.shape) == ("parquet", 5000, (2,))
    assert (part.elements, part.dtype, part.is_exact) == (10_000, "float32", True)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64", "float16", "float64", "bool"]
)
@pytest.mark.parametrize("version", ["1.0", "2.6"])
def test_parquet_keeps_each_number_type(tmp_path, dtype, version):
    table = pa.Table.from_pandas(pd.DataFrame({"a": range(20)}).astype(dtype))
    pa.parquet.write_table(table, tmp_path / "a.parquet", version=version)
    written = pa.parquet.read_schema(tmp_path / "a.parquet").field("a").type.to_pandas_dtype()
    assert the_part(tmp_path / "a.parquet").dtype == np.dtype(written).name


def test_parquet_dates_and_decimals_are_sized_in_bytes(tmp_path):
    dates = pd.DataFrame({"a": pd.date_range("2020", periods=10), "b": range(10)})
    dates.to_parquet(tmp_path / "a.parquet")
    part = the_part(tmp_path / "a.parquet")
    assert (part.dtype, part.memory_bytes, part.is_exact) == (None, 160, True)


@pytest.mark.parametrize("shape", [(0, 2), (7, 150), (300, 20)])
def test_parquet_counts_agree_with_the_footer_as_pyarrow_reads_it(tmp_path, shape):
    frame = pd.DataFrame({f"c{i}": range(shape[0]) for i in range(shape[1])}, dtype="float64")
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=17)
    footer = pa.parquet.read_metadata(tmp_path / "a.parquet")
    part = the_part(tmp_path / "a.parquet")
    assert part.samples == footer.num_rows == shape[0]
    assert part.shape == (footer.num_columns,)


def test_a_parquet_file_of_lists_counts_every_value(tmp_path):
    table = pa.table({"e": pa.array([[0.5] * 16] * 100, pa.list_(pa.float32(), 16))})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    part = the_part(tmp_path / "a.parquet")
    assert (part.samples, part.shape, part.elements) == (100, (16,), 1600)


def test_parquet_text_is_near_what_pandas_takes_for_objects(tmp_path):
    frame = mixed(20_000).astype({"name": object})
    frame.to_parquet(tmp_path / "a.parquet")
    part = the_part(tmp_path / "a.parquet")
    real_bytes = int(frame.memory_usage(deep=True, index=False).sum())
    assert part.memory_bytes == pytest.approx(real_bytes, rel=0.15)
    assert (part.dtype, part.is_exact) == (None, False)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_a_feather_file_gives_rows_and_the_bytes_of_its_buffers(tmp_path, compression):
    table = pa.Table.from_pandas(mixed(), preserve_index=False)
    pa.feather.write_feather(table, tmp_path / "a.feather", compression=compression)
    part = the_part(tmp_path / "a.feather")
    assert (part.format, part.samples, part.shape, part.dtype) == ("arrow", 1000, (3,), None)
    assert part.is_compressed == (compression != "uncompressed")
    assert part.memory_bytes == pytest.approx(table.nbytes, rel=0.01)
    assert part.note is None


def test_an_arrow_stream_of_embeddings_has_their_length(tmp_path):
    table = pa.table({"e": pa.array([[0.5] * 16] * 100, pa.list_(pa.float32(), 16))})
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    part = the_part(tmp_path / "a.arrow")
    assert (part.samples, part.shape, part.dtype) == (100, (16,), "float32")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        *((pa.int8(), "int8"), (pa.uint16(), "uint16"), (pa.int64(), "int64")),
        *((pa.bool_(), "bool"), (pa.float16(), "float16"), (pa.float64(), "float64")),
    ],
)
def test_arrow_keeps_each_number_type(tmp_path, dtype, name):
    table = pa.table({"a": pa.array([1, 0, 1], pa.int8()).cast(dtype)})
    pa.feather.write_feather(table, tmp_path / "a.feather")
    part = the_part(tmp_path / "a.feather")
    assert (part.samples, part.dtype) == (3, name)


def test_arrow_rows_beyond_what_the_buffers_hold_are_refused(tmp_path, hostile):
    path = tmp_path / "a.arrow"
    table = pa.table({"a": pa.array(range(777), pa.int64())})
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    data = path.read_bytes()
    assert struct.pack("<q", 777) in data
    path.write_bytes(data.replace(struct.pack("<q", 777), struct.pack("<q", 10**18)))
    assert hostile.reason(read, path) == "header claims more data than the file holds"


def test_parquet_rows_beyond_what_a_file_can_hold_are_refused(tmp_path, hostile):
    # A footer of one column and a count of rows, in Thrift's compact encoding.
    column = bytes((0x15, 4, 0))  # field 1, a 32-bit number: INT64; end
    rows = bytes((0x16,)) + b"\xfe" * 8 + b"\x01"
    footer = bytes((0x29, 0x1C)) + column + rows + bytes((0,))
    data = b"PAR1" + footer + struct.pack("<L", len(footer)) + b"PAR1"
    (tmp_path / "a.parquet").write_bytes(data)
    assert hostile.reason(read, tmp_path / "a.parquet") == (
        "header claims more data than the file holds"
    )


@pytest.mark.parametrize(
    "footer", [b"\x0c" * 10_000, b"\x19\xfc\xff\xff\xff\xff\x0f", b"\x19" * 50]
)
def test_parquet_footers_without_end_are_refused(tmp_path, hostile, footer):
    data = b"PAR1" + footer + struct.pack("<L", len(footer)) + b"PAR1"
    (tmp_path / "a.parquet").write_bytes(data)
    with hostile.memory_below(2**20):
        assert hostile.reason(read, tmp_path / "a.parquet")


def test_damaged_tables_are_refused_or_sized_and_never_more(tmp_path, hostile):
    mixed(40).to_csv(tmp_path / "a.csv")
    table = pa.Table.from_pandas(mixed(40), preserve_index=False)
    pa.feather.write_feather(table, tmp_path / "a.feather", compression="lz4")
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    for name in ("a.csv", "a.feather", "a.parquet"):
        hostile.survives_cuts(read, tmp_path / name)
        hostile.survives_changes(read, tmp_path / name)

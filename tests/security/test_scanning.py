"""A stranger's files: each is a note at worst, none hangs a scan or takes all memory.

Cases that used to hang run in a process of their own, with a bound on memory and a time so long
that only a hang can reach it.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import zlib

import numpy as np
import pytest
from PIL import Image

from oomdoctor.inventory import walk
from oomdoctor.inventory.reading import FAILED
from oomdoctor.inventory.scan import scan
from oomdoctor.scripts.scan import scan_scripts

MIB = 2**20
HANG_SECONDS = 120

BAD = "import tensorflow as tf\nrecords = list(tf.data.TFRecordDataset('a'))\n"
START = "import tensorflow as tf\nimport numpy as np\n"

CHILD = """
import json, resource, sys
from oomdoctor.scripts.scan import scan_scripts
from oomdoctor.inventory.scan import scan
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
if sys.argv[3] == "scripts":
    found = scan_scripts([sys.argv[1]])
    told = [[match.check for match in found.matches], found.notes]
else:
    found = scan([sys.argv[1]])
    told = [found.samples, [skipped.reason for skipped in found.skipped]]
# Not ru_maxrss, which begins with that of the process that started this one.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([*told, int(peak.split()[1]) * 1024]))
"""


def looked_at(path, what, *, memory_bytes=768 * MIB, peak_bytes=None):
    """Return what another process finds, which has so much memory and may not hang.

    A reader survives that there is no more memory; `peak_bytes` checks that it asks for no more.
    """
    if peak_bytes is not None:
        memory_bytes = 8 * peak_bytes
    command = [sys.executable, "-c", CHILD, str(path), str(memory_bytes), what]
    run = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    *told, peak = json.loads(run.stdout)
    assert peak_bytes is None or peak < peak_bytes
    return told


def reasons(inventory):
    return {skipped.reason: skipped.files for skipped in inventory.skipped}


# ---------------------------------------------------------------------- scripts


def in_both_branches(line, count):
    body = f"    {line}\n" * count
    return f"{START}a = [1]\nif a:\n{body}else:\n{body}"


def traced_again(count):
    """Functions that each trace the one before twice: the walk doubled with each."""
    made = "".join(
        f"def f{i}():\n    a = tf.function(f{i - 1}); a(); b = tf.function(f{i - 1}); b()\n"
        for i in range(1, count)
    )
    return f"{START}def f0(): pass\n{made}f{count - 1}()\n"


def inherited(count):
    made = "".join(f"class C{i}(C{i - 1}):\n  def m{i}(s): 0\n" for i in range(1, count))
    return f"{START}class C0: pass\n{made}"


def with_parameters(body, count):
    names = ",".join(f"a{i}" for i in range(count))
    return f"{START}def f({names}):\n  {body}\n"


HOSTILE_SCRIPTS = {
    "tuples that double": in_both_branches("a = (a, a)", 100),
    "zips that double": in_both_branches("a = zip(a, a)", 100),
    "splits that double": "from sklearn.model_selection import train_test_split\n"
    + in_both_branches("a = train_test_split(a, a)", 100),
    "lists within": in_both_branches("a = enumerate(a)", 10_000),
    "functions traced again": traced_again(40),
    "methods of all before": inherited(15_000),
    "names that grow": f"{START}a = tf\n" + "a = a.b\n" * 40_000,
    "many parameters, many calls": with_parameters("pass", 30_000) + "f()\n" * 30_000,
    "the last of many parameters": with_parameters("pass", 20_000)[:-5]
    + "np.load(a19999)\n  " * 20_000 + "pass\nf()\n",
    "calls around a long list": f"{START}x = " + "tf.constant(np.load('a'),\n" * 90
    + "[" + "1," * 100_000 + "]" + ")" * 90,
    "predictions around a long list": f"{START}m = tf.keras.Model()\nfor i in x:\n  "
    + "m.predict(i,\n" * 80 + "[" + "1," * 100_000 + "]" + ")" * 80,
    "comments that never close": f"{BAD[:-1]} {'#oomdoctor: ignore[' * 30_000}\n",
    "addresses as an encoding": f"# coding: punycode\n{BAD}" + "a" * 300_000 + "-" + "b" * 300_000,
    "a word in two bytes": BAD + "a;" * 900_000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_SCRIPTS)
def test_a_script_made_to_hang_or_to_fill_memory_ends(tmp_path, name):
    (tmp_path / "hostile.py").write_text(HOSTILE_SCRIPTS[name])
    (tmp_path / "ordinary.py").write_text(BAD)

    matches, notes = looked_at(tmp_path, "scripts")

    assert "dataset-held-in-list" in matches
    assert all("hostile.py was not checked: " in note for note in notes)
    assert not any("checks failed" in note for note in notes)


def test_a_number_that_no_report_can_print_is_left_out(tmp_path):
    long = "f" * 5000
    (tmp_path / "a.py").write_text(
        f"{START}tf.data.TFRecordDataset('a').batch(0x{long}).shuffle(0x{long} * 3).cache()\n"
    )

    scripts = scan_scripts([tmp_path])

    assert [match.count for match in scripts.matches] == [None] * len(scripts.matches)
    assert scripts.matches


def test_a_list_that_holds_itself_does_not_end_the_check(tmp_path):
    (tmp_path / "a.py").write_text(
        f"{START}a = []\na.append(a)\ntf.data.Dataset.from_tensor_slices(a)\n{BAD}"
    )

    scripts = scan_scripts([tmp_path])

    assert scripts.notes == ()
    assert "dataset-held-in-list" in [match.check for match in scripts.matches]


def test_what_is_told_of_a_script_is_short(tmp_path):
    (tmp_path / "a.py").write_text(
        f"{START}x = np.load('{'a' * 100_000}')\nm = tf.keras.Model()\nm.fit(x, epochs=1)\n"
    )
    (tmp_path / "b.py").write_text("# coding: " + "a" * 100_000 + f"\n{BAD}")

    scripts = scan_scripts([tmp_path])

    assert all(len(note) < 1000 for note in scripts.notes)
    assert all(len(match.name or "") <= 200 for match in scripts.matches)
    assert len(scripts.matches) == 2


def test_a_long_call_is_shown_by_its_beginning_or_its_end(tmp_path):
    long = ", ".join(["\n1"] * 2000)
    (tmp_path / "a.py").write_text(
        f"{START}x = tf.constant(np.load('x'), [{long}])\n"
        f"tf.data.TFRecordDataset([{long}]).cache(\n)\n"
    )

    texts = [match.text for match in scan_scripts([tmp_path]).matches]

    assert texts[0].startswith("tf.constant(np.load('x'), [")
    assert texts[0].endswith("…")
    assert texts[1].startswith("…")


def test_a_link_out_of_the_project_is_not_changed(tmp_path):
    from oomdoctor.scripts.fix import fix_scripts

    mine = tmp_path / "mine.py"
    mine.write_text("import keras\nmodel.fit_generator(batches, 10)\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").symlink_to(mine)
    (project / "own.py").write_text(mine.read_text())

    changes = fix_scripts(scan_scripts([project]).matches)

    assert [change.file for change in changes] == [str(project / "own.py")]


def test_what_cannot_be_changed_is_left_alone(tmp_path):
    from oomdoctor.scripts.fix import fix_scripts

    code = "import keras\nmodel.fit_generator(batches, 10)\n"
    (tmp_path / "deep.py").write_text(code + "x = " + "-" * 400 + "1\n")
    (tmp_path / "plain.py").write_text(code)
    (tmp_path / "vanishing.py").write_text(code)
    matches = scan_scripts([tmp_path]).matches
    (tmp_path / "vanishing.py").unlink()

    changes = fix_scripts(matches)

    assert len(matches) == 3
    assert [change.file for change in changes] == [str(tmp_path / "plain.py")]


# ---------------------------------------------------------------------- notebooks


def notebook(path, cells, **more):
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, **more}))
    return path


def code(source, **more):
    return {"cell_type": "code", "source": source, "outputs": [], **more}


@pytest.mark.parametrize("source", [5, True, {"a": 1}, [1, 2], [["x"]], 1e400, [None]])
def test_a_cell_whose_source_is_no_text_is_a_note(tmp_path, source):
    path = notebook(tmp_path / "a.ipynb", [code(BAD), code(source), code(BAD)])

    scripts = scan_scripts([path])

    assert [match.cell for match in scripts.matches] == [1, 3]
    assert ["cell 2 is not Python" in note for note in scripts.notes] == [True]


def test_one_bad_notebook_does_not_end_a_check(tmp_path):
    notebook(tmp_path / "a.ipynb", [code(5)], by="keras")
    (tmp_path / "b.py").write_text(BAD)
    command = [sys.executable, "-m", "oomdoctor", "check", str(tmp_path), "--format", "json"]

    run = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "internal error" not in run.stderr
    assert "OD90" in run.stdout


@pytest.mark.parametrize("blank", [" ", "\t", "x = ", "a ?", "%", "a,"])
def test_a_cell_of_blanks_is_read_in_a_moment(tmp_path, blank):
    # Not Python as it stands, so that each line is searched for what IPython reads itself.
    source = blank * 200_000 + "(\n" + blank * 200_000 + "\n)]"
    notebook(tmp_path / "a.ipynb", [code(BAD), code(source)])

    matches, notes = looked_at(tmp_path, "scripts")

    assert matches == ["dataset-held-in-list"]
    assert len(notes) == 1


def test_what_ipython_reads_itself_is_still_found(tmp_path):
    lines = [
        "  files = !ls",
        "x, y = %time f()",
        "!pip install keras",
        "tf.data?",
        "  %%x",
        "a = 1",
    ]
    source = "if True:\n" + lines[0] + "\n" + "\n".join(lines[1:4]) + "\n" + lines[5] + "\n" + BAD
    path = notebook(tmp_path / "a.ipynb", [code(source)])

    scripts = scan_scripts([path])

    assert scripts.notes == ()
    assert [match.line for match in scripts.matches] == [8]


@pytest.mark.parametrize(
    "outputs",
    [b"[" + b"[]," * (21 * MIB) + b"0]", b"[" + b"{}," * (21 * MIB) + b"0]"],
    ids=["lists", "objects"],
)
def test_the_outputs_of_a_notebook_take_no_memory(tmp_path, outputs):
    cell = json.dumps(code(BAD)).encode().replace(b'"outputs": []', b'"outputs": ' + outputs)
    (tmp_path / "a.ipynb").write_bytes(b'{"cells": [' + cell + b"]}")

    # Reading the file takes 63 MiB; building its outputs took 1.6 GB.
    assert looked_at(tmp_path, "scripts", peak_bytes=256 * MIB) == [["dataset-held-in-list"], []]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([code("x = 1")] * 20_000, "more than 10,000 cells"),
        ([code(BAD)] + [code("a;" * 100_000)] * 20, "cell 3 and those after it were not checked"),
        ([code(BAD), code("#" + "a" * 3 * MIB)], "cell 2 and those after it were not checked"),
    ],
    ids=["cells", "words", "bytes"],
)
def test_a_notebook_of_too_much_code_says_so(tmp_path, cells, said):
    notebook(tmp_path / "a.ipynb", cells, by="keras")

    _, notes = looked_at(tmp_path, "scripts")

    assert [said in note for note in notes] == [True]


def test_many_bad_cells_are_few_notes(tmp_path):
    path = notebook(tmp_path / "a.ipynb", [code(BAD)] + [code("no python")] * 5000)

    assert len(scan_scripts([path]).notes) <= 21


def test_what_python_writes_into_notebooks_and_json_has_not_is_read(tmp_path):
    path = tmp_path / "a.ipynb"
    cells = [code(BAD, outputs=[{"data": [float("nan"), -float("inf"), "\ud800 \U0001f600"]}])]
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"cells": cells}).encode())

    scripts = scan_scripts([path])

    assert (len(scripts.matches), scripts.notes) == (1, ())


def test_an_old_notebook_is_read(tmp_path):
    cells = [{"cell_type": "code", "input": BAD}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"worksheets": [{"cells": cells}]}))

    assert len(scan_scripts([tmp_path]).matches) == 1


# ---------------------------------------------------------------------- descriptions of folders

MANY = 1_000_000


def tfds(folder, features, splits=({"name": "train", "shardLengths": ["10"]},)):
    (folder / "dataset_info.json").write_text(json.dumps({"splits": list(splits)}))
    (folder / "features.json").write_text(json.dumps(features))


def test_a_zarr_array_of_a_million_axes_is_refused(tmp_path):
    for size in (1, 3, 2**62):
        folder = tmp_path / str(size)
        folder.mkdir()
        description = {"zarr_format": 2, "shape": [size] * MANY, "dtype": "<f4"}
        (folder / ".zarray").write_text(json.dumps(description)[: 15 * MIB])

    _, found = looked_at(tmp_path, "data")

    assert set(found) <= {
        "description has a field larger than 64 KiB",
        "description larger than 16 MiB",
        "not a Zarr folder, or damaged",
    }


@pytest.mark.parametrize("axes", [65, 1000])
def test_axes_that_no_array_has_are_refused(tmp_path, axes):
    for name in ("zarr", "tfds", "npy"):
        (tmp_path / name).mkdir()
    description = {"zarr_format": 2, "shape": [1] * axes, "dtype": "<f4"}
    (tmp_path / "zarr" / ".zarray").write_text(json.dumps(description))
    tensor = {"tensor": {"shape": {"dimensions": ["1"] * axes}, "dtype": "float32"}}
    tfds(tmp_path / "tfds", tensor)
    header = repr({"descr": "<f4", "fortran_order": False, "shape": (1,) * axes}).encode()
    magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    (tmp_path / "npy" / "a.npy").write_bytes(magic + header + b"\0" * 4)

    inventory = scan([tmp_path])

    assert sum("more than 64 axes" in reason for reason in reasons(inventory)) == 2
    assert sum(reasons(inventory).values()) == 3


@pytest.mark.parametrize("size", ["1", "9000000000000000000"])
def test_a_feature_of_a_million_axes_is_refused(tmp_path, size):
    tensor = {"tensor": {"shape": {"dimensions": [size] * 40_000}, "dtype": "float32"}}
    tfds(tmp_path, tensor)

    assert looked_at(tmp_path, "data")[1] == ["description has more than 64 axes"]


def test_splits_without_end_are_refused(tmp_path):
    splits = [{"name": f"s{i}", "shardLengths": ["1"]} for i in range(50_000)]
    tfds(tmp_path, {"text": {}}, splits)

    assert looked_at(tmp_path, "data")[1] == ["description has more than 1,000 splits"]


def test_a_description_that_python_wrote_is_read(tmp_path):
    description = {
        "zarr_format": 3, "node_type": "array", "shape": [3, 4], "data_type": "float32",
        "attributes": {"missing": float("nan")}, "fill_value": -float("inf"),
    }  # fmt: skip
    (tmp_path / "zarr.json").write_text(json.dumps(description))

    assert scan([tmp_path]).groups[0].elements == 12


# ---------------------------------------------------------------------- links


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path)


@pytest.mark.parametrize("up", ["/", "..", "../.."])
def test_a_link_to_a_folder_that_holds_the_data_is_not_followed(tmp_path, up):
    root = tmp_path / "project" / "data"
    picture(root / "a.png")
    picture(tmp_path / "private" / "b.png")
    picture(tmp_path / "project" / "c.png")
    (root / "link").symlink_to(up)

    samples, found = looked_at(root, "data")

    assert samples == 1
    assert found == ["link to a folder that holds this one"]


def test_a_link_leads_out_once(tmp_path):
    picture(tmp_path / "data" / "a.png")
    picture(tmp_path / "store" / "b.png")
    picture(tmp_path / "store" / "deep" / "c.png")
    picture(tmp_path / "private" / "d.png")
    (tmp_path / "data" / "store").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "onwards").symlink_to(tmp_path / "private")
    (tmp_path / "store" / "back").symlink_to(tmp_path / "data")

    inventory = scan([tmp_path / "data"])

    assert inventory.samples == 3
    assert reasons(inventory) == {
        "link out of a folder that a link led to": 1,
        "link to a folder already seen": 1,
    }


def test_a_link_to_a_folder_of_the_system_is_not_followed(tmp_path):
    picture(tmp_path / "a.png")
    (tmp_path / "link").symlink_to("/proc")

    assert reasons(scan([tmp_path])) == {"link to a folder of the system": 1}


def test_links_lead_to_no_more_folders_than_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(walk, "MAX_LINKED_FOLDERS", 5)
    picture(tmp_path / "data" / "a.png")
    for i in range(10):
        picture(tmp_path / "store" / f"class_{i}" / "a.png")
    (tmp_path / "data" / "store").symlink_to(tmp_path / "store")

    inventory = scan([tmp_path / "data"])

    assert inventory.samples == 1 + 4
    assert reasons(inventory) == {"link that leads to more than 5 folders": 6}


def test_a_root_that_is_a_link_itself_is_walked(tmp_path):
    picture(tmp_path / "store" / "train" / "a.png")
    (tmp_path / "data").symlink_to(tmp_path / "store")

    assert scan([tmp_path / "data"]).samples == 1


# ---------------------------------------------------------------------- single files


def test_a_file_that_a_reader_fails_on_is_a_note(tmp_path, monkeypatch):
    from oomdoctor.inventory import arrays

    def fail(path, size_bytes):
        raise ZeroDivisionError

    np.save(tmp_path / "a.npy", np.zeros(3))
    picture(tmp_path / "a.png")
    monkeypatch.setattr(arrays, "read", fail)

    inventory = scan([tmp_path])

    assert inventory.samples == 1
    assert reasons(inventory) == {FAILED: 1}


def test_streams_that_hold_nothing_end(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"") * 300_000)

    assert len(looked_at(tmp_path, "data")[1]) == 1


def test_global_headers_of_a_tar_are_bounded(tmp_path):
    made = io.BytesIO()
    for block in range(100):
        body = b"".join(b"23 %011d=1234567\n" % (block * 40_000 + i) for i in range(40_000))
        info = tarfile.TarInfo("g")
        info.type, info.size = tarfile.XGLTYPE, len(body)
        made.write(info.tobuf() + body + b"\0" * (-len(body) % 512))
    (tmp_path / "a.tar").write_bytes(made.getvalue() + b"\0" * 1024)

    assert len(looked_at(tmp_path, "data", peak_bytes=256 * MIB)[1]) == 1


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, body):
    return varint(number << 3 | 2) + varint(len(body)) + body


def record(data):
    from oomdoctor.inventory.records import _masked_crc

    length = struct.pack("<Q", len(data))
    return length + struct.pack("<L", _masked_crc(length)) + data + bytes(4)


def test_a_record_of_a_hundred_thousand_images_is_looked_at_in_part(tmp_path):
    images = b"".join([field(1, b"RIFF\0\0\0\0WEBPVP8 ")] * 50_000)
    example = field(1, field(1, field(1, b"image") + field(2, field(1, images))))
    (tmp_path / "a.tfrecord").write_bytes(record(example) * 32)

    samples, found = looked_at(tmp_path, "data")

    assert (samples, found) == (32, [])


def test_an_image_is_never_read_whole_into_memory(tmp_path):
    path = tmp_path / "a.webp"
    path.write_bytes(b"RIFF\xff\xff\xff\x7fWEBPVP8 ")
    os.truncate(path, 1200 * MIB)

    assert looked_at(tmp_path, "data", peak_bytes=400 * MIB)[1] == [
        "not an image, whatever its name says"
    ]


def arrow_of_shared_lists(count):
    """Return a schema of many columns that are all one list, which has as many children."""
    data = bytearray(4)

    def table(slots):
        """Append a table of 32-bit fields and return where it is."""
        places = [4 * (i + 1) for i in range(slots)]
        start = len(data)
        data.extend(struct.pack(f"<{2 + slots}H", 4 + 2 * slots, 4 + 4 * slots, *places))
        data.extend(bytes(-len(data) % 4))
        at = len(data)
        data.extend(struct.pack("<i", at - start) + bytes(4 * slots))
        return at

    def vector():
        at = len(data)
        data.extend(struct.pack("<I", count) + bytes(4 * count))
        return at

    def point(where, target):
        struct.pack_into("<I", data, where, target - where)

    def slot(at, number):
        return at + 4 * (number + 1)

    message, schema = table(4), table(2)
    columns = vector()
    column = table(6)
    details, children = table(1), vector()
    struct.pack_into("<I", data, 0, message)
    struct.pack_into("<I", data, slot(message, 1), 1)  # a schema
    struct.pack_into("<I", data, slot(column, 2), 16)  # a list of fixed size
    point(slot(message, 2), schema)
    point(slot(schema, 1), columns)
    point(slot(column, 3), details)
    point(slot(column, 5), children)
    for at, left_out in ((column, 4), (message, 3)):  # no dictionary, no data
        (back,) = struct.unpack_from("<i", data, at)
        struct.pack_into("<H", data, at - back + 4 + 2 * left_out, 0)
    for i in range(count):
        point(columns + 4 + 4 * i, column)
    return b"ARROW1\0\0\xff\xff\xff\xff" + struct.pack("<i", len(data)) + bytes(data)


def test_columns_that_share_a_long_list_do_not_multiply(tmp_path):
    (tmp_path / "a.arrow").write_bytes(arrow_of_shared_lists(50_000) + bytes(8))

    assert looked_at(tmp_path, "data") == [0, []]


def test_deflate_is_never_followed_beyond_its_bound(tmp_path):
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join(packed.compress(bytes(16 * MIB)) for _ in range(40)) + packed.flush()
    (tmp_path / "a.csv.gz").write_bytes(data)
    (tmp_path / "a.tfrecord.gz").write_bytes(data)
    (tmp_path / "a.tar.gz").write_bytes(data)

    assert looked_at(tmp_path, "data", memory_bytes=512 * MIB)[0] in (0, None)

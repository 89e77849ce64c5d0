"""A scan on a Dask cluster, and of a folder on a server, beside the same scan on this machine.

    python tests/benchmarks/scan_anywhere.py cluster [--files 1000000]
    python tests/benchmarks/scan_anywhere.py server [--files 10000] [--latency 0.02]
    python tests/benchmarks/scan_anywhere.py photographs

`cluster`: images scanned here, by one and by two workers, and by two of which one is killed: time
as a ratio to the local scan, whether the inventories are equal, and the memory of the process that
scans. `server`: images behind a latency on loopback, many requests at a time, against one after the
other (measured over a part and scaled up). `photographs`: bytes and requests for images of the size
that cameras write.
"""

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from tabulate import tabulate

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "inventory" / "remote"))
import scan_speed  # noqa: E402
from servers import HttpServer, s3_server  # noqa: E402

from oomdoctor.inventory.cluster import Cluster  # noqa: E402
from oomdoctor.inventory.remote import server as server_module  # noqa: E402
from oomdoctor.inventory.scan import scan  # noqa: E402


def make_links(root, count):
    """Write folders of 1,000 images, all of them links to a few files of several shapes."""
    pictures = scan_speed.templates()
    (root / ".store").mkdir(parents=True)
    for number in range(count):
        folder = root / "train" / f"class{number // 1000:04}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
        kind = number % len(pictures)
        suffix, data = pictures[kind]
        turn = number // len(pictures) // scan_speed.MAX_LINKS
        source = root / ".store" / f"{kind}_{turn}.{suffix}"
        if not source.exists():
            source.write_bytes(data)
        os.link(source, folder / f"{number:07}.{suffix}")


def timed(root, **how):
    start = time.perf_counter()
    found = scan([root], **how)
    return time.perf_counter() - start, found


def own_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cluster(files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_links(root, files)
        for place, _, names in os.walk(root):  # warm
            for name in names:
                os.stat(os.path.join(place, name))
        before = own_mib()
        here, truth = timed(root)
        rows = [("this machine", 1.0, files / here, True, own_mib() - before)]
        for count, kills in ((1, False), (2, False), (2, True)):
            workers = Cluster.local(count)
            killed = []

            def kill(seen, workers=workers, killed=killed, kills=kills):
                if kills and seen > files // 2 and not killed:
                    killed.append(next(iter(workers._client.run(os.getpid).values())))
                    os.kill(killed[0], signal.SIGKILL)

            taken, found = timed(root, sources=workers, progress=kill)
            label = f"{count} worker{'s' * (count > 1)}{', one killed' if kills else ''}"
            rows.append((label, taken / here, files / taken, found == truth, own_mib() - before))
    headers = ("", "time ÷ this machine", "files/s", "same answer", "memory grew by, MiB")
    print(f"{files:,} images, summary of {truth.samples:,} samples")
    print(tabulate(rows, headers=headers, floatfmt=("", ".2f", ",.0f", "", ".0f")))


def serve(root, latency, port):
    with HttpServer(Path(root), latency=latency) as server:
        port.send(server.port)
        port.recv()


def server(files, latency):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        scan_speed.make_files(root, files)
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=serve, args=(folder, latency, theirs))
        process.start()
        address = f"http://127.0.0.1:{ours.recv()}/"
        taken, found = timed(address)
        part = min(files, 500)
        first = f"{address}train/class0000/"
        at_once, server_module.AT_ONCE = server_module.AT_ONCE, 1
        server_module._server.cache_clear()
        single, few = timed(first, sample=part)
        server_module.AT_ONCE = at_once
        ours.send("end")
        process.join()
    one_by_one = single / part * files
    print(f"{found.samples:,} of {files:,} images over HTTP, {latency * 1e3:.0f} ms latency")
    print(f"  {at_once} at a time: {taken:.1f} s, {files / taken:,.0f} a second")
    print(f"  one after the other: {one_by_one:.1f} s (from {few.files:,} listed, {part} read)")
    print(f"  ratio: {one_by_one / taken:.1f} (goal: at least 20)")


def photographs():
    import boto3

    chance = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder, s3_server():
        client = boto3.client("s3")
        client.create_bucket(Bucket="photos")
        for number in range(60):
            height, width = chance.integers(600, 3000, 2)
            small = chance.integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8)
            photo = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
            exif = photo.getexif()
            exif[0x010F] = "camera" + "x" * int(chance.integers(0, 12_000))  # as long as a preview
            photo.save(f"{folder}/{number}.jpg", quality=92, exif=exif)
            client.upload_file(f"{folder}/{number}.jpg", "photos", f"train/{number}.jpg")
        found = scan(["s3://photos/train/"])
        traffic = server_module.server_of("s3://photos").traffic
    share = traffic.received_bytes / found.stored_bytes
    print(f"{found.samples} photographs of {found.stored_bytes / 60 / 1e3:.0f} kB in the mean")
    print(f"  bytes received: {share:.1%} of those stored (goal: at most 5 %)")
    print(f"  requests: {traffic.requests}, {traffic.requests - 60} of them for listings")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("cluster", "server", "photographs"))
    parser.add_argument("--files", type=int)
    parser.add_argument("--latency", type=float, default=0.02)
    given = parser.parse_args()
    if given.what == "cluster":
        cluster(given.files or 1_000_000)
    elif given.what == "server":
        server(given.files or 10_000, given.latency)
    else:
        photographs()


if __name__ == "__main__":
    main()

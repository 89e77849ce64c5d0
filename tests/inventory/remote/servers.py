"""Servers on loopback: S3 by moto, and HTTP with and without ranges, with latency if asked for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from pathlib import Path


class HttpServer:
    """Serves a folder: an index of each folder, files by ranges unless told otherwise."""

    def __init__(self, root: Path, *, ranges: bool = True, latency: float = 0.0):
        self.root, self.ranges, self.latency = root, ranges, latency
        self.requests: list[tuple[str, str]] = []
        self.sent_bytes = 0
        self.failures: dict[str, list[int]] = {}
        """Statuses to answer with first, by path."""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *error):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self):
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        async with server:
            await self._stop.wait()
        clients = asyncio.all_tasks() - {asyncio.current_task()}
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    async def _client(self, reader, writer):
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
        ):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = re.match(r"GET (\S+)", head)[1]
                wanted = re.search(r"(?i)^range: bytes=(\d+)-(\d+)", head, re.MULTILINE)
                self.requests.append((path, wanted[0] if wanted else ""))
                if self.latency:
                    await asyncio.sleep(self.latency)
                status, headers, body = self._answer(path, wanted)
                lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body)}", *headers]
                writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
                # In small blocks, so that a client that hangs up early is seen.
                for start in range(0, len(body), 65536):
                    block = body[start : start + 65536]
                    writer.write(block)
                    await writer.drain()
                    self.sent_bytes += len(block)
        writer.close()

    def _answer(self, path, wanted):
        if self.failures.get(path):
            return self.failures[path].pop(0), [], b""
        file = self.root / path.partition("?")[0].lstrip("/")
        if file.is_dir():
            names = sorted(entry.name + "/" * entry.is_dir() for entry in file.iterdir())
            links = "".join(f'<a href="{name}">{name}</a>\n' for name in ["../", *names])
            return 200, ["Content-Type: text/html"], links.encode()
        if not file.is_file():
            return 404, [], b""
        size = file.stat().st_size
        kind = "Content-Type: application/octet-stream"
        if not wanted or not self.ranges:
            return 200, [kind], file.read_bytes()
        start, end = int(wanted[1]), min(int(wanted[2]) + 1, size)
        if start >= size:
            return 416, [f"Content-Range: bytes */{size}"], b""
        with file.open("rb") as opened:
            opened.seek(start)
            body = opened.read(end - start)
        return 206, [kind, f"Content-Range: bytes {start}-{end - 1}/{size}"], body


@contextlib.contextmanager
def s3_server():
    """A real S3 server of moto; yields its address, and sets what clients read."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    settings = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "not-a-real-key",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield address
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        server.stop()

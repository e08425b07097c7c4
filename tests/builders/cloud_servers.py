"""Servers on 127.0.0.1 that answer as Google Cloud Storage (its XML API) and Azure Blob Storage do, as far as the client asks.

Written from the services' documentation, with what differs from S3: Azure lists e-tags without quotes and gives them with quotes
elsewhere, both answer 404 where an object to delete is not there, and each has its own header for a write that must be the first.
They check no signatures.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest

BUCKET = "bucket"
_PAGE = 3  # objects of one listing, so that several pages are asked for
_clock = count(1_700_000_000)


@dataclass
class _Object:
    content: bytes
    metadata: dict[str, str]
    modified_s: int
    generation: int

    @property
    def e_tag(self) -> str:
        return f"{hashlib.md5(self.content, usedforsecurity=False).hexdigest()}-{self.generation}"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler: type["_Handler"]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.objects: dict[str, _Object] = {}
        self.parts: dict[str, dict[str, bytes]] = {}
        self.lock = threading.Lock()

    def put(self, key: str, content: bytes, metadata: dict[str, str] | None = None) -> _Object:
        now = next(_clock)
        self.objects[key] = _Object(content, metadata or {}, now, now)
        return self.objects[key]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    metadata_prefix = ""
    generation_header = ""
    missing_bucket = ""

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._take()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _take(self) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            if bucket != BUCKET:
                self.error(404, self.missing_bucket)
            elif self.command in ("GET", "HEAD") and key:
                self._read(key)
            else:
                self.answer_to(key, query, body)

    def answer_to(self, key: str, query: dict[str, str], body: bytes) -> None:
        raise NotImplementedError

    def reply(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Length": f"{len(body)}", **(headers or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status: int, code: str) -> None:
        self.reply(status, f"<?xml version='1.0' encoding='utf-8'?><Error><Code>{code}</Code></Error>".encode())

    def facts(self, found: _Object) -> dict[str, str]:
        return {
            "ETag": f'"{found.e_tag}"',
            "Last-Modified": formatdate(found.modified_s, usegmt=True),
            **({self.generation_header: f"{found.generation}"} if self.generation_header else {}),
            **{f"{self.metadata_prefix}{name}": value for name, value in found.metadata.items()},
        }

    def metadata(self) -> dict[str, str]:
        prefix = self.metadata_prefix
        return {
            name.lower()[len(prefix) :]: value
            for name, value in self.headers.items()
            if name.lower().startswith(prefix)
        }

    def _read(self, key: str) -> None:
        found = self.server.objects.get(key)
        if found is None:
            self.error(404, "NoSuchKey" if self.generation_header else "BlobNotFound")
        elif (wanted := self.headers.get("If-Match")) is not None and wanted != f'"{found.e_tag}"':
            self.error(412, "PreconditionFailed" if wanted.startswith('"') else "InvalidHeaderValue")
        elif asked := re.fullmatch(
            r"bytes=(\d+)-(\d+)", self.headers.get("Range") or self.headers.get("x-ms-range") or ""
        ):
            start, stop = int(asked[1]), min(int(asked[2]) + 1, len(found.content))
            of = {"Content-Range": f"bytes {start}-{stop - 1}/{len(found.content)}"}
            self.reply(HTTPStatus.PARTIAL_CONTENT, found.content[start:stop], self.facts(found) | of)
        else:
            self.reply(200, found.content, self.facts(found) | {"Content-Length": f"{len(found.content)}"})

    def page(self, query: dict[str, str], after: str) -> tuple[list[str], list[str], str]:
        """The keys and the folders of a page of a listing, and where the next one begins."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        keys, folders = [], []
        for key in sorted(self.server.objects):
            if not key.startswith(prefix):
                continue
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if found:
                folders.append(f"{prefix}{head}{delimiter}")
            else:
                keys.append(key)
        folders = sorted(set(folders))
        start = int(after or 0)
        rest = f"{start + _PAGE}" if start + _PAGE < len(keys) else ""
        return keys[start : start + _PAGE], folders if not start else [], rest


class _Google(_Handler):
    metadata_prefix = "x-goog-meta-"
    generation_header = "x-goog-generation"
    missing_bucket = "NoSuchBucket"

    def answer_to(self, key: str, query: dict[str, str], body: bytes) -> None:
        objects, parts = self.server.objects, self.server.parts
        if self.command == "GET":
            self._list(query)
        elif self.command == "DELETE":
            self.reply(204) if objects.pop(key, None) else self.error(404, "NoSuchKey")
        elif self.command == "POST" and "uploads" in query:
            parts[upload := f"{len(parts)}"] = {}
            parts[upload]["metadata"] = json.dumps(self.metadata()).encode()
            self.reply(
                200,
                f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode(),
            )
        elif self.command == "PUT" and "uploadId" in query:
            parts[query["uploadId"]][query["partNumber"]] = body
            self.reply(200, headers={"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'})
        elif self.command == "POST":
            given = parts.pop(query["uploadId"])
            of = json.loads(given.pop("metadata"))
            numbers = re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())
            found = self.server.put(key, b"".join(given[one] for one in numbers), of)
            tag = f'<CompleteMultipartUploadResult><ETag>"{found.e_tag}"</ETag></CompleteMultipartUploadResult>'
            self.reply(200, tag.encode(), self.facts(found))
        elif self.headers.get("x-goog-if-generation-match") == "0" and key in objects:
            self.error(412, "PreconditionFailed")
        elif source := self.headers.get("x-goog-copy-source"):
            there = objects.get(unquote(source).removeprefix(f"{BUCKET}/"))
            if there is None:
                self.error(404, "NoSuchKey")
            else:
                self.reply(200, b"<CopyObjectResult/>", self.facts(self.server.put(key, there.content, there.metadata)))
        else:
            self.reply(200, headers=self.facts(self.server.put(key, body, self.metadata())))

    def _list(self, query: dict[str, str]) -> None:
        keys, folders, rest = self.page(query, query.get("continuation-token", ""))
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(one.content)}</Size><ETag>&quot;{one.e_tag}&quot;</ETag>"
            f"<LastModified>{_iso(one.modified_s)}</LastModified></Contents>"
            for key in keys
            for one in [self.server.objects[key]]
        )
        rows += "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in folders)
        token = f"<NextContinuationToken>{rest}</NextContinuationToken>" if rest else ""
        self.reply(200, f"<ListBucketResult>{rows}{token}</ListBucketResult>".encode())


class _Azure(_Handler):
    metadata_prefix = "x-ms-meta-"
    missing_bucket = "ContainerNotFound"

    def answer_to(self, key: str, query: dict[str, str], body: bytes) -> None:
        objects, kind = self.server.objects, query.get("comp")
        if self.command == "GET":
            self._list(query)
        elif self.command == "DELETE":
            self.reply(202) if objects.pop(key, None) else self.error(404, "BlobNotFound")
        elif kind == "batch":
            self._delete_all(body)
        elif kind == "block":
            self.server.parts.setdefault(key, {})[query["blockid"]] = body
            self.reply(201)
        elif self.headers.get("If-None-Match") == "*" and key in objects:
            self.error(409, "BlobAlreadyExists")
        elif kind == "blocklist":
            blocks = self.server.parts.pop(key)
            names = [one.text or "" for one in ElementTree.fromstring(body)]
            assert all(len(base64.b64decode(one)) == len(base64.b64decode(names[0])) for one in names)
            self.reply(
                201, headers=self.facts(self.server.put(key, b"".join(blocks[one] for one in names), self.metadata()))
            )
        elif source := self.headers.get("x-ms-copy-source"):
            there = objects.get(unquote(urlsplit(source).path).removeprefix(f"/{BUCKET}/"))
            if there is None:
                self.error(404, "BlobNotFound")
            else:
                made = self.server.put(key, there.content, there.metadata)
                self.reply(202, headers=self.facts(made) | {"x-ms-copy-status": "success"})
        else:
            assert self.headers["x-ms-blob-type"] == "BlockBlob"
            self.reply(201, headers=self.facts(self.server.put(key, body, self.metadata())))

    def _list(self, query: dict[str, str]) -> None:
        keys, folders, rest = self.page(query, query.get("marker", ""))
        rows = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{formatdate(one.modified_s, usegmt=True)}</Last-Modified>"
            f"<Etag>{one.e_tag}</Etag><Content-Length>{len(one.content)}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type><BlobType>BlockBlob</BlobType></Properties></Blob>"
            for key in keys
            for one in [self.server.objects[key]]
        )
        rows += "".join(f"<BlobPrefix><Name>{escape(one)}</Name></BlobPrefix>" for one in folders)
        self.reply(
            200,
            f"<?xml version='1.0' encoding='utf-8'?><EnumerationResults><Blobs>{rows}</Blobs><NextMarker>{rest}</NextMarker>"
            "</EnumerationResults>".encode(),
        )

    def _delete_all(self, body: bytes) -> None:
        answers = []
        for i, path in enumerate(re.findall(rb"DELETE (\S+) HTTP", body)):
            key = unquote(urlsplit(path.decode()).path).removeprefix(f"/{BUCKET}/")
            there = self.server.objects.pop(key, None) is not None
            status = "202 Accepted" if there else "404 The specified blob does not exist."
            code = "" if there else "x-ms-error-code: BlobNotFound\r\n"
            answers.append(
                f"--b\r\nContent-Type: application/http\r\nContent-ID: {i}\r\n\r\nHTTP/1.1 {status}\r\n{code}\r\n"
            )
        text = "".join(answers) + "--b--\r\n"
        self.reply(202, text.encode(), {"Content-Type": "multipart/mixed; boundary=b"})


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


@contextmanager
def cloud(scheme: str, folder: Path) -> Iterator[tuple[Server, pytest.MonkeyPatch]]:
    """A server with an empty bucket for the scheme gs or az, and the environment in which clients find it."""
    server = Server({"gs": _Google, "az": _Azure}[scheme])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    key = folder / "key.json"
    key.write_text(
        json.dumps(
            {
                "type": "service_account",
                "gcs_base_url": server.url,
                "disable_oauth": True,
                "client_email": "",
                "private_key": "",
                "private_key_id": "",
            }
        ),
        encoding="utf-8",
    )
    settings = {
        "gs": {"GOOGLE_SERVICE_ACCOUNT": f"{key}", "GOOGLE_ALLOW_HTTP": "true"},
        "az": {
            "AZURE_STORAGE_ACCOUNT_NAME": "account",
            "AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"key").decode(),
            "AZURE_STORAGE_ENDPOINT": server.url,
            "AZURE_ALLOW_HTTP": "true",
        },
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings[scheme].items():
            patch.setenv(name, value)
        try:
            yield server, patch
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

"""Files that ask for far more than their length justifies: one function a format, sized by `n`."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

# .pt


def text(word: str) -> bytes:
    raw = word.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def integer(number: int) -> bytes:
    raw = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def storage(key: str, count: int, kind: str = "FloatStorage") -> bytes:
    return (
        b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu") + integer(count) + b"tQ"
    )


def tensor(held: bytes, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> bytes:
    sizes = [b"(" + b"".join(map(integer, numbers)) + b"t" for numbers in (shape, strides)]
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + held
        + integer(offset)
        + sizes[0]
        + sizes[1]
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )


def pt(program: bytes, storages: dict[str, bytes] | None = None, deflated: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
        archive.writestr("x/data.pkl", b"\x80\x02" + program + b".")
        archive.writestr("x/byteorder", b"little")
        for key, raw in (storages or {}).items():
            archive.writestr(f"x/data/{key}", raw)
    return file.getvalue()


def pickles(n: int) -> Iterator[tuple[str, bytes]]:
    """Yield pickle programs of about n bytes."""
    first, few = text("w"), b"N" * (n // 2)
    for name, word in {"dicts": b"}", "lists": b"]", "empty tuples": b")", "Nones": b"N", "marks": b"(",
                       "tuples in tuples": b"\x85"}.items():  # fmt: skip
        yield name, b"}" + first + b")" + word * n + b"s"
        yield f"{name} in a list", b"}" + first + b"](" + word * n + b"es"
    yield "remembered", b"]" + b"]\x94" * (n // 2)
    yield "lists of one", b"}" + first + b"](" + b"]Na" * (n // 3) + b"es"
    yield "dicts of one", b"}" + first + b"](" + b"}NNs" * (n // 4) + b"es"
    yield "tuples of one", b"}" + first + b"](" + b"N\x85" * (n // 2) + b"es"
    yield "long integers", b"](" + (b"\x8a\xff" + b"\x7f" * 255) * (n // 257) + b"e"
    yield "short texts", b"](" + (b"\x8c\x04" + "€a".encode()) * (n // 6) + b"e"
    yield "one wide letter", b"](" + text("a" * n + "\U0001f600") + b"e"
    yield "a text many times", text("a" * (n // 2)) + b"q\x000"[:2] + b"h\x00" * (n // 4)
    keys = b"".join(integer((i + 1) * ((1 << 61) - 1)) + b"N" for i in range(n // 12))
    yield "keys of one hash", b"}(" + keys + b"u"
    yield "a deep key", b"}" + b")" + b"\x85" * n + b"Ns"
    yield "all together", b"}" + first + b"](" + few + b"es" + b"(" + b"]" * (n // 4) + b"l"
    yield "shared", b"}" + first + b")q\x00" + b"h\x00h\x00\x86q\x00" * 40 + b"s"
    yield "itself", b"}q\x00" + first + b"h\x00s"
    yield "empty tensors", (
        storage("0", 0) + b"q\x00ctorch._utils\n_rebuild_tensor_v2\nq\x01K\x00\x85q\x02]("
        + b"h\x01(h\x00K\x00h\x02h\x02tR" * (n // 12) + b"e"
    )  # fmt: skip
    yield "ordered", b"](" + b"ccollections\nOrderedDict\nq\x00" + b"h\x00)R" * (n // 4) + b"e"


def archives(n: int) -> Iterator[tuple[str, bytes]]:
    """Yield whole .pt files. Some are accepted: they take the memory of their tensors."""
    for name, program in pickles(n):
        yield f"pickle: {name}", pt(program)
    yield "pickle: zeros, deflated", pt(b"N" * 300 * n, deflated=True)
    one = b"}" + text("w")
    small = bytes(16)
    yield "expanded", pt(one + tensor(storage("0", 4), (10**9,), (0,)) + b"s", {"0": small})
    yield "expanded a little", pt(one + tensor(storage("0", 4), (64 * n,), (0,)) + b"s", {"0": small})
    yield "a stride of 62 bits", pt(one + tensor(storage("0", 4), (1,), (2**62,)) + b"s", {"0": small})
    yield "an axis of 70 bits", pt(one + tensor(storage("0", 4), (0, 2**70), (1, 1)) + b"s", {"0": small})
    yield (
        "a rank of thousands",
        pt(one + tensor(storage("0", 4), (2**62,) * (n // 30), (0,) * (n // 30)) + b"s", {"0": small}),
    )
    zeros = bytes(400 * n)
    yield "deflated", pt(one + tensor(storage("0", 100 * n), (100 * n,), (1,)) + b"s", {"0": zeros}, True)
    whole = pt(one + tensor(storage("0", 100 * n), (100 * n,), (1,)) + b"s", {"0": zeros[:-4] + b"abcd"}, True)
    yield "deflated, a wrong byte", broken_crc(whole)
    views = b"".join(tensor(storage("0", n // 4), (n // 4,), (1,)) for _ in range(50))
    yield "viewed often", pt(b"](" + views + b"e", {"0": bytes(n)})
    views = b"".join(tensor(storage("0", n // 4), (n // 4,), (1,)) for _ in range(5000))
    yield "viewed too often", pt(b"](" + views + b"e", {"0": bytes(n)})
    yield "odd bools", pt(one + tensor(storage("0", 4, "BoolStorage"), (4,), (1,)) + b"s", {"0": b"\0\1\2\xff"})
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, *[0] * 7, 1, 0, 0, 0, 0, 0, 0) + b"a"
    yield "a directory of one name", ended(b"PK\3\4" + bytes(26), entry * (n // 47))
    named = b"".join(entry[:-1] + bytes([65 + i % 26]) for i in range(26)) + b"".join(
        struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, *[0] * 7, 6, 0, 0, 0, 0, 0, 0) + b"%06d" % i
        for i in range(n // 52)
    )
    yield "a directory of many names", ended(b"PK\3\4" + bytes(26), named)
    yield "overlapping", overlapping(n)


def ended(start: bytes, directory: bytes) -> bytes:
    """Return a zip of these entries and this directory, with the record at its end."""
    count = min(0xFFFE, directory.count(b"PK\1\2"))
    return start + directory + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), len(start), 0)


def broken_crc(whole: bytes) -> bytes:
    """Return the zip with the checksum of its last entry changed in the directory."""
    at = whole.rfind(b"PK\1\2") + 16
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


def overlapping(n: int) -> bytes:
    """A zip whose entries all are the bytes of one."""
    held = zlib.compressobj(9, zlib.DEFLATED, -15)
    raw = held.compress(bytes(100 * n)) + held.flush()
    local = struct.pack("<4s5HL2L2H", b"PK\3\4", 20, 0, 8, 0, 0, zlib.crc32(bytes(100 * n)), len(raw), 100 * n, 1, 0)
    directory = b"".join(
        struct.pack(
            "<4s6HL2L5H2L", b"PK\1\2", 20, 20, 0, 8, 0, 0, zlib.crc32(bytes(100 * n)), len(raw), 100 * n, len(name),
            0, 0, 0, 0, 0, 0,
        ) + name
        for name in (b"x/data.pkl", *(b"x/data/%d" % i for i in range(100)))
    )  # fmt: skip
    return ended(local + b"a" + raw, directory)


# safetensors


def safetensors(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def trees(n: int) -> Iterator[tuple[str, bytes]]:
    """Yield JSON of about n bytes, an object with one key."""
    for name, word in {"lists": b"[]", "objects": b"{}", "ones": b"[0]", "pairs": b'{"":0}', "nulls": b"0",
                       "lists of two": b"[[],[]]"}.items():  # fmt: skip
        yield name, b'{"a":[' + b",".join([word] * (n // (len(word) + 1))) + b"]}"
    yield "deep lists", b'{"a":' + b"[" * n + b"]" * n + b"}"
    yield "deep objects", b'{"a":' * n + b"0" + b"}" * n
    yield "many names", b"{" + b",".join(b'"%06d":{}' % i for i in range(n // 12)) + b"}"
    yield "a wide letter", '{"a":["😀'.encode() + b'","b' * (n // 4) + b'"]}'
    yield "long numbers", b'{"a":[' + b",".join([b"9" * 4200] * (n // 4201)) + b"]}"
    yield "a longer number", b'{"a":' + b"9" * n + b"}"
    yield "a float of many digits", b'{"a":0.' + b"9" * n + b"}"
    yield "tags", b'{"a":[' + b",".join([b'{"$tensor":"w"}'] * (n // 16)) + b"]}"
    pairs = b",".join(b"[%d,0]" % ((i + 1) * ((1 << 61) - 1)) for i in range(n // 24))
    yield "keys of one hash", b'{"a":{"$items":[' + pairs + b"]}}"


def tensorfiles(n: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield (name, reader, file)."""
    for name, tree in trees(n):
        yield f"header: {name}", "load", safetensors(tree)
        held = {"w": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}}
        inner = json.dumps({"__metadata__": {"minorm.tree": tree.decode()}, **held}, ensure_ascii=False).encode()
        yield f"tree: {name}", "load_training", safetensors(inner, b"\0")
        yield f"nest: {name}", "load", safetensors(inner, b"\0")
    names = ",".join(f'"{i}":{{"dtype":"U8","shape":[],"data_offsets":[{i},{i + 1}]}}' for i in range(n // 55))
    yield "scalars", "load", safetensors(f"{{{names}}}".encode(), bytes(n // 55))
    yield (
        "a shape of many axes",
        "load",
        safetensors(
            b'{"a":{"dtype":"F32","shape":['
            + b",".join([b"9223372036854775807"] * (n // 20))
            + b'],"data_offsets":[0,0]}}'
        ),
    )


# .npz and .npy


def npy(head: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(head) if length is None else length) + head + data


def arrays(n: int, **changed: Any) -> dict[str, Any]:
    side = max(1, int((100 * n / 8) ** 0.5))
    return {
        "x_train": np.zeros((4, side, side), np.uint8), "y_train": np.array([0, 1, 0, 1]),
        "x_test": np.zeros((4, side, side), np.uint8), "y_test": np.array([0, 1, 0, 1]), **changed,
    }  # fmt: skip


def npz(held: dict[str, Any], deflated: bool = True) -> bytes:
    """Return an .npz file of these arrays; bytes go in as they are."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
        for name, array in held.items():
            raw = io.BytesIO()
            if not isinstance(array, bytes):
                np.lib.format.write_array(raw, array)
            archive.writestr(f"{name}.npy", array if isinstance(array, bytes) else raw.getvalue())
    return file.getvalue()


def numpy_files(n: int) -> Iterator[tuple[str, bytes]]:
    side = max(1, int((100 * n / 8) ** 0.5))
    yield "zeros", npz(arrays(n))
    yield "one label less", npz(arrays(n, y_test=np.array([0, 1, 0])))
    yield "a negative label", npz(arrays(n, y_test=np.array([0, 1, 0, -1])))
    yield "a label of 62 bits", npz(arrays(n, y_train=np.array([0, 1, 0, 2**62])))
    wide = np.zeros((1, side * 2, side * 2), np.float32)
    wide[-1, -1, -1] = np.nan
    yield "a NaN at the end", npz(arrays(n, x_test=wide, x_train=wide, y_train=np.array([1]), y_test=np.array([1])))
    yield "a wrong checksum", broken_crc(npz(arrays(n)))
    tiny = np.zeros((100 * n, 1, 1), np.uint8)
    labels = np.zeros(100 * n, np.uint8)
    labels[0] = 1
    yield "tiny images", npz({"x_train": tiny, "y_train": labels, "x_test": tiny, "y_test": labels})
    yield "objects", npz(arrays(n, x_test=npy(b"{'descr': 'O', 'fortran_order': False, 'shape': (4, 3, 3), }\n")))
    form = b"{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n"
    heads = {
        "terabytes": form % (b"<f4", b"1000000, 1000000, 4"), "too large a shape": form % (b"<f4", b"9" * 30 + b","),
        "a long header": b"{'descr': '<f4', 'shape': (" + b"1," * n + b"), 'fortran_order': False}\n",
        "minuses": form % (b"<f4", b"-" * 9000 + b"1,"), "brackets": form % (b"<f4", b"(" * 9000 + b")" * 9000),
        "no text": b"\xff\xfe" * 50, "a structure": form % (b"f4,f4", b"4, 3, 3"), "texts": form % (b"<U99", b"4,3,3"),
        "half a word": b"{'descr': 'f4", "a negative axis": form % (b"<f4", b"-4, 3, 3"), "an indent": b"  {\n {\n  (",
        "a number of a type": form % (b"99999999999999999999f4", b"4, 3, 3"), "sums": b"1+" * 4000 + b"1\n",
    }  # fmt: skip
    for name, head in heads.items():
        yield name, npz(arrays(1, x_train=npy(head)))
        yield f"{name}, alone", npy(head)
    yield "a header of gigabytes", npz(arrays(1, x_train=npy(b" " * 100 * n, b"", 2**31)))
    yield "no header", npz(arrays(1, x_train=b""))
    yield "version 9", npz(arrays(1, x_train=b"\x93NUMPY\x09\0" + bytes(60)))


# Pictures


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *, depth: int = 8, colour: int = 2, extra: bytes = b"", raw: bytes | None = None,
        interlaced: int = 0, after: bytes = b"") -> bytes:  # fmt: skip
    """Return a PNG that is black, or has the rows of `raw`."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    if raw is None:
        raw = bytes((1 + (width * channels * depth + 7) // 8) * height)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    body = chunk(b"IDAT", zlib.compress(raw, 9)) if raw else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + body + after + chunk(b"IEND", b"")


def exif(n: int) -> bytes:
    """Return an EXIF directory of 5000 entries that all have the same n bytes."""
    entries = b"".join(struct.pack("<HHLL", 0x9000 + i % 4096, 7, n, 8) for i in range(5000))
    return b"II*\0" + struct.pack("<L", 8) + struct.pack("<H", 5000) + entries + bytes(4 + n)


def pictures(n: int) -> Iterator[tuple[str, bytes]]:
    from PIL import Image

    side = max(8, int((100 * n / 3) ** 0.5))
    large, rows = (6000, 3000) if n >= 50_000 else (600, 300)
    yield "black", png(side, side)
    yield "huge and empty", png(1 << 30, 1 << 30, raw=b"")
    yield "large and empty", png(10_000, 10_000, raw=b"")
    yield "large and cut off", png(10_000, 10_000, raw=bytes(10_000))
    yield "large, a wrong filter at the end", png(8000, rows, raw=bytes(24_001 * (rows - 1)) + b"\7" + bytes(24_000))
    yield "one column", png(1, 1 << 24, colour=0, raw=b"")
    yield "black of 16 bits", png(side, side, depth=16, colour=6)
    yield "see-through", png(side, side, colour=6)
    yield "grey of 16 bits", png(side, side, depth=16, colour=0)
    yield "bits", png(side, side, depth=1, colour=0)
    note = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20), 9))
    wide = chunk(b"iTXt", b"a\0\1\0\0\0" + zlib.compress("😀".encode() + b"a" * 1_000_000, 9))
    yield "notes", png(9, 9, extra=note * max(1, n // len(note)))
    yield "notes after", png(9, 9, after=note * max(1, n // len(note)))
    yield "wide notes", png(9, 9, extra=wide * max(1, n // len(wide)))
    yield "a profile", png(9, 9, extra=chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(300 * n), 9)))
    yield "many small chunks", png(9, 9, extra=chunk(b"tEXt", b"a\0") * (n // 14))
    yield "exif", png(9, 9, extra=chunk(b"eXIf", exif(n)))
    yield "frames", png(side, side, extra=chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)))
    for kind, options in (("JPEG", {}), ("JPEG", {"progressive": True}), ("WEBP", {}), ("WEBP", {"lossless": True})):
        for name, size in (("small", (64, 64)), ("flat", (side, side)), ("large", (large, large))):
            file = io.BytesIO()
            Image.new("RGB", size, "grey").save(file, kind, **options)
            raw = file.getvalue()
            label = f"{kind} {'progressive' if 'progressive' in options else 'lossless' if options else ''} {name}"
            yield label, raw
            yield f"{label}, cut off", raw[: len(raw) * 3 // 4]
            middle = len(raw) // 2
            yield f"{label}, damaged", raw[:middle] + bytes(min(20, middle)) + raw[middle + 20 :]
            if kind == "JPEG" and name == "small":
                segment = (
                    b"\xff\xe1" + struct.pack(">H", 65535) + (b"Exif\0\0" + exif(5000))[:65533].ljust(65533, b"\0")
                )
                yield f"{label}, exif", raw[:2] + segment * max(1, n // 65537) + raw[2:]
                yield f"{label}, many scans", raw[:-2] + raw[raw.rfind(b"\xff\xda") : -2] * (n // 100) + raw[-2:]
    canvas = b"VP8X" + struct.pack("<IB3x", 10, 0) + b"\xff\xff\x00" * 2
    body = b"WEBP" + canvas + raw[12:]
    yield "WebP of a large canvas", b"RIFF" + struct.pack("<I", len(body)) + body
    yield from bmps(n)
    yield from gifs(n)
    yield from tiffs(n)


def bmps(n: int) -> Iterator[tuple[str, bytes]]:
    side = max(8, int((n / 3) ** 0.5) // 4 * 4)

    def bmp(width: int, height: int, bits: int, packing: int = 0, colours: int = 0, data: bytes = b"") -> bytes:
        head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, packing, 0, 0, 0, colours, 0)
        return struct.pack("<2sIII", b"BM", 0, 0, 54) + head + data

    yield "BMP", bmp(side, side, 24, data=bytes(3 * side * side))
    yield "BMP of bits", bmp(8 * side, 3 * side, 1, data=bytes(8 + 4 * side * side))
    yield "BMP of bits, cut off", bmp(8 * side, 100 * side, 1, data=bytes(n))
    yield "BMP, huge and empty", bmp(1 << 30, 1 << 30, 24)
    yield "BMP, large and empty", bmp(11_000, 11_000, 24, data=bytes(n))
    yield "BMP of runs", bmp(11_000, 11_000, 8, 1, data=bytes(1024) + b"\0\2\xff\xff" * (n // 4))
    yield "BMP of many colours", bmp(8, 8, 8, colours=65536, data=bytes(4 * 65536 + 64))
    yield "BMP of one column", bmp(1, n // 4, 24, data=bytes(n))


def gifs(n: int) -> Iterator[tuple[str, bytes]]:
    from PIL import Image

    side = max(8, int((100 * n / 3) ** 0.5))
    file = io.BytesIO()
    Image.new("P", (side, side)).save(file, "GIF")
    raw = file.getvalue()
    yield "GIF", raw
    frame = raw[:-1]  # without the end
    for name, (width, height) in {"huge": (65535, 65535), "large": (11_000, 11_000), "wide": (8000, 7000)}.items():
        yield f"GIF of a {name} screen", raw[:6] + struct.pack("<HH", width, height) + raw[10:]
    at = raw.index(b",", 13)
    for name, (width, height) in {"huge": (65535, 65535), "large": (11_000, 11_000), "wide": (8000, 7000)}.items():
        yield f"GIF of a {name} frame", raw[: at + 5] + struct.pack("<HH", width, height) + raw[at + 9 :]
    yield "GIF, cut off", raw[: len(raw) * 2 // 3]
    yield "GIF of many frames", frame + frame[at:] * (n // len(frame[at:])) + b";"
    comment = b"!\xfe" + b"\xff" + bytes(255) + b"\0"
    yield "GIF of many comments", raw[:at] + comment * (n // len(comment)) + raw[at:]
    yield "GIF of short comments", raw[:at] + b"!\xfe\1a\0" * (n // 5) + raw[at:]
    yield "GIF of one comment", raw[:at] + b"!\xfe" + (b"\xff" + bytes(255)) * (n // 256) + b"\0" + raw[at:]
    yield "GIF of many controls", raw[:at] + b"!\xf9\4\x09\0\0\0\0" * (n // 8) + raw[at:]
    yield "GIF without an end", raw[:at] + b"!\xfe" + (b"\1a") * (n // 2)


def tiff(entries: dict[int, Any], data: bytes, extra: bytes = b"") -> bytes:
    """Pixels at 8, then a directory; lists are pairs of a type and bytes."""
    start = 8 + len(data) + len(data) % 2
    directory, lists = struct.pack("<H", len(entries) + len(extra) // 12), b""
    behind = start + 2 + 12 * len(entries) + len(extra) + 4
    for tag, value in sorted(entries.items()):
        kind, raw = value if isinstance(value, tuple) else (4, struct.pack("<I", value))
        count = len(raw) // {3: 2, 4: 4}[kind]
        if len(raw) > 4:
            raw, lists = struct.pack("<I", behind + len(lists)), lists + raw
        directory += struct.pack("<HHI", tag, kind, count) + raw.ljust(4, b"\0")
    return b"II*\0" + struct.pack("<I", start) + data.ljust(start - 8, b"\0") + directory + extra + bytes(4) + lists


def tiffs(n: int) -> Iterator[tuple[str, bytes]]:
    from PIL import Image

    side = max(8, int((100 * n / 3) ** 0.5))
    base: dict[int, Any] = {258: 8, 262: 1, 273: 8, 277: 1}
    for packing in ("tiff_lzw", "tiff_adobe_deflate", "packbits"):
        file = io.BytesIO()
        Image.new("RGB", (side, side)).save(file, "TIFF", compression=packing)
        yield f"TIFF packed by {packing}", file.getvalue()
        middle = len(file.getvalue()) // 2
        yield (
            f"TIFF packed by {packing}, damaged",
            file.getvalue()[:middle] + bytes(20) + file.getvalue()[middle + 20 :],
        )
    for number, name in {1: "plain", 5: "packed by LZW", 8: "packed by Deflate", 32773: "packed by PackBits"}.items():
        for width, height in ((1 << 30, 1 << 30), (11_000, 11_000), (8000, 7000), (1, 1 << 26)):
            sizes = {256: width, 257: height, 259: number, 278: height, 279: n}
            yield f"TIFF {name}, {width} x {height} and empty", tiff(base | sizes, bytes(n))
        deep = {256: 8000, 257: 3000, 258: (3, struct.pack("<4H", *[16] * 4)), 259: number, 262: 2, 277: 4, 278: 3000,
                279: n, 338: 2}  # fmt: skip
        yield f"TIFF {name}, of 64 bits", tiff(base | deep, bytes(n))
    strips = struct.pack("<H", 8) * (n // 2)
    many = {256: 1, 257: n // 2, 278: 1, 273: (3, strips), 279: (3, strips)}
    yield "TIFF of many strips", tiff(base | many, bytes(8))
    yield "TIFF packed, of many strips", tiff(base | many | {259: 5}, bytes(8))
    same = b"".join(struct.pack("<HHII", 256 + i % 100, 4, n // 4, 8) for i in range(5000))
    yield "TIFF of entries at the same bytes", tiff({}, bytes(n), same)
    others = b"".join(struct.pack("<HHII", 40_000 + i, 7, n, 8) for i in range(20_000))
    yield "TIFF of unknown entries", tiff(base | {256: 8, 257: 8, 278: 8, 279: 64}, bytes(n), others)
    yield "TIFF of a large tile", tiff(base | {256: 8, 257: 8, 322: 1 << 20, 323: 1 << 20, 324: 8, 325: n}, bytes(n))
    for packing, name in ((1, "plain"), (5, "packed")):
        small = {256: 8, 257: 8, 259: packing, 322: 1024, 323: 1024, 324: 8, 325: n}
        yield f"TIFF {name}, of a tile larger than it", tiff(base | small, bytes(max(n, 1 << 20)))
    yield "TIFF of a large palette", tiff(base | {256: 8, 257: 8, 262: 3, 320: (3, bytes(n))}, bytes(64))


# IDX and CIFAR-10


def idx_files(n: int) -> Iterator[tuple[str, bytes]]:
    import gzip

    head = bytes([0, 0, 8, 1]) + struct.pack(">I", 100 * n)
    yield "zeros", gzip.compress(head + bytes(100 * n))
    yield "cut off", gzip.compress(head + bytes(100 * n))[:-9]
    yield "more than said", gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", n) + bytes(100 * n))
    yield "less than said", gzip.compress(head + bytes(90 * n))
    yield "terabytes", gzip.compress(bytes([0, 0, 8, 3]) + struct.pack(">3I", *[2**32 - 1] * 3))
    yield "plain", head + bytes(100 * n)
    yield "many streams", gzip.compress(b"") * (n // 20)

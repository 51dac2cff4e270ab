"""Our pickle machine loads plain values as Python's does, and refuses every other opcode."""

from __future__ import annotations

import pickle
import pickletools
from collections import OrderedDict
from typing import Any

import pytest

from minorm.serialization.unpickling import MAX_KEY, Storage, Tensor, run

ROOM = 1 << 24
PLAIN = [
    None, True, False, 0, 255, 256, 65535, 65536, -1, 2**31, -(2**40), 2**200, 0.1, float("inf"), "", "a", "ü€😀" * 99,
    (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], list(range(2000)), {}, {"a": 1},
    dict.fromkeys(range(1500), "b"),
    {"a": {"b": [{"c": (1, [2, {None: True}])}]}, 1.5: "x", False: 2}, OrderedDict(a=1, b=OrderedDict(c=2)),
]  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(value)[:20])
def test_plain_values_come_back(value: Any, protocol: int) -> None:
    raw = pickle.dumps(value, protocol)
    assert run(raw, ROOM) == pickle.loads(raw) == value


def test_what_is_shared_stays_one() -> None:
    inner = [1]
    found = run(pickle.dumps([inner, inner, (inner,)], 4), ROOM)
    assert found[0] is found[1] is found[2][0]


def test_a_tensor_is_described() -> None:
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x003X\x03\0\0\0cpuK\x08tQ"
    raw = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x01(K\x02K\x03t(K\x03K\x01t\x89}tR."
    assert run(raw, ROOM) == Tensor(Storage("3", "FloatStorage", 8), 1, (2, 3), (3, 1))
    wrapped = b"\x80\x02ctorch._utils\n_rebuild_parameter\n" + raw[2:-1] + b"\x88}\x87R."
    assert run(wrapped, ROOM) == run(raw, ROOM)
    for short, message in ((b"K\x02K\x05t(", "does not fit"), (b"K\x02K\xfft(", "does not fit"), (b"K\x02t(", "axes")):
        with pytest.raises(ValueError, match=message):
            run(raw.replace(b"K\x02K\x03t(", short), ROOM)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"", "breaks off"), (b"N", "breaks off"), (b".", "damaged"), (b"N0.", "has the unknown opcode b'0'"),
        (b"cos\nsystem\n.", "the file names os.system, which minorm does not run"), (b"cos", "breaks off"),
        (b"X\xff\xff\xff\xffa", "not enough data"), (b"\x8d" + b"\xff" * 8, "not enough data"),
        (b"h\x07.", "damaged"), (b"u.", "damaged"), (b"(N" + b"\x86.", "damaged"), (b"(" * 2000, "nested more than"),
        (b"Na.", "damaged"), (b"]NNs.", "not a dict"), (b"}(NNNu.", "not a dict"), (b"NNb.", "object of a class"),
        (b"}]Ns.", "neither a text nor a number"), (b"})\x85\x85Ns.", "neither a text nor a number"),
        (b"})Ns.", "neither a text nor a number"), (b"}K\x01\x85Ns.", "neither a text nor a number"),
        (b"}(K\x01\x85NK\x02Nu.", "neither a text nor a number"),
        (b"ccollections\nOrderedDict\n]K\x01\x85N\x86a\x85R.", "neither a text nor a number"),
        (b"}" + pickle.dumps(MAX_KEY, 2)[2:-1] + b"Ns.", "more than 61 bits"),
        (b"NNR.", "it calls an object that is no function"),
        (b"ctorch\nFloatStorage\n)R.", "calls torch.FloatStorage"), (b"NQ.", "damaged"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))tR.", "a tensor does not consist of a storage"),
        (b"X\x02\0\0\0\xff\xff.", "damaged"), (b"c\xff\n\xff\n.", "damaged"),
    ],
)  # fmt: skip
def test_anything_else_is_a_sentence(program: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(b"\x80\x02" + program, ROOM)


KNOWN = """PROTO FRAME STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE
BINUNICODE8 EMPTY_DICT EMPTY_LIST EMPTY_TUPLE MARK BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET TUPLE1 TUPLE2 TUPLE3
TUPLE APPEND APPENDS SETITEM SETITEMS BUILD GLOBAL STACK_GLOBAL BINPERSID REDUCE"""


def test_every_other_word_is_refused() -> None:
    known = KNOWN.split()
    for word in pickletools.opcodes:
        if word.name not in known:
            with pytest.raises(ValueError, match="its pickle has the unknown opcode"):
                run(b"\x80\x02NN" + word.code.encode("latin-1") + bytes(300), ROOM)


def test_words_that_make_too_much_are_refused_before_they_do() -> None:
    for word in (b"}", b"]", b")", b"N", b"K\x01", b"]\x94", b"h\x00", b"N\x85", b"X\0\0\0\0", b"\x80\x02",
                 b"\x95" + bytes(8)):  # fmt: skip
        with pytest.raises(ValueError, match="far more objects, than a state_dict"):
            run(b"\x80\x02Nq\x00" + word * 100_000, 1 << 20)


def test_one_long_tuple_is_not_a_key_many_times() -> None:
    n = 100_000
    with pytest.raises(ValueError, match="neither a text nor a number"):
        run(b"\x80\x02(" + b"K\x01" * n + b"tq\x00}(" + b"h\x00N" * n + b"u.", 1 << 26)


@pytest.mark.parametrize("words", [b"(e", b"\x80\x02", b"\x95" + bytes(8)])
def test_words_that_make_nothing_are_counted(words: bytes) -> None:
    """A room of a megabyte has place for thousands of them, and not for a hundred thousand."""
    assert run(b"\x80\x02]" + words * 10_000 + b".", 1 << 20) == []
    with pytest.raises(ValueError, match="far more opcodes"):
        run(b"\x80\x02]" + words * 100_000 + b".", 1 << 20)

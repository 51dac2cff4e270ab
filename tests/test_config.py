"""show_config reports the build's findings; the number of threads is one number, wherever it is set."""

from __future__ import annotations

import re

import pytest
import threadpoolctl

import minorm_ext
from minorm import config
from minorm.kernels.cpu import memory


def test_show_config_prints_what_it_returns(capsys: pytest.CaptureFixture[str]) -> None:
    assert config.show_config() is None
    printed = capsys.readouterr().out
    facts = config.show_config(mode="dicts")
    assert capsys.readouterr().out == ""
    assert facts is not None
    assert [line.split(None, 1) for line in printed.splitlines()] == [[name, str(fact)] for name, fact in facts.items()]


def test_show_config_names_the_build() -> None:
    facts = config.show_config("dicts")
    assert facts is not None
    assert facts["minorm"] == config.__version__
    assert facts["kernels"] == minorm_ext.levels()[-1]
    assert facts["threads"] == config.get_num_threads()
    assert facts["compiler"] == minorm_ext.compiler()
    for library in threadpoolctl.threadpool_info():
        if library["user_api"] == "blas":
            assert library["internal_api"] in facts["blas"]


def test_show_config_tells_of_the_pool() -> None:
    kept = memory.empty((5_000_000,), "uint8")
    facts = config.show_config("dicts")
    assert facts is not None
    assert re.fullmatch(
        r"[\d,.]+ MB in use, [\d,.]+ MB idle \(at most [\d,.]+ MB\); [\d,]+ buffers reused, [\d,]+ fresh",
        facts["memory"],
    )
    assert float(facts["memory"].split()[0].replace(",", "")) >= kept.nbytes / 1e6


def test_show_config_says_when_the_build_is_serial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minorm_ext, "openmp", lambda: 0)
    facts = config.show_config("dicts")
    assert facts is not None
    assert facts["openmp"] == "no: the build is serial, kernels use one thread"
    monkeypatch.setattr(minorm_ext, "openmp", lambda: 201511)
    facts = config.show_config("dicts")
    assert facts is not None
    assert facts["openmp"] == "yes (201511)"


def test_show_config_mode() -> None:
    with pytest.raises(ValueError, match=r"show_config: mode='text'; expected 'stdout' or 'dicts'"):
        config.show_config("text")  # type: ignore[arg-type]


def test_threads_are_those_of_the_kernels() -> None:
    before = config.get_num_threads()
    try:
        config.set_num_threads(before + 1)
        assert minorm_ext.get_num_threads() == config.get_num_threads() == before + 1
    finally:
        config.set_num_threads(before)
    with pytest.raises(ValueError, match="set_num_threads: n=0; expected at least 1"):
        config.set_num_threads(0)


@pytest.mark.parametrize(("n", "said"), [
    (1025, "n=1025; expected at most 1024"),
    (10**6, "n=1000000; expected at most 1024"),
    (2**31, "n=2147483648; expected at most 1024"),
    (-(10**30), "n=-1000000000000000000000000000000; expected at least 1"),
])  # fmt: skip
def test_a_number_of_threads_that_is_never_given(n: int, said: str) -> None:
    before = config.get_num_threads()
    with pytest.raises(ValueError, match=f"set_num_threads: {said}"):
        config.set_num_threads(n)
    assert config.get_num_threads() == before

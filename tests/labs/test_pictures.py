"""Pictures have an alternative text in the notebook, and colours that people can read and tell apart."""

from __future__ import annotations

import ast
import base64
import itertools
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.labs import catalogue, cells

mpl = pytest.importorskip("matplotlib")
from matplotlib.colors import to_rgb  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from minorm import plots  # noqa: E402
from minorm.labs import pictures  # noqa: E402

SOLUTIONS = Path(__file__).resolve().parents[2] / "examples" / "labs" / "solutions"
COLOURS = {name: value for name, value in vars(plots).items() if re.fullmatch(r"#[0-9A-F]{6}", str(value))}
# The colours that protanopes, deuteranopes and tritanopes see: Machado, Oliveira and Fernandes 2009, severity 1, on
# linear RGB.
SEEN = {
    name: np.array(mixed).reshape(3, 3)
    for name, mixed in {
        "all cones": (1, 0, 0, 0, 1, 0, 0, 0, 1),
        "no red cones": (0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998),
        "no green cones": (0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881),
        "no blue cones": (1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039),
    }.items()
}
GUESSED = (0, 1, 4, 5, 9, 10, 11, 12)
numbered = pytest.mark.parametrize("number", catalogue.numbers())


def cielab(colour: str, seen: Any) -> Any:
    """Return L*, a*, b* under D65, for eyes that mix the channels like this."""
    channels = np.array(to_rgb(colour))
    light = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(seen @ light, 0, 1) / [0.9505, 1, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_powers_of_ten_on_an_axis_are_drawn_as_such() -> None:
    with mpl.rc_context(plots.STYLE):
        figure = Figure()
        axes = figure.subplots()
        axes.loglog([1, 1e6], [1, 1e6])
        figure.canvas.draw()
        labels = [label for label in axes.get_xticklabels() if label.get_text()]
    assert labels
    assert all(label.get_parse_math() for label in labels)


def plot_cells(number: int) -> list[str]:
    text = (SOLUTIONS / f"{catalogue.find(number).file}.py").read_text()
    return [cell.text for cell in cells.read_percent(text) if "plot" in cell.tags]


def test_contrast_is_wcags() -> None:
    assert pictures.contrast("black") == pytest.approx(21)
    assert pictures.contrast("white", "white") == 1
    assert pictures.contrast("#767676") == pytest.approx(4.54, abs=0.005)  # the lightest grey that passes
    assert pictures.contrast("#0000FF", "#FFFF00") == pytest.approx(8.00, abs=0.005)


def test_every_colour_stands_out_from_white() -> None:
    assert set(COLOURS) == {"BLUE", "VERMILLION", "GREY", "GREEN", "PURPLE", "ORANGE"}
    assert {name: value for name, value in COLOURS.items() if pictures.contrast(value) < 4.5} == {}


@pytest.mark.parametrize("eyes", SEEN)
def test_any_two_colours_differ_for_everybody(eyes: str) -> None:
    """By 15 in CIELAB, where 2 can be seen; Okabe and Ito's own come down to 10 for the same names."""
    places = {name: cielab(value, SEEN[eyes]) for name, value in COLOURS.items()}
    for one, other in itertools.combinations(COLOURS, 2):
        assert np.linalg.norm(places[one] - places[other]) > 15, (one, other)


def test_ink_can_be_read_on_every_colour() -> None:
    shades = [mpl.colormaps[name](share) for name in ("cividis", "Blues", "viridis") for share in np.linspace(0, 1, 50)]
    assert min(pictures.contrast(pictures.ink(shade), shade) for shade in shades) > 4.5
    assert pictures.ink("#FFFF00") == "black"
    assert pictures.ink("#0000FF") == "white"


@numbered
def test_what_is_written_on_colours_can_be_read(number: int) -> None:
    """(fill, ink), as labs with tables of colours have them; other literals are lines or text on white."""
    for text in plot_cells(number):
        pairs = re.findall(r'\((#?"?[\w#]+"?), "(black|white|#[0-9A-Fa-f]{6})"\)', text)
        for fill, on_it in pairs:
            colour = COLOURS.get(fill, fill.strip('"'))
            assert pictures.contrast(on_it, colour) >= 4.5, (fill, on_it)
        alone = re.sub(r'\("#[0-9A-Fa-f]{6}", "[^"]+"\)', "", text)
        for literal in re.findall(r'"(#[0-9A-Fa-f]{6})"', alone):
            assert pictures.contrast(literal) >= 4.5, literal
        for line in text.splitlines():
            assert "alpha=" not in line or "fill_between" in line, f"a line that is paler than its colour: {line}"


@numbered
def test_every_figure_has_a_text_that_says_what_is_to_be_seen(number: int) -> None:
    for text in plot_cells(number):
        assert "plt.show()" not in text
        tree = ast.parse(text)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        drawn = [node for node in calls if isinstance(node.func, ast.Attribute) and node.func.attr == "subplots"]
        shown = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "show"]
        assert len(drawn) == len(shown)
        for call in shown:
            figure, words = call.args
            assert isinstance(figure, ast.Name)
            parts = words.values if isinstance(words, ast.JoinedStr) else [words]
            said = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
            assert 100 <= len(said) <= 600, said
            assert said.endswith(".")


@pytest.mark.parametrize("number", GUESSED)
def test_a_student_guesses_before_each_picture_and_reads_the_answer_after_it(number: int) -> None:
    found = cells.read_percent((SOLUTIONS / f"{catalogue.find(number).file}.py").read_text())
    drawn = [place for place, cell in enumerate(found) if "plot" in cell.tags and "    figure,\n" in cell.text]
    assert drawn
    for place in drawn:
        before, after = found[place - 1], found[place + 1]
        assert before.markdown
        assert before.text.startswith("**Guess before you run.**")
        assert after.markdown
        assert after.text.startswith("**What you see.**")


def test_a_notebook_gets_the_text_with_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an <img> and as a PNG with metadata. A figure that stays open would be shown twice."""
    pytest.importorskip("IPython")
    sent: list[Any] = []
    display = types.ModuleType("IPython.display")
    display.display = lambda *what, **said: sent.append((what, said))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(mpl, "get_backend", lambda: "module://matplotlib_inline.backend_inline")
    closed: list[Any] = []
    monkeypatch.setattr(pictures.plt, "close", closed.append)
    figure = Figure()
    figure.subplots()
    pictures.show(figure, 'a "line" that rises by < 1')
    (((data,), said),) = sent
    assert said == {"raw": True, "metadata": {"image/png": {"alt": 'a "line" that rises by < 1'}}}
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/html"] == (
        f'<img alt="a &quot;line&quot; that rises by &lt; 1" src="data:image/png;base64,{data["image/png"]}">'
    )
    assert data["text/plain"] == 'a "line" that rises by < 1'
    assert closed == [figure]


def test_a_script_gets_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bool] = []
    monkeypatch.setattr(pictures.plt, "show", lambda: shown.append(True))
    monkeypatch.setattr(mpl, "get_backend", lambda: "agg")
    pictures.show(Figure(), "a line that rises")
    assert shown == [True]


def test_a_slider_draws_again_for_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    widgets = pytest.importorskip("ipywidgets")
    monkeypatch.setattr(pictures, "in_notebook", lambda: True)
    sliders: list[Any] = []
    make = widgets.SelectionSlider

    def made(**options: Any) -> Any:
        sliders.append(make(**options))
        return sliders[-1]

    monkeypatch.setattr(widgets, "SelectionSlider", made)
    drawn: list[tuple[float, ...]] = []
    pictures.slide(lambda *values: drawn.append(values), "momentum", [0.5, 0.9, 0.99], first=0.9, without=(0.1, 0.2))
    (slider,) = sliders
    assert drawn == [(0.9,)]
    assert slider.description == "momentum"
    slider.value = 0.99
    slider.value = 0.5
    assert drawn == [(0.9,), (0.99,), (0.5,)]


@pytest.mark.parametrize("lacking", ["ipywidgets", "a notebook"])
def test_without_widgets_there_is_one_picture_of_some_values(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "in_notebook", lambda: lacking == "ipywidgets")
    if lacking == "ipywidgets":
        monkeypatch.setattr(pictures.importlib.util, "find_spec", lambda name: None)
    drawn: list[tuple[float, ...]] = []
    pictures.slide(lambda *values: drawn.append(values), "momentum", [0.5, 0.9, 0.99], first=0.9, without=(0.1, 0.2))
    assert drawn == [(0.1, 0.2)]


@pytest.mark.parametrize("live", [True, False])
def test_lab_4_draws_one_momentum_under_a_slider_and_three_without(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab's own cells, with and without widgets."""
    if live:
        pytest.importorskip("ipywidgets")
    monkeypatch.setattr(pictures, "in_notebook", lambda: live)
    shown: list[Any] = []
    monkeypatch.setattr(pictures, "show", lambda figure, text: shown.append((figure, text)))
    text = (SOLUTIONS / f"{catalogue.find(4).file}.py").read_text()
    space: dict[str, Any] = {}
    for cell in cells.read_percent(text):
        if not cell.markdown and "check" not in cell.tags:
            exec(compile(cell.text, "lab 4", "exec"), space)
    (figure, said) = shown[-1]
    labels = [line.get_label() for line in figure.axes[0].lines[1:]]
    expected = ["0.9"] if live else ["0.3", "0.9", "0.98"]
    assert [label.split(":")[0] for label in labels] == [f"momentum {value}" for value in expected]
    assert all(value in said for value in expected)
    pictures.plt.close("all")


def test_powers_of_ten_are_read_as_formulas() -> None:
    """Else an axis of a lab says $\\mathdefault{10^{3}}$."""
    for style, read in ((plots.STYLE, True), (plots.PLAIN, False)):
        with mpl.rc_context(style):
            axes = Figure().subplots()
            axes.set_xscale("log")
            labels = axes.get_xticklabels()
            assert "$" in "".join(label.get_text() for label in labels)
            assert all(label.get_parse_math() is read for label in labels)

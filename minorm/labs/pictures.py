"""Shows pictures with a text for people who cannot see them, in colours that everybody can tell apart."""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb


def show(figure: Any, text: str) -> None:
    """Show a figure. text: a description of the figure, which a notebook keeps as the picture's alternative text

    The notebook gets the picture twice. Notebooks and nbconvert's HTML show the <img>, whose `alt` screen readers read.
    Other formats use the PNG, which has the text in its metadata. A script opens a window, which cannot show the text.
    """
    if in_notebook():
        from IPython.core.pylabtools import print_figure
        from IPython.display import display

        encoded = print_figure(figure, base64=True)
        image = f'<img alt="{html.escape(text)}" src="data:image/png;base64,{encoded}">'
        data = {"text/html": image, "image/png": encoded, "text/plain": text}
        display(data, raw=True, metadata={"image/png": {"alt": text}})
        plt.close(figure)  # or the backend shows it once more, without the text
    else:
        plt.show()


def slide(
    draw: Callable[..., None], name: str, values: Sequence[float], first: float, without: Sequence[float]
) -> None:
    """Show a slider over the values. Call `draw(first)`, and then `draw(value)` whenever the slider is moved.

    If there are no widgets (in a script, or in a notebook without ipywidgets), `draw(*without)` is called, which draws
    several values in one picture.
    """
    if not in_notebook() or importlib.util.find_spec("ipywidgets") is None:
        draw(*without)
        return
    import ipywidgets

    slider = ipywidgets.SelectionSlider(options=values, value=first, description=name, continuous_update=False)

    def moved(value: float) -> None:
        draw(value)

    ipywidgets.interact(moved, value=slider)


def in_notebook() -> bool:
    """Return whether pictures are shown in a notebook."""
    return "inline" in mpl.get_backend()


def luminance(colour: Any) -> float:
    """Return WCAG 2's relative luminance, 0.2126 R + 0.7152 G + 0.0722 B of linear light: 0 (black) to 1 (white)."""
    light = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2]


def contrast(one: Any, other: Any = "white") -> float:
    """Return (L + 0.05) / (l + 0.05) of two colours, from 1 to 21. WCAG 2 asks for at least 4.5 for text."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def ink(colour: Any) -> str:
    """Return black or white: the one that is easier to read on this colour. The contrast is at least 4.58."""
    return max("black", "white", key=lambda text: contrast(text, colour))

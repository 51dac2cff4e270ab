"""The documentation site: `python -m sphinx -W --keep-going docs docs/_build/html`. Warnings are errors; no network.

The pages are Markdown that reads well in the repository, too. `_ext` holds what is ours in the way they become a site:
links to files outside docs/, tables of contents, docstrings and the API reference. After a change there add -E.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from minorm.config import __version__  # noqa: E402  after sys.path

project = "minorm"
author = "the minorm developers"
copyright = "the minorm developers, BSD-3-Clause"
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.linkcode",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "repository",
    "contents",
    "docstrings",
    "figures",
    "reference",
]
exclude_patterns = ["_build", "_ext"]
smartquotes = False  # "cpu" in a docstring is code
nitpicky = False  # types in docstrings are words for readers, not targets

# Markdown; every heading is a target for links, and a link without a target is a warning
myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, "source": None}  # `source:` is repository.py's

# The tutorials run while they are built; one that fails ends the build
nb_execution_mode = "auto"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

# Docstrings name types, defaults and shapes; signatures would say the types twice
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autosummary_generate = False
add_module_names = False
python_maximum_signature_line_length = 96
toc_object_entries = False

html_theme = "furo"
html_title = f"minorm {version}"
html_static_path = ["_static"]
html_css_files = ["minorm.css"]
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

"""Defines the directive of docs/api: it takes a package or class, and documents the names below it.

    ```{reference} minorm.nn
    :summary:
    BatchNorm1d BatchNorm2d
    ```

Each name gets its docstring. With `:same-as: minorm.Tensor`, each name links to the equal method of Tensor instead.
`:summary:` begins with a table of the names; `:members:` adds the methods of classes.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOGGER = logging.getLogger(__name__)
HOMES = {  # how pages and docstrings call the packages
    "mn": "minorm",
    "minorm": "minorm",
    "Tensor": "minorm.Tensor",
    "nn": "minorm.nn",
    "Module": "minorm.nn.Module",
    "F": "minorm.functional",
    "init": "minorm.nn.init",
    "optim": "minorm.optim",
    "lr_scheduler": "minorm.optim.lr_scheduler",
    "autograd": "minorm.autograd",
    "data": "minorm.data",
    "transforms": "minorm.data.transforms",
    "onnx": "minorm.onnx",
    "training": "minorm.training",
    "distributed": "minorm.distributed",
}
NAME = re.compile(rf"(?P<home>{'|'.join(HOMES)})\.(?P<name>[A-Za-z_][\w.]*)(?:\(.*\))?")


def found(path: str) -> Any:
    """Return the package with this full name, or the object with this name in a package."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        package, _, name = path.rpartition(".")
        return getattr(found(package), name)


class Reference(SphinxDirective):
    """Shows the docstrings of some names."""

    required_arguments = 1
    has_content = True
    option_spec = {  # noqa: RUF012  docutils' own form
        "summary": directives.flag,
        "members": directives.flag,
        "same-as": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """Write Sphinx' own directives, and parse them as a part of the page."""
        where, names = self.arguments[0], " ".join(self.content).split()
        lines = ["````{eval-rst}", f".. currentmodule:: {where}", ""]
        if "summary" in self.options:
            lines += [".. autosummary::", "", *(f"   {name}" for name in names), ""]
        for name in names:
            lines += [*(self._same(where, name) if "same-as" in self.options else self._documented(where, name)), ""]
        parsed = self.parse_text_to_nodes("\n".join([*lines, "````"]))
        for name in names:
            if f"{where}.{name}" not in self.env.domains["py"].objects:
                LOGGER.warning("%s.%s has no place in the reference", where, name, location=self.get_location())
        return parsed

    def _documented(self, where: str, name: str) -> Iterator[str]:
        parent = found(where)
        value, path = inspect.getattr_static(parent, name, None), f"{where}.{name}"
        if value is None or not inspect.isclass(parent):
            value = getattr(parent, name)
        if inspect.isclass(parent):
            kind = "property" if isinstance(value, property) else "method" if callable(value) else "attribute"
        elif inspect.isclass(value) and value.__module__.startswith("minorm"):
            kind = "exception" if issubclass(value, BaseException) else "class"
        else:
            kind = "function" if inspect.isroutine(value) else "data"  # NumPy's classes are data here
        if kind == "data":
            yield from (f".. py:data:: {name}", f"   :value: {value!r}")
            return
        yield f".. auto{kind}:: {path}"
        if kind in ("class", "exception") and "members" in self.options:
            yield "   :members:"

    def _same(self, where: str, name: str) -> Iterator[str]:
        other, value = f"{self.options['same-as']}.{name}", getattr(found(where), name)
        kind = "class" if inspect.isclass(value) else "function"
        shown = str(_untyped(value)).replace("(self", "(input", 1) if kind == "function" else ""
        yield from (f".. py:{kind}:: {name}{shown}", "", f"   :py:obj:`{other}`")


def _untyped(value: Any) -> inspect.Signature:
    signature = inspect.signature(value)
    return signature.replace(
        parameters=[p.replace(annotation=p.empty) for p in signature.parameters.values()],
        return_annotation=signature.empty,
    )


def signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, given: str | None, returns: str | None
) -> tuple[str, str] | None:
    """Show a class with the signature that `inspect` finds (autodoc-process-signature).

    Without this, autodoc shows the (*args, **kwargs) of __new__.
    """
    if what == "class" and given and value.__module__.startswith("minorm"):
        return str(_untyped(value)), ""
    return None


class Named(SphinxTransform):
    """Links a name such as `nn.BatchNorm2d`, in a page or a docstring, to its place in the reference, if it has one."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Turn every literal that is a public name into a reference."""
        for literal in list(self.document.findall(nodes.literal)):
            match = NAME.fullmatch(literal.astext())
            if match and not isinstance(literal.parent, nodes.reference | nodes.title | addnodes.pending_xref):
                target = f"{HOMES[match['home']]}.{match['name']}"
                link = addnodes.pending_xref(
                    "", literal.deepcopy(), refdomain="py", reftype="obj", reftarget=target, refexplicit=True
                )
                link["refdoc"] = self.env.docname
                literal.replace_self(link)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("reference", Reference)
    app.add_transform(Named)
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True}

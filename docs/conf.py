"""Sphinx settings: Markdown by MyST, names of the package by autodoc, nothing fetched from a network."""

from __future__ import annotations

import re

from locum._version import __version__

project = "Locum"
author = "The Locum contributors"
copyright = "The Locum contributors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]

# Docstrings are numpydoc: what it does first, then limits.
napoleon_google_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_rtype = False
napoleon_use_param = False  # `low, high` may share an entry
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    # What scikit-learn adds to every estimator; it is described there.
    "exclude-members": "get_metadata_routing, set_fit_request, set_score_request, set_predict_request, "
    "set_transform_request",
}
autodoc_preserve_defaults = True
default_role = "code"  # `name` in a docstring is code
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = f"Locum {__version__}"
html_show_sphinx = False
html_copy_source = False


# numpy spells its aliases out, over three lines per parameter: give them their names back.
_ARRAY_LIKE = (
    "_Buffer | _SupportsArray[dtype[Any]] | _NestedSequence[_SupportsArray[dtype[Any]]] | complex | bytes | str"
    " | _NestedSequence[complex | bytes | str]"
)
_ARRAY = re.compile(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(?:\w+\[Any\]|\w+)\]\]")


def _short_types(app, what, name, obj, options, signature, returns):
    """`ArrayLike` and `ndarray` instead of what they stand for."""

    def short(text):
        text = re.sub(r"~(?:\w+\.)+", "", text)
        return _ARRAY.sub("ndarray", text.replace(_ARRAY_LIKE, "ArrayLike")).replace("<factory>", "...")

    return tuple(text and short(text) for text in (signature, returns))


def _keep_bars(app, what, name, obj, options, lines):
    """`|a - b|` in a docstring is a norm, not a substitution."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else line.replace("|", r"\|") for line in lines]


def setup(app):
    app.connect("autodoc-process-signature", _short_types)
    app.connect("autodoc-process-docstring", _keep_bars)

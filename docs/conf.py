"""Sphinx settings: Markdown by MyST, names of the package by autodoc, nothing fetched from a network."""

from __future__ import annotations

from understudy._version import __version__

project = "Understudy"
author = "The Understudy contributors"
copyright = "The Understudy contributors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]

# Docstrings are numpydoc: promise first, then limits.
napoleon_google_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = f"Understudy {__version__}"
html_show_sphinx = False
html_copy_source = False
# Pages work from a folder, without a web server and without fonts or scripts from elsewhere.
html_theme_options = {"sidebar_hide_name": False}

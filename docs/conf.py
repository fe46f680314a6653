"""Sphinx settings: Markdown by MyST, names of the package by autodoc, nothing fetched from a network.

Tutorials are text notebooks, executed when the pages are built: a cell that fails stops the build.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from locum._version import __version__

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
sys.path.insert(0, str(HERE / "_build_steps"))

project = "Locum"
author = "The Locum contributors"
copyright = "The Locum contributors"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "myst-nb"}
root_doc = "index"
# Pygments trips over a shell command in a cell that goes on in the next line; its second try is good.
suppress_warnings = ["misc.highlighting_failure"]
exclude_patterns = ["_build", "_build_steps", "_static"]

# Every notebook runs in an empty folder of its own, with the program of this environment.
nb_execution_mode = "force"
nb_execution_in_temp = True
# A cell that fails is a warning with its traceback, and `make docs` (-W) ends in an error after the last page.
# `nb_execution_raise_on_error` would stop at the first, without saying why.
nb_execution_show_tb = True
nb_execution_timeout = 900  # seconds per cell
nb_merge_streams = True
nb_number_source_lines = False

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
html_static_path = ["_static"]
html_css_files = ["notebook.css"]


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


def _fill_gallery(app, docname, source):
    """The page of examples gets one section per script."""
    if docname == "gallery":
        from gallery import MARK, gallery

        app.env.note_dependency(str(EXAMPLES))
        source[0] = source[0].replace(MARK, gallery(EXAMPLES))


def _spread_notebooks(app, env, docnames):
    """Pages that run code are spread evenly: Sphinx hands neighbors to one process, and the other would wait."""
    runs = {name for name in docnames if name == "gallery" or "{code-cell}" in Path(env.doc2path(name)).read_text()}
    others = [name for name in docnames if name not in runs]
    for i, name in enumerate(sorted(runs)):
        others.insert(round(i * len(docnames) / len(runs)), name)
    docnames[:] = others


def _prepare_kernels(app):
    """An IPython folder of our own, so that settings of whoever builds the pages change nothing."""
    home = Path(tempfile.mkdtemp(prefix="locum-docs-"))
    startup = home / "profile_default" / "startup"
    startup.mkdir(parents=True)
    shutil.copy(HERE / "_build_steps" / "notebook_startup.py", startup / "00-shell.py")
    quiet = home / "profile_default" / "ipython_kernel_config.py"
    quiet.write_text("get_config().IPKernelApp.log_level = 40\n")
    # No setting and no data of whoever builds the pages may reach a tutorial.
    for name in [name for name in os.environ if name.startswith("LOCUM_")]:
        del os.environ[name]
    # Tutorials start the program dozens of times: without bytecode each start compiles everything again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.update(
        IPYTHONDIR=str(home),
        PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        EXAMPLES=str(EXAMPLES),
        COLUMNS="100",
        OMP_NUM_THREADS="1",  # these data are small: more threads wait for each other
        PYTHONWARNINGS="ignore",
    )
    app.connect("build-finished", lambda app, error: shutil.rmtree(home, ignore_errors=True))


def setup(app):
    app.connect("builder-inited", _prepare_kernels)
    app.connect("env-before-read-docs", _spread_notebooks)
    app.connect("source-read", _fill_gallery)
    app.connect("autodoc-process-signature", _short_types)
    app.connect("autodoc-process-docstring", _keep_bars)

"""Sphinx's configuration of the documentation site: `make docs`."""

import hashlib
import os
import sys
from pathlib import Path

import fedcommons

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_site"))


def package_digest() -> str:
    """One for each state of the package's code: outputs of another state are not shown."""
    files = sorted((ROOT / "src").rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


# A notebook's kernel would warn of frozen modules.
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"

project = "fedcommons"
author = "The fedcommons authors"
copyright = author  # noqa: A001 (Sphinx's name)
version = release = fedcommons.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "docstrings",
    "mathml",
    "reference",
    "repository_links",
]
exclude_patterns = ["_site"]
highlight_language = "none"  # of indented blocks in docstrings: formulas, mostly

# Pages are Markdown that GitHub shows as well: nothing here but dollars for mathematics.
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # a section of a page may begin at any level
nb_execution_mode = "cache"  # executed again when its code changes, or the package's
nb_execution_cache_path = str(ROOT / "build" / "notebooks" / package_digest())
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_in_temp = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
add_module_names = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Types of NumPy, Flower and the standard library are named, not linked: that would need their
# inventories from the network. Everything else that leads nowhere fails the build.
nitpick_ignore_regex = [(r"py:.*", r".*")]

html_theme = "furo"
html_title = f"fedcommons {version}"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses for files
html_math_renderer = "mathml"
copybutton_exclude = ".linenos, .gp, .go"

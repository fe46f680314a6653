"""Runs first in the kernel of every tutorial: a shell command that fails must fail the build."""

import os
import subprocess
import warnings

from IPython import get_ipython

# Times and progress of libraries are not what a page is about.
warnings.filterwarnings("ignore")
# The kernel asks programs for colors and progress bars, as in a terminal; a page wants plain text.
for _name in ("FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
    os.environ.pop(_name, None)
os.environ.update(TERM="dumb", NO_COLOR="1")

shell_output = ""  # what the last shell command printed; checks in hidden cells read it


def _system(command):
    """`!command`: show what it prints, and raise if it fails. Jupyter alone would go on."""
    global shell_output
    command = get_ipython().var_expand(command, depth=1)
    done = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    shell_output = "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")
    if shell_output:
        print(shell_output)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode} of: {command}")


get_ipython().system = _system

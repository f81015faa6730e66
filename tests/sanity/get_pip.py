"""What ansible-test downloads as get-pip.py, without the download.

Installs pip into the environment that runs this, from the pip wheel in the
folder of this file whose version this file's name has: get_pip_24_2.py.
build-tools/sanity copies both to where ansible-test looks before it asks the
network.
"""

from __future__ import annotations

import os
import runpy
import sys

folder = os.path.dirname(os.path.abspath(__file__))
version = os.path.basename(__file__)[len("get_pip_"):-len(".py")].replace("_", ".")
sys.path.insert(0, os.path.join(folder, "pip-%s-py3-none-any.whl" % version))

# Options of get-pip.py that pip itself does not know.
options = [a for a in sys.argv[1:] if a not in ("--no-setuptools", "--no-wheel")]
sys.argv = ["pip", "install", "--no-index", "--find-links", folder, *options]
runpy.run_module("pip", run_name="__main__", alter_sys=True)

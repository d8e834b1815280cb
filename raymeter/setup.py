# SPDX-License-Identifier: Apache-2.0
"""Build in a temporary folder: `pip install ./raymeter` then leaves nothing in the clone, and finds nothing there.

setuptools copies all modules into build/ and packs that folder, with modules that have been deleted since an earlier
build.
"""

import tempfile

from setuptools import setup

with tempfile.TemporaryDirectory(prefix="raymeter-build-") as folder:
    setup(options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})

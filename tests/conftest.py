"""Compiled kernels are kept between runs, in a folder named after the sources they came from."""

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).parent.parent


def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "backfield").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# Numba notices an edit of a kernel's own file only; a stale kernel would test yesterday's code.
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".numba_cache" / _source_hash())

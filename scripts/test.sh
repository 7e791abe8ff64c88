#!/usr/bin/env bash
# Install what is missing and run the tests; arguments go to pytest: bash scripts/test.sh tests/recipes -k resume
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh dev

export OMP_NUM_THREADS=1
exec python -m pytest -n "${TEST_PROCESSES:-2}" --dist loadfile "$@"

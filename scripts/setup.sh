# Make the virtual environment once and install into it; source it: `source scripts/setup.sh [EXTRA]`.
# VENV names another folder for it.

VENV="${VENV:-.venv}"
wanted="$VENV/.installed-${1:-run}"
if [ ! -e "$wanted" ] || [ pyproject.toml -nt "$wanted" ]; then
    python3 -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".${1:+[$1]}"
    touch "$wanted"
fi
export PATH="$(cd "$VENV/bin" && pwd):$PATH"

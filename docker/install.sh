#!/bin/sh
# Builds the wheel of this checkout and installs it with some extras, everything at its pinned version, into a virtual environment of its
# own. The images do this, and a test does it without them.
#
#   sh docker/install.sh VENV [EXTRAS [TORCH_INDEX]]
#
# EXTRAS: serve, or serve,train. TORCH_INDEX: where torch comes from, if not from the usual place (https://download.pytorch.org/whl/cpu has wheels without CUDA).
set -eu

venv=$1
extras=${2:-serve}
torch_index=${3:-}
source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

pip wheel --quiet --no-deps --wheel-dir "$work" "$source"
if [ -n "$torch_index" ] && [ "$extras" != "${extras#*train}" ]; then
  pip install --quiet --no-deps --index-url "$torch_index" "$(grep '^torch==' "$source/constraints.txt")"
fi
wheel=$(find "$work" -name 'realm_qa-*.whl')
pip install --quiet --constraint "$source/constraints.txt" "$wheel[$extras]"

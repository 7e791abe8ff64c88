"""The packed BAGEL model: a unified decoder with two sets of weights, a SigLIP NaViT tower and a frozen VAE.

A pack (many samples end to end, no padding) goes through in one piece::

    SimpleCustomBatch --PackedInputs.from_batch--> PackedInputs
        text ids ------------ embed_tokens -------------------------\\
        ViT patches --------- vit_model, connector, + position -----+--> rows [und | gen]
        latents --patchify, noise-- vae2llm, + time, + position ----/        |
                                                                        MoT layers: two experts, one attention
        CE   = lm_head at the labelled rows    (per token)     <----------- |
        MSE  = llm2vae at the noised rows      (per token, 64) <-----------/

Rows stand understanding-first through the whole decoder, so that each expert works on one contiguous slice; the order
of the pack is restored around attention alone, where ``masks`` says who sees whom.

Method: "Emerging Properties in Unified Multimodal Pretraining" (Deng et al., 2025). Parameter names are those of the
published BAGEL-7B-MoT.
"""

from recipes.models.bagel.checkpoint import DenseWeights, PublishedWeights, load_published, published_state_dict
from recipes.models.bagel.config import BagelConfig, LlmConfig, VisionConfig
from recipes.models.bagel.flops import TokenFlops
from recipes.models.bagel.inputs import PackedInputs
from recipes.models.bagel.model import Bagel, BagelOutput

__all__ = [
    "Bagel",
    "BagelConfig",
    "BagelOutput",
    "DenseWeights",
    "LlmConfig",
    "PackedInputs",
    "PublishedWeights",
    "TokenFlops",
    "VisionConfig",
    "load_published",
    "published_state_dict",
]

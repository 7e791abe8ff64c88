"""Data for multimodal training: rows packed into token budgets, and caches of latents in shape buckets.

::

    multimodal/   raw rows   -> samples -> packs  -> SimpleCustomBatch
    diffusion/    latent files -> buckets -> batches

Both families stand on the modules of this package and do not know each other.
"""
